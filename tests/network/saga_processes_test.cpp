// Sagas with their journal and their effects in MariaDB, their steps' records there or in Redis, and processes that are killed.

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "idempotency/idempotency.hpp"
#include "idempotency/patterns/saga_runner.hpp"
#include "idempotency/patterns/sql_sagas.hpp"
#include "idempotency/stores/mysql.hpp"
#include "idempotency/stores/redis.hpp"
#include "idempotency/testing/saga_printers.hpp"
#include "network/network_world.hpp"
#include "support/child_process.hpp"
#include "support/mariadb_server.hpp"
#include "support/redis_server.hpp"

namespace idempotency::network {
namespace {

using namespace std::chrono_literals;
using testing_support::ChildProcess;
using testing_support::MariaDbServer;
using testing_support::PlainConnection;
using testing_support::ProcessEnd;
using testing_support::RedisServer;

struct RecordsInMySql {
  using Store = MySqlStore;
  static MySqlOptions options() { return MariaDbServer::shared().options(); }
};

struct RecordsInRedis {
  using Store = RedisStore;
  static RedisOptions options() {
    static RedisServer server(RedisServer::durable());
    return server.options();
  }
};

/// The system that the steps have their effects in. Under `take_over` it recognises the keys it is given, under `hold` it does not.
class Shop {
 public:
  static void create_tables() {
    PlainConnection plain(MariaDbServer::shared().options());
    plain.run("DROP TABLE IF EXISTS saga, saga_audit, effect, alert");
    for (const std::string& statement : saga_schema({}, SqlDialect::mariadb))
      plain.run(statement);
    plain.run(
        "CREATE TABLE effect (id BIGINT AUTO_INCREMENT PRIMARY KEY, saga VARBINARY(64) NOT NULL, "
        "what VARBINARY(64) NOT NULL, known_key VARBINARY(128) NULL UNIQUE) ENGINE = InnoDB");
    plain.run(
        "CREATE TABLE alert (id BIGINT AUTO_INCREMENT PRIMARY KEY, saga VARBINARY(64) NOT NULL) "
        "ENGINE = InnoDB");
  }

  Shop(MySqlStore& store, RecordMode mode) noexcept : store_(&store), mode_(mode) {}

  void happen(const SagaCall& call, const std::string& what) {
    std::optional<std::string> key;
    if (mode_ == RecordMode::take_over) key = call.derived_key("shop");
    detail::in_own_transaction(*store_, [&](MySqlTransaction& transaction) {
      return transaction
          .execute(
              "INSERT INTO effect (saga, what, known_key) VALUES (?, ?, ?) "
              "ON DUPLICATE KEY UPDATE what = what",
              call.id(), what, key)
          .matched;
    });
    std::this_thread::sleep_for(1ms);  // the work
  }
  void alert(const SagaRow& row) {
    detail::in_own_transaction(*store_, [&](MySqlTransaction& transaction) {
      return transaction.execute("INSERT INTO alert (saga) VALUES (?)", row.name.id).matched;
    });
  }

 private:
  MySqlStore* store_;
  RecordMode mode_;
};

/// By the saga's number: whether its last step is refused, and which step fails at its first try.
bool is_refused(const std::string& id) { return std::stoll(id) % 2 == 1; }
bool fails_at_first(const std::string& id) { return std::stoll(id) % 4 >= 2; }

Saga order(Shop& shop, const std::string& definition) {
  std::vector<SagaStep> steps;
  for (const std::string name : {"reserve", "charge", "ship"}) {
    steps.emplace_back(
        name,
        [&shop, name](SagaCall& call) {
          if (name == "ship") {
            if (is_refused(call.id())) throw PermanentFailure("refused");
            if (fails_at_first(call.id()) && call.execution().attempt() == 1) {
              throw RetryableFailure("closed");
            }
          }
          shop.happen(call, "act " + name);
          return name;
        },
        [&shop, name](SagaCall& call) {
          if (fails_at_first(call.id()) && call.execution().attempt() == 1) {
            throw RetryableFailure("closed");
          }
          shop.happen(call, "undo " + call.result<std::string>(name));
        });
  }
  return Saga(definition, std::move(steps));
}

/// One worker, as a process has it.
template <class Records>
struct Worker {
  using Store = typename Records::Store;
  using Guard = IdempotencyGuard<Store>;

  Worker(RecordMode mode, const std::string& definition)
      : shop(database, mode), runner(guard, journal, order(shop, definition), options(mode)) {}

  SagaOptions options(RecordMode mode) {
    SagaOptions asked;
    asked.max_attempts = 20;
    asked.first_pause = 10ms;
    asked.longest_pause = 50ms;
    asked.lease = 500ms;
    asked.step_policy.lease = 2s;
    asked.step_policy.on_expired_lease = mode;
    asked.alert = [this](const SagaRow& row) { shop.alert(row); };
    return asked;
  }

  MySqlStore database{MariaDbServer::shared().options()};
  Store records{Records::options()};
  Guard guard{records};
  SqlSagas<MySqlStore> journal{database};
  Shop shop;
  SagaRunner<Guard, SqlSagas<MySqlStore>> runner;
};

/// Who is killed: one worker after the other, four times a second, or their server, each second.
enum class Victim : std::uint8_t { workers, server };

template <class Records>
class SagaStorm {
 public:
  static constexpr std::size_t processes = 4;

  /// Each storm has a definition of its own: the records of the steps of another are still there.
  SagaStorm(RecordMode mode, std::string definition)
      : mode_(mode), definition_(std::move(definition)) {
    Shop::create_tables();
    static_cast<void>(Records::options());  // the server is this process' own
  }

  void rage(Victim victim, std::chrono::milliseconds span) {
    const auto begin = std::chrono::steady_clock::now();
    const auto end = begin + span;
    std::vector<std::optional<ChildProcess>> team(processes);
    for (auto& process : team)
      process.emplace(start(begin, end));
    const auto pause = victim == Victim::workers ? 250ms : 1000ms;
    for (auto next = begin + pause; next < end - pause; next += pause) {
      std::this_thread::sleep_until(next);  // the kills keep time; there is no event to wait for
      if (victim == Victim::server) {
        MariaDbServer::shared().kill();
        MariaDbServer::shared().start();
      } else {
        auto& process = team[kills_ % team.size()];
        EXPECT_EQ(process->kill(), (ProcessEnd{-1, SIGKILL}));
        process.emplace(start(begin, end));
      }
      ++kills_;
    }
    for (auto& process : team) {
      EXPECT_EQ(process->wait(), (ProcessEnd{0, 0}));
    }
    drain();
  }

  /// Says how many sagas ended, and holds all of them against what their steps did.
  std::size_t judge() {
    PlainConnection plain(MariaDbServer::shared().options());
    std::map<std::string, std::map<std::string, int>> effects;
    for (const auto& row : plain.run("SELECT saga, what FROM effect"))
      ++effects[row.at(0)][row.at(1)];
    std::map<std::string, int> alerts;
    for (const auto& row : plain.run("SELECT saga FROM alert"))
      ++alerts[row.at(0)];
    std::map<SagaState, std::size_t> ends;
    std::size_t alerted_again = 0;
    for (const auto& row : plain.run("SELECT id, state FROM saga")) {
      const auto state = static_cast<SagaState>(std::stoi(row.at(1)));
      ++ends[state];
      judge_saga(row.at(0), state, effects[row.at(0)]);
      EXPECT_GE(alerts[row.at(0)], is_parked(state) ? 1 : 0) << row.at(0);
      if (alerts[row.at(0)] > 1) ++alerted_again;
    }
    const std::size_t parked =
        ends[SagaState::parked_running] + ends[SagaState::parked_compensating];
    EXPECT_LE(parked, mode_ == RecordMode::hold ? kills_ : 0);
    EXPECT_LE(alerted_again, kills_);
    std::printf("%zu finished, %zu compensated, %zu parked, %zu kills\n", ends[SagaState::finished],
                ends[SagaState::compensated], parked, kills_);
    return ends[SagaState::finished] + ends[SagaState::compensated];
  }

 private:
  using SteadyTime = std::chrono::steady_clock::time_point;

  ChildProcess start(SteadyTime begin, SteadyTime end) const {
    return ChildProcess::fork(
        [this, begin, end](const ChildProcess::ToParent&) { return work(begin, end); });
  }

  /// One process: starts sagas near the front of a line that moves on with time, and works on whatever is due.
  int work(SteadyTime begin, SteadyTime end) const {
    Worker<Records> worker(mode_, definition_);
    for (auto now = begin; now < end; now = std::chrono::steady_clock::now()) {
      try {
        const auto front =
            std::chrono::duration_cast<std::chrono::milliseconds>(now - begin) / 10ms;
        static_cast<void>(worker.runner.start(std::to_string(front), "input"));
        static_cast<void>(worker.runner.work_once());
      } catch (const Error& error) {
        if (!error.safe_to_retry()) throw;
      }
    }
    return 0;
  }

  /// What is left when all is quiet: until the leases of the dead have run out, by the servers' clocks.
  void drain() const {
    Worker<Records> worker(mode_, definition_);
    PlainConnection plain(MariaDbServer::shared().options());
    const auto give_up = std::chrono::steady_clock::now() + 60s;
    while (plain.ask("SELECT COUNT(*) FROM saga WHERE due_at IS NOT NULL") != "0") {
      ASSERT_LT(std::chrono::steady_clock::now(), give_up) << "sagas are left that do not end";
      if (!worker.runner.work_once()) std::this_thread::sleep_for(5ms);
    }
  }

  static void judge_saga(const std::string& id, SagaState state,
                         std::map<std::string, int>& effects) {
    SCOPED_TRACE("saga " + id + ": " + ::testing::PrintToString(state));
    EXPECT_TRUE(is_ended(state) || is_parked(state));
    if (is_ended(state)) {
      EXPECT_EQ(state, is_refused(id) ? SagaState::compensated : SagaState::finished);
    }
    for (const std::string step : {"reserve", "charge", "ship"}) {
      const int acts = effects["act " + step];
      const int undone = effects["undo " + step];
      EXPECT_LE(acts, 1) << step;
      EXPECT_LE(undone, acts) << step;
      if (state == SagaState::finished) {
        EXPECT_EQ(acts, 1) << step;
        EXPECT_EQ(undone, 0) << step;
      }
      if (state == SagaState::compensated) {
        EXPECT_EQ(undone, acts) << step;
      }
    }
  }

  RecordMode mode_;
  std::string definition_;
  std::size_t kills_ = 0;
};

/// Five seconds, or a quarter of what IDEMPOTENCY_STORM_SECONDS says.
std::chrono::milliseconds span() {
  return std::chrono::milliseconds(number_from("IDEMPOTENCY_STORM_SECONDS", 20) * 1'000 / 4);
}

TEST(SagaProcesses, EndEverySagaOnceWhenEffectsMayBeRepeated) {
  SagaStorm<RecordsInMySql> storm(RecordMode::take_over, "repeated");

  storm.rage(Victim::workers, span());

  EXPECT_GT(storm.judge(), 50U);
}

TEST(SagaProcesses, EndOrParkEverySagaUnderHold) {
  SagaStorm<RecordsInMySql> storm(RecordMode::hold, "held");

  storm.rage(Victim::workers, span());

  EXPECT_GT(storm.judge(), 50U);
}

TEST(SagaProcesses, EndEverySagaOnceThoughTheirServerIsKilled) {
  SagaStorm<RecordsInMySql> storm(RecordMode::take_over, "killed-server");

  storm.rage(Victim::server, span());

  EXPECT_GT(storm.judge(), 20U);
}

TEST(SagaProcesses, EndEverySagaOnceWithTheRecordsOfItsStepsInRedis) {
  SagaStorm<RecordsInRedis> storm(RecordMode::take_over, "in-redis");

  storm.rage(Victim::workers, span());

  EXPECT_GT(storm.judge(), 50U);
}

}  // namespace
}  // namespace idempotency::network
