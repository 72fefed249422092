#include <array>
#include <memory>
#include <string>

#include "idempotency/patterns/distributed_lock.hpp"
#include "idempotency/patterns/redis_locks.hpp"
#include "idempotency/stores/redis.hpp"
#include "patterns/patterns_benchmark.hpp"
#include "redis/bare_redis.hpp"
#include "support/redis_server.hpp"

namespace benchmark_patterns {

using benchmark_core::check;
using benchmark_support::Work;
using idempotency::DistributedLock;
using idempotency::Key;
using idempotency::RedisLocks;
using idempotency::RedisStore;
using idempotency::ReleaseOutcome;
using idempotency::testing_support::RedisServer;

namespace {

/// Where a lock by hand has its fence from: a count for each lock that must never be removed, or, as ours, the server's clock.
enum class BareFence { counted, of_clock };

constexpr const char* acquire_and_count =
    "if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then\n"
    "  return redis.call('INCR', KEYS[2])\n"
    "end\n"
    "return 0";
constexpr const char* release_and_forget =
    "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end\n"
    "return redis.call('DEL', KEYS[1])";
constexpr const char* acquire_by_clock =
    "local v = redis.call('GET', KEYS[1])\n"
    "if v and v:sub(1, 1) ~= '-' then return 0 end\n"
    "local t = redis.call('TIME')\n"
    "local fence = t[1] * 1000000 + t[2]\n"
    "if v and tonumber(v:sub(2)) >= fence then fence = tonumber(v:sub(2)) + 1 end\n"
    "redis.call('SET', KEYS[1], ARGV[1] .. string.format('%.0f', fence), 'PX', ARGV[2])\n"
    "return fence";
constexpr const char* release_and_remember =
    "local v = redis.call('GET', KEYS[1])\n"
    "if not v or v:sub(1, 16) ~= ARGV[1] then return 0 end\n"
    "redis.call('SET', KEYS[1], '-' .. v:sub(17), 'PX', 86400000)\n"
    "return 1";

/// What a service would write by hand: an owner, a fence, and a script each for acquiring and releasing.
class BareLock : private benchmark_redis::BareConnection {
 public:
  BareLock(std::uint16_t port, const std::string& name, BareFence fence)
      : BareConnection(port),
        name_("bare_______:{" + name + "}:lock"),
        fence_("bare_______:{" + name + "}:fence"),
        acquire_(load(fence == BareFence::counted ? acquire_and_count : acquire_by_clock)),
        release_(load(fence == BareFence::counted ? release_and_forget : release_and_remember)) {
    static_cast<void>(send({"DEL", name_, fence_}));
  }

  void lock_and_unlock() {
    owner_[0] = static_cast<char>(owner_[0] + 1);
    const std::string_view owner(owner_.data(), owner_.size());
    const Reply acquired = send({"EVALSHA", acquire_, "2", name_, fence_, owner, "10000"});
    check(acquired && acquired->type == REDIS_REPLY_INTEGER && acquired->integer > 0,
          "a bare lock was another's");
    const Reply released = send({"EVALSHA", release_, "1", name_, owner});
    check(released && released->type == REDIS_REPLY_INTEGER && released->integer == 1,
          "a bare lock was lost");
  }

 private:
  std::string name_;
  std::string fence_;
  std::string acquire_;
  std::string release_;
  std::array<char, 16> owner_{};
};

void measure_locks(const benchmark_support::Selection& selection, const std::string& name,
                   BareFence fence) {
  if (!selection.wants(name)) return;
  RedisServer server;
  for (const std::size_t threads : {1U, 4U, 16U}) {
    RedisStore store({.port = server.port(), .max_connections = threads});
    RedisLocks<RedisStore> locks{store};
    DistributedLock<RedisLocks<RedisStore>> lock{locks};
    benchmark_support::compare(
        {.name = name,
         .threads = threads,
         .by_hand = [&](std::size_t thread) -> Work {
           return [bare = std::make_shared<BareLock>(server.port(), std::to_string(thread),
                                                     fence)] { bare->lock_and_unlock(); };
         },
         .ours = [&](std::size_t thread) -> Work {
           return [&lock, key = Key::of("stock", thread)] {
             auto held = lock.try_acquire(key);
             check(held && held->release() == ReleaseOutcome::released, "a lock was another's");
           };
         },
         .wanted = 0.91,  // 1.1 times the time
         .wanted_p99 = 0},
        selection.effort(), benchmark_support::processor_time_of(server.process().id()));
  }
}

}  // namespace

void measure_locks(const benchmark_support::Selection& selection) {
  measure_locks(selection, "lock and unlock on Redis, against two scripts", BareFence::counted);
  measure_locks(selection, "the same, against two that look at the clock", BareFence::of_clock);
}

}  // namespace benchmark_patterns
