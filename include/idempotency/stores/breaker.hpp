#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "idempotency/detail/circuit_breaker.hpp"
#include "idempotency/detail/transaction_types.hpp"
#include "idempotency/store.hpp"

namespace idempotency {
inline namespace v0 {

/// A store behind a circuit breaker: while the other store cannot be reached, new work is refused at once instead of
/// each call waiting for the time limit of a connection.
///
/// Refused is what begins work: `begin`, `begin_many`, `issue`, `open_transaction` on a connection of the store's, `list`,
/// `purge`, `statistics`. What belongs to work that has begun always goes to the store, so that the
/// breaker never costs a result or a lease: `complete`, `fail`, `doubt`, `mark_effect`, renewals, `release`, `find`, `resolve`,
/// everything within a transaction, and what says `WorkStage::under_way`.
///
/// Failures are `Errc::store_unavailable`, `store_reply_lost` and `commit_unknown`, and a `release` without an answer.
/// Duplicates, mismatches and refusals are answers. `store_busy` and `transaction_lost` are neither, nor is the success of what need not ask
/// the store (opening a transaction, completing in it, committing, purging).
///
/// In the half-open state one caller looks for a record that is not there; when that is answered, its own call and all others go through.
///
/// It can do what the inner store can. A cache belongs over it: `CachingStore` goes on answering what is finished.
///
/// Errors: those of the inner store; `Errc::store_unavailable`, with nothing sent, while it refuses;
/// `Errc::invalid_argument` for options out of range.
/// Thread safety: all members may be called concurrently.
/// Lifetime: borrows the inner store, which must outlive it; must outlive the guards that borrow it.
///
/// Example: `BreakerStore breaker{redis, {.failure_threshold = 5}}; IdempotencyGuard guard{breaker};`
template <class Inner>
class BreakerStore : public detail::TransactionTypes<Inner> {
  static_assert(Store<Inner>,
                "idempotency: BreakerStore needs a store to borrow: a type that satisfies "
                "idempotency::Store.");

 public:
  explicit BreakerStore(Inner& inner, BreakerOptions options = {})
      : inner_(&inner), breaker_(std::move(options)) {}
  explicit BreakerStore(const Inner&& inner, BreakerOptions options = {}) = delete;

  [[nodiscard]] BeginOutcome begin(const BeginRequest& request) {
    if (request.stage == WorkStage::under_way) {
      return let_through([&] { return inner_->begin(request); });
    }
    return admitted([&] { return inner_->begin(request); });
  }
  [[nodiscard]] std::vector<std::optional<BeginOutcome>> begin_many(
      const std::vector<BeginRequest>& requests) requires BatchBeginStore<Inner> {
    if (requests.empty()) return {};
    return admitted([&] { return inner_->begin_many(requests); });
  }
  [[nodiscard]] WriteOutcome issue(const IssueRequest& request) requires IssuingStore<Inner> {
    return admitted([&] { return inner_->issue(request); });
  }

  [[nodiscard]] WriteOutcome complete(const Key& key, const Ownership& by,
                                      const Completion& completion) {
    return let_through([&] { return inner_->complete(key, by, completion); });
  }
  [[nodiscard]] WriteOutcome fail(const Key& key, const Ownership& by, const Failure& failure,
                                  std::chrono::milliseconds retention) {
    return let_through([&] { return inner_->fail(key, by, failure, retention); });
  }
  [[nodiscard]] WriteOutcome doubt(const Key& key, const Ownership& by) {
    return let_through([&] { return inner_->doubt(key, by); });
  }
  [[nodiscard]] WriteOutcome mark_effect(const Key& key, const Ownership& by) {
    return let_through([&] { return inner_->mark_effect(key, by); });
  }
  [[nodiscard]] WriteOutcome renew(const Key& key, const Ownership& by,
                                   std::chrono::milliseconds lease) {
    return let_through([&] { return inner_->renew(key, by, lease); });
  }
  [[nodiscard]] std::vector<WriteOutcome> renew_many(const std::vector<Renewal>& renewals) requires
      BatchStore<Inner> {
    if (renewals.empty()) return {};
    return let_through([&] { return inner_->renew_many(renewals); });
  }
  ReleaseOutcome release(const Key& key, const Ownership& by,
                         std::chrono::milliseconds retention) noexcept {
    auto pass = breaker_.let_through();
    const ReleaseOutcome outcome = inner_->release(key, by, retention);
    if (outcome == ReleaseOutcome::unknown) {
      pass.failed(Errc::store_reply_lost);
    } else {
      pass.reached();
    }
    return outcome;
  }
  [[nodiscard]] std::optional<Record> find(const Key& key) {
    return let_through([&] { return inner_->find(key); });
  }

  [[nodiscard]] RecordPage list(const RecordFilter& filter, const std::string& cursor,
                                std::size_t limit) requires AdminStore<Inner> {
    return admitted([&] { return inner_->list(filter, cursor, limit); });
  }
  [[nodiscard]] WriteOutcome resolve(const Record& seen,
                                     const Resolution& resolution) requires AdminStore<Inner> {
    return let_through([&] { return inner_->resolve(seen, resolution); });
  }
  std::size_t purge(std::size_t limit) requires AdminStore<Inner> {
    return admitted_unanswered([&] { return inner_->purge(limit); });
  }
  [[nodiscard]] StoreStatistics statistics() requires AdminStore<Inner> {
    return admitted([&] { return inner_->statistics(); });
  }

  /// Nothing while it refuses: then there is no looking ahead.
  [[nodiscard]] std::optional<Record> peek(const Key& key) requires detail::CanPeek<Inner> {
    if (state() != BreakerState::closed) return std::nullopt;
    return let_through_unanswered([&] { return inner_->peek(key); });
  }
  [[nodiscard]] auto open_transaction(const TransactionOptions& options) requires
      TransactionalStore<Inner> {
    if (options.stage == WorkStage::under_way) {
      return let_through_unanswered([&] { return inner_->open_transaction(options); });
    }
    return admitted_unanswered([&] { return inner_->open_transaction(options); });
  }
  /// Neither refused nor counted: the connection is the caller's.
  template <class ConnectionT>
    requires TransactionalStore<Inner>
  [[nodiscard]] auto open_transaction(ConnectionT connection, const TransactionOptions& options) {
    return inner_->open_transaction(connection, options);
  }
  template <class TransactionT>
    requires TransactionalStore<Inner>
  [[nodiscard]] BeginOutcome begin(TransactionT& transaction, const BeginRequest& request) {
    return let_through([&] { return inner_->begin(transaction, request); });
  }
  template <class TransactionT>
    requires TransactionalStore<Inner>
  [[nodiscard]] WriteOutcome complete(TransactionT& transaction, const Key& key,
                                      const Ownership& by, const Completion& completion) {
    return let_through_unanswered(
        [&] { return inner_->complete(transaction, key, by, completion); });
  }
  template <class TransactionT>
    requires TransactionalStore<Inner>
  [[nodiscard]] bool is_joined(TransactionT& transaction) { return inner_->is_joined(transaction); }
  template <class TransactionT>
    requires TransactionalStore<Inner>
  void commit(TransactionT& transaction) {
    let_through_unanswered([&] { inner_->commit(transaction); });
  }
  template <class TransactionT>
    requires TransactionalStore<Inner>
  void rollback(TransactionT& transaction) noexcept { inner_->rollback(transaction); }

  [[nodiscard]] Inner& inner() noexcept { return *inner_; }
  /// Of this moment; it may be another when you look at it.
  [[nodiscard]] BreakerState state() const noexcept { return breaker_.state(); }

 private:
  template <class Call>
  auto admitted(Call call) {
    auto pass = breaker_.admit();
    if (!pass.is_probe()) return pass.watch(call);
    look(pass);
    return let_through(call);
  }
  /// For a call whose success says nothing: some stores purge nothing, and open nothing before they have to.
  template <class Call>
  auto admitted_unanswered(Call call) {
    auto pass = breaker_.admit();
    if (!pass.is_probe()) return pass.watch_failures(call);
    look(pass);
    return let_through_unanswered(call);
  }
  /// What tries whether the store is back is no call of a user's, which may wait for another's record.
  void look(detail::CircuitBreaker::Pass& pass) {
    static_cast<void>(pass.watch([this] { return inner_->find(Key("breaker", "look")); }));
  }
  template <class Call>
  auto let_through(Call call) {
    auto pass = breaker_.let_through();
    return pass.watch(call);
  }
  template <class Call>
  auto let_through_unanswered(Call call) {
    auto pass = breaker_.let_through();
    return pass.watch_failures(call);
  }

  Inner* inner_;
  detail::CircuitBreaker breaker_;
};

}  // namespace v0
}  // namespace idempotency
