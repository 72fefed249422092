#pragma once

#include <optional>
#include <utility>

#include "idempotency/detail/ports.hpp"
#include "idempotency/store.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail {

/// Transactions of one store, on its own connections or on the caller's, behind the engine's port.
template <TransactionalStore StoreT>
class TransactionPortOf final : public TransactionPort {
 public:
  explicit TransactionPortOf(StoreT& store) noexcept : store_(&store) {}
  TransactionPortOf(StoreT& store, typename StoreT::Connection connection) noexcept
      : store_(&store), connection_(std::move(connection)) {}
  ~TransactionPortOf() override { TransactionPortOf::rollback(); }

  std::optional<Record> peek(const Key& key) override {
    if constexpr (CanPeek<StoreT>) {
      return store_->peek(key);
    } else {
      return std::nullopt;
    }
  }
  void open(const TransactionOptions& options) override {
    transaction_.reset();
    if (connection_) {
      transaction_.emplace(store_->open_transaction(*connection_, options));
    } else {
      transaction_.emplace(store_->open_transaction(options));
    }
    joined_ = store_->is_joined(*transaction_);
  }
  BeginOutcome begin(const BeginRequest& request) override {
    return store_->begin(*transaction_, request);
  }
  WriteOutcome complete(const Key& key, const Ownership& by,
                        const Completion& completion) override {
    return store_->complete(*transaction_, key, by, completion);
  }
  [[nodiscard]] bool is_joined() override { return joined_; }
  [[nodiscard]] bool is_callers() const noexcept override { return connection_.has_value(); }
  void commit() override {
    // Ended whatever comes of it: a transaction whose commit failed is never used again.
    auto ending = std::exchange(transaction_, std::nullopt);
    store_->commit(*ending);
  }
  void rollback() noexcept override {
    if (!transaction_) return;
    store_->rollback(*transaction_);
    transaction_.reset();
  }
  [[nodiscard]] typename StoreT::Transaction& transaction() noexcept { return *transaction_; }

 private:
  StoreT* store_;
  std::optional<typename StoreT::Connection> connection_;
  std::optional<typename StoreT::Transaction> transaction_;
  bool joined_ = false;
};

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
