// Connections: what a reconnect restores, what a pool bounds, and the traps of hiredis.

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "idempotency/stores/redis.hpp"
#include "idempotency/testing/printers.hpp"
#include "support/child_process.hpp"
#include "support/error_of.hpp"
#include "support/event.hpp"
#include "support/fault_proxy.hpp"
#include "support/loopback.hpp"
#include "support/redis_closing_socket.hpp"
#include "support/redis_owner.hpp"
#include "support/redis_server.hpp"
#include "support/redis_stand_in.hpp"
#include "support/waiting_threads.hpp"

namespace idempotency {
namespace {

using namespace std::string_literals;
using std::chrono::milliseconds;
using testing_support::BlackHole;
using testing_support::ChildProcess;
using testing_support::code_of;
using testing_support::error_of;
using testing_support::Event;
using testing_support::FaultProxy;
using testing_support::ProcessEnd;
using testing_support::RedisListener;
using testing_support::RedisServer;
using testing_support::RedisStandIn;
using testing_support::WaitingThreads;

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

// HI-01
TEST(RedisConnections, SurviveTheEndOfTheServerWhileIdle) {
  ASSERT_NE(std::signal(SIGPIPE, SIG_DFL), SIG_ERR);
  RedisServer own(RedisServer::durable());
  RedisStore store(own.options());
  const Key key = finished(store);

  for (int round = 0; round < 3; ++round) {
    own.stop();
    const Error error = error_of([&] { static_cast<void>(replays(store, key)); });
    EXPECT_EQ(error.code(), Errc::store_unavailable) << error.detail();
    EXPECT_FALSE(error.effect_possible());
    own.start();

    EXPECT_TRUE(replays(store, key));
  }
}

// HI-01
TEST(RedisConnections, SurviveAServerThatGoesWhileMuchIsWrittenToIt) {
  const RedisServer own;
  testing_support::expect_to_outlive_a_closing_socket(own.port(), own.options());
}

/// What the server says of the store's connections, one line each.
std::vector<std::string> connections_of_stores(RedisServer& own) {
  const std::string all = own.text({"CLIENT", "LIST"});
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < all.size();) {
    const std::size_t end = std::min(all.find('\n', at), all.size());
    std::string line = all.substr(at, end - at);
    if (line.find(" name=idempotency ") != std::string::npos) lines.push_back(std::move(line));
    at = end + 1;
  }
  return lines;
}

// HI-11
TEST(RedisConnections, SurviveTheServersIdleTimeout) {
  RedisServer own({"--timeout", "1"});
  RedisStore store(own.options());
  const Key key = finished(store);
  ASSERT_EQ(connections_of_stores(own).size(), 1U);

  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds{30};
  while (!connections_of_stores(own).empty() && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(milliseconds{50});
  ASSERT_TRUE(connections_of_stores(own).empty());

  EXPECT_TRUE(replays(store, key));
}

// RD-17
TEST(RedisConnections, RestoreUserDatabaseAndNameAfterAReconnect) {
  RedisServer own;
  own.ask({"ACL", "SETUSER", "app", "on", ">p@ss word", "~idempotency:*", "+@all"});
  own.ask({"ACL", "SETUSER", "default", "-set", "-evalsha"});
  RedisOptions options = own.options();
  options.username = "app";
  options.password = "p@ss word";
  options.database = 5;
  RedisStore store(options);
  const Key key = finished(store);

  for (int round = 0; round < 3; ++round) {
    own.ask({"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"});

    EXPECT_TRUE(replays(store, key));
    const std::vector<std::string> connections = connections_of_stores(own);
    ASSERT_EQ(connections.size(), 1U);
    EXPECT_NE(connections.front().find(" db=5 "), std::string::npos) << connections.front();
    EXPECT_NE(connections.front().find(" user=app "), std::string::npos) << connections.front();
  }
  EXPECT_EQ(own.number({"EXISTS", "idempotency:{" + key.text() + "}"}, 5), 1);
}

TEST(RedisConnections, NeedNoMoreRightsThanAreDocumented) {
  RedisServer own;
  own.ask({"ACL",       "SETUSER",       "app",          "on",         ">secret",  "~idempotency:*",
           "+hello",    "+auth",         "+select",      "+time",      "+get",     "+getex",
           "+set",      "+pttl",         "+pexpiretime", "+eval",      "+evalsha", "+scan",
           "+getrange", "+memory|usage", "+info",        "+config|get"});
  RedisOptions options = own.options();
  options.username = "app";
  options.password = "secret";
  RedisListener listener;
  options.observer = &listener;
  RedisStore store(options);
  const Key key = finished(store);
  const Key other = new_key();
  const OwnerToken owner = OwnerToken::generate();

  EXPECT_EQ(listener.heard("could not be checked"), 0);
  EXPECT_EQ(listener.heard("nothing is persisted"), 1);
  EXPECT_EQ(store.begin({.key = other, .owner = owner}), BeginOutcome(Acquired{1, 1}));
  EXPECT_EQ(store.renew(other, {owner, 1}, std::chrono::seconds{30}), WriteOutcome::stored);
  EXPECT_EQ(store.mark_effect(other, {owner, 1}), WriteOutcome::stored);
  EXPECT_EQ(store.doubt(other, {owner, 1}), WriteOutcome::stored);
  EXPECT_TRUE(store.find(key));
  EXPECT_EQ(store.list({}, "", 10).records.size(), 2U);
  EXPECT_EQ(store.statistics().success, 1U);
  EXPECT_EQ(store.resolve(*store.find(other), {}), WriteOutcome::stored);
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

// HI-02
TEST(RedisConnections, AreDiscardedAfterATimeoutSoThatNoLateReplyIsTakenForAnother) {
  RedisServer own;
  RedisOptions options = own.options();
  options.command_timeout = milliseconds{500};
  options.max_connections = 1;
  RedisStore store(options);
  const Key replayed = finished(store);
  const Key slow = new_key();
  const Key next = new_key();
  const OwnerToken owner = OwnerToken::generate();

  own.pause();
  const Error lost =
      error_of([&] { static_cast<void>(store.begin({.key = slow, .owner = owner})); });
  own.resume();  // and the late answer, that `slow` is acquired, goes nowhere
  own.ask({"PING"});

  EXPECT_EQ(lost.code(), Errc::store_reply_lost);
  EXPECT_TRUE(lost.effect_possible());
  EXPECT_TRUE(replays(store, replayed));
  EXPECT_EQ(store.begin({.key = next, .owner = OwnerToken::generate()}),
            BeginOutcome(Acquired{1, 1}));
  EXPECT_TRUE(std::holds_alternative<InProgress>(
      store.begin({.key = slow, .owner = OwnerToken::generate()})));
  EXPECT_EQ(store.begin({.key = slow, .owner = owner}), BeginOutcome(Acquired{1, 1}));
}

TEST(RedisConnections, SayThatAReadHadNoEffectWhenItsAnswerIsLost) {
  RedisServer own;
  RedisOptions options = own.options();
  options.command_timeout = milliseconds{50};
  RedisStore store(options);

  own.pause();
  const Errc code = code_of([&] { static_cast<void>(store.find(new_key())); });
  own.resume();

  EXPECT_EQ(code, Errc::store_unavailable);
}

TEST(RedisConnections, SayThatAnEffectIsPossibleWhenTheServerDiesAtWork) {
  RedisServer own;
  RedisOptions options = own.options();
  options.command_timeout = std::chrono::seconds{30};
  FaultProxy proxy(own.port());  // knows when the request is out
  options.port = proxy.port();
  RedisStore store(options);
  const std::uint64_t before = proxy.requests();

  own.pause();
  std::jthread killer([&] {
    while (proxy.requests() == before)
      std::this_thread::sleep_for(milliseconds{1});
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
  options.pool_wait = milliseconds{50};
  options.command_timeout = std::chrono::seconds{30};
  FaultProxy proxy(own.port());
  options.port = proxy.port();
  RedisStore store(options);
  const std::uint64_t before = proxy.requests();

  own.pause();
  std::jthread holder([&] { static_cast<void>(store.find(new_key())); });
  while (proxy.requests() == before)
    std::this_thread::sleep_for(milliseconds{1});
  const Errc code = code_of([&] { static_cast<void>(store.find(new_key())); });
  own.resume();

  EXPECT_EQ(code, Errc::store_busy);
}

TEST(RedisConnections, AreGivenToWhoeverHasWaitedLongest) {
  Event asked;
  Event answer;
  std::mutex mutex;
  std::vector<std::string> order;  // of the one connection's requests
  RedisStandIn own([&](const std::vector<std::string>& words) -> std::string {
    if (words[0] == "HELLO") return "*2\r\n$7\r\nversion\r\n$5\r\n7.0.0\r\n";
    if (words[0] == "TIME") return "*2\r\n$1\r\n1\r\n$1\r\n1\r\n";
    {
      const std::scoped_lock lock(mutex);
      order.push_back(words.at(3));
    }
    asked.set();
    return answer.wait() ? "*2\r\n:6\r\n:1\r\n" : "";
  });
  std::vector<std::string> expected;
  {
    RedisStore store(RedisOptions{.port = own.port(),
                                  .command_timeout = std::chrono::seconds{60},
                                  .pool_wait = std::chrono::seconds{60},
                                  .max_connections = 1});
    WaitingThreads callers;
    for (int number = 0; number < 6; ++number) {
      const Key key{"fair", std::to_string(number)};
      expected.push_back(testing_support::redis_name(key));
      callers.add([&store, key] {
        EXPECT_EQ(store.renew(key, {OwnerToken::generate(), 1}, milliseconds{1}),
                  WriteOutcome::lost);
      });
      if (number == 0) {
        ASSERT_TRUE(asked.wait());
      }
    }
    answer.set();
  }

  const std::scoped_lock lock(mutex);
  EXPECT_EQ(order, expected);
}

TEST(RedisConnections, AreNotWaitedForPastTheTimeoutWhereNobodyAnswers) {
  const BlackHole hole;
  RedisStore store(RedisOptions{.port = hole.port(), .connect_timeout = milliseconds{100}});
  const auto started = std::chrono::steady_clock::now();
  const Error error = error_of([&] { static_cast<void>(store.find(new_key())); });

  EXPECT_LT(std::chrono::steady_clock::now() - started, std::chrono::seconds{6});
  EXPECT_EQ(error.code(), Errc::store_unavailable) << error.detail();
  EXPECT_FALSE(error.effect_possible());
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
  const std::string bytes = "\0\r\n%s%b%n\xff$-1\r\n*3\r\n"s;
  const Key key =
      Key::of("connection", "%s %b \xff *?[a] } { \\", std::string_view(bytes), new_key().text());
  OwnerToken::Bytes token{};
  std::copy_n(bytes.begin(), token.size(), token.begin());
  const OwnerToken owner(token);
  const Fingerprint fingerprint = Fingerprint::of_bytes(bytes);
  const Fingerprint other = Fingerprint::of_bytes(bytes.substr(0, 1));
  ASSERT_EQ(store.begin({.key = key, .owner = owner, .fingerprint = fingerprint, .trace = bytes}),
            BeginOutcome(Acquired{1, 1}));
  ASSERT_EQ(store.find(key)->ownership.owner, owner);

  ASSERT_EQ(store.complete(key, {owner, 1}, {bytes, std::chrono::hours{1}}), WriteOutcome::stored);

  const std::optional<Record> record = store.find(key);
  ASSERT_TRUE(record);
  EXPECT_EQ(record->result, bytes);
  EXPECT_EQ(record->trace, bytes);
  EXPECT_EQ(record->fingerprint, fingerprint.current());
  EXPECT_TRUE(std::holds_alternative<Mismatch>(
      store.begin({.key = key, .owner = OwnerToken::generate(), .fingerprint = other})));
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
