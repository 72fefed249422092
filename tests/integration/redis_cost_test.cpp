// What a call costs, counted by the server itself.

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "idempotency/idempotency.hpp"
#include "idempotency/stores/redis.hpp"
#include "support/redis_monitor.hpp"
#include "support/redis_server.hpp"

namespace idempotency {
namespace {

using testing_support::RedisMonitor;
using testing_support::RedisServer;
using Names = std::vector<std::string>;

/// A store whose connection and scripts are there.
class RedisCost : public ::testing::Test {
 protected:
  RedisCost() {
    server().ask({"FLUSHALL"});
    static_cast<void>(run("warm-up"));
    static_cast<void>(run("warm-up"));
    static_cast<void>(monitor_.commands());
  }

  static RedisServer& server() { return RedisServer::shared(); }
  RunResult<std::string> run(const std::string& value) {
    return guard_.run({.key = {"payment", value}}, [] { return std::string("charge-1"); });
  }

  RedisStore store_{server().options()};
  IdempotencyGuard<RedisStore> guard_{store_};
  RedisMonitor monitor_{server()};
};

TEST_F(RedisCost, IsTwoCommandsForAFirstRun) {
  ASSERT_EQ(run("order-1").status(), RunStatus::executed);

  EXPECT_EQ(monitor_.commands(), (Names{"SET", "EVALSHA"}));
}

TEST_F(RedisCost, IsOneNativeCommandForADuplicate) {
  static_cast<void>(run("order-1"));
  static_cast<void>(monitor_.commands());

  ASSERT_EQ(run("order-1").status(), RunStatus::replayed);

  EXPECT_EQ(monitor_.commands(), (Names{"SET"}));
}

TEST_F(RedisCost, IsOneScriptMoreForWhoMeetsAnUnfinishedRecord) {
  const Key key{"payment", "order-1"};
  ASSERT_EQ(store_.begin({.key = key, .owner = OwnerToken::generate()}),
            BeginOutcome(Acquired{1, 1}));
  static_cast<void>(store_.begin({.key = key, .owner = OwnerToken::generate()}));
  static_cast<void>(monitor_.commands());

  const BeginOutcome outcome = store_.begin({.key = key, .owner = OwnerToken::generate()});

  EXPECT_TRUE(std::holds_alternative<InProgress>(outcome));
  EXPECT_EQ(monitor_.commands(), (Names{"SET", "EVALSHA"}));
}

TEST_F(RedisCost, IsOneCommandForAnUncertainRecordOrAMismatch) {
  const Key key{"payment", "order-1"};
  const OwnerToken owner = OwnerToken::generate();
  static_cast<void>(store_.begin(
      {.key = key, .owner = owner, .fingerprint = Fingerprint::of_bytes("100 cents")}));
  ASSERT_EQ(store_.doubt(key, {owner, 1}), WriteOutcome::stored);
  static_cast<void>(monitor_.commands());

  const BeginOutcome uncertain = store_.begin({.key = key, .owner = OwnerToken::generate()});
  const BeginOutcome mismatch = store_.begin({.key = key,
                                              .owner = OwnerToken::generate(),
                                              .fingerprint = Fingerprint::of_bytes("200 cents")});

  EXPECT_TRUE(std::holds_alternative<Uncertain>(uncertain));
  EXPECT_TRUE(std::holds_alternative<Mismatch>(mismatch));
  EXPECT_EQ(monitor_.commands(), (Names{"SET", "SET"}));
}

TEST_F(RedisCost, IsOneCommandForEachRenewalOfABatch) {
  std::vector<Renewal> renewals;
  for (int number = 0; number < 3; ++number) {
    const Key key{"payment", std::to_string(number)};
    const OwnerToken owner = OwnerToken::generate();
    static_cast<void>(store_.begin({.key = key, .owner = owner}));
    renewals.push_back({key, {owner, 1}, std::chrono::seconds{30}});
  }
  static_cast<void>(monitor_.commands());

  static_cast<void>(store_.renew_many(renewals));

  EXPECT_EQ(monitor_.commands(), (Names{"EVALSHA", "EVALSHA", "EVALSHA"}));
}

// With the usual allocator's 16-byte steps a record of up to 44 bytes takes 64; dictionary entries are extra.
TEST_F(RedisCost, IsFewBytesForASmallRecord) {
  const Key key{"payment", "order-1234567890"};
  const OwnerToken owner = OwnerToken::generate();
  static_cast<void>(store_.begin({.key = key, .owner = owner}));
  ASSERT_EQ(store_.complete(key, {owner, 1}, {"sixteen bytes...", std::chrono::hours{1}}),
            WriteOutcome::stored);
  const std::string name = "idempotency:{payment:order-1234567890}";

  const std::int64_t value = server().number({"STRLEN", name});
  const std::int64_t memory = server().number({"MEMORY", "USAGE", name});

  RecordProperty("value_bytes", static_cast<int>(value));
  RecordProperty("memory_usage", static_cast<int>(memory));
  EXPECT_LE(value, 44);
  EXPECT_LE(memory, 136);
}

}  // namespace
}  // namespace idempotency
