// Connections: what a reconnect restores, what a pool bounds, and the traps of hiredis.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "idempotency/stores/redis.hpp"
#include "idempotency/testing/printers.hpp"
#include "support/child_process.hpp"
#include "support/error_of.hpp"
#include "support/redis_server.hpp"

namespace idempotency {
namespace {

using std::chrono::milliseconds;
using testing_support::ChildProcess;
using testing_support::code_of;
using testing_support::ProcessEnd;
using testing_support::RedisServer;

RedisServer& server() { return RedisServer::shared(); }

Key new_key() {
  static std::atomic<int> number{0};
  return {"connection", std::to_string(::getpid()) + "-" + std::to_string(++number)};
}

/// A record that is finished.
Key finished(RedisStore& store) {
  Key key = new_key();
  const OwnerToken owner = OwnerToken::generate();
  EXPECT_EQ(store.begin({.key = key, .owner = owner}), BeginOutcome(Acquired{1, 1}));
  EXPECT_EQ(store.complete(key, {owner, 1}, {"result", std::chrono::hours{1}}),
            WriteOutcome::stored);
  return key;
}

bool replays(RedisStore& store, const Key& key) {
  const BeginOutcome outcome = store.begin({.key = key, .owner = OwnerToken::generate()});
  return std::holds_alternative<Completed>(outcome);
}

// HI-01, HI-11
TEST(RedisConnections, SurviveBeingClosedByTheServerWhileIdle) {
  ASSERT_NE(std::signal(SIGPIPE, SIG_DFL), SIG_ERR);
  RedisStore store(server().options());
  const Key key = finished(store);

  for (int round = 0; round < 20; ++round) {
    server().ask({"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"});

    EXPECT_TRUE(replays(store, key)) << "round " << round;
  }
}

// HI-11
TEST(RedisConnections, SurviveTheServersIdleTimeout) {
  RedisServer own({"--timeout", "1"});
  RedisStore store(own.options());
  const Key key = finished(store);

  std::this_thread::sleep_for(milliseconds{2'500});

  EXPECT_TRUE(replays(store, key));
}

// RD-17
TEST(RedisConnections, RestoreUserAndDatabaseAfterAReconnect) {
  RedisServer own;
  own.ask({"ACL", "SETUSER", "app", "on", ">p@ss word", "~idempotency:*", "+@all"});
  own.ask({"ACL", "SETUSER", "default", "-set", "-evalsha"});
  RedisOptions options = own.options();
  options.username = "app";
  options.password = "p@ss word";
  options.database = 5;
  RedisStore store(options);
  const Key key = finished(store);

  own.ask({"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"});

  EXPECT_TRUE(replays(store, key));
  EXPECT_EQ(own.number({"EXISTS", "idempotency:{" + key.text() + "}"}, 5), 1);
}

TEST(RedisConnections, SelectTheDatabaseOnEveryConnection) {
  RedisOptions options = server().options();
  options.database = 5;
  RedisStore store(options);
  const Key key = finished(store);
  const std::string name = "idempotency:{" + key.text() + "}";

  server().ask({"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"});

  EXPECT_TRUE(replays(store, key));
  EXPECT_EQ(server().number({"EXISTS", name}, 5), 1);
  EXPECT_EQ(server().number({"EXISTS", name}, 0), 0);
}

TEST(RedisConnections, RefuseWrongCredentialsAtOnce) {
  RedisServer own;
  own.ask({"CONFIG", "SET", "requirepass", "secret"});
  RedisOptions options = own.options();

  EXPECT_EQ(code_of([&] { RedisStore store(options); }), Errc::store_refused);
  options.password = "wrong";
  EXPECT_EQ(code_of([&] { RedisStore store(options); }), Errc::store_refused);
  options.password = "secret";
  RedisStore store(options);
  EXPECT_TRUE(replays(store, finished(store)));
}

TEST(RedisConnections, ReachASocketFile) {
  RedisStore store("unix://" + server().socket() + "?db=3");

  EXPECT_TRUE(replays(store, finished(store)));
}

TEST(RedisConnections, ReachAnAddress) {
  RedisStore store("redis://127.0.0.1:" + std::to_string(server().port()) + "/2");
  const Key key = finished(store);

  EXPECT_EQ(server().number({"EXISTS", "idempotency:{" + key.text() + "}"}, 2), 1);
}

TEST(RedisConnections, AreNotMadeWithoutAServerButLater) {
  RedisServer own(RedisServer::durable());
  own.kill();
  RedisStore store(own.options());
  EXPECT_EQ(code_of([&] { static_cast<void>(store.find(new_key())); }), Errc::store_unavailable);

  own.start();

  EXPECT_TRUE(replays(store, finished(store)));
}

// HI-02, HI-06
TEST(RedisConnections, AreDiscardedAfterATimeoutSoThatNoLateReplyIsTakenForAnother) {
  RedisServer own;
  RedisOptions options = own.options();
  options.command_timeout = milliseconds{100};
  options.max_connections = 1;
  RedisStore store(options);
  const Key slow = new_key();
  const Key next = finished(store);
  const OwnerToken owner = OwnerToken::generate();
  std::jthread sleeper([&] { own.ask({"DEBUG", "SLEEP", "0.6"}); });
  std::this_thread::sleep_for(milliseconds{150});

  const auto started = std::chrono::steady_clock::now();
  EXPECT_EQ(code_of([&] { static_cast<void>(store.begin({.key = slow, .owner = owner})); }),
            Errc::store_reply_lost);
  EXPECT_LT(std::chrono::steady_clock::now() - started, milliseconds{400});
  sleeper.join();

  EXPECT_TRUE(replays(store, next));
  EXPECT_EQ(store.begin({.key = slow, .owner = owner}), BeginOutcome(Acquired{1, 1}));
}

TEST(RedisConnections, SayThatAReadHadNoEffectWhenItsAnswerIsLost) {
  RedisServer own;
  RedisOptions options = own.options();
  options.command_timeout = milliseconds{50};
  RedisStore store(options);
  std::jthread sleeper([&] { own.ask({"DEBUG", "SLEEP", "0.5"}); });
  std::this_thread::sleep_for(milliseconds{150});

  const Errc code = code_of([&] { static_cast<void>(store.find(new_key())); });

  EXPECT_EQ(code, Errc::store_unavailable);
}

TEST(RedisConnections, SayThatAnEffectIsPossibleWhenTheServerDiesAtWork) {
  RedisServer own;
  RedisStore store(own.options());
  std::jthread sleeper([&] {
    try {
      own.ask({"DEBUG", "SLEEP", "5"});
    } catch (const std::runtime_error&) {  // it is killed meanwhile
    }
  });
  std::this_thread::sleep_for(milliseconds{150});
  std::jthread killer([&] {
    std::this_thread::sleep_for(milliseconds{200});
    own.kill();
  });

  const Errc code = code_of(
      [&] { static_cast<void>(store.begin({.key = new_key(), .owner = OwnerToken::generate()})); });

  EXPECT_EQ(code, Errc::store_reply_lost);
}

TEST(RedisConnections, AreWaitedForNoLongerThanAllowed) {
  RedisServer own;
  RedisOptions options = own.options();
  options.max_connections = 1;
  options.pool_wait = milliseconds{100};
  RedisStore store(options);
  std::jthread sleeper([&] { own.ask({"DEBUG", "SLEEP", "0.8"}); });
  std::this_thread::sleep_for(milliseconds{150});
  std::jthread holder([&] { static_cast<void>(store.find(new_key())); });
  std::this_thread::sleep_for(milliseconds{100});

  const Errc code = code_of([&] { static_cast<void>(store.find(new_key())); });

  EXPECT_EQ(code, Errc::store_busy);
}

TEST(RedisConnections, AreNeverMoreThanAllowed) {
  RedisServer own;
  RedisOptions options = own.options();
  options.max_connections = 3;
  options.pool_wait = std::chrono::seconds{30};
  RedisStore store(options);
  std::atomic<int> done{0};
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < 16; ++thread) {
      threads.emplace_back([&] {
        for (int call = 0; call < 50; ++call)
          done += replays(store, finished(store)) ? 1 : 0;
      });
    }
  }

  EXPECT_EQ(done, 16 * 50);
  // 3 of the store, one that asks; those that asked whether the server is up are counted since its start.
  EXPECT_LE(std::stoi(own.info("clients", "connected_clients")), 3 + 1);
}

// CP-03
TEST(RedisConnections, AreNotUsedInTheChildOfAFork) {
  RedisStore store(server().options());
  const Key key = finished(store);

  ChildProcess child = ChildProcess::fork([&](const ChildProcess::ToParent&) {
    try {
      static_cast<void>(store.find(key));
      return 1;
    } catch (const Error& error) {
      return error.code() == Errc::used_after_fork ? 0 : 2;
    }
  });

  EXPECT_EQ(child.wait(), (ProcessEnd{0, 0}));
  EXPECT_TRUE(replays(store, key));
}

// HI-04
TEST(RedisConnections, CarryEveryByte) {
  RedisStore store(server().options());
  const std::string bytes("\0\r\n%s%b%n\xff$-1\r\n*3\r\n", 21);
  const Key key{"connection", "%s %b \xff *?[a] } { \\" + new_key().text()};
  const OwnerToken owner = OwnerToken::generate();
  ASSERT_EQ(store.begin({.key = key, .owner = owner, .trace = bytes}),
            BeginOutcome(Acquired{1, 1}));

  ASSERT_EQ(store.complete(key, {owner, 1}, {bytes, std::chrono::hours{1}}), WriteOutcome::stored);

  const std::optional<Record> record = store.find(key);
  ASSERT_TRUE(record);
  EXPECT_EQ(record->result, bytes);
  EXPECT_EQ(record->trace, bytes);
  const RecordPage page = store.list({.type = "connection"}, "", 10'000);
  EXPECT_TRUE(std::any_of(page.records.begin(), page.records.end(),
                          [&](const Record& listed) { return listed.key == key; }));
}

TEST(RedisConnections, CarryNothingAtAll) {
  RedisStore store(server().options());
  const Key key = new_key();
  const OwnerToken owner = OwnerToken::generate();
  static_cast<void>(store.begin({.key = key, .owner = owner, .trace = ""}));

  ASSERT_EQ(store.fail(key, {owner, 1}, {Retryability::permanent, "", ""}, std::chrono::hours{1}),
            WriteOutcome::stored);

  const std::optional<Record> record = store.find(key);
  ASSERT_TRUE(record && record->failure);
  EXPECT_EQ(*record->failure, (Failure{Retryability::permanent, "", ""}));
}

}  // namespace
}  // namespace idempotency
