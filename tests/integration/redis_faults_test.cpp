// What servers do to records and scripts: restarts, fail-overs, full memory, eviction, foreign values.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "idempotency/idempotency.hpp"
#include "idempotency/stores/redis.hpp"
#include "idempotency/testing/printers.hpp"
#include "support/error_of.hpp"
#include "support/redis_owner.hpp"
#include "support/redis_server.hpp"

namespace idempotency {
namespace {

using std::chrono::milliseconds;
using testing_support::code_of;
using testing_support::first_of_all;
using testing_support::redis_name;
using testing_support::RedisListener;
using testing_support::RedisOwner;
using testing_support::RedisServer;

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

TEST(RedisFaults, LoseNothingThatWasAcknowledgedToAKilledDurableServer) {
  RedisServer server(RedisServer::durable());
  RedisStore store(server.options());
  RedisOwner finished{store, {"fault", "finished"}};
  RedisOwner running{store, {"fault", "running"}};
  ASSERT_EQ(finished.begin(), first_of_all());
  ASSERT_EQ(finished.complete(), WriteOutcome::stored);
  ASSERT_EQ(running.begin(), first_of_all());
  const std::optional<Record> before = store.find(running.key);

  server.kill();
  EXPECT_EQ(code_of([&] { static_cast<void>(running.begin()); }), Errc::store_unavailable);
  server.start();

  EXPECT_TRUE(std::holds_alternative<Completed>(
      store.begin({.key = finished.key, .owner = OwnerToken::generate()})));
  EXPECT_TRUE(std::holds_alternative<InProgress>(
      store.begin({.key = running.key, .owner = OwnerToken::generate()})));
  EXPECT_EQ(store.find(running.key)->lease_until, before->lease_until);
  EXPECT_EQ(running.complete(), WriteOutcome::stored);
}

TEST(RedisFaults, KeepEveryAcknowledgedCompletionThroughKillsUnderLoad) {
  RedisServer server(RedisServer::durable());
  RedisStore store(server.options());
  constexpr int threads = 4;
  std::atomic<bool> stop{false};
  std::vector<std::vector<Key>> acknowledged(threads);
  {
    std::vector<std::jthread> workers;
    for (int thread = 0; thread < threads; ++thread) {
      workers.emplace_back([&, thread] {
        for (int number = 0; !stop; ++number) {
          RedisOwner owner{store, {"load", std::to_string(thread) + "-" + std::to_string(number)}};
          try {
            if (owner.begin() != first_of_all() || owner.complete() != WriteOutcome::stored)
              continue;
            acknowledged[static_cast<std::size_t>(thread)].push_back(owner.key);
          } catch (const Error& error) {
            EXPECT_TRUE(error.safe_to_retry()) << error.what() << error.detail();
          }
        }
      });
    }
    for (int round = 0; round < 3; ++round) {
      std::this_thread::sleep_for(milliseconds{300});
      server.kill();
      server.start();
    }
    std::this_thread::sleep_for(milliseconds{100});
    stop = true;
  }

  std::size_t checked = 0;
  for (const std::vector<Key>& keys : acknowledged) {
    for (const Key& key : keys) {
      const std::optional<Record> record = store.find(key);
      ASSERT_TRUE(record) << key.text();
      ASSERT_EQ(record->state, RecordState::success) << key.text();
      ++checked;
    }
  }
  EXPECT_GT(checked, 20U);
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

// RD-08, HI-09
TEST(RedisFaults, DoNotBringAnEvictedRecordBack) {
  RedisServer server;
  RedisStore store(server.options());
  RedisOwner owner{store, {"fault", "1"}};
  ASSERT_EQ(owner.begin(), first_of_all());

  server.ask({"DEL", redis_name(owner.key)});

  EXPECT_EQ(owner.renew(), WriteOutcome::lost);
  EXPECT_EQ(owner.complete(), WriteOutcome::lost);
  EXPECT_EQ(store.release(owner.key, {owner.token, 1}, std::chrono::hours{1}),
            ReleaseOutcome::lost);
  EXPECT_EQ(server.number({"EXISTS", redis_name(owner.key)}), 0);
}

// HI-07
TEST(RedisFaults, DoNotThrowFromAReleaseWithoutAServer) {
  RedisServer server;
  RedisListener listener;
  RedisOptions options = server.options();
  options.observer = &listener;
  RedisStore store(options);
  RedisOwner owner{store, {"fault", "1"}};
  ASSERT_EQ(owner.begin(), first_of_all());

  server.kill();

  EXPECT_EQ(store.release(owner.key, {owner.token, 1}, std::chrono::hours{1}),
            ReleaseOutcome::unknown);
  EXPECT_EQ(listener.failed_releases, 1);
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
