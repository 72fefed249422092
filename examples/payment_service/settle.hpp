#pragma once

#include <functional>
#include <idempotency/operations/reconciler.hpp>
#include <idempotency/policy.hpp>
#include <memory>
#include <optional>
#include <string>

#include "bank_client.hpp"
#include "ledger.hpp"

namespace shop {

/// Asks the other system: the encoded result that the operation should have had, or nothing when it is not known there.
/// Throws when there is no answer.
using Ask = std::function<std::optional<std::string>(const idempotency::Key&)>;

/// Asks the bank for a payment's charge. Lifetime: borrows the bank.
[[nodiscard]] Ask ask_bank(const BankClient& bank);

/// Asks the ledger for a booking's entry. Lifetime: borrows the ledger.
[[nodiscard]] Ask ask_ledger(Ledger& ledger);

/// What is to be settled, and where that is written down.
struct SettlerOptions {
  std::string type;
  Ask ask;
  std::string journal;                     ///< a file: each settlement is a line of JSON at its end
  idempotency::PolicyTable policies = {};  ///< the guard's own
};

/// Finds out what became of operations of one type whose outcome is not known, and settles their records.
///
/// Under `hold` nobody starts such an operation again by itself: the process that ran it was killed, or the
/// other system's answer is missing. That system is asked. It knows the operation: the record becomes a success, with
/// the result that the caller should have had. It knows of none, and none can arrive any more, because it refuses what comes
/// after the operation's `patience`: the record becomes free for the next attempt.
///
/// Lifetime: borrows the store.
[[nodiscard]] std::unique_ptr<idempotency::Reconciler> make_settler(idempotency::AnyStore& store,
                                                                    const SettlerOptions& options);

}  // namespace shop
