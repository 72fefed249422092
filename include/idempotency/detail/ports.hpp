#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "idempotency/policy.hpp"
#include "idempotency/store.hpp"

namespace idempotency {
inline namespace v0 {

class Execution;

namespace detail {

/// What renews leases, as their keeper sees it.
class RenewalPort {
 public:
  RenewalPort() = default;
  RenewalPort(const RenewalPort&) = delete;
  RenewalPort& operator=(const RenewalPort&) = delete;
  virtual ~RenewalPort() = default;

  /// Whether `renew_many` is one exchange; otherwise rows are renewed one by one, side by side.
  [[nodiscard]] virtual bool batches() const noexcept = 0;
  virtual std::vector<WriteOutcome> renew_many(const std::vector<Renewal>& renewals) = 0;
  /// How many calls of `renew_many` may be under way at once, each on a thread of its own.
  [[nodiscard]] virtual std::size_t most_at_once() const noexcept { return 4; }
};

/// A store as the engine sees it, whatever its type. Same meaning and errors as the concept's members.
class StorePort : public RenewalPort {
 public:
  virtual BeginOutcome begin(const BeginRequest& request) = 0;
  /// Whether `begin_many` is one exchange; otherwise it begins nothing.
  [[nodiscard]] virtual bool begins_many() const noexcept { return false; }
  virtual std::vector<std::optional<BeginOutcome>> begin_many(
      const std::vector<BeginRequest>& requests);
  virtual WriteOutcome complete(const Key& key, const Ownership& by,
                                const Completion& completion) = 0;
  virtual WriteOutcome fail(const Key& key, const Ownership& by, const Failure& failure,
                            std::chrono::milliseconds retention) = 0;
  virtual WriteOutcome doubt(const Key& key, const Ownership& by) = 0;
  virtual WriteOutcome mark_effect(const Key& key, const Ownership& by) = 0;
  virtual WriteOutcome renew(const Key& key, const Ownership& by,
                             std::chrono::milliseconds lease) = 0;
  virtual ReleaseOutcome release(const Key& key, const Ownership& by,
                                 std::chrono::milliseconds retention) noexcept = 0;
  virtual std::optional<Record> find(const Key& key) = 0;
  /// Whether `issue` can do anything but throw.
  [[nodiscard]] virtual bool issues() const noexcept { return false; }
  virtual WriteOutcome issue(const IssueRequest& request);
};

template <Store StoreT>
class StorePortOf final : public StorePort {
 public:
  explicit StorePortOf(StoreT& store) noexcept : store_(&store) {}

  BeginOutcome begin(const BeginRequest& request) override { return store_->begin(request); }
  [[nodiscard]] bool begins_many() const noexcept override {
    if constexpr (requires { store_->begins_many(); }) {  // a store chosen at run time
      return store_->begins_many();
    } else {
      return BatchBeginStore<StoreT>;
    }
  }
  std::vector<std::optional<BeginOutcome>> begin_many(
      const std::vector<BeginRequest>& requests) override {
    if constexpr (BatchBeginStore<StoreT>) {
      return store_->begin_many(requests);
    } else {
      return StorePort::begin_many(requests);
    }
  }
  WriteOutcome complete(const Key& key, const Ownership& by,
                        const Completion& completion) override {
    return store_->complete(key, by, completion);
  }
  WriteOutcome fail(const Key& key, const Ownership& by, const Failure& failure,
                    std::chrono::milliseconds retention) override {
    return store_->fail(key, by, failure, retention);
  }
  WriteOutcome doubt(const Key& key, const Ownership& by) override {
    return store_->doubt(key, by);
  }
  WriteOutcome mark_effect(const Key& key, const Ownership& by) override {
    return store_->mark_effect(key, by);
  }
  WriteOutcome renew(const Key& key, const Ownership& by,
                     std::chrono::milliseconds lease) override {
    return store_->renew(key, by, lease);
  }
  ReleaseOutcome release(const Key& key, const Ownership& by,
                         std::chrono::milliseconds retention) noexcept override {
    return store_->release(key, by, retention);
  }
  std::optional<Record> find(const Key& key) override { return store_->find(key); }
  [[nodiscard]] bool batches() const noexcept override {
    if constexpr (requires { store_->batches(); }) {  // a store chosen at run time
      return store_->batches();
    } else {
      return BatchStore<StoreT>;
    }
  }
  std::vector<WriteOutcome> renew_many(const std::vector<Renewal>& renewals) override {
    if constexpr (BatchStore<StoreT>) {
      return store_->renew_many(renewals);
    } else {
      std::vector<WriteOutcome> outcomes;
      for (const Renewal& renewal : renewals) {
        outcomes.push_back(store_->renew(renewal.key, renewal.ownership, renewal.lease));
      }
      return outcomes;
    }
  }
  [[nodiscard]] bool issues() const noexcept override {
    if constexpr (requires { store_->issues(); }) {
      return store_->issues();
    } else {
      return IssuingStore<StoreT>;
    }
  }
  WriteOutcome issue(const IssueRequest& request) override {
    if constexpr (IssuingStore<StoreT>) {
      return store_->issue(request);
    } else {
      return StorePort::issue(request);
    }
  }

 private:
  StoreT* store_;
};

/// Stands in for what is no store, so that the guard's own sentence is the only error.
class NoStorePort final : public StorePort {
 public:
  template <class T>
  explicit NoStorePort(T& /*store*/) noexcept {}
  BeginOutcome begin(const BeginRequest&) override { return Uncertain{}; }
  WriteOutcome complete(const Key&, const Ownership&, const Completion&) override {
    return WriteOutcome::lost;
  }
  WriteOutcome fail(const Key&, const Ownership&, const Failure&,
                    std::chrono::milliseconds) override {
    return WriteOutcome::lost;
  }
  WriteOutcome doubt(const Key&, const Ownership&) override { return WriteOutcome::lost; }
  WriteOutcome mark_effect(const Key&, const Ownership&) override { return WriteOutcome::lost; }
  WriteOutcome renew(const Key&, const Ownership&, std::chrono::milliseconds) override {
    return WriteOutcome::lost;
  }
  ReleaseOutcome release(const Key&, const Ownership&,
                         std::chrono::milliseconds) noexcept override {
    return ReleaseOutcome::lost;
  }
  std::optional<Record> find(const Key&) override { return std::nullopt; }
  [[nodiscard]] bool batches() const noexcept override { return false; }
  std::vector<WriteOutcome> renew_many(const std::vector<Renewal>&) override { return {}; }
};

template <class StoreT>
struct StorePortSelection {
  using type = NoStorePort;
};
template <Store StoreT>
struct StorePortSelection<StoreT> {
  using type = StorePortOf<StoreT>;
};
template <class StoreT>
using StorePortFor = typename StorePortSelection<StoreT>::type;

/// One transaction as the engine sees it.
class TransactionPort {
 public:
  TransactionPort() = default;
  TransactionPort(const TransactionPort&) = delete;
  TransactionPort& operator=(const TransactionPort&) = delete;
  virtual ~TransactionPort() = default;

  /// A look before the transaction; nothing from a store that has no cheap one.
  virtual std::optional<Record> peek(const Key& key) = 0;
  /// Opens the next attempt; the one before has ended.
  virtual void open(const TransactionOptions& options) = 0;
  virtual BeginOutcome begin(const BeginRequest& request) = 0;
  virtual WriteOutcome complete(const Key& key, const Ownership& by,
                                const Completion& completion) = 0;
  [[nodiscard]] virtual bool is_joined() = 0;
  /// Whether it is on a connection that the caller lends.
  [[nodiscard]] virtual bool is_callers() const noexcept = 0;
  virtual void commit() = 0;
  virtual void rollback() noexcept = 0;
};

/// How a handler ended when it did not throw.
struct HandlerReport {
  Disposition disposition = Disposition::success;
  std::optional<std::string> result;  ///< encoded; absent when it cannot be
};

/// A handler as the engine sees it; the value it returned stays behind the port.
class HandlerPort {
 public:
  HandlerPort() = default;
  HandlerPort(const HandlerPort&) = delete;
  HandlerPort& operator=(const HandlerPort&) = delete;
  virtual ~HandlerPort() = default;

  /// Runs the handler. Its exceptions pass through.
  virtual HandlerReport invoke(Execution& execution) = 0;
  /// Whether the handler takes `Execution&` and so could have said where its point of no return is.
  [[nodiscard]] virtual bool takes_execution() const noexcept = 0;
};

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
