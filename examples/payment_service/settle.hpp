#pragma once

#include <idempotency/stores/sqlite.hpp>
#include <string>

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

  /// One that cannot be settled now is reported on stderr and left for the next pass. Errors: those of `list`.
  void settle_open_payments();

 private:
  void settle_all(idempotency::RecordState state);
  void settle(const idempotency::Record& record);
  void write_down(const idempotency::Record& record, const char* verdict) const;

  idempotency::SqliteStore* store_;
  const BankClient* bank_;
  std::string journal_;
};

}  // namespace shop
