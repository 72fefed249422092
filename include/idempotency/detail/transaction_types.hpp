#pragma once

#include "idempotency/store.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail {

/// What a store over another store names of its transactions: the other's, where it has any.
template <class Inner>
struct TransactionTypes {};

template <TransactionalStore Inner>
struct TransactionTypes<Inner> {
  using Transaction = typename Inner::Transaction;
  using Connection = typename Inner::Connection;
};

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
