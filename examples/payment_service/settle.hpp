#pragma once

#include <cstddef>
#include <functional>
#include <idempotency/stores/any.hpp>
#include <optional>
#include <string>
#include <utility>

#include "bank_client.hpp"
#include "ledger.hpp"

namespace shop {

/// Finds out what became of operations of one type whose outcome is not known, and settles their records.
///
/// Under `hold` nobody starts such an operation again by itself: the process that ran it was killed, or the
/// other system's answer is missing. That system is asked. It knows the operation: the record becomes a success, with
/// the result that the caller should have had. It knows of none, and none can arrive any more: the record becomes free
/// for the next attempt.
///
/// Call `settle_what_is_open` now and then; a record that cannot be settled yet is left for the next time.
class Settler {
 public:
  /// Asks the other system: the encoded result that the operation should have had, or nothing when it is not known there.
  /// Throws when there is no answer.
  using Ask = std::function<std::optional<std::string>(const idempotency::Key&)>;

  /// Each settlement is also a line of JSON at the end of the file `journal`.
  Settler(idempotency::AnyAdminStore& store, std::string type, Ask ask, std::string journal)
      : store_(&store),
        type_(std::move(type)),
        ask_(std::move(ask)),
        journal_(std::move(journal)) {}

  /// What one pass has done.
  struct Pass {
    std::size_t settled = 0;
    std::size_t failed = 0;  ///< could not be asked about or written; reported on stderr
  };

  /// Goes through the open records. One that cannot be settled now is reported and left for a later pass, and the others
  /// are settled all the same. When a page's failures say that the other system or the store is away, the pass ends early
  /// and the next one goes on behind that page: no pass waits for hundreds of time-outs, and none starves behind others.
  ///
  /// Errors: those of `list`.
  Pass settle_what_is_open();

 private:
  void settle_all(idempotency::RecordState state, std::string& cursor, Pass& pass);
  void settle(const idempotency::Record& record, Pass& pass);
  void write_down(const idempotency::Record& record, const char* verdict) const;

  idempotency::AnyAdminStore* store_;
  std::string type_;
  Ask ask_;
  std::string journal_;
  std::string after_uncertain_;  ///< where the next pass begins; empty: at the start
  std::string after_processing_;
};

/// Asks the bank for a payment's charge. Lifetime: borrows the bank.
[[nodiscard]] Settler::Ask ask_bank(const BankClient& bank);

/// Asks the ledger for a booking's entry. Lifetime: borrows the ledger.
[[nodiscard]] Settler::Ask ask_ledger(Ledger& ledger);

}  // namespace shop
