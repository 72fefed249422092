#pragma once

#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "idempotency/detail/ports.hpp"
#include "idempotency/execution.hpp"
#include "idempotency/observer.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail {

/// `call()`, whose duration the observer is told when it was answered.
template <class Work>
decltype(auto) timed(Observer& observer, const Key& key, StoreCall call, Work work) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point began = Clock::now();
  decltype(auto) answer = work();
  observer.on_store_answered(key, call, Clock::now() - began);
  return answer;
}

/// Tells an observer, where there is one, how long the scope took.
class TimedWait {
 public:
  TimedWait(Observer* observer, const Key& key) noexcept : observer_(observer), key_(&key) {
    if (observer_ != nullptr) began_ = std::chrono::steady_clock::now();
  }
  TimedWait(const TimedWait&) = delete;
  TimedWait& operator=(const TimedWait&) = delete;
  ~TimedWait() {
    if (observer_ != nullptr) {
      observer_->on_waited(*key_, std::chrono::steady_clock::now() - began_);
    }
  }

 private:
  Observer* observer_;
  const Key* key_;
  std::chrono::steady_clock::time_point began_{};
};

/// A store that tells an observer how long its answers take.
class TimedStorePort final : public StorePort {
 public:
  TimedStorePort(StorePort& store, Observer& observer) noexcept
      : store_(&store), observer_(&observer) {}

  BeginOutcome begin(const BeginRequest& request) override {
    return timed(*observer_, request.key, StoreCall::begin, [&] { return store_->begin(request); });
  }
  [[nodiscard]] bool begins_many() const noexcept override { return store_->begins_many(); }
  /// Each of them has waited for the whole.
  std::vector<std::optional<BeginOutcome>> begin_many(
      const std::vector<BeginRequest>& requests) override {
    const auto began = std::chrono::steady_clock::now();
    std::vector<std::optional<BeginOutcome>> outcomes = store_->begin_many(requests);
    const auto took = std::chrono::steady_clock::now() - began;
    for (const BeginRequest& request : requests) {
      observer_->on_store_answered(request.key, StoreCall::begin, took);
    }
    return outcomes;
  }
  WriteOutcome complete(const Key& key, const Ownership& by,
                        const Completion& completion) override {
    return timed(*observer_, key, StoreCall::complete,
                 [&] { return store_->complete(key, by, completion); });
  }
  WriteOutcome fail(const Key& key, const Ownership& by, const Failure& failure,
                    std::chrono::milliseconds retention) override {
    return timed(*observer_, key, StoreCall::fail,
                 [&] { return store_->fail(key, by, failure, retention); });
  }
  WriteOutcome doubt(const Key& key, const Ownership& by) override {
    return timed(*observer_, key, StoreCall::doubt, [&] { return store_->doubt(key, by); });
  }
  WriteOutcome mark_effect(const Key& key, const Ownership& by) override {
    return timed(*observer_, key, StoreCall::mark_effect,
                 [&] { return store_->mark_effect(key, by); });
  }
  WriteOutcome renew(const Key& key, const Ownership& by,
                     std::chrono::milliseconds lease) override {
    return timed(*observer_, key, StoreCall::renew, [&] { return store_->renew(key, by, lease); });
  }
  ReleaseOutcome release(const Key& key, const Ownership& by,
                         std::chrono::milliseconds retention) noexcept override {
    return timed(*observer_, key, StoreCall::release,
                 [&] { return store_->release(key, by, retention); });
  }
  std::optional<Record> find(const Key& key) override {
    return timed(*observer_, key, StoreCall::find, [&] { return store_->find(key); });
  }
  [[nodiscard]] bool batches() const noexcept override { return store_->batches(); }
  std::vector<WriteOutcome> renew_many(const std::vector<Renewal>& renewals) override {
    return store_->renew_many(renewals);
  }
  [[nodiscard]] bool issues() const noexcept override { return store_->issues(); }
  WriteOutcome issue(const IssueRequest& request) override { return store_->issue(request); }

 private:
  StorePort* store_;
  Observer* observer_;
};

/// A transaction that tells an observer how long its record's statements and its commit take.
class TimedTransactionPort final : public TransactionPort {
 public:
  TimedTransactionPort(TransactionPort& transaction, Observer& observer) noexcept
      : transaction_(&transaction), observer_(&observer) {}

  std::optional<Record> peek(const Key& key) override { return transaction_->peek(key); }
  void open(const TransactionOptions& options) override { transaction_->open(options); }
  BeginOutcome begin(const BeginRequest& request) override {
    key_ = request.key;
    return timed(*observer_, request.key, StoreCall::begin,
                 [&] { return transaction_->begin(request); });
  }
  WriteOutcome complete(const Key& key, const Ownership& by,
                        const Completion& completion) override {
    return timed(*observer_, key, StoreCall::complete,
                 [&] { return transaction_->complete(key, by, completion); });
  }
  [[nodiscard]] bool is_joined() override { return transaction_->is_joined(); }
  [[nodiscard]] bool is_callers() const noexcept override { return transaction_->is_callers(); }
  void commit() override {
    if (!key_) return transaction_->commit();
    timed(*observer_, *key_, StoreCall::commit, [&] {
      transaction_->commit();
      return true;
    });
  }
  void rollback() noexcept override { transaction_->rollback(); }

 private:
  TransactionPort* transaction_;
  Observer* observer_;
  std::optional<Key> key_;
};

/// A handler that tells an observer how long it ran, however it ended.
class TimedHandlerPort final : public HandlerPort {
 public:
  TimedHandlerPort(HandlerPort& handler, Observer& observer) noexcept
      : handler_(&handler), observer_(&observer) {}

  HandlerReport invoke(Execution& execution) override {
    using Clock = std::chrono::steady_clock;
    struct Told {
      Observer& observer;
      const Key& key;
      Clock::time_point began = Clock::now();
      ~Told() { observer.on_handler_ended(key, Clock::now() - began); }
    } const told{*observer_, execution.key()};
    return handler_->invoke(execution);
  }
  [[nodiscard]] bool takes_execution() const noexcept override {
    return handler_->takes_execution();
  }

 private:
  HandlerPort* handler_;
  Observer* observer_;
};

/// `run(port)` with a handler that tells the observer, where there is one, how long it ran.
template <class Run>
auto with_timed_handler(Observer* observer, HandlerPort& handler, Run run) {
  if (observer == nullptr) return run(handler);
  TimedHandlerPort timed(handler, *observer);
  return run(static_cast<HandlerPort&>(timed));
}

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
