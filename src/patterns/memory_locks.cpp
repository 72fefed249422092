#include "idempotency/patterns/memory_locks.hpp"

#include <algorithm>

namespace idempotency {
inline namespace v0 {

using detail::LockRow;
using std::chrono::milliseconds;

namespace detail {

void check_lock_lease(milliseconds lease) {
  if (lease >= milliseconds{1} && lease <= longest_lock_lease) return;
  throw Error(Errc::invalid_argument, "a lock's lease lasts from 1 ms to 24 h");
}

}  // namespace detail

LockOutcome MemoryLocks::acquire(const Key& key, const OwnerToken& owner, milliseconds lease) {
  detail::check_lock_lease(lease);
  const std::scoped_lock lock(mutex_);
  if (rows_.size() >= many_) forget_the_free();
  LockRow& row = rows_[key.text()];
  if (row.held_until <= now() && row.owner != owner) row.fence = last_fence_;
  const LockOutcome outcome = detail::acquire_in(row, owner, now(), lease);
  last_fence_ = std::max(last_fence_, row.fence);
  return outcome;
}

WriteOutcome MemoryLocks::renew(const Key& key, const Ownership& by, milliseconds lease) {
  detail::check_lock_lease(lease);
  const std::scoped_lock lock(mutex_);
  const auto found = rows_.find(key.text());
  if (found == rows_.end()) return WriteOutcome::lost;
  return detail::renew_in(found->second, by, now(), lease);
}

WriteOutcome MemoryLocks::release(const Key& key, const OwnerToken& owner) {
  const std::scoped_lock lock(mutex_);
  const auto found = rows_.find(key.text());
  if (found == rows_.end()) return WriteOutcome::lost;
  const WriteOutcome outcome = detail::release_in(found->second, owner);
  if (outcome == WriteOutcome::stored) freed_.notify_all();
  return outcome;
}

std::uint64_t MemoryLocks::force_release(const Key& key) {
  const std::scoped_lock lock(mutex_);
  LockRow& row = rows_[key.text()];
  row.fence = last_fence_;
  detail::force_release_in(row, now());
  last_fence_ = row.fence;
  freed_.notify_all();
  return row.fence;
}

std::optional<LockView> MemoryLocks::look(const Key& key) const {
  const std::scoped_lock lock(mutex_);
  const auto found = rows_.find(key.text());
  if (found == rows_.end()) return std::nullopt;
  return LockView{found->second.fence, detail::remaining_of(found->second, now())};
}

void MemoryLocks::wait_until_free(const Key& key,
                                  std::chrono::steady_clock::time_point until) const {
  std::unique_lock lock(mutex_);
  freed_.wait_until(lock, until, [&] {
    const auto found = rows_.find(key.text());
    return found == rows_.end() || found->second.held_until <= now();
  });
}

void MemoryLocks::forget_the_free() {
  std::erase_if(rows_, [&](const auto& row) { return row.second.held_until <= now(); });
  many_ = std::max<std::size_t>(many_, rows_.size() * 2);
}

}  // namespace v0
}  // namespace idempotency
