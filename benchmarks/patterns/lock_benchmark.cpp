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

/// What a service would write by hand: an owner, a count that rises as the fence, and a script each for acquiring and releasing.
class BareLock : private benchmark_redis::BareConnection {
 public:
  BareLock(std::uint16_t port, const std::string& name)
      : BareConnection(port),
        name_("bare_______:{" + name + "}:lock"),
        fence_("bare_______:{" + name + "}:fence"),
        acquire_(load("if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then\n"
                      "  return redis.call('INCR', KEYS[2])\n"
                      "end\n"
                      "return 0")),
        release_(load("if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end\n"
                      "return redis.call('DEL', KEYS[1])")) {}

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

}  // namespace

void measure_locks(const benchmark_support::Selection& selection) {
  const std::string name = "lock and unlock on Redis, against two scripts";
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
           return [bare = std::make_shared<BareLock>(server.port(), std::to_string(thread))] {
             bare->lock_and_unlock();
           };
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

}  // namespace benchmark_patterns
