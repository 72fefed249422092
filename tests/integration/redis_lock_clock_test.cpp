// LK-14: clients whose clocks are wrong judge leases by the server's all the same.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <variant>

#include "idempotency/patterns/redis_locks.hpp"
#include "idempotency/stores/redis.hpp"
#include "support/child_process.hpp"
#include "support/redis_server.hpp"

namespace idempotency {
namespace {

using namespace std::chrono_literals;
using testing_support::ChildProcess;
using testing_support::ProcessEnd;
using testing_support::RedisServer;

constexpr const char* library = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";
constexpr const char* port_variable = "IDEMPOTENCY_TEST_REDIS_PORT";
constexpr const char* time_variable = "IDEMPOTENCY_TEST_TIME";

const Key held{"stock", "held"};
const Key ended{"stock", "ended"};
const Key skewed{"stock", "skewed"};

std::int64_t seconds_now() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

bool is_acquired(RedisLocks<RedisStore>& locks, const Key& key, std::chrono::milliseconds lease) {
  return std::holds_alternative<LockAcquired>(locks.acquire(key, OwnerToken::generate(), lease));
}

/// Another's lease that runs for a minute, and one that has just ended.
void prepare(RedisServer& server) {
  server.ask({"FLUSHALL"});
  RedisStore store(server.options());
  RedisLocks<RedisStore> locks{store};
  ASSERT_TRUE(is_acquired(locks, held, 1min));
  ASSERT_TRUE(is_acquired(locks, ended, 1ms));
  std::this_thread::sleep_for(5ms);  // by the server's clock
}

/// Runs alone with a right clock, and once more in a process of its own with a wrong one.
TEST(RedisLockClock, IsTheServersForAClient) {
  const char* port = std::getenv(port_variable);
  if (port == nullptr) prepare(RedisServer::shared());
  RedisStore store{{.port = port == nullptr ? RedisServer::shared().port()
                                            : static_cast<std::uint16_t>(std::stoi(port))}};
  RedisLocks<RedisStore> locks{store};

  if (const char* told = std::getenv(time_variable)) {
    EXPECT_GT(std::abs(seconds_now() - std::stoll(told)), 300) << "the clock is right";
  }
  EXPECT_FALSE(is_acquired(locks, held, 1min));
  EXPECT_LE(locks.look(held)->remaining, 1min);
  EXPECT_TRUE(is_acquired(locks, ended, 1min));
  EXPECT_TRUE(is_acquired(locks, skewed, 1min));
}

TEST(RedisLockClock, IsTheServersWhateverTheClientsSay) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "A sanitizer's library and that of another clock do not go together";
#endif
  if (!std::filesystem::exists(library)) {
    GTEST_SKIP() << "LK-14 IS NOT TRIED: libfaketime is not there";
  }
  RedisServer& server = RedisServer::shared();
  RedisStore store(server.options());
  RedisLocks<RedisStore> locks{store};
  for (const std::string skew : {"+10m", "-10m"}) {
    prepare(server);
    ChildProcess client = ChildProcess::start(
        {"/proc/self/exe", "--gtest_filter=RedisLockClock.IsTheServersForAClient"},
        {std::string("LD_PRELOAD=") + library, "FAKETIME=" + skew, "FAKETIME_DONT_FAKE_MONOTONIC=1",
         std::string(port_variable) + '=' + std::to_string(server.port()),
         std::string(time_variable) + '=' + std::to_string(seconds_now())});

    std::string said;
    for (const std::string& line : client.remaining_lines())
      said += line + '\n';
    EXPECT_EQ(client.wait(), (ProcessEnd{0, 0})) << skew << '\n' << said;

    EXPECT_FALSE(is_acquired(locks, skewed, 1min)) << skew;
    EXPECT_LE(locks.look(skewed)->remaining, 1min) << skew;
    EXPECT_GT(locks.look(skewed)->remaining, 30s) << skew;
  }
}

}  // namespace
}  // namespace idempotency
