#pragma once

#include <array>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "idempotency/detail/transaction_types.hpp"
#include "idempotency/observer.hpp"
#include "idempotency/store.hpp"
#include "idempotency/testing/fault_script.hpp"

namespace idempotency {
inline namespace v0 {
namespace testing {

/// The calls of an `AdminStore`, which can go wrong like those of a `Store`.
enum class AdminCall : std::uint8_t { list, resolve, purge, statistics };

/// A store between a test and another store that loses requests and replies, delays them and times out.
///
/// Without a script it does what the inner store does; it is an `AdminStore`, `BatchStore` or `TransactionalStore` when
/// the inner one is. `renew_many` counts as one `renew`, `begin_many` as one `begin`. A `release` that goes wrong answers `unknown`. A `commit`
/// that goes wrong throws `Errc::commit_unknown` after the inner commit (`reply_lost`) or after a roll-back
/// (`timed_out`), otherwise `Errc::transaction_lost` after a roll-back.
///
/// Thread safety: all members may be called concurrently.
/// Lifetime: borrows the inner store, which must outlive it.
///
/// Example: `FaultyStore faulty{store}; faulty.on(StoreCall::complete).fail_next(3, Fault::reply_lost);`
template <class Inner>
class FaultyStore : public idempotency::detail::TransactionTypes<Inner> {
  static_assert(Store<Inner>,
                "idempotency: FaultyStore needs a store to borrow: a type that satisfies "
                "idempotency::Store.");

  using milliseconds = std::chrono::milliseconds;

 public:
  explicit FaultyStore(Inner& inner) : inner_(&inner) {}
  explicit FaultyStore(const Inner&& inner) = delete;
  FaultyStore(const FaultyStore&) = delete;
  FaultyStore& operator=(const FaultyStore&) = delete;

  /// The script for one kind of call. Lifetime: the store's.
  [[nodiscard]] FaultScript& on(StoreCall call) {
    return scripts_.at(static_cast<std::size_t>(call));
  }
  [[nodiscard]] FaultScript& on(AdminCall call) {
    return admin_scripts_.at(static_cast<std::size_t>(call));
  }
  /// Lets calls of every kind go wrong by chance.
  void fail_randomly(std::uint64_t seed, const FaultProbabilities& probabilities) {
    for_each_script([&, kind = std::uint64_t{0}](FaultScript& script) mutable {
      script.fail_randomly(seed + 0x9e3779b97f4a7c15ULL * ++kind, probabilities);
    });
  }
  /// Forgets all scripts and hooks; requests that are held stay held.
  void heal() {
    for_each_script([](FaultScript& script) { script.heal(); });
  }
  [[nodiscard]] std::size_t calls(StoreCall call) { return on(call).calls(); }
  [[nodiscard]] std::size_t faults(StoreCall call) { return on(call).faults(); }

  /// Lets the requests of calls that timed out arrive, oldest first; says how many. Their answers and errors
  /// reach nobody.
  std::size_t deliver_held() {
    std::vector<std::function<void()>> held;
    {
      const std::scoped_lock lock(mutex_);
      held.swap(held_);
    }
    for (const std::function<void()>& request : held) {
      try {
        request();
      } catch (const Error&) {  // nobody waits for it
        continue;
      }
    }
    return held.size();
  }
  /// Forgets the requests of calls that timed out, as when they never arrive.
  void drop_held() {
    const std::scoped_lock lock(mutex_);
    held_.clear();
  }

  [[nodiscard]] BeginOutcome begin(const BeginRequest& request) {
    return perform(on(StoreCall::begin),
                   [inner = inner_, request] { return inner->begin(request); });
  }
  [[nodiscard]] std::vector<std::optional<BeginOutcome>> begin_many(
      const std::vector<BeginRequest>& requests) requires BatchBeginStore<Inner> {
    return perform(on(StoreCall::begin),
                   [inner = inner_, requests] { return inner->begin_many(requests); });
  }
  [[nodiscard]] WriteOutcome issue(const IssueRequest& request) requires IssuingStore<Inner> {
    return perform(on(StoreCall::begin),
                   [inner = inner_, request] { return inner->issue(request); });
  }
  [[nodiscard]] WriteOutcome complete(const Key& key, const Ownership& by,
                                      const Completion& completion) {
    return perform(on(StoreCall::complete), [inner = inner_, key, by, completion] {
      return inner->complete(key, by, completion);
    });
  }
  [[nodiscard]] WriteOutcome fail(const Key& key, const Ownership& by, const Failure& failure,
                                  milliseconds retention) {
    return perform(on(StoreCall::fail), [inner = inner_, key, by, failure, retention] {
      return inner->fail(key, by, failure, retention);
    });
  }
  [[nodiscard]] WriteOutcome doubt(const Key& key, const Ownership& by) {
    return perform(on(StoreCall::doubt),
                   [inner = inner_, key, by] { return inner->doubt(key, by); });
  }
  [[nodiscard]] WriteOutcome mark_effect(const Key& key, const Ownership& by) {
    return perform(on(StoreCall::mark_effect),
                   [inner = inner_, key, by] { return inner->mark_effect(key, by); });
  }
  [[nodiscard]] WriteOutcome renew(const Key& key, const Ownership& by, milliseconds lease) {
    return perform(on(StoreCall::renew),
                   [inner = inner_, key, by, lease] { return inner->renew(key, by, lease); });
  }
  [[nodiscard]] std::vector<WriteOutcome> renew_many(const std::vector<Renewal>& renewals) requires
      BatchStore<Inner> {
    return perform(on(StoreCall::renew),
                   [inner = inner_, renewals] { return inner->renew_many(renewals); });
  }
  ReleaseOutcome release(const Key& key, const Ownership& by, milliseconds retention) noexcept {
    try {
      return perform(on(StoreCall::release), [inner = inner_, key, by, retention] {
        return inner->release(key, by, retention);
      });
    } catch (...) {
      return ReleaseOutcome::unknown;
    }
  }
  [[nodiscard]] std::optional<Record> find(const Key& key) {
    return perform(on(StoreCall::find), [inner = inner_, key] { return inner->find(key); });
  }

  [[nodiscard]] RecordPage list(const RecordFilter& filter, const std::string& cursor,
                                std::size_t limit) requires AdminStore<Inner> {
    return perform(on(AdminCall::list), [inner = inner_, filter, cursor, limit] {
      return inner->list(filter, cursor, limit);
    });
  }
  [[nodiscard]] WriteOutcome resolve(const Record& seen,
                                     const Resolution& resolution) requires AdminStore<Inner> {
    return perform(on(AdminCall::resolve),
                   [inner = inner_, seen, resolution] { return inner->resolve(seen, resolution); });
  }
  std::size_t purge(std::size_t limit) requires AdminStore<Inner> {
    return perform(on(AdminCall::purge), [inner = inner_, limit] { return inner->purge(limit); });
  }
  [[nodiscard]] StoreStatistics statistics() requires AdminStore<Inner> {
    return perform(on(AdminCall::statistics), [inner = inner_] { return inner->statistics(); });
  }

  [[nodiscard]] std::optional<Record> peek(const Key& key) requires
      idempotency::detail::CanPeek<Inner> {
    return perform(on(StoreCall::find), [inner = inner_, key] { return inner->peek(key); });
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
  template <class TransactionT>
    requires TransactionalStore<Inner>
  [[nodiscard]] BeginOutcome begin(TransactionT& transaction, const BeginRequest& request) {
    return perform_now(on(StoreCall::begin), [&] { return inner_->begin(transaction, request); });
  }
  template <class TransactionT>
    requires TransactionalStore<Inner>
  [[nodiscard]] WriteOutcome complete(TransactionT& transaction, const Key& key,
                                      const Ownership& by, const Completion& completion) {
    return perform_now(on(StoreCall::complete),
                       [&] { return inner_->complete(transaction, key, by, completion); });
  }
  template <class TransactionT>
    requires TransactionalStore<Inner>
  [[nodiscard]] bool is_joined(TransactionT& transaction) { return inner_->is_joined(transaction); }
  template <class TransactionT>
    requires TransactionalStore<Inner>
  void commit(TransactionT& transaction) {
    FaultScript& script = on(StoreCall::commit);
    const std::optional<Fault> fault = script.enter();
    if (!fault || *fault == Fault::reply_lost) {
      inner_->commit(transaction);
      script.leave();
      if (!fault) return;
    } else {
      inner_->rollback(transaction);
    }
    if (*fault == Fault::reply_lost || *fault == Fault::timed_out) {
      throw Error(Errc::commit_unknown, "a test lost the reply to COMMIT; run the operation again");
    }
    throw Error(Errc::transaction_lost, "a test lost the transaction; repeat all of it");
  }
  template <class TransactionT>
    requires TransactionalStore<Inner>
  void rollback(TransactionT& transaction) noexcept { inner_->rollback(transaction); }

  [[nodiscard]] Inner& inner() noexcept { return *inner_; }

 private:
  template <class Call>
  auto perform_now(FaultScript& script, Call call) {
    return perform_or(script, std::move(call), [](const Call&) {});
  }

  /// `call` holds copies of its arguments, so that it can arrive later.
  template <class Call>
  auto perform(FaultScript& script, Call call) {
    return perform_or(script, std::move(call), [this](const Call& request) {
      const std::scoped_lock lock(mutex_);
      held_.emplace_back([request] { static_cast<void>(request()); });
    });
  }

  template <class Call, class Hold>
  auto perform_or(FaultScript& script, Call call, Hold hold) {
    const std::optional<Fault> fault = script.enter();
    if (fault == Fault::timed_out) hold(call);
    if (fault && *fault != Fault::reply_lost) throw error_of(*fault);
    auto answer = call();
    script.leave();
    if (fault) throw error_of(*fault);
    return answer;
  }

  template <class Visit>
  void for_each_script(Visit visit) {
    for (FaultScript& script : scripts_)
      visit(script);
    for (FaultScript& script : admin_scripts_)
      visit(script);
  }

  Inner* inner_;
  std::array<FaultScript, static_cast<std::size_t>(StoreCall::commit) + 1> scripts_;
  std::array<FaultScript, static_cast<std::size_t>(AdminCall::statistics) + 1> admin_scripts_;
  std::mutex mutex_;
  std::vector<std::function<void()>> held_;
};

}  // namespace testing
}  // namespace v0
}  // namespace idempotency
