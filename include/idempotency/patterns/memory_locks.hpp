#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "idempotency/clock.hpp"
#include "idempotency/detail/lock_row.hpp"
#include "idempotency/patterns/lock_carrier.hpp"

namespace idempotency {
inline namespace v0 {

/// Locks between the threads of this process: for tests, and for what only this process does. Who waits is woken.
///
/// Locks that nobody holds are forgotten when there are many; no fence falls for it, because all locks here share one count.
///
/// Errors: `Errc::invalid_argument` for a lease that is none.
/// Thread safety: all members may be called concurrently.
/// Lifetime: the clock must outlive it.
class MemoryLocks {
 public:
  explicit MemoryLocks(const Clock& clock = system_clock()) noexcept : clock_(&clock) {}

  [[nodiscard]] LockOutcome acquire(const Key& key, const OwnerToken& owner,
                                    std::chrono::milliseconds lease);
  [[nodiscard]] WriteOutcome renew(const Key& key, const Ownership& by,
                                   std::chrono::milliseconds lease);
  WriteOutcome release(const Key& key, const OwnerToken& owner);
  std::uint64_t force_release(const Key& key);
  [[nodiscard]] std::optional<LockView> look(const Key& key) const;
  void wait_until_free(const Key& key, std::chrono::steady_clock::time_point until) const;

 private:
  [[nodiscard]] std::int64_t now() const noexcept {
    return clock_->now().time_since_epoch().count();
  }
  void forget_the_free();

  const Clock* clock_;
  mutable std::mutex mutex_;
  mutable std::condition_variable freed_;
  std::map<std::string, detail::LockRow, std::less<>> rows_;
  std::uint64_t last_fence_ = 0;
  std::size_t many_ = 1'024;
};
static_assert(FencingLockCarrier<MemoryLocks>);
static_assert(NotifyingLockCarrier<MemoryLocks>);

}  // namespace v0
}  // namespace idempotency
