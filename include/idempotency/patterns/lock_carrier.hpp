#pragma once

#include <chrono>
#include <concepts>
#include <cstdint>
#include <optional>
#include <variant>

#include "idempotency/key.hpp"
#include "idempotency/lease.hpp"
#include "idempotency/store.hpp"

namespace idempotency {
inline namespace v0 {

/// The lock is the asking owner's.
struct LockAcquired {
  std::uint64_t fence = 0;  ///< above all that were handed out for this key before; 0: no fence
  friend bool operator==(const LockAcquired&, const LockAcquired&) = default;
};

/// The lock is another's.
struct LockRefused {
  std::chrono::milliseconds remaining{1};  ///< of the other's lease: at least 1 ms
  friend bool operator==(const LockRefused&, const LockRefused&) = default;
};

using LockOutcome = std::variant<LockAcquired, LockRefused>;

/// What a carrier knows of a lock, for operators: by the time it is read, it may have changed.
struct LockView {
  std::uint64_t fence = 0;                 ///< the last one that was handed out
  std::chrono::milliseconds remaining{0};  ///< of the holder's lease; 0: nobody holds it
  friend bool operator==(const LockView&, const LockView&) = default;
};

/// The longest lease that a carrier grants; the shortest is 1 ms.
inline constexpr std::chrono::milliseconds longest_lock_lease = std::chrono::hours{24};

/// Where locks are kept. Each call is one atomic step, judged by the carrier's clock, and may be repeated with the same token
/// after a lost answer. A token is new for each acquisition.
///
/// - `acquire(key, owner, lease) -> LockOutcome`: at once, without waiting. A fence is the larger of the last one plus 1 and the carrier's
///   time in microseconds since 1970, and below 2^53. Asked again by the same owner: the same fence, and
///   the lease from now on; but once that owner has released, a late copy of its call acquires nothing.
/// - `renew(key, by, lease) -> WriteOutcome`: only the owner at its fence, and only while its lease runs: `lost` otherwise. It never
///   acquires.
/// - `release(key, owner) -> WriteOutcome`: only the owner; `stored` also when it was done before.
/// - `force_release(key) -> std::uint64_t`: whoever holds the lock holds it no longer, and cannot renew or release it. The fence rises;
///   it is returned, 0 where there is none.
///
/// Errors of all: those of stores (20-39); `Errc::invalid_argument` for a lease shorter than 1 ms or longer than
/// `longest_lock_lease`, before anything is sent.
template <class C>
concept LockCarrier = requires(C& carrier, const Key& key, const OwnerToken& owner,
                               const Ownership& by, std::chrono::milliseconds lease) {
  { carrier.acquire(key, owner, lease) } -> std::same_as<LockOutcome>;
  { carrier.renew(key, by, lease) } -> std::same_as<WriteOutcome>;
  { carrier.release(key, owner) } -> std::same_as<WriteOutcome>;
  { carrier.force_release(key) } -> std::same_as<std::uint64_t>;
};

/// A carrier whose locks have fences: `look(key)` shows the last one, or nothing where none is remembered.
template <class C>
concept FencingLockCarrier = LockCarrier<C> && requires(C& carrier, const Key& key) {
  { carrier.look(key) } -> std::same_as<std::optional<LockView>>;
};

/// A carrier that can wake who waits: `wait_until_free(key, until)` returns when nobody holds the lock, or at `until`.
template <class C>
concept NotifyingLockCarrier = LockCarrier<C> &&
    requires(C& carrier, const Key& key, std::chrono::steady_clock::time_point until) {
  { carrier.wait_until_free(key, until) } -> std::same_as<void>;
};

}  // namespace v0
}  // namespace idempotency
