#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "idempotency/detail/lock_row.hpp"
#include "idempotency/detail/redis_lock_scripts.hpp"
#include "idempotency/error.hpp"
#include "idempotency/patterns/lock_carrier.hpp"
#include "idempotency/stores/redis_script.hpp"

namespace idempotency {
inline namespace v0 {

struct RedisLocksOptions {
  /// How many replicas must have a lock that is acquired or renewed (WAIT), or it is not: then a fail-over to one of them does not
  /// lose it, and without them it is lost when its lease ends. 0: the primary alone; when it is lost with its latest writes, its locks are.
  std::uint32_t replicas = 0;
  /// How long they are waited for: shorter than the store's `command_timeout`.
  std::chrono::milliseconds replica_wait{100};
  /// How long a lock that nobody holds is remembered, so that its fence does not fall should the server's clock be set back: from 1 ms
  /// to 365 days.
  std::chrono::milliseconds memory = std::chrono::hours{24};
};

/// Locks on a Redis server, each one packed string beside the record of the same key (`prefix:{type:value}:lock`) and judged by the
/// server's clock. Every call is one script, acquiring and releasing are two commands.
///
/// Errors: those of `run_script`; `acquire` and `renew` also `Errc::store_reply_lost` when too few replicas had the lock in time: it
/// stands on the primary then, and is to be released.
/// Thread safety: all members may be called concurrently.
/// Lifetime: refers to the store.
template <ScriptStore StoreT>
class RedisLocks {
 public:
  /// Errors: `Errc::invalid_argument` for times out of range.
  explicit RedisLocks(StoreT& store, const RedisLocksOptions& options = {})
      : store_(&store),
        waiting_{.replicas = options.replicas, .replica_wait = options.replica_wait},
        memory_(options.memory) {
    constexpr std::chrono::milliseconds longest = std::chrono::hours{24 * 365};
    if (memory_ < std::chrono::milliseconds{1} || memory_ > longest ||
        options.replica_wait < std::chrono::milliseconds{1}) {
      throw Error(Errc::invalid_argument,
                  "locks are remembered for 1 ms to 365 days, and replicas waited for 1 ms or "
                  "longer");
    }
  }
  explicit RedisLocks(const StoreT&& store, const RedisLocksOptions& options = {}) = delete;

  [[nodiscard]] LockOutcome acquire(const Key& key, const OwnerToken& owner,
                                    std::chrono::milliseconds lease) {
    detail::check_lock_lease(lease);
    const std::string span = std::to_string(lease.count());
    const std::string kept = kept_beyond(lease);
    const RedisReply reply =
        run(detail::RedisLockScripts::all().acquire, key, {bytes_of(owner), span, kept}, waiting_);
    const std::int64_t answer = waiting_.replicas == 0 ? reply.integer() : reply.at(0).integer();
    if (answer <= 0) return LockRefused{std::chrono::milliseconds{-answer}};
    if (waiting_.replicas != 0) check_replicas(reply.at(1));
    return LockAcquired{static_cast<std::uint64_t>(answer)};
  }
  [[nodiscard]] WriteOutcome renew(const Key& key, const Ownership& by,
                                   std::chrono::milliseconds lease) {
    detail::check_lock_lease(lease);
    const std::string fence = std::to_string(by.fence);
    const std::string span = std::to_string(lease.count());
    const std::string kept = kept_beyond(lease);
    const RedisReply reply = run(detail::RedisLockScripts::all().renew, key,
                                 {bytes_of(by.owner), fence, span, kept}, waiting_);
    if (waiting_.replicas == 0) return outcome_of(reply);
    const WriteOutcome outcome = outcome_of(reply.at(0));
    if (outcome == WriteOutcome::stored) check_replicas(reply.at(1));
    return outcome;
  }
  WriteOutcome release(const Key& key, const OwnerToken& owner) {
    return outcome_of(run(detail::RedisLockScripts::all().release, key, {bytes_of(owner)}));
  }
  std::uint64_t force_release(const Key& key) {
    const std::string kept = kept_beyond({});
    return static_cast<std::uint64_t>(
        run(detail::RedisLockScripts::all().force_release, key, {kept}).integer());
  }
  [[nodiscard]] std::optional<LockView> look(const Key& key) {
    const RedisReply reply =
        run(detail::RedisLockScripts::all().look, key, {}, {.effect = RedisScriptEffect::reads});
    if (reply.is_nil()) return std::nullopt;
    return LockView{static_cast<std::uint64_t>(reply.at(0).integer()),
                    std::chrono::milliseconds{reply.at(1).integer()}};
  }

 private:
  void check_replicas(const RedisReply& reached) const {
    if (reached.integer() >= std::int64_t{waiting_.replicas}) return;
    throw Error(Errc::store_reply_lost,
                "too few of the Redis server's replicas had the lock in time: it may be lost in a "
                "fail-over");
  }
  static std::string_view bytes_of(const OwnerToken& owner) noexcept {
    return {reinterpret_cast<const char*>(owner.bytes().data()), owner.bytes().size()};
  }
  static WriteOutcome outcome_of(const RedisReply& reply) {
    return reply.integer() == 1 ? WriteOutcome::stored : WriteOutcome::lost;
  }
  [[nodiscard]] std::string kept_beyond(std::chrono::milliseconds lease) const {
    return std::to_string((lease + memory_).count());
  }
  RedisReply run(const RedisScript& script, const Key& key, const RedisWords& arguments,
                 const RedisScriptOptions& options = {}) {
    return store_->run_script(script, {store_->name_for(key, "lock")}, arguments, options);
  }

  StoreT* store_;
  RedisScriptOptions waiting_;
  std::chrono::milliseconds memory_;
};

}  // namespace v0
}  // namespace idempotency
