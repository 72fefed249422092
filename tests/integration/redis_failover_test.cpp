// Servers that are not the primary any more, or not yet ready.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "idempotency/stores/redis.hpp"
#include "idempotency/testing/printers.hpp"
#include "support/barrier.hpp"
#include "support/error_of.hpp"
#include "support/free_port.hpp"
#include "support/redis_owner.hpp"
#include "support/redis_server.hpp"
#include "support/redis_stand_in.hpp"

namespace idempotency {
namespace {

using std::chrono::milliseconds;
using testing_support::code_of;
using testing_support::error_of;
using testing_support::first_of_all;
using testing_support::redis_name;
using testing_support::RedisOwner;
using testing_support::RedisServer;
using testing_support::RedisStandIn;
using testing_support::run_together;

/// Waits until a replica has all that its primary has.
void wait_for_copy(RedisServer& primary, RedisServer& replica) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds{30};
  while (replica.info("replication", "master_link_status") != "up" ||
         replica.info("replication", "slave_repl_offset") !=
             primary.info("replication", "master_repl_offset")) {
    ASSERT_LT(std::chrono::steady_clock::now(), end) << "the replica does not follow";
    std::this_thread::sleep_for(milliseconds{10});
  }
}

/// Makes the store hold several idle connections.
void fill_pool(RedisStore& store, RedisServer& server, std::size_t connections) {
  server.pause();
  std::jthread resume([&] {
    std::this_thread::sleep_for(milliseconds{50});
    server.resume();
  });
  run_together(connections, [&](std::size_t) {
    static_cast<void>(store.find({"failover", "filler"}));
  });
}

// RD-01, RD-03
TEST(RedisFailover, GoesOnWithTheNewPrimaryUnderTheSameAddress) {
  RedisServer first({"--repl-diskless-sync-delay", "0"});
  RedisServer second;
  const std::uint16_t address = first.port();
  second.ask({"REPLICAOF", "127.0.0.1", std::to_string(first.port())});
  RedisStore store(first.options());
  RedisOwner finished{store, {"failover", "finished"}};
  RedisOwner running{store, {"failover", "running"}};
  RedisOwner fresh{store, {"failover", "fresh"}};
  ASSERT_EQ(finished.begin(), first_of_all());
  ASSERT_EQ(finished.complete(), WriteOutcome::stored);
  ASSERT_EQ(running.begin(), first_of_all());
  fill_pool(store, first, 8);
  wait_for_copy(first, second);

  second.ask({"REPLICAOF", "NO", "ONE"});
  first.ask({"REPLICAOF", "127.0.0.1", std::to_string(second.port())});
  first.move_to(testing_support::free_port());
  second.move_to(address);

  // The pooled connections still lead to the first, which answers READONLY; no call needs to know.
  EXPECT_EQ(running.complete(), WriteOutcome::stored);
  EXPECT_TRUE(std::holds_alternative<Completed>(
      store.begin({.key = finished.key, .owner = OwnerToken::generate()})));
  EXPECT_EQ(fresh.begin(), first_of_all());
  EXPECT_EQ(second.number({"EXISTS", redis_name(fresh.key)}), 1);
  EXPECT_EQ(second.info("replication", "role"), "master");
}

// RD-03, RD-16
TEST(RedisFailover, DecidesNothingOnAReplicaUntilItIsPromoted) {
  RedisServer server({"--replica-serve-stale-data", "no"});
  RedisStore store(server.options());
  RedisOwner owner{store, {"failover", "1"}};
  RedisOwner next{store, {"failover", "2"}};
  ASSERT_EQ(owner.begin(), first_of_all());

  server.ask({"REPLICAOF", "127.0.0.1", "1"});
  for (const char* serves_old_data : {"no", "yes"}) {
    server.ask({"CONFIG", "SET", "replica-serve-stale-data", serves_old_data});
    const std::vector<Error> errors{error_of([&] { static_cast<void>(next.begin()); }),
                                    error_of([&] { static_cast<void>(owner.begin()); }),
                                    error_of([&] { static_cast<void>(owner.renew()); }),
                                    error_of([&] { static_cast<void>(owner.complete()); }),
                                    error_of([&] { static_cast<void>(store.find(owner.key)); }),
                                    error_of([&] { static_cast<void>(store.find(next.key)); }),
                                    error_of([&] { static_cast<void>(store.list({}, "", 10)); })};
    for (const Error& error : errors) {
      EXPECT_EQ(error.code(), Errc::store_unavailable) << error.detail();
      EXPECT_FALSE(error.effect_possible());
    }
  }
  server.ask({"REPLICAOF", "NO", "ONE"});

  EXPECT_EQ(owner.complete(), WriteOutcome::stored);
  EXPECT_EQ(next.begin(), first_of_all());
}

// RD-16: the same for servers before 7.0, which lack the command by which newer ones are asked
TEST(RedisFailover, DecidesNothingOnAnOlderReplicaEither) {
  RedisServer server;
  const auto older = RedisStandIn::of_version(server.port(), "6.0.16");
  RedisStore store(RedisOptions{.port = older->port()});
  RedisOwner owner{store, {"failover", "1"}};
  ASSERT_EQ(owner.begin(), first_of_all());
  ASSERT_TRUE(store.find(owner.key));

  server.ask({"REPLICAOF", "127.0.0.1", "1"});
  for (const Key& key : {owner.key, Key{"failover", "absent"}}) {
    EXPECT_EQ(code_of([&] { static_cast<void>(store.find(key)); }), Errc::store_unavailable);
  }
}

/// Repeats a call until it is answered, as one that may be repeated.
template <class Call>
auto answered(Call call, bool& was_refused) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds{60};
  while (true) {
    try {
      return call();
    } catch (const Error& error) {
      EXPECT_TRUE(error.safe_to_retry()) << error.what();
      was_refused = true;
      if (std::chrono::steady_clock::now() > end) throw;
      std::this_thread::sleep_for(milliseconds{2});
    }
  }
}

// RD-06
TEST(RedisFailover, WaitsForAServerThatIsLoading) {
  RedisServer server(RedisServer::durable());
  RedisOptions options = server.options();
  options.database = 5;
  RedisStore store(options);
  RedisOwner owner{store, {"failover", "1"}};
  RedisOwner next{store, {"failover", "2"}};
  ASSERT_EQ(owner.begin(), first_of_all());
  server.ask({"EVAL", "for i = 1, 3000 do redis.call('SET', 'filler' .. i, i) end return 1", "0"});
  server.kill();

  server.start_without_waiting({"--key-load-delay", "300",
                                "--loading-process-events-interval-bytes", "1024",
                                "--aof-use-rdb-preamble", "no"});
  bool was_busy = false;
  const auto note_busy = [&](auto call) {
    try {
      return call();
    } catch (const Error& error) {
      was_busy = was_busy || error.code() == Errc::store_busy;
      throw;
    }
  };
  bool was_refused = false;
  const WriteOutcome completed =
      answered([&] { return note_busy([&] { return owner.complete(); }); }, was_refused);

  EXPECT_TRUE(was_busy);
  EXPECT_EQ(completed, WriteOutcome::stored);
  EXPECT_EQ(next.begin(), first_of_all());
}

// RD-06: a dump whose loading answers nobody, so that the handshake itself fails
TEST(RedisFailover, KeepsNoConnectionThatWasOnlyHalfMade) {
  RedisServer server({"--save", "3600 1000000"});
  RedisOptions options = server.options();
  options.database = 5;
  options.command_timeout = milliseconds{50};
  RedisStore store(options);
  RedisOwner owner{store, {"failover", "1"}};
  RedisOwner next{store, {"failover", "2"}};
  ASSERT_EQ(owner.begin(), first_of_all());
  server.ask({"EVAL", "for i = 1, 2000 do redis.call('SET', 'filler' .. i, i) end return 1", "0"});
  ASSERT_EQ(server.text({"SAVE"}), "OK");
  server.kill();

  server.start_without_waiting({"--key-load-delay", "300"});
  bool was_refused = false;
  const WriteOutcome completed = answered([&] { return owner.complete(); }, was_refused);

  EXPECT_TRUE(was_refused);
  EXPECT_EQ(completed, WriteOutcome::stored);
  EXPECT_EQ(next.begin(), first_of_all());
  EXPECT_EQ(server.number({"EXISTS", redis_name(owner.key)}, 5), 1);
  EXPECT_EQ(server.number({"EXISTS", redis_name(next.key)}, 5), 1);
  EXPECT_EQ(server.number({"EXISTS", redis_name(next.key)}, 0), 0);
}

// RD-06: a server that refuses parts of the handshake while it loads
TEST(RedisFailover, MakesTheWholeHandshakeAgainAfterItWasRefused) {
  RedisServer server;
  std::atomic<int> refusals{3};
  std::atomic<int> half_made{0};
  RedisStandIn loading([&](const std::vector<std::string>& words) -> std::string {
    if (words[0] == "HELLO")
      return "*4\r\n$7\r\nversion\r\n$5\r\n7.0.0\r\n$4\r\nrole\r\n$6\r\nmaster\r\n";
    if (words[0] == "SELECT" && refusals-- > 0) {
      return "-LOADING Redis is loading the dataset in memory\r\n";
    }
    if (words[0] == "SELECT") return "+OK\r\n";
    if (words[0] == "TIME") return "*2\r\n$1\r\n1\r\n$1\r\n1\r\n";
    if (refusals >= 0) ++half_made;
    return "*2\r\n$-1\r\n:-1\r\n";
  });
  RedisStore store(RedisOptions{.port = loading.port(), .database = 5});

  EXPECT_EQ(code_of([&] { static_cast<void>(store.find({"a", "b"})); }), Errc::store_busy);
  EXPECT_EQ(code_of([&] { static_cast<void>(store.find({"a", "b"})); }), Errc::store_busy);
  EXPECT_NO_THROW(static_cast<void>(store.find({"a", "b"})));
  EXPECT_EQ(half_made, 0);
}

/// A node of a cluster; alone it owns nothing.
std::vector<std::string> as_node(std::uint16_t port_for_nodes = testing_support::free_port()) {
  return {"--cluster-enabled", "yes", "--cluster-port", std::to_string(port_for_nodes)};
}

void wait_until_told(RedisServer& node, const std::vector<std::string>& words,
                     const std::string& told) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds{30};
  while (node.text(words).find(told) == std::string::npos) {
    ASSERT_LT(std::chrono::steady_clock::now(), end) << told << " is not told";
    std::this_thread::sleep_for(milliseconds{10});
  }
}

TEST(RedisCluster, IsServedByTheNodeThatOwnsTheSlots) {
  RedisServer node(as_node());
  RedisStore store(node.options());
  RedisOwner owner{store, {"cluster", "1"}};
  const Error without_slots = error_of([&] { static_cast<void>(owner.begin()); });

  node.ask({"CLUSTER", "ADDSLOTSRANGE", "0", "16383"});
  wait_until_told(node, {"CLUSTER", "INFO"}, "cluster_state:ok");

  EXPECT_EQ(without_slots.code(), Errc::store_unavailable) << without_slots.detail();
  EXPECT_EQ(owner.begin(), first_of_all());
  EXPECT_TRUE(std::holds_alternative<InProgress>(
      store.begin({.key = owner.key, .owner = OwnerToken::generate()})));
  EXPECT_EQ(store.renew_many({{owner.key, {owner.token, 1}, std::chrono::seconds{30}}}),
            std::vector{WriteOutcome::stored});
  EXPECT_EQ(owner.complete(), WriteOutcome::stored);
  EXPECT_TRUE(store.find(owner.key));
  EXPECT_EQ(store.list({}, "", 10).records.size(), 1U);
  EXPECT_EQ(store.statistics().success, 1U);
}

TEST(RedisCluster, RefusesWhatAnotherNodeOwns) {
  const std::uint16_t port_for_nodes = testing_support::free_port();
  RedisServer node(as_node());
  RedisServer other(as_node(port_for_nodes));
  const std::string other_id = other.text({"CLUSTER", "MYID"});
  RedisStore store(node.options());
  RedisOwner owner{store, {"cluster", "1"}};
  const std::string slot = node.text({"CLUSTER", "KEYSLOT", redis_name(owner.key)});
  node.ask({"CLUSTER", "ADDSLOTSRANGE", "0", "16383"});
  node.ask({"CLUSTER", "MEET", "127.0.0.1", std::to_string(other.port()),
            std::to_string(port_for_nodes)});
  wait_until_told(node, {"CLUSTER", "NODES"}, other_id);
  node.ask({"CLUSTER", "DELSLOTS", slot});
  ASSERT_EQ(node.text({"CLUSTER", "SETSLOT", slot, "NODE", other_id}), "OK");
  wait_until_told(node, {"GET", redis_name(owner.key)}, "MOVED");

  for (const Error& error : {error_of([&] { static_cast<void>(owner.begin()); }),
                             error_of([&] { static_cast<void>(owner.complete()); }),
                             error_of([&] { static_cast<void>(store.find(owner.key)); })}) {
    EXPECT_EQ(error.code(), Errc::store_refused);
    EXPECT_EQ(error.detail().rfind("MOVED " + slot, 0), 0U) << error.detail();
    EXPECT_FALSE(error.effect_possible());
  }
}

}  // namespace
}  // namespace idempotency
