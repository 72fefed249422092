// The times to live that each step sets, by the server's own clock and to the millisecond.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>

#include "idempotency/stores/redis.hpp"
#include "idempotency/testing/printers.hpp"
#include "redis/redis_record.hpp"
#include "support/redis_owner.hpp"
#include "support/redis_server.hpp"
#include "support/redis_stand_in.hpp"

namespace idempotency {
namespace {

using detail::redis::unfinished_ttl;
using std::chrono::milliseconds;
using testing_support::first_of_all;
using testing_support::redis_name;
using testing_support::RedisOwner;
using testing_support::RedisServer;
using testing_support::RedisStandIn;

RedisServer& server() { return RedisServer::shared(); }

std::int64_t server_now() {
  const RedisServer::Reply time = server().ask({"TIME"});
  return std::stoll(time->element[0]->str) * 1000 + std::stoll(time->element[1]->str) / 1000;
}

std::int64_t end_of(const Key& key) { return server().number({"PEXPIRETIME", redis_name(key)}); }

/// Does a step and sees that the key ends `span` after it, by the server's clock.
template <class Step>
void expect_to_end(const Key& key, milliseconds span, Step step) {
  const std::int64_t before = server_now();
  step();
  const std::int64_t after = server_now();
  EXPECT_GE(end_of(key), before + span.count());
  EXPECT_LE(end_of(key), after + span.count());
}

Key fresh_key() {
  static int number = 0;
  Key key{"time", std::to_string(++number)};
  server().ask({"DEL", redis_name(key)});
  return key;
}

class RedisTimes : public ::testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<RedisStandIn> stand_in_ = RedisStandIn::of_version(server().port(), GetParam());
  RedisStore store_{RedisOptions{.port = stand_in_->port()}};
};
INSTANTIATE_TEST_SUITE_P(OfEachForm, RedisTimes, ::testing::Values("7.0.15", "6.2.14"),
                         [](const auto& each) { return std::string(1, each.param[0]); });

// RD-11
TEST_P(RedisTimes, AreSetByEachStepAsDocumented) {
  RedisOwner first{store_, fresh_key()};
  RedisOwner second{store_, first.key};
  RedisOwner third{store_, first.key};
  const std::chrono::hours retention{2};

  expect_to_end(first.key, unfinished_ttl, [&] { EXPECT_EQ(first.begin(), first_of_all()); });
  expect_to_end(first.key, unfinished_ttl,
                [&] { EXPECT_EQ(first.renew(milliseconds{1}), WriteOutcome::stored); });
  std::this_thread::sleep_for(milliseconds{2});  // the lease runs out
  expect_to_end(first.key, unfinished_ttl, [&] {
    EXPECT_EQ(second.begin(), BeginOutcome(Acquired{2, 2}));
  });
  const std::int64_t unmarked = end_of(first.key);
  EXPECT_EQ(store_.mark_effect(second.key, {second.token, 2}), WriteOutcome::stored);
  EXPECT_EQ(end_of(first.key), unmarked) << "a mark leaves the lease as it is";
  expect_to_end(first.key, retention, [&] {
    EXPECT_EQ(
        store_.fail(second.key, {second.token, 2}, {Retryability::retryable, "no", {}}, retention),
        WriteOutcome::stored);
  });
  expect_to_end(first.key, unfinished_ttl, [&] {
    EXPECT_EQ(third.begin(), BeginOutcome(Acquired{3, 3}));
  });
  expect_to_end(first.key, unfinished_ttl, [&] {
    EXPECT_EQ(store_.doubt(third.key, {third.token, 3}), WriteOutcome::stored);
  });
  expect_to_end(first.key, retention, [&] {
    EXPECT_EQ(store_.complete(third.key, {third.token, 3}, {"result", retention}),
              WriteOutcome::stored);
  });
  const std::int64_t completed = end_of(first.key);
  EXPECT_EQ(store_.complete(third.key, {third.token, 3}, {"result", retention}),
            WriteOutcome::stored);
  EXPECT_TRUE(std::holds_alternative<Completed>(first.begin()));
  EXPECT_EQ(store_.renew(third.key, {third.token, 3}, retention), WriteOutcome::lost);
  EXPECT_EQ(end_of(first.key), completed) << "neither repeats nor replays restart it";
}

// RD-11
TEST_P(RedisTimes, AreSetByReleasesAndSettlementsAsDocumented) {
  RedisOwner released{store_, fresh_key()};
  RedisOwner doubtful{store_, fresh_key()};
  const std::chrono::hours retention{3};
  ASSERT_EQ(released.begin(), first_of_all());
  ASSERT_EQ(doubtful.begin(), first_of_all());
  ASSERT_EQ(store_.doubt(doubtful.key, {doubtful.token, 1}), WriteOutcome::stored);
  const std::optional<Record> seen = store_.find(doubtful.key);
  ASSERT_TRUE(seen);

  expect_to_end(released.key, retention, [&] {
    EXPECT_EQ(store_.release(released.key, {released.token, 1}, retention),
              ReleaseOutcome::released);
  });
  expect_to_end(doubtful.key, retention, [&] {
    EXPECT_EQ(
        store_.resolve(*seen, {.verdict = Resolution::Verdict::failed, .retention = retention}),
        WriteOutcome::stored);
  });
}

// RD-09
TEST_P(RedisTimes, AreNeitherRoundedNorSentInAnotherUnit) {
  for (const milliseconds span : {milliseconds{1}, milliseconds{10}, milliseconds{500},
                                  milliseconds{999}, milliseconds{1'500}}) {
    RedisOwner owner{store_, fresh_key()};
    ASSERT_EQ(owner.begin(span), first_of_all());
    const std::optional<Record> begun = store_.find(owner.key);
    ASSERT_TRUE(begun && begun->lease_until);
    EXPECT_EQ(*begun->lease_until - begun->created_at, span);

    const std::int64_t before = server_now();
    ASSERT_EQ(owner.complete(span), WriteOutcome::stored);
    const std::int64_t end = end_of(owner.key);  // -2: over already
    const std::int64_t after = server_now();

    if (end >= 0) {
      EXPECT_GE(end, before + span.count());
      EXPECT_LE(end, after + span.count());
    } else {
      EXPECT_GE(after, before + span.count()) << "gone before its time";
    }
    while (store_.find(owner.key))
      std::this_thread::sleep_for(milliseconds{1});
    EXPECT_GE(server_now(), before + span.count());
    EXPECT_EQ(owner.begin(), first_of_all());
  }
}

}  // namespace
}  // namespace idempotency
