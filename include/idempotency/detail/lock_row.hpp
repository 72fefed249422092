#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "idempotency/patterns/lock_carrier.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail {

/// What is kept of a lock. Times are milliseconds since 1970 by the carrier's clock.
struct LockRow {
  OwnerToken owner = {};
  std::uint64_t fence = 0;
  std::int64_t held_until = 0;  ///< 0: released
  friend constexpr bool operator==(const LockRow&, const LockRow&) = default;
};

[[nodiscard]] constexpr std::uint64_t next_fence(std::uint64_t last, std::int64_t now) noexcept {
  return std::max(last + 1, static_cast<std::uint64_t>(std::max<std::int64_t>(now, 0)) * 1'000);
}

[[nodiscard]] constexpr std::chrono::milliseconds remaining_of(const LockRow& row,
                                                               std::int64_t now) noexcept {
  return std::chrono::milliseconds{std::max<std::int64_t>(0, row.held_until - now)};
}

/// What `acquire` answers; when that is `LockAcquired`, `row` is what is to be kept from now on.
[[nodiscard]] constexpr LockOutcome acquire_in(LockRow& row, const OwnerToken& owner,
                                               std::int64_t now, std::chrono::milliseconds lease) {
  if (row.owner == owner) {
    if (row.held_until == 0) return LockRefused{};
  } else if (row.held_until > now) {
    return LockRefused{remaining_of(row, now)};
  } else {
    row = {owner, next_fence(row.fence, now), 0};
  }
  row.held_until = now + lease.count();
  return LockAcquired{row.fence};
}

[[nodiscard]] constexpr WriteOutcome renew_in(LockRow& row, const Ownership& by, std::int64_t now,
                                              std::chrono::milliseconds lease) noexcept {
  if (row.owner != by.owner || row.fence != by.fence || row.held_until <= now) {
    return WriteOutcome::lost;
  }
  row.held_until = now + lease.count();
  return WriteOutcome::stored;
}

[[nodiscard]] constexpr WriteOutcome release_in(LockRow& row, const OwnerToken& owner) noexcept {
  if (row.owner != owner) return WriteOutcome::lost;
  row.held_until = 0;
  return WriteOutcome::stored;
}

/// Nobody's from now on.
constexpr void force_release_in(LockRow& row, std::int64_t now) noexcept {
  row = {{}, next_fence(row.fence, now), 0};
}

/// Errors: `Errc::invalid_argument` for a lease that no carrier grants.
void check_lock_lease(std::chrono::milliseconds lease);

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
