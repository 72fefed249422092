#pragma once

#include <cstddef>
#include <idempotency/stores/sqlite.hpp>
#include <string>
#include <utility>

#include "bank_client.hpp"

namespace shop {

/// Finds out what became of payments whose outcome is not known, and settles their records.
///
/// Under `hold` nobody starts such a payment again by itself: the process that ran it was killed, or the
/// bank's answer is missing. The bank is asked for the charge under the payment's derived key. It knows the charge:
/// the record becomes a success, with the receipt that the customer should have had. It knows of none, and
/// none can arrive any more: the record becomes free for the next attempt.
///
/// Call `settle_open_payments` now and then; a record that cannot be settled yet is left for the next time.
class Settler {
 public:
  /// Each settlement is also a line of JSON at the end of the file `journal`.
  Settler(idempotency::SqliteStore& store, const BankClient& bank, std::string journal)
      : store_(&store), bank_(&bank), journal_(std::move(journal)) {}

  /// What one pass has done.
  struct Pass {
    std::size_t settled = 0;
    std::size_t failed = 0;  ///< could not be asked about or written; reported on stderr
  };

  /// Goes through the open payments. One that cannot be settled now is reported and left for a later pass, and the others
  /// are settled all the same. When a page's failures say that bank or store are away, the pass ends early and the next one
  /// goes on behind that page: no pass waits for hundreds of time-outs, and no payment starves behind others.
  ///
  /// Errors: those of `list`.
  Pass settle_open_payments();

 private:
  void settle_all(idempotency::RecordState state, std::string& cursor, Pass& pass);
  void settle(const idempotency::Record& record, Pass& pass);
  void write_down(const idempotency::Record& record, const char* verdict) const;

  idempotency::SqliteStore* store_;
  const BankClient* bank_;
  std::string journal_;
  std::string after_uncertain_;  ///< where the next pass begins; empty: at the start
  std::string after_processing_;
};

}  // namespace shop
