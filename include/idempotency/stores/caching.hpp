#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "idempotency/detail/cache_table.hpp"
#include "idempotency/detail/planted.hpp"
#include "idempotency/detail/transaction_types.hpp"
#include "idempotency/store.hpp"

namespace idempotency {
inline namespace v0 {

struct CachingStoreOptions {
  /// What entries and their table may take, in bytes. An entry may take a half of a stripe, of which there are up
  /// to 16. At least 1.
  std::size_t max_bytes = std::size_t{64} << 20U;
  /// Ends entries. Null is the host's steady clock; one that jumps would let entries outlive their records.
  /// Must outlive the store.
  const Clock* clock = nullptr;
};

/// A store whose finished records are answered from this process' memory.
///
/// It keeps what cannot change any more: results and permanent failures, after the store has confirmed them. What is
/// running, uncertain or may be tried again is always asked of the inner store. An entry ends no later than
/// the record's retention and is compared with the request's fingerprint like the record itself. What was
/// completed in a transaction is kept from the first duplicate on.
///
/// It can do what the inner store can: it is an `AdminStore`, `BatchStore`, `BatchBeginStore` or
/// `TransactionalStore` when the inner one is.
///
/// Errors: those of the inner store; `Errc::invalid_argument` when `max_bytes` is 0.
/// Thread safety: all members may be called concurrently.
/// Lifetime: borrows the inner store, which must outlive it; must outlive the guards that borrow it.
///
/// Example: `CachingStore cache{database, {.max_bytes = 16 << 20}}; IdempotencyGuard guard{cache};`
template <class Inner>
class CachingStore : public detail::TransactionTypes<Inner> {
  static_assert(Store<Inner>,
                "idempotency: CachingStore needs a store to borrow: a type that satisfies "
                "idempotency::Store.");

 public:
  explicit CachingStore(Inner& inner, const CachingStoreOptions& options = {})
      : inner_(&inner), table_(options.max_bytes, options.clock) {}
  explicit CachingStore(const Inner&& inner, const CachingStoreOptions& options = {}) = delete;

  [[nodiscard]] BeginOutcome begin(const BeginRequest& request) {
    if (std::optional<BeginOutcome> known = table_.answer(request)) return *std::move(known);
    const Timestamp sent = table_.now();
    BeginOutcome outcome = inner_->begin(request);
    table_.learn(request, outcome, sent);
    return outcome;
  }

  /// Asks the inner store for those that are not known here.
  [[nodiscard]] std::vector<std::optional<BeginOutcome>> begin_many(
      const std::vector<BeginRequest>& requests) requires BatchBeginStore<Inner> {
    std::vector<std::optional<BeginOutcome>> known;
    std::vector<BeginRequest> unknown;
    known.reserve(requests.size());
    for (const BeginRequest& request : requests) {
      known.push_back(table_.answer(request));
      if (!known.back()) unknown.push_back(request);
    }
    const Timestamp sent = table_.now();
    std::vector<std::optional<BeginOutcome>> answers;
    if (!unknown.empty()) answers = inner_->begin_many(unknown);
    for (std::size_t at = 0, answered = 0; at < requests.size(); ++at) {
      if (known[at]) continue;
      known[at] = std::move(answers[answered++]);
      if (known[at]) table_.learn(requests[at], *known[at], sent);
    }
    return known;
  }

  [[nodiscard]] WriteOutcome issue(const IssueRequest& request) requires IssuingStore<Inner> {
    return inner_->issue(request);
  }

  [[nodiscard]] WriteOutcome complete(const Key& key, const Ownership& by,
                                      const Completion& completion) {
    const std::optional<Note> note = table_.take_note(key, by);
    const Timestamp sent = table_.now();
    if (note && detail::planted(detail::PlantedBug::cache_filled_before_write)) {
      table_.keep(key, by.fence, *note, completion, sent);
    }
    const WriteOutcome outcome = inner_->complete(key, by, completion);
    if (note && outcome == WriteOutcome::stored) {
      table_.keep(key, by.fence, *note, completion, sent);
    }
    return outcome;
  }

  [[nodiscard]] WriteOutcome fail(const Key& key, const Ownership& by, const Failure& failure,
                                  std::chrono::milliseconds retention) {
    const std::optional<Note> note = table_.take_note(key, by);
    const Timestamp sent = table_.now();
    const WriteOutcome outcome = inner_->fail(key, by, failure, retention);
    if (note && outcome == WriteOutcome::stored) {
      table_.keep(key, by.fence, *note, failure, retention, sent);
    }
    return outcome;
  }

  [[nodiscard]] WriteOutcome doubt(const Key& key, const Ownership& by) {
    return inner_->doubt(key, by);
  }
  [[nodiscard]] WriteOutcome mark_effect(const Key& key, const Ownership& by) {
    return inner_->mark_effect(key, by);
  }
  [[nodiscard]] WriteOutcome renew(const Key& key, const Ownership& by,
                                   std::chrono::milliseconds lease) {
    return inner_->renew(key, by, lease);
  }
  [[nodiscard]] std::vector<WriteOutcome> renew_many(const std::vector<Renewal>& renewals) requires
      BatchStore<Inner> {
    return inner_->renew_many(renewals);
  }
  ReleaseOutcome release(const Key& key, const Ownership& by,
                         std::chrono::milliseconds retention) noexcept {
    return inner_->release(key, by, retention);
  }
  /// Always asks the inner store.
  [[nodiscard]] std::optional<Record> find(const Key& key) { return inner_->find(key); }

  [[nodiscard]] RecordPage list(const RecordFilter& filter, const std::string& cursor,
                                std::size_t limit) requires AdminStore<Inner> {
    return inner_->list(filter, cursor, limit);
  }
  [[nodiscard]] WriteOutcome resolve(const Record& seen,
                                     const Resolution& resolution) requires AdminStore<Inner> {
    const WriteOutcome outcome = inner_->resolve(seen, resolution);
    table_.forget(seen.key);
    return outcome;
  }
  std::size_t purge(std::size_t limit) requires AdminStore<Inner> { return inner_->purge(limit); }
  [[nodiscard]] StoreStatistics statistics() requires AdminStore<Inner> {
    return inner_->statistics();
  }

  /// What the inner store gives.
  [[nodiscard]] std::optional<Record> peek(const Key& key) requires detail::CanPeek<Inner> {
    return inner_->peek(key);
  }
  [[nodiscard]] auto open_transaction(const TransactionOptions& options) requires
      TransactionalStore<Inner> {
    return inner_->open_transaction(options);
  }
  template <class ConnectionT>
    requires TransactionalStore<Inner>
  [[nodiscard]] auto open_transaction(ConnectionT connection, const TransactionOptions& options) {
    return inner_->open_transaction(connection, options);
  }
  /// What the transaction itself has written is not committed yet and so is never kept.
  template <class TransactionT>
    requires TransactionalStore<Inner>
  [[nodiscard]] BeginOutcome begin(TransactionT& transaction, const BeginRequest& request) {
    if (std::optional<BeginOutcome> known = table_.answer(request)) return *std::move(known);
    return inner_->begin(transaction, request);
  }
  template <class TransactionT>
    requires TransactionalStore<Inner>
  [[nodiscard]] WriteOutcome complete(TransactionT& transaction, const Key& key,
                                      const Ownership& by, const Completion& completion) {
    return inner_->complete(transaction, key, by, completion);
  }
  template <class TransactionT>
    requires TransactionalStore<Inner>
  [[nodiscard]] bool is_joined(TransactionT& transaction) { return inner_->is_joined(transaction); }
  template <class TransactionT>
    requires TransactionalStore<Inner>
  void commit(TransactionT& transaction) { inner_->commit(transaction); }
  template <class TransactionT>
    requires TransactionalStore<Inner>
  void rollback(TransactionT& transaction) noexcept { inner_->rollback(transaction); }

  [[nodiscard]] Inner& inner() noexcept { return *inner_; }
  [[nodiscard]] CacheStatistics cache_statistics() const { return table_.statistics(); }

 private:
  using Note = detail::CacheTable::Note;

  Inner* inner_;
  detail::CacheTable table_;
};

}  // namespace v0
}  // namespace idempotency
