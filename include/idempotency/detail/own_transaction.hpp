#pragma once

#include "idempotency/error.hpp"
#include "idempotency/store.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail {

/// `work(transaction)` in a transaction of its own on one of the store's connections, committed when it returns. What the server
/// rolled back (a deadlock), and a commit whose answer was lost, are repeated: `work` must answer a repetition as it answered
/// the first time.
template <TransactionalStore StoreT, class Work>
auto in_own_transaction(StoreT& store, Work&& work) {
  constexpr int most_attempts = 3;
  for (int attempt = 1;; ++attempt) {
    try {
      auto transaction = store.open_transaction(TransactionOptions{});
      try {
        auto result = work(transaction);
        store.commit(transaction);
        return result;
      } catch (...) {
        store.rollback(transaction);
        throw;
      }
    } catch (const Error& error) {
      const bool may_repeat =
          error.code() == Errc::transaction_lost || error.code() == Errc::commit_unknown;
      if (!may_repeat || attempt == most_attempts) throw;
    }
  }
}

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
