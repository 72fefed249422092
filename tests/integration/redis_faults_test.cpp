// What servers do to records and scripts: flushes, full memory, eviction, foreign values; and what of it is told before.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "idempotency/idempotency.hpp"
#include "idempotency/stores/redis.hpp"
#include "idempotency/testing/printers.hpp"
#include "support/barrier.hpp"
#include "support/error_of.hpp"
#include "support/fault_proxy.hpp"
#include "support/redis_owner.hpp"
#include "support/redis_server.hpp"
#include "support/redis_stand_in.hpp"

namespace idempotency {
namespace {

using std::chrono::milliseconds;
using testing_support::code_of;
using testing_support::error_of;
using testing_support::FaultProxy;
using testing_support::first_of_all;
using testing_support::redis_name;
using testing_support::RedisListener;
using testing_support::RedisOwner;
using testing_support::RedisServer;
using testing_support::RedisStandIn;
using testing_support::run_together;

// RD-01
TEST(RedisFaults, LoseTheScriptsWithoutHarm) {
  RedisServer server;
  RedisStore store(server.options());
  RedisOwner owner{store, {"fault", "1"}};
  ASSERT_EQ(owner.begin(), first_of_all());
  ASSERT_EQ(owner.renew(), WriteOutcome::stored);

  server.ask({"SCRIPT", "FLUSH"});
  EXPECT_EQ(owner.renew(), WriteOutcome::stored);
  server.ask({"SCRIPT", "FLUSH"});
  EXPECT_EQ(store.renew_many({{owner.key, {owner.token, 1}, std::chrono::seconds{30}},
                              {owner.key, {owner.token, 2}, std::chrono::seconds{30}}}),
            (std::vector<WriteOutcome>{WriteOutcome::stored, WriteOutcome::lost}));
  server.ask({"SCRIPT", "FLUSH"});
  EXPECT_EQ(owner.complete(), WriteOutcome::stored);
  server.ask({"SCRIPT", "FLUSH"});
  EXPECT_TRUE(store.find(owner.key));
}

// RD-01
TEST(RedisFaults, LoseTheScriptsUnderParallelCallersWithoutHarm) {
  RedisServer server;
  RedisStore store(server.options());
  IdempotencyGuard guard{store};
  constexpr int keys = 200;
  std::vector<std::atomic<int>> runs(keys);
  std::atomic<int> wrong{0};
  std::atomic<bool> stop{false};
  std::jthread flusher([&] {
    while (!stop)
      server.ask({"SCRIPT", "FLUSH"});
  });

  run_together(4, [&](std::size_t) {
    for (int number = 0; number < keys; ++number) {
      const auto result = guard.run({.key = {"fault", std::to_string(number)}},
                                    [&] { return ++runs[static_cast<std::size_t>(number)]; });
      const bool fits = result.status() == RunStatus::in_progress || result.value() == 1;
      if (!fits) ++wrong;
    }
  });
  stop = true;
  flusher.join();

  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(std::all_of(runs.begin(), runs.end(), [](const auto& count) { return count == 1; }));
}

// Between the lost answer and the store's own repetition another takes the record that was freed.
TEST(RedisFaults, SayOfARetryWhoseAnswerWasLostThatNobodyKnows) {
  RedisServer server;
  FaultProxy proxy{server.port()};
  RedisOptions options = server.options();
  options.port = proxy.port();
  RedisStore desk(options);
  RedisStore direct(server.options());
  const auto doubtful = [&](const char* value) {
    RedisOwner owner{direct, {"fault", value}};
    EXPECT_EQ(owner.begin(), first_of_all());
    EXPECT_EQ(direct.doubt(owner.key, {owner.token, 1}), WriteOutcome::stored);
    return *desk.find(owner.key);
  };
  ASSERT_EQ(desk.resolve(doubtful("script"), {}), WriteOutcome::stored);  // now it is loaded
  const Record seen = doubtful("1");
  RedisOwner rival{direct, seen.key};
  std::optional<BeginOutcome> taken;
  proxy.cut_next_and_then([&] { taken = rival.begin(); });

  EXPECT_EQ(code_of([&] { static_cast<void>(desk.resolve(seen, {})); }), Errc::store_reply_lost);
  proxy.heal();

  ASSERT_TRUE(taken);
  EXPECT_TRUE(std::holds_alternative<Acquired>(*taken)) << "the retry had happened";
}

TEST(RedisFaults, SayOfAReleaseWhoseAnswerWasLostThatNobodyKnows) {
  RedisServer server;
  FaultProxy proxy{server.port()};
  RedisOptions options = server.options();
  options.port = proxy.port();
  RedisStore store(options);
  RedisStore direct(server.options());
  RedisOwner earlier{store, {"fault", "script"}};
  ASSERT_EQ(earlier.begin(), first_of_all());
  ASSERT_EQ(store.release(earlier.key, {earlier.token, 1}, std::chrono::hours{1}),
            ReleaseOutcome::released);  // now the script is loaded
  RedisOwner owner{store, {"fault", "1"}};
  RedisOwner rival{direct, owner.key};
  ASSERT_EQ(owner.begin(), first_of_all());
  std::optional<BeginOutcome> taken;
  proxy.cut_next_and_then([&] { taken = rival.begin(); });

  EXPECT_EQ(store.release(owner.key, {owner.token, 1}, std::chrono::hours{1}),
            ReleaseOutcome::unknown);
  proxy.heal();

  ASSERT_TRUE(taken);
  EXPECT_TRUE(std::holds_alternative<Acquired>(*taken)) << "it had been released";
}

TEST(RedisFaults, SayWhenTheServerIsFull) {
  RedisServer server;
  RedisStore store(server.options());
  RedisOwner owner{store, {"fault", "1"}};
  RedisOwner next{store, {"fault", "2"}};
  ASSERT_EQ(owner.begin(), first_of_all());

  server.ask({"CONFIG", "SET", "maxmemory", "1"});
  EXPECT_EQ(code_of([&] { static_cast<void>(next.begin()); }), Errc::store_full);
  EXPECT_EQ(code_of([&] { static_cast<void>(owner.complete()); }), Errc::store_full);
  EXPECT_TRUE(store.find(owner.key));
  server.ask({"CONFIG", "SET", "maxmemory", "0"});

  EXPECT_EQ(owner.complete(), WriteOutcome::stored);
  EXPECT_EQ(next.begin(), first_of_all());
}

TEST(RedisFaults, RefuseWhatAUserMayNotDo) {
  RedisServer server;
  server.ask(
      {"ACL", "SETUSER", "reader", "on", ">secret", "~*", "+@read", "+@connection", "+time"});
  RedisListener listener;
  RedisOptions options = server.options();
  options.username = "reader";
  options.password = "secret";
  options.observer = &listener;
  RedisStore store(options);

  const Errc code = code_of([&] { static_cast<void>(RedisOwner{store, {"fault", "1"}}.begin()); });

  EXPECT_EQ(code, Errc::store_refused);
  EXPECT_EQ(listener.heard("could not be checked"), 2);
}

/// A command that a script needs may be denied: then nothing is written, or all of it.
TEST(RedisFaults, WriteAllOrNothingWhateverAUserMayNotDo) {
  RedisServer server;
  RedisStore direct(server.options());
  const auto older = RedisStandIn::of_version(server.port(), "6.2.14");
  const auto dump = [&](const Key& key) {
    return server.text({"GET", redis_name(key)}) + " until " +
           std::to_string(server.number({"PEXPIRETIME", redis_name(key)}));
  };
  for (const std::uint16_t port : {server.port(), older->port()}) {
    for (const char* denied : {"-get", "-getex", "-set", "-pttl", "-pexpiretime", "-pexpireat",
                               "-zremrangebyscore", "-time", "-evalsha", "-eval"}) {
      SCOPED_TRACE(std::string(denied) + (port == server.port() ? "" : ", before 7.0"));
      server.ask({"ACL", "SETUSER", "limited", "reset", "on", ">secret", "~*", "+@all", denied});
      RedisOptions options = server.options();
      options.port = port;
      options.username = "limited";
      options.password = "secret";
      const RedisOwner first{direct, {"fault", "first"}};
      RedisOwner second{direct, {"fault", "second"}};
      server.ask({"DEL", redis_name(first.key), redis_name(second.key)});
      ASSERT_EQ(second.begin(), first_of_all());
      const std::string before = dump(second.key);

      try {
        RedisStore store(options);
        const BeginRequest begun{.key = first.key, .owner = first.token};
        try {
          EXPECT_EQ(store.begin(begun), first_of_all());
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), Errc::store_refused) << error.detail();
          EXPECT_EQ(server.number({"EXISTS", redis_name(first.key)}), 0);
        }
        EXPECT_EQ(store.complete(second.key, {second.token, 1}, {"result", std::chrono::hours{1}}),
                  WriteOutcome::stored);
        const std::int64_t left = server.number({"PTTL", redis_name(second.key)});
        EXPECT_GT(left, 0);
        EXPECT_LE(left, 3'600'000);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::store_refused) << error.detail();
        EXPECT_EQ(dump(second.key), before);
      }
    }
  }
}

// ID-28
TEST(RedisFaults, DoNotTouchWhatIsNoRecord) {
  RedisServer server;
  RedisStore store(server.options());
  RedisOwner list{store, {"fault", "list"}};
  RedisOwner text{store, {"fault", "text"}};
  server.ask({"LPUSH", redis_name(list.key), "x"});
  server.ask({"SET", redis_name(text.key), "\x01garbage"});

  for (RedisOwner* owner : {&list, &text}) {
    EXPECT_EQ(code_of([&] { static_cast<void>(owner->begin()); }), Errc::store_corrupt);
    EXPECT_EQ(code_of([&] { static_cast<void>(owner->complete()); }), Errc::store_corrupt);
    EXPECT_EQ(code_of([&] { static_cast<void>(store.find(owner->key)); }), Errc::store_corrupt);
  }

  EXPECT_EQ(server.number({"LLEN", redis_name(list.key)}), 1);
  EXPECT_EQ(server.text({"GET", redis_name(text.key)}), "\x01garbage");
}

TEST(RedisFaults, OfOneRowKeepNoOtherFromBeingRenewed) {
  RedisServer server;
  RedisStore store(server.options());
  RedisOwner list{store, {"fault", "list"}};
  server.ask({"LPUSH", redis_name(list.key), "x"});
  std::vector<Renewal> renewals;
  std::vector<Timestamp> before;
  for (int number = 0; number < 300; ++number) {  // more than are sent together
    RedisOwner owner{store, {"fault", std::to_string(number)}};
    ASSERT_EQ(owner.begin(), first_of_all());
    renewals.push_back({owner.key, {owner.token, 1}, std::chrono::hours{2}});
    before.push_back(store.find(owner.key)->lease_until.value());
  }
  std::vector<Renewal> with_the_list = renewals;
  with_the_list.insert(with_the_list.begin(), {list.key, {list.token, 1}, std::chrono::hours{2}});

  const Error error = error_of([&] { static_cast<void>(store.renew_many(with_the_list)); });

  EXPECT_EQ(error.code(), Errc::store_reply_lost) << error.what();
  EXPECT_EQ(error.detail().substr(0, 9), "WRONGTYPE");
  std::size_t renewed = 0;
  for (std::size_t row = 0; row < renewals.size(); ++row) {
    if (store.find(renewals[row].key)->lease_until > before[row]) ++renewed;
  }
  EXPECT_EQ(renewed, renewals.size());
  EXPECT_EQ(store.renew_many(renewals),
            std::vector<WriteOutcome>(renewals.size(), WriteOutcome::stored));
}

TEST(RedisFaults, OfABatchThatChangedNothingSaySo) {
  RedisServer server;
  RedisStore store(server.options());
  RedisOwner list{store, {"fault", "list"}};
  RedisOwner nobody{store, {"fault", "nobody"}};
  server.ask({"LPUSH", redis_name(list.key), "x"});

  const Error error = error_of([&] {
    static_cast<void>(store.renew_many({{nobody.key, {nobody.token, 1}, std::chrono::hours{2}},
                                        {list.key, {list.token, 1}, std::chrono::hours{2}}}));
  });

  EXPECT_EQ(error.code(), Errc::store_corrupt);
  EXPECT_FALSE(error.effect_possible());
}

// HI-09
TEST(RedisFaults, TellAnOwnerThatItsRecordIsGoneOrAnothers) {
  RedisServer server;
  RedisStore store(server.options());
  RedisOwner owner{store, {"fault", "1"}};
  RedisOwner thief{store, owner.key};
  ASSERT_EQ(owner.begin(), first_of_all());

  server.ask({"DEL", redis_name(owner.key)});
  EXPECT_EQ(owner.renew(), WriteOutcome::lost);
  EXPECT_EQ(store.renew_many({{owner.key, {owner.token, 1}, std::chrono::seconds{30}}}),
            std::vector{WriteOutcome::lost});
  EXPECT_EQ(server.number({"EXISTS", redis_name(owner.key)}), 0);
  ASSERT_EQ(thief.begin(), first_of_all());

  EXPECT_EQ(owner.renew(), WriteOutcome::lost);
  EXPECT_EQ(owner.complete(), WriteOutcome::lost);
  EXPECT_EQ(thief.complete(), WriteOutcome::stored);
}

// RD-08
TEST(RedisFaults, DoNotBringAnEvictedRecordBack) {
  for (const char* policy : {"allkeys-lru", "volatile-lru"}) {
    RedisServer server({"--maxmemory", "4mb", "--maxmemory-policy", policy});
    RedisListener listener;
    RedisOptions options = server.options();
    options.observer = &listener;
    RedisStore store(options);
    EXPECT_EQ(listener.heard("may evict records"), 1) << policy;
    RedisOwner running{store, {"fault", "running"}};
    RedisOwner finished{store, {"fault", "finished"}};
    ASSERT_EQ(running.begin(), first_of_all());
    ASSERT_EQ(finished.begin(), first_of_all());
    ASSERT_EQ(finished.complete(), WriteOutcome::stored);

    const std::string filler(1'000, 'x');
    const auto is_there = [&](const RedisOwner& owner) {
      return server.number({"EXISTS", redis_name(owner.key)}) == 1;
    };
    for (int number = 0; number < 100'000 && (is_there(running) || is_there(finished)); ++number) {
      server.ask({"EVAL",
                  "for i = 1, 100 do redis.call('SET', KEYS[1] .. i, ARGV[1], 'EX', 1000) end", "1",
                  "filler" + std::to_string(number) + "-", filler});
    }
    ASSERT_FALSE(is_there(running) || is_there(finished)) << policy;

    EXPECT_EQ(running.renew(), WriteOutcome::lost);
    EXPECT_EQ(running.complete(), WriteOutcome::lost);
    EXPECT_EQ(store.release(running.key, {running.token, 1}, std::chrono::hours{1}),
              ReleaseOutcome::lost);
    EXPECT_EQ(finished.complete(), WriteOutcome::lost);
    EXPECT_FALSE(is_there(running) || is_there(finished)) << policy;
  }
}

TEST(RedisHazards, AreNotReportedOfADurableServer) {
  RedisServer server(RedisServer::durable());
  RedisListener listener;
  RedisOptions options = server.options();
  options.observer = &listener;

  RedisStore store(options);

  EXPECT_EQ(listener.all(), 0U);
}

// RD-08
TEST(RedisHazards, AreReportedOnce) {
  RedisServer server({"--maxmemory-policy", "allkeys-lru"});
  RedisListener listener;
  RedisOptions options = server.options();
  options.observer = &listener;

  RedisStore store(options);
  server.ask({"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"});
  static_cast<void>(store.find({"fault", "1"}));

  EXPECT_EQ(listener.heard("may evict records"), 1);
  EXPECT_EQ(listener.heard("nothing is persisted"), 1);
  EXPECT_EQ(listener.all(), 2U);
}

TEST(RedisHazards, AreReportedOfAReplicaAndOfLateFlushes) {
  RedisServer server(
      {"--appendonly", "yes", "--appendfsync", "everysec", "--replicaof", "127.0.0.1 1"});
  RedisListener listener;
  RedisOptions options = server.options();
  options.observer = &listener;

  RedisStore store(options);

  EXPECT_EQ(listener.heard("replica"), 1);
  EXPECT_EQ(listener.heard("not flushed at every write"), 1);
}

TEST(RedisHazards, AreReportedOfSnapshotsOnly) {
  RedisServer server({"--save", "3600 1"});
  RedisListener listener;
  RedisOptions options = server.options();
  options.observer = &listener;

  RedisStore store(options);

  EXPECT_EQ(listener.heard("only snapshots"), 1);
}

}  // namespace
}  // namespace idempotency
