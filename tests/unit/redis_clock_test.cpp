#include <gtest/gtest.h>

#include <chrono>

#include "redis/redis_connection.hpp"

namespace idempotency {
namespace {

using detail::redis::ServerClock;
using detail::redis::SteadyTime;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Timestamp shown{milliseconds{1'700'000'000'000}};
constexpr SteadyTime asked{seconds{1'000}};

// What remains of a retention is reckoned from it, so it must not be behind the server's.
TEST(RedisServerClock, IsNeverBehindTheServers) {
  ServerClock clock;
  clock.show(shown, asked);  // the server looked at its clock after it had been asked

  EXPECT_EQ(clock.latest(asked), shown);
  EXPECT_EQ(clock.latest(asked + milliseconds{250}), shown + milliseconds{250});
  EXPECT_EQ(clock.latest(asked + microseconds{1}), shown + milliseconds{1});
}

TEST(RedisServerClock, IsAskedForAgainAfterAMinute) {
  ServerClock clock;
  clock.show(shown, asked);

  EXPECT_FALSE(clock.is_stale(asked + seconds{60}));
  EXPECT_TRUE(clock.is_stale(asked + seconds{61}));
  clock.show(shown + seconds{61}, asked + seconds{61});
  EXPECT_FALSE(clock.is_stale(asked + seconds{62}));
  EXPECT_EQ(clock.latest(asked + seconds{62}), shown + seconds{62});
}

}  // namespace
}  // namespace idempotency
