#pragma once

#include <chrono>
#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string_view>
#include <type_traits>
#include <utility>

#include "idempotency/detail/lock_engine.hpp"
#include "idempotency/key.hpp"
#include "idempotency/observer.hpp"
#include "idempotency/patterns/lock_carrier.hpp"
#include "idempotency/store.hpp"

namespace idempotency {
inline namespace v0 {

/// Who took a lock from its holder, and why.
struct ForcedRelease {
  const Key& key;
  std::string_view who;
  std::string_view why;
  /// The fence from now on; nothing when the carrier's answer was lost, so that it may have been done or not.
  std::optional<std::uint64_t> fence;
};

/// How a `DistributedLock` behaves.
struct LockOptions {
  /// How long a holder may stay silent before others may have the lock: from 1 ms to 24 h. Renewed from a third of it on.
  std::chrono::milliseconds lease{10'000};
  /// No lock is held for longer than this, renewed or not: at least the lease.
  std::chrono::milliseconds max_total_hold{std::chrono::hours{1}};
  /// How long `run_locked` waits for its lock.
  std::chrono::milliseconds wait{5'000};
  /// Called once for a lock that is lost or about to end unrenewed, after its `stop_token` was set; on a thread of the
  /// library's own. Must not throw.
  std::function<void(const Key& key, std::uint64_t fence)> on_lost = {};
  /// The audit of `force_release`. Called on the thread that forces.
  std::function<void(const ForcedRelease&)> on_force_release = {};
  /// Hears of renewals, lost leases and calls of the carrier that failed, releases among them. May be null.
  Observer* observer = nullptr;
};

/// A lock that is held without a fence: see `HeldLock`. It is released when it is destroyed, or when another is moved into it.
///
/// Thread safety: moving and destroying belong to one thread; the rest may be called concurrently.
/// Lifetime: must not outlive the lock that it came from. In the child of a `fork()` it is nobody's: it releases nothing.
class [[nodiscard]] UnfencedLock {
 public:
  explicit UnfencedLock(detail::LockHoldPtr hold) noexcept : hold_(std::move(hold)) {}

  [[nodiscard]] const Key& key() const noexcept;
  /// Asked to stop an eighth of the lease before it ends unrenewed, or as soon as its loss is known. Looking again right before
  /// each effect also shows a loss that a pause of the whole process has hidden from the watchdog.
  [[nodiscard]] std::stop_token stop_token() const;
  /// How long the lock is held without another renewal, the margin taken off; 0 when it is lost or released.
  [[nodiscard]] std::chrono::milliseconds remaining() const;
  /// Ends the renewals, then gives the lock back; the first call counts. A renewal under way finds it released and
  /// changes nothing. `lost`: it was another's already. `unknown`: the carrier did not answer, which the observer is told, and the lease
  /// ends by itself.
  ReleaseOutcome release() noexcept;

 protected:
  detail::LockHoldPtr hold_;  ///< releases when it ends
};

/// A lock that is held until it is released, destroyed or lost. It is never acquired again behind one's back.
///
/// A lock keeps others out as long as its holder looks at it: a process that is paused between its last look and its
/// effect may come too late, and no lock can help it. Give `fence()` to what is changed, and let that refuse an older one
/// (`FencedSqlResource`, `FencedRedisResource`): then the late effect does not happen.
class [[nodiscard]] HeldLock : public UnfencedLock {
 public:
  using UnfencedLock::UnfencedLock;
  [[nodiscard]] std::uint64_t fence() const noexcept;
};

/// The answer to an attempt to have a lock: it, or nothing. Give it a name: the lock is released when this is destroyed, so
/// `if (lock.try_acquire(key)) { ... }` would protect nothing, and does not compile.
template <class Held>
class [[nodiscard]] LockAttempt : public std::optional<Held> {
 public:
  LockAttempt() noexcept = default;
  explicit LockAttempt(detail::LockHoldPtr hold)
      : std::optional<Held>(std::in_place, std::move(hold)) {}

  [[nodiscard]] explicit operator bool() const& noexcept { return this->has_value(); }
  explicit operator bool() const&& = delete;
  [[nodiscard]] Held* operator->() & noexcept { return std::optional<Held>::operator->(); }
  [[nodiscard]] const Held* operator->() const& noexcept {
    return std::optional<Held>::operator->();
  }
  const Held* operator->() const&& = delete;
};

/// How `run_locked` ended.
enum class [[nodiscard]] LockedRun : std::uint8_t{
    ran = 1,         ///< now, under the lock from the beginning to the end
    ran_past_lease,  ///< now, but the lock was lost before the end: another may have run as well
    already_done,    ///< it was done before; did not run
    busy,            ///< another held the lock all the time; did not run
};

/// Mutual exclusion between processes, by a lease in a carrier.
///
/// Renewals are sent by threads of the library's own, one for each lock, at most 16 at once: up to so many that wait (for a row, for a
/// connection, for one of `Redlock`'s servers) delay no other's. Where a store's connections may all be busy, give locks a store of their own. A lease counts from the
/// moment its request was sent, so that it ends here before it ends there. `acquire` repeats a call whose answer was lost with
/// the same token, and gives back what came too late to be used.
///
/// Errors of the acquiring members: those of the carrier; `Errc::lease_too_short` when the lock was granted, but only after the most of its
/// lease; `Errc::store_corrupt` when the fence is not above the last one that this object has seen for the key (the carrier has lost what it
/// had acknowledged; thousands of keys are remembered): in all cases the lock is given back. `Errc::used_after_fork` in the child of a `fork()`.
/// Thread safety: all members may be called concurrently.
/// Lifetime: refers to the carrier; must outlive the locks that it gives.
/// Source: M. Kleppmann, "How to do distributed locking", 2016, for the fence; Redisson's watchdog for what its order must be.
template <LockCarrier CarrierT>
class DistributedLock {
 public:
  using Held = std::conditional_t<FencingLockCarrier<CarrierT>, HeldLock, UnfencedLock>;

  /// Errors: `Errc::invalid_argument` for options that contradict each other or are out of range.
  explicit DistributedLock(CarrierT& carrier, LockOptions options = {})
      : port_(carrier), engine_(port_, std::move(options)) {}
  explicit DistributedLock(const CarrierT&& carrier, LockOptions options = {}) = delete;

  /// At once, without waiting; nothing when it is another's.
  [[nodiscard]] LockAttempt<Held> try_acquire(const Key& key) {
    return acquire(key, std::chrono::milliseconds{0});
  }
  /// Waits, and asks again whenever the carrier says that the lock is free, or else after growing, jittered pauses; nothing when it is still
  /// another's at the end. There is always one attempt, and one at the end. An attempt lasts as long as the carrier takes to answer, so that a
  /// server that is silent adds its store's time-outs to the wait.
  [[nodiscard]] LockAttempt<Held> acquire(const Key& key, std::chrono::milliseconds wait) {
    return acquire(key, detail::deadline_after(wait));
  }
  [[nodiscard]] LockAttempt<Held> acquire(const Key& key,
                                          std::chrono::steady_clock::time_point deadline) {
    detail::LockHoldPtr hold = engine_.acquire(key, deadline);
    if (!hold) return {};
    return LockAttempt<Held>(std::move(hold));
  }

  /// For operators: takes the lock from its holder, who is told at the next renewal and whose fence is an old one from now on.
  /// Returns the new fence, 0 where there is none. The audit is told also when the answer is lost.
  ///
  /// Errors: those of the carrier; `Errc::invalid_argument` when it is not said who does it and why.
  std::uint64_t force_release(const Key& key, std::string_view who, std::string_view why) {
    return engine_.force_release(key, who, why);
  }

  /// Asks `already_done()`, waits for the lock, asks again, and only then calls `fn(const Held&)`, or `fn()`. Its exception is the caller's, and
  /// the lock is released.
  ///
  /// Errors: those of `acquire`.
  template <std::predicate Done, class Fn>
  LockedRun run_locked(const Key& key, Done&& already_done, Fn&& fn) {
    if (already_done()) return LockedRun::already_done;
    LockAttempt<Held> held = acquire(key, engine_.options().wait);
    if (!held) return LockedRun::busy;
    if (already_done()) return LockedRun::already_done;
    if constexpr (std::is_invocable_v<Fn&, const Held&>) {
      fn(std::as_const(*held));
    } else {
      fn();
    }
    const bool is_in_time = !held->stop_token().stop_requested();
    const bool is_lost = held->release() == ReleaseOutcome::lost;
    return is_in_time && !is_lost ? LockedRun::ran : LockedRun::ran_past_lease;
  }

 private:
  detail::LockPortOf<CarrierT> port_;
  detail::LockEngine engine_;
};

}  // namespace v0
}  // namespace idempotency
