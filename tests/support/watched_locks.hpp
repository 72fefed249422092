#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "idempotency/patterns/lock_carrier.hpp"
#include "idempotency/patterns/memory_locks.hpp"

namespace idempotency::testing_support {

/// Locks in memory that a test looks at, and whose calls it harms: a hook that throws or blocks does so in the call's place in time.
///
/// Thread safety: the carrier's members and `wait_for_renewals` may be called concurrently; set hooks before that.
class WatchedLocks {
 public:
  LockOutcome acquire(const Key& key, const OwnerToken& owner, std::chrono::milliseconds lease) {
    {
      const std::scoped_lock lock(mutex_);
      askers_.push_back(owner);
    }
    if (before_acquire) before_acquire();
    LockOutcome outcome = locks_.acquire(key, owner, lease);
    if (after_acquire) after_acquire(outcome);
    return outcome;
  }
  WriteOutcome renew(const Key& key, const Ownership& by, std::chrono::milliseconds lease) {
    if (before_renew) before_renew(key);
    const WriteOutcome outcome = locks_.renew(key, by, lease);
    const std::scoped_lock lock(mutex_);
    renewals_.push_back({key, by, lease});
    renewed_.notify_all();
    return outcome;
  }
  WriteOutcome release(const Key& key, const OwnerToken& owner) {
    {
      const std::scoped_lock lock(mutex_);
      ++releases_;
    }
    if (before_release) before_release();
    return locks_.release(key, owner);
  }
  std::uint64_t force_release(const Key& key) {
    const std::uint64_t fence = locks_.force_release(key);
    if (after_force_release) after_force_release();
    return fence;
  }
  std::optional<LockView> look(const Key& key) const { return locks_.look(key); }
  void wait_until_free(const Key& key, std::chrono::steady_clock::time_point until) const {
    locks_.wait_until_free(key, until);
  }

  /// Whether so many renewals of one key, or of all, have been answered in time. The limit only ends tests that hang.
  [[nodiscard]] bool wait_for_renewals(std::size_t count,
                                       const std::optional<Key>& key = std::nullopt) {
    std::unique_lock lock(mutex_);
    return renewed_.wait_for(lock, std::chrono::seconds{30}, [&] {
      std::size_t seen = 0;
      for (const Renewal& renewal : renewals_)
        seen += !key || renewal.key == *key ? 1U : 0U;
      return seen >= count;
    });
  }
  [[nodiscard]] std::vector<Renewal> renewals() const {
    const std::scoped_lock lock(mutex_);
    return renewals_;
  }
  /// The tokens of all calls of `acquire`, in order.
  [[nodiscard]] std::vector<OwnerToken> askers() const {
    const std::scoped_lock lock(mutex_);
    return askers_;
  }
  [[nodiscard]] int releases() const {
    const std::scoped_lock lock(mutex_);
    return releases_;
  }

  std::function<void()> before_acquire;
  std::function<void(LockOutcome&)> after_acquire;
  std::function<void(const Key&)> before_renew;
  std::function<void()> before_release;
  std::function<void()> after_force_release;

 private:
  MemoryLocks locks_;
  mutable std::mutex mutex_;
  std::condition_variable renewed_;
  std::vector<Renewal> renewals_;
  std::vector<OwnerToken> askers_;
  int releases_ = 0;
};
static_assert(FencingLockCarrier<WatchedLocks>);
static_assert(NotifyingLockCarrier<WatchedLocks>);

}  // namespace idempotency::testing_support
