// Servers that end and come back, orderly and not, while their records are in use.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "idempotency/idempotency.hpp"
#include "idempotency/stores/breaker.hpp"
#include "idempotency/stores/redis.hpp"
#include "idempotency/testing/printers.hpp"
#include "support/error_of.hpp"
#include "support/fault_proxy.hpp"
#include "support/patience.hpp"
#include "support/redis_owner.hpp"
#include "support/redis_server.hpp"

namespace idempotency {
namespace {

using std::chrono::milliseconds;
using testing_support::code_of;
using testing_support::ending_of;
using testing_support::error_of;
using testing_support::FaultProxy;
using testing_support::first_of_all;
using testing_support::NetworkFault;
using testing_support::Patience;
using testing_support::RedisListener;
using testing_support::RedisOwner;
using testing_support::RedisServer;

using End = void (RedisServer::*)();
constexpr End ends[] = {&RedisServer::kill, &RedisServer::stop};

// RD-01
TEST(RedisRestarts, LoseNothingThatADurableServerAcknowledged) {
  for (const End end : ends) {
    RedisServer server(RedisServer::durable());
    RedisStore store(server.options());
    RedisOwner finished{store, {"restart", "finished"}};
    RedisOwner running{store, {"restart", "running"}};
    ASSERT_EQ(finished.begin(), first_of_all());
    ASSERT_EQ(finished.complete(), WriteOutcome::stored);
    ASSERT_EQ(running.begin(), first_of_all());
    ASSERT_EQ(running.renew(), WriteOutcome::stored);
    const std::optional<Record> before_running = store.find(running.key);
    const std::optional<Record> before_finished = store.find(finished.key);
    ASSERT_TRUE(before_running && before_finished);

    (server.*end)();
    EXPECT_EQ(code_of([&] { static_cast<void>(running.begin()); }), Errc::store_unavailable);
    server.start();

    EXPECT_TRUE(std::holds_alternative<Completed>(
        store.begin({.key = finished.key, .owner = OwnerToken::generate()})));
    EXPECT_TRUE(std::holds_alternative<InProgress>(
        store.begin({.key = running.key, .owner = OwnerToken::generate()})));
    EXPECT_EQ(store.find(running.key)->lease_until, before_running->lease_until);
    EXPECT_EQ(store.find(finished.key)->expires_at, before_finished->expires_at);
    EXPECT_EQ(store.find(finished.key)->created_at, before_finished->created_at);
    EXPECT_EQ(running.complete(), WriteOutcome::stored);
  }
}

// RD-01, FB-06: while the server hangs, callers wait for their own time limits until the breaker opens, and then not at all.
TEST(RedisRestarts, AreMetByABreakerThatOpensAndClosesAgain) {
  RedisServer server(RedisServer::durable());
  RedisOptions options = server.options();
  options.command_timeout = milliseconds{200};
  RedisStore redis(options);
  BreakerStore store{redis,
                     {.failure_threshold = 4, .open_duration = milliseconds{50}, .name = "redis"}};
  IdempotencyGuard guard{store, {.begin_attempts = 1}};
  const auto refuses = [&](const std::string& key) {
    try {
      static_cast<void>(guard.run({.key = {"restart", key}}, [] { return 0; }));
      return false;
    } catch (const Error& error) {
      EXPECT_TRUE(error.safe_to_retry()) << error.what();
      return std::string(error.what()).find("breaker") != std::string::npos;
    }
  };
  const auto comes_back = [&](const std::string& key, int result) {
    for (const Patience patience; patience.lasts();) {
      try {
        return guard.run({.key = {"restart", key}}, [&] { return result; }).value() == result &&
               store.state() == BreakerState::closed;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::store_unavailable);
        std::this_thread::sleep_for(milliseconds{1});
      }
    }
    return false;
  };
  server.ask({"SCRIPT", "FLUSH"});
  ASSERT_EQ(guard.run({.key = {"restart", "a"}}, [] { return 1; }).value(), 1);
  EXPECT_EQ(store.state(), BreakerState::closed);

  server.pause();
  for (int call = 0; call < 4; ++call)
    EXPECT_FALSE(refuses("hangs-" + std::to_string(call)));
  EXPECT_TRUE(refuses("b"));
  server.resume();
  EXPECT_TRUE(comes_back("b", 2));

  server.kill();
  for (int call = 0; call < 4; ++call)
    EXPECT_FALSE(refuses("c"));
  EXPECT_TRUE(refuses("c"));
  server.start();
  EXPECT_TRUE(comes_back("c", 3));
  EXPECT_EQ(guard.run({.key = {"restart", "a"}}, [] { return 9; }).value(), 1);
}

// FB-01: there is no second store that would not know what the first has recorded.
TEST(RedisRestarts, RunNothingASecondTimeWhileTheStoreIsAway) {
  RedisServer server(RedisServer::durable());
  RedisStore redis(server.options());
  BreakerStore store{redis, {.failure_threshold = 1, .open_duration = milliseconds{20}}};
  IdempotencyGuard guard{store};
  int runs = 0;
  const auto pay = [&] { return guard.run({.key = {"payment", "k"}}, [&] { return ++runs; }); };
  ASSERT_EQ(pay().status(), RunStatus::executed);

  server.kill();
  for (int call = 0; call < 3; ++call)
    EXPECT_EQ(code_of([&] { static_cast<void>(pay()); }), Errc::store_unavailable);
  server.start();
  std::optional<RunStatus> status;
  for (const Patience patience; patience.lasts() && !status;)
    static_cast<void>(ending_of([&] { status = pay().status(); }));

  EXPECT_EQ(status, RunStatus::replayed);
  EXPECT_EQ(runs, 1);
}

// FB-03: a node that is cut off from the store refuses, whatever the others see.
TEST(RedisRestarts, LetNoNodeRunThatIsCutOff) {
  RedisServer server;
  FaultProxy proxy{server.port()};
  RedisOptions options = server.options();
  options.port = proxy.port();
  RedisStore seen_by_a(server.options());
  RedisStore seen_by_b(options);
  IdempotencyGuard a{seen_by_a};
  IdempotencyGuard b{seen_by_b};
  int runs = 0;
  const auto pay = [&](auto& guard) {
    return guard.run({.key = {"payment", "k"}}, [&] { return ++runs; });
  };

  proxy.plan([](std::uint64_t) { return NetworkFault::cut_before_request; });
  const Error refused = error_of([&] { static_cast<void>(pay(b)); });
  EXPECT_TRUE(refused.safe_to_retry()) << refused.what();
  EXPECT_EQ(runs, 0);
  EXPECT_EQ(pay(a).status(), RunStatus::executed);
  EXPECT_TRUE(error_of([&] { static_cast<void>(pay(b)); }).safe_to_retry());
  proxy.heal();

  EXPECT_EQ(pay(b).status(), RunStatus::replayed);
  EXPECT_EQ(runs, 1);
}

/// What callers were told of each key, and how often its handler ran.
class Ledger {
 public:
  int ran(const std::string& key) {
    const std::scoped_lock lock(mutex_);
    return ++runs_[key];
  }
  void acknowledged(const std::string& key, const std::string& result) {
    const std::scoped_lock lock(mutex_);
    results_.emplace(key, result);
  }
  [[nodiscard]] const std::map<std::string, std::string>& results() const { return results_; }
  [[nodiscard]] const std::map<std::string, int>& runs() const { return runs_; }

 private:
  std::mutex mutex_;
  std::map<std::string, int> runs_;
  std::map<std::string, std::string> results_;
};

/// Asks for keys, each with one rival, until it is told to stop; notes what is acknowledged.
void load(IdempotencyGuard<RedisStore>& guard, const std::string& name, Ledger& ledger,
          const std::atomic<bool>& stop) {
  for (int number = 0; !stop; ++number) {
    const std::string value = name + "-" + std::to_string(number);
    try {
      // No lease runs out while the test lasts, so no handler may run twice.
      const auto result =
          guard.run({.key = {"load", value}, .policy = {.lease = std::chrono::minutes{10}}},
                    [&] { return value + " run " + std::to_string(ledger.ran(value)); });
      if (result.status() == RunStatus::executed || result.status() == RunStatus::replayed) {
        ledger.acknowledged(value, result.value());
      }
    } catch (const Error& error) {
      EXPECT_TRUE(error.safe_to_retry() || error.effect_possible())
          << error.what() << error.detail();
    }
  }
}

TEST(RedisRestarts, LoseNoAcknowledgedRunUnderLoadAndRunNoHandlerTwice) {
  RedisServer server(RedisServer::durable());
  RedisStore first(server.options());
  RedisStore second(server.options());
  Ledger ledger;
  {
    IdempotencyGuard guard{first, {.write_budget = milliseconds{500}}};
    IdempotencyGuard rival{second, {.write_budget = milliseconds{500}}};
    std::atomic<bool> stop{false};
    std::vector<std::jthread> threads;
    for (const char* name : {"a", "b"}) {
      threads.emplace_back([&, name] { load(guard, name, ledger, stop); });
      threads.emplace_back([&, name] { load(rival, name, ledger, stop); });
    }
    for (int round = 0; round < 6; ++round) {
      const std::size_t before = static_cast<std::size_t>(server.number({"DBSIZE"}));
      while (static_cast<std::size_t>(server.number({"DBSIZE"})) < before + 20)
        std::this_thread::sleep_for(milliseconds{5});
      (server.*ends[round % 2])();
      server.start();
    }
    stop = true;
  }

  for (const auto& [value, result] : ledger.results()) {
    const std::optional<Record> record = first.find({"load", value});
    ASSERT_TRUE(record) << value;
    ASSERT_EQ(record->state, RecordState::success) << value;
    ASSERT_EQ(record->result, encode_result(result)) << value;
  }
  for (const auto& [value, runs] : ledger.runs()) {
    EXPECT_EQ(runs, 1) << value;
    EXPECT_TRUE(first.find({"load", value})) << "its handler ran, so its begin was acknowledged";
  }
  EXPECT_GT(ledger.results().size(), 50U);
}

// HI-07
TEST(RedisRestarts, LetGuardsEndInPeaceWithoutAServer) {
  RedisServer server(RedisServer::durable());
  RedisListener listener;
  RedisStore store(server.options());
  const PolicyOverride short_lease{.lease = milliseconds{500}};
  {
    IdempotencyGuard guard{store, {.observer = &listener, .write_budget = milliseconds{50}}};

    EXPECT_THROW(static_cast<void>(guard.run({.key = {"restart", "thrown"}, .policy = short_lease},
                                             [&]() -> std::string {
                                               server.kill();
                                               throw std::out_of_range("the handler's own");
                                             })),
                 std::out_of_range);
    EXPECT_GT(listener.failed_calls, 0);

    server.start();
    listener.failed_calls = 0;
    const auto result = guard.run({.key = {"restart", "returned"}, .policy = short_lease}, [&] {
      server.kill();
      return std::string("done");
    });
    EXPECT_EQ(result.status(), RunStatus::executed_unrecorded);
    EXPECT_EQ(result.value(), "done");
    EXPECT_GT(listener.failed_calls, 0);
  }

  server.start();
  for (const char* value : {"thrown", "returned"}) {  // their leases run out by themselves
    RedisOwner next{store, {"restart", value}};
    BeginOutcome outcome = next.begin();
    while (std::holds_alternative<InProgress>(outcome)) {
      std::this_thread::sleep_for(std::get<InProgress>(outcome).lease_remaining);
      outcome = next.begin();
    }
    EXPECT_EQ(outcome, BeginOutcome(Acquired{2, 2})) << value;
  }
}

// HI-07
TEST(RedisRestarts, LetAReleaseFailWithoutAnException) {
  RedisServer server;
  RedisListener listener;
  RedisOptions options = server.options();
  options.observer = &listener;
  RedisStore store(options);
  RedisOwner owner{store, {"restart", "released"}};
  ASSERT_EQ(owner.begin(), first_of_all());

  server.kill();

  EXPECT_EQ(store.release(owner.key, {owner.token, 1}, std::chrono::hours{1}),
            ReleaseOutcome::unknown);
  EXPECT_EQ(listener.failed_releases, 1);
}

}  // namespace
}  // namespace idempotency
