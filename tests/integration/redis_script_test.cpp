// Scripts of one's own on a RedisStore.

#include "idempotency/stores/redis_script.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "idempotency/stores/redis.hpp"
#include "idempotency/testing/printers.hpp"
#include "support/error_of.hpp"
#include "support/fault_proxy.hpp"
#include "support/redis_monitor.hpp"
#include "support/redis_server.hpp"

namespace idempotency {
namespace {

using namespace std::chrono_literals;
using testing_support::code_of;
using testing_support::error_of;
using testing_support::FaultProxy;
using testing_support::NetworkFault;
using testing_support::RedisMonitor;
using testing_support::RedisServer;
using Names = std::vector<std::string>;

class RedisScriptTest : public ::testing::Test {
 protected:
  RedisScriptTest() { server().ask({"FLUSHALL"}); }
  static RedisServer& server() { return RedisServer::shared(); }

  RedisStore store{server().options()};
  const Key key{"visit", "home"};
  const RedisScript count{"return redis.call('INCRBY', KEYS[1], ARGV[1])"};
};

TEST_F(RedisScriptTest, RunsWithItsKeysAndArguments) {
  const std::string name = store.name_for(key, "visits");

  EXPECT_EQ(store.run_script(count, {name}, {"2"}).integer(), 2);
  EXPECT_EQ(store.run_script(count, {name}, {"3"}).integer(), 5);

  EXPECT_EQ(server().text({"GET", "idempotency:{visit:home}:visits"}), "5");
}

TEST_F(RedisScriptTest, AnswersInEachForm) {
  const RedisScript forms{
      "return {1, false, 'a\\0b', {'x', {}}, redis.status_reply('OK'), 9007199254740992}"};

  const RedisReply reply = store.run_script(forms, {}, {});

  ASSERT_EQ(reply.size(), 6U);
  EXPECT_EQ(reply.at(0).integer(), 1);
  EXPECT_TRUE(reply.at(1).is_nil());
  EXPECT_EQ(reply.at(2).bytes(), std::string("a\0b", 3));
  EXPECT_EQ(reply.at(3).at(0).bytes(), "x");
  EXPECT_EQ(reply.at(3).at(1).size(), 0U);
  EXPECT_EQ(reply.at(4).bytes(), "OK");
  EXPECT_EQ(reply.at(5).integer(), std::int64_t{1} << 53U);
}

// RD-01
TEST_F(RedisScriptTest, IsBroughtAlongWhereTheServerHasLostIt) {
  const std::string name = store.name_for(key, "visits");
  static_cast<void>(store.run_script(count, {name}, {"1"}));
  server().ask({"SCRIPT", "FLUSH"});
  RedisMonitor monitor(server());

  EXPECT_EQ(store.run_script(count, {name}, {"1"}).integer(), 2);
  EXPECT_EQ(monitor.commands(), (Names{"EVALSHA", "EVAL"}));
  EXPECT_EQ(store.run_script(count, {name}, {"1"}).integer(), 3);
  EXPECT_EQ(monitor.commands(), (Names{"EVALSHA"}));
}

TEST_F(RedisScriptTest, FailsAsTheStoresOtherCallsDo) {
  const auto code_with = [&](const char* body) {
    return code_of([&] { static_cast<void>(store.run_script(RedisScript(body), {}, {})); });
  };

  EXPECT_EQ(code_with("return redis.error_reply('CORRUPT it is no number')"), Errc::store_corrupt);
  EXPECT_EQ(code_with("return redis.error_reply('SORRY')"), Errc::store_refused);
  EXPECT_EQ(code_with("this is no Lua"), Errc::store_refused);
  EXPECT_EQ(
      code_of([&] { static_cast<void>(store.run_script(count, {}, {}, {.replica_wait = 0ms})); }),
      Errc::invalid_argument);
  EXPECT_EQ(store.run_script(RedisScript("return 1"), {}, {}).integer(), 1);
}

TEST_F(RedisScriptTest, SaysWhetherItMayHaveWrittenWhenTheAnswerIsLost) {
  FaultProxy proxy(server().port());
  RedisStore far{{.port = proxy.port(), .command_timeout = 200ms}};
  const std::string name = far.name_for(key, "visits");
  const auto error_with = [&](RedisScriptEffect effect) {
    static_cast<void>(far.run_script(count, {name}, {"0"}));
    proxy.harm_next(NetworkFault::reply_swallowed);
    return error_of(
        [&] { static_cast<void>(far.run_script(count, {name}, {"1"}, {.effect = effect})); });
  };

  EXPECT_EQ(error_with(RedisScriptEffect::writes).code(), Errc::store_reply_lost);
  EXPECT_EQ(error_with(RedisScriptEffect::reads).code(), Errc::store_unavailable);
}

// LK-18
TEST_F(RedisScriptTest, WaitsForReplicasInTheSameExchange) {
  RedisMonitor monitor(server());
  const std::string name = store.name_for(key, "visits");

  const RedisReply reply =
      store.run_script(count, {name}, {"4"}, {.replicas = 1, .replica_wait = 5ms});

  ASSERT_EQ(reply.size(), 2U);
  EXPECT_EQ(reply.at(0).integer(), 4);
  EXPECT_EQ(reply.at(1).integer(), 0);
  const Names commands = monitor.commands();
  ASSERT_GE(commands.size(), 2U);
  EXPECT_EQ(commands.back(), "WAIT");
}

}  // namespace
}  // namespace idempotency
