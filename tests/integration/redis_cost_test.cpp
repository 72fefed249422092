// What a call costs, counted by the server itself.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "idempotency/idempotency.hpp"
#include "idempotency/patterns/token_service.hpp"
#include "idempotency/stores/redis.hpp"
#include "redis/redis_store_impl.hpp"
#include "support/fault_proxy.hpp"
#include "support/redis_monitor.hpp"
#include "support/redis_server.hpp"
#include "support/redis_stand_in.hpp"

namespace idempotency {
namespace {

using testing_support::FaultProxy;
using testing_support::RedisMonitor;
using testing_support::RedisServer;
using testing_support::RedisStandIn;
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

TEST_F(RedisCost, IsNoMoreUnderAOneTimeToken) {
  const auto issue = [&](const char* value) {
    ASSERT_EQ(store_.issue({.key = {"payment", value}, .issuer = OwnerToken::generate()}),
              WriteOutcome::stored);
  };
  const auto submit = [&](const char* value) {
    const Operation operation{.key = {"payment", value}, .admission = Admission::issued};
    return guard_.run(operation, [] { return std::string("charge-1"); }).status();
  };
  issue("token-0");
  ASSERT_EQ(submit("token-0"), RunStatus::executed);  // the scripts are there
  static_cast<void>(monitor_.commands());

  issue("token-1");
  EXPECT_EQ(monitor_.commands(), (Names{"EVALSHA"}));
  ASSERT_EQ(submit("token-1"), RunStatus::executed);
  EXPECT_EQ(monitor_.commands(), (Names{"EVALSHA", "EVALSHA"}));
  ASSERT_EQ(submit("token-1"), RunStatus::replayed);
  EXPECT_EQ(monitor_.commands(), (Names{"EVALSHA"}));
}

TEST_F(RedisCost, IsThatOfAPlainRunForATokenOfEitherKind) {
  const auto cost_of = [&](TokenService tokens, const std::string& token, RunStatus expected) {
    static_cast<void>(monitor_.commands());
    const PresentedToken presented{.token = token, .purpose = "payment", .subject = "alice"};
    EXPECT_EQ(tokens.run(guard_, presented, [] { return std::string("charge-1"); }).status(),
              expected);
    return monitor_.commands().size();
  };
  const TokenSigner signer({{.id = "k1", .secret = std::string(32, 's')}});
  const auto issued = [](TokenService tokens) {
    return tokens.issue("payment", "alice", std::chrono::minutes{5});
  };
  static_cast<void>(cost_of(TokenService(store_), issued(TokenService(store_)),
                            RunStatus::executed));  // the scripts are there
  const std::string stored = issued(TokenService(store_));
  const std::string signed_one = issued(TokenService(signer));

  EXPECT_EQ(cost_of(TokenService(store_), stored, RunStatus::executed), 2U);
  EXPECT_EQ(cost_of(TokenService(store_), stored, RunStatus::replayed), 1U);
  EXPECT_EQ(cost_of(TokenService(signer), signed_one, RunStatus::executed), 2U);
  EXPECT_EQ(cost_of(TokenService(signer), signed_one, RunStatus::replayed), 1U);
}

// RD-13
TEST_F(RedisCost, IsOneScriptForEachStepBeforeRedis7) {
  const auto older = RedisStandIn::of_version(server().port(), "6.2.14");
  RedisStore store(RedisOptions{.port = older->port()});
  IdempotencyGuard guard{store};
  const auto commands_of = [&](const char* value) {
    static_cast<void>(
        guard.run({.key = {"payment", value}}, [] { return std::string("charge-1"); }));
    return monitor_.commands();
  };
  static_cast<void>(commands_of("warm-up-before-7"));

  EXPECT_EQ(commands_of("order-1"), (Names{"EVALSHA", "EVALSHA"}));
  EXPECT_EQ(commands_of("order-1"), (Names{"EVALSHA"}));
}

TEST_F(RedisCost, IsTwoRoundTripsForAFirstRunAndOneForADuplicate) {
  FaultProxy proxy(server().port());
  RedisStore store(RedisOptions{.port = proxy.port()});
  IdempotencyGuard guard{store};
  const auto round_trips_of = [&](const char* value) {
    const std::uint64_t before = proxy.requests();
    static_cast<void>(
        guard.run({.key = {"payment", value}}, [] { return std::string("charge-1"); }));
    return proxy.requests() - before;
  };

  EXPECT_EQ(round_trips_of("order-1"), 2U);
  EXPECT_EQ(round_trips_of("order-1"), 1U);
  EXPECT_EQ(round_trips_of("order-2"), 2U);
}

// The server's clock is heard anew once a minute, at no round trip more.
TEST_F(RedisCost, IsOneCommandMoreInTheSameRoundTripWhenTheClockIsAMinuteOld) {
  FaultProxy proxy(server().port());
  const RedisOptions options{.port = proxy.port()};
  detail::redis::StoreImpl store(options);
  detail::redis::Connection connection(options);
  const auto now = [] { return std::chrono::steady_clock::now(); };
  const auto cost_of = [&](const char* value) {
    const std::uint64_t before = proxy.requests();
    static_cast<void>(monitor_.commands());
    EXPECT_EQ(store.begin(connection, {.key = {"payment", value}, .owner = OwnerToken::generate()}),
              BeginOutcome(Acquired{1, 1}));
    EXPECT_EQ(proxy.requests(), before + 1);
    return monitor_.commands();
  };
  EXPECT_EQ(cost_of("order-1"), (Names{"SET"}));
  connection.clock().show(Timestamp{}, now() - std::chrono::seconds{61});
  const std::int64_t earlier = std::stoll(server().ask({"TIME"})->element[0]->str);

  EXPECT_EQ(cost_of("order-2"), (Names{"SET", "TIME"}));

  EXPECT_FALSE(connection.clock().is_stale(now()));
  const Timestamp heard = connection.clock().latest(now());
  EXPECT_GE(heard.time_since_epoch(), std::chrono::seconds{earlier});
  EXPECT_EQ(cost_of("order-3"), (Names{"SET"}));
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

TEST_F(RedisCost, IsOneCommandForEachRenewalOfALargeBatch) {
  const Key key{"payment", "order-1"};
  const OwnerToken owner = OwnerToken::generate();
  static_cast<void>(store_.begin({.key = key, .owner = owner}));
  std::vector<Renewal> renewals;
  std::vector<WriteOutcome> expected;
  for (int number = 0; number < 600; ++number) {
    const bool is_own = number % 3 == 0;
    renewals.push_back({key, {owner, is_own ? 1U : 2U}, std::chrono::seconds{30}});
    expected.push_back(is_own ? WriteOutcome::stored : WriteOutcome::lost);
  }
  static_cast<void>(monitor_.commands());

  EXPECT_EQ(store_.renew_many(renewals), expected);

  EXPECT_EQ(monitor_.commands(), Names(600, "EVALSHA"));
}

// RD-01
TEST_F(RedisCost, IsOneTextOfTheScriptForABatchThatMissesIt) {
  const Key key{"payment", "order-1"};
  const OwnerToken owner = OwnerToken::generate();
  static_cast<void>(store_.begin({.key = key, .owner = owner}));
  const std::vector<Renewal> renewals(600, Renewal{key, {owner, 1}, std::chrono::seconds{30}});
  server().ask({"SCRIPT", "FLUSH"});
  static_cast<void>(monitor_.commands());

  EXPECT_EQ(store_.renew_many(renewals), std::vector<WriteOutcome>(600, WriteOutcome::stored));

  Names expected(256, "EVALSHA");  // as many as are sent together, and once more
  expected.emplace_back("EVAL");
  expected.insert(expected.end(), 255 + 600 - 256, "EVALSHA");
  EXPECT_EQ(monitor_.commands(), expected);
}

TEST_F(RedisCost, OfAListingIsBoundedInMemoryHoweverManyRecordsThereAre) {
  const Key key{"payment", "order-1"};
  const OwnerToken owner = OwnerToken::generate();
  static_cast<void>(store_.begin({.key = key, .owner = owner}));
  constexpr int count = 12'000;  // more than one pass keeps
  server().ask({"EVAL", R"lua(
      local value = redis.call('GET', KEYS[1])
      redis.call('FLUSHALL')
      for i = 1, ARGV[1] do
        redis.call('SET', string.format('idempotency:{many:%06d}', i), value, 'PX', 31536000000000)
      end)lua",
                "1", "idempotency:{" + key.text() + "}", std::to_string(count)});

  std::vector<std::string> listed;
  std::string cursor;
  do {
    const RecordPage page = store_.list({.type = "many"}, cursor, 7'000);
    for (const Record& record : page.records)
      listed.emplace_back(record.key.text());
    cursor = page.cursor;
  } while (!cursor.empty());

  EXPECT_EQ(listed.size(), static_cast<std::size_t>(count));
  EXPECT_EQ(listed.front(), "many:000001");
  EXPECT_EQ(listed.back(), "many:012000");
  EXPECT_TRUE(std::is_sorted(listed.begin(), listed.end()));
  EXPECT_EQ(store_.statistics().processing, static_cast<std::uint64_t>(count));
}

// RD-01
TEST_F(RedisCost, IsOneCommandMoreForTheFirstThatMissesAScript) {
  const Key key{"payment", "order-1"};
  const OwnerToken owner = OwnerToken::generate();
  static_cast<void>(store_.begin({.key = key, .owner = owner}));
  server().ask({"SCRIPT", "FLUSH"});
  static_cast<void>(monitor_.commands());

  ASSERT_EQ(store_.renew(key, {owner, 1}, std::chrono::seconds{30}), WriteOutcome::stored);
  EXPECT_EQ(monitor_.commands(), (Names{"EVALSHA", "EVAL"}));

  ASSERT_EQ(store_.complete(key, {owner, 1}, {}), WriteOutcome::stored);
  EXPECT_EQ(monitor_.commands(), (Names{"EVALSHA"}));
}

/// The bytes that a server holds for each of so many records like the one under `name`, with their entries in its tables.
double bytes_for_each(RedisServer& own, const std::string& name, int count) {
  const std::string copy = R"lua(
    local value, left = redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1])
    for i = 1, ARGV[1] do
      redis.call('SET', string.format('idempotency:{payment:order-%013d}', i), value, 'PX', left)
    end
    return 0)lua";
  own.ask({"EVAL", copy, "1", name, "0"});
  const std::int64_t before = std::stoll(own.info("memory", "used_memory"));
  own.ask({"EVAL", copy, "1", name, std::to_string(count)});
  // The tables have grown on the way, and the old ones go step by step.
  const auto is_growing = [&] {
    return own.text({"DEBUG", "HTSTATS", "0"}).find("rehashing target") != std::string::npos;
  };
  while (is_growing())
    own.ask({"PING"});
  return static_cast<double>(std::stoll(own.info("memory", "used_memory")) - before) / count;
}

// A table of 2^17 places is as full with 125,000 entries as one of 2^20 with a million: the bytes are the same.
TEST(RedisMemory, HoldsAMillionSmallRecordsInLessThan190BytesEach) {
  RedisServer own;
  if (own.info("memory", "mem_allocator").rfind("jemalloc", 0) != 0) {
    GTEST_SKIP() << "THE BYTES OF A RECORD ARE NOT CHECKED: they are known for jemalloc";
  }
  RedisStore store(own.options());
  const Key key{"payment", "order-1234567890123"};
  const std::string name = "idempotency:{payment:order-1234567890123}";
  ASSERT_EQ(name.size(), 41U);
  const OwnerToken owner = OwnerToken::generate();
  ASSERT_EQ(store.begin({.key = key, .owner = owner}), BeginOutcome(Acquired{1, 1}));
  // What a handler returns is recorded with its form, three bytes in front of a short string.
  const std::string result = encode_result(std::string("sixteen bytes..."));
  ASSERT_EQ(store.complete(key, {owner, 1}, {result, std::chrono::hours{24 * 30}}),
            WriteOutcome::stored);

  const double bytes = bytes_for_each(own, name, 125'000);

  RecordProperty("bytes_for_each_record", std::to_string(bytes));
  RecordProperty("value_bytes", std::to_string(own.number({"STRLEN", name})));
  EXPECT_LE(own.number({"STRLEN", name}), 28);
  EXPECT_LE(bytes, 190.0);
}

TEST_F(RedisCost, IsOneExchangeToBeginABatchAndOneToFinishEachRun) {
  FaultProxy proxy(server().port());
  RedisOptions options = server().options();
  options.port = proxy.port();
  RedisStore store(options);
  IdempotencyGuard guard{store};
  const auto batch_of = [&](const char* type) {
    std::vector<Operation> operations;
    for (int number = 0; number < 50; ++number)
      operations.push_back({.key = Key(type, std::to_string(number))});
    return guard.begin_many(std::move(operations));
  };
  static_cast<void>(guard.run({.key = {"payment", "warm"}}, [] { return 1; }));
  static_cast<void>(monitor_.commands());

  const std::uint64_t before = proxy.requests();
  RunBatch first = batch_of("order");
  const std::uint64_t begun = proxy.requests();
  for (std::size_t place = 0; place < first.size(); ++place)
    EXPECT_EQ(first.run(place, [] { return 1; }).status(), RunStatus::executed);
  const std::uint64_t finished = proxy.requests();
  RunBatch second = batch_of("order");
  for (std::size_t place = 0; place < second.size(); ++place)
    EXPECT_EQ(second.run(place, [] { return 1; }).status(), RunStatus::replayed);
  const std::uint64_t repeated = proxy.requests();
  RunBatch held = batch_of("payment");
  for (std::size_t place = 0; place < held.size(); ++place)
    EXPECT_EQ(held.run(place, [] { return 1; }).status(), RunStatus::executed);
  const std::uint64_t ended = proxy.requests();

  EXPECT_EQ(begun - before, 1U);
  EXPECT_EQ(finished - begun, 50U);
  EXPECT_EQ(repeated - finished, 1U) << "a batch of duplicates is one exchange";
  EXPECT_EQ(ended - repeated, 101U) << "under hold each is marked before its handler starts";
}

}  // namespace
}  // namespace idempotency
