// Servers and processes that die under load.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <list>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "idempotency/idempotency.hpp"
#include "idempotency/stores/breaker.hpp"
#include "idempotency/stores/mysql.hpp"
#include "support/error_of.hpp"
#include "support/mariadb_server.hpp"
#include "support/patience.hpp"

namespace idempotency {
namespace {

using namespace std::chrono_literals;
using testing_support::ChildProcess;
using testing_support::ending_of;
using testing_support::error_of;
using testing_support::MariaDbServer;
using testing_support::Patience;
using testing_support::PlainConnection;

constexpr auto pause_before_repeating = 5ms;

void make_business_table(const MySqlOptions& options) {
  PlainConnection plain(options);
  plain.run(
      "CREATE TABLE IF NOT EXISTS paid (id INT AUTO_INCREMENT PRIMARY KEY, value VARCHAR(99)) "
      "ENGINE = InnoDB");
  plain.run("DELETE FROM paid");
}

std::string pay(MySqlTransaction& transaction, const std::string& value) {
  transaction.execute("INSERT INTO paid (value) VALUES (?)", value);
  return "paid " + value;
}

/// Callers who repeat a call until they have its answer, as a service's clients do.
class Load {
 public:
  explicit Load(const MySqlOptions& options) : store_(options) {}
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;
  ~Load() { stop_ = true; }

  void start(int threads) {
    for (int thread = 0; thread < threads; ++thread) {
      threads_.emplace_back([this, thread] {
        for (int round = 0; !stop_; ++round) {
          const std::string value = std::to_string(thread) + "-" + std::to_string(round);
          thread % 2 == 0 ? begin_and_complete(value) : transact(value);
          ++answered_;
        }
      });
    }
  }
  void wait_for_answers(std::uint64_t more) const {
    const std::uint64_t enough = answered_ + more;
    const auto end = std::chrono::steady_clock::now() + 120s;
    while (answered_ < enough) {
      if (std::chrono::steady_clock::now() > end) throw std::runtime_error("no answers any more");
      std::this_thread::sleep_for(1ms);
    }
  }
  void stop() {
    stop_ = true;
    threads_.clear();
  }
  /// Keys that a transaction was answered for, and keys of records that were written in two steps.
  std::vector<std::string> transacted;
  std::vector<Key> completed;

 private:
  template <class Call>
  void until_answered(Call call) {
    while (true) {
      try {
        return call();
      } catch (const Error& error) {
        EXPECT_TRUE(error.safe_to_retry()) << error.what() << ' ' << error.detail();
        if (!error.safe_to_retry()) return;
        std::this_thread::sleep_for(pause_before_repeating);
      }
    }
  }
  void begin_and_complete(const std::string& value) {
    const BeginRequest wanted{
        .key = {"plain", value}, .owner = OwnerToken::generate(), .lease = 1h};
    until_answered([&] { EXPECT_EQ(store_.begin(wanted), BeginOutcome(Acquired{1, 1})); });
    until_answered([&] {
      EXPECT_EQ(store_.complete(wanted.key, {wanted.owner, 1}, {.result = "r"}),
                WriteOutcome::stored);
    });
    const std::scoped_lock lock(mutex_);
    completed.push_back(wanted.key);
  }
  void transact(const std::string& value) {
    until_answered([&] {
      const auto result = guard_.run_in_transaction(
          {.key = {"transfer", value}},
          [&](MySqlTransaction& transaction) { return pay(transaction, value); });
      EXPECT_TRUE(result.status() == RunStatus::executed || result.status() == RunStatus::replayed);
      EXPECT_EQ(result.value(), "paid " + value);
    });
    const std::scoped_lock lock(mutex_);
    transacted.push_back(value);
  }

  MySqlStore store_;
  IdempotencyGuard<MySqlStore> guard_{store_};
  std::mutex mutex_;
  std::atomic<bool> stop_{false};
  std::atomic<std::uint64_t> answered_{0};
  std::vector<std::jthread> threads_;
};

TEST(MySqlRestarts, KeepEveryCommittedRecordAndOneEffectAKey) {
  MariaDbServer server;
  make_business_table(server.options());
  Load load(server.options());
  load.start(6);

  for (const bool cleanly : {false, true, false}) {
    load.wait_for_answers(150);
    cleanly ? server.stop() : server.kill();
    server.start();
  }
  load.wait_for_answers(150);
  load.stop();

  MySqlStore store(server.options());
  PlainConnection plain(server.options());
  for (const Key& key : load.completed) {
    const std::optional<Record> record = store.find(key);
    ASSERT_TRUE(record) << key.text();
    ASSERT_EQ(record->state, RecordState::success) << key.text();
  }
  EXPECT_EQ(plain.ask("SELECT COUNT(*) FROM paid"), std::to_string(load.transacted.size()));
  EXPECT_EQ(plain.ask("SELECT COUNT(DISTINCT value) FROM paid"),
            std::to_string(load.transacted.size()));
  EXPECT_EQ(plain.ask("SELECT COUNT(*) FROM idempotency_record WHERE business_type = 'transfer' "
                      "AND state = 2"),
            std::to_string(load.transacted.size()));
}

TEST(MySqlRestarts, AreMetByABreakerThatOpensForTransactionsToo) {
  MariaDbServer server;
  make_business_table(server.options());
  MySqlStore database(server.options());
  BreakerStore store{database, {.failure_threshold = 3, .open_duration = 20ms, .name = "database"}};
  IdempotencyGuard guard{store};
  const auto pays = [&](const std::string& value) {
    const auto result = guard.run_in_transaction(
        {.key = {"transfer", value}},
        [&](MySqlTransaction& transaction) { return pay(transaction, value); });
    return result.value() == "paid " + value;
  };
  ASSERT_TRUE(pays("before"));
  ASSERT_TRUE(pays("before"));

  server.kill();
  const auto is_refused = [&] {
    const Error error = error_of([&] { static_cast<void>(pays("while")); });
    EXPECT_TRUE(error.safe_to_retry()) << error.what();
    return std::string(error.what()).find("breaker is") != std::string::npos;
  };
  bool refused = false;
  for (const Patience patience; patience.lasts() && !refused;)
    refused = is_refused();
  EXPECT_TRUE(refused);
  server.start();
  bool paid = false;
  for (const Patience patience; patience.lasts() && !paid;)
    paid = ending_of([&] { EXPECT_TRUE(pays("while")); }) == std::nullopt;

  EXPECT_EQ(store.state(), BreakerState::closed);
  PlainConnection plain(server.options());
  EXPECT_EQ(plain.ask("SELECT GROUP_CONCAT(value ORDER BY id) FROM paid"), "before,while");
}

/// Runs keys of one small space, over and over, until it is killed; says a line for each answer.
int work_until_killed(const MySqlOptions& options, unsigned seed, int keys,
                      const ChildProcess::ToParent& parent) {
  MySqlStore store(options);
  IdempotencyGuard guard{store};
  std::minstd_rand random(seed);
  while (true) {
    const std::string value = std::to_string(random() % static_cast<unsigned>(keys));
    try {
      const auto result = guard.run_in_transaction(
          {.key = {"transfer", value}},
          [&](MySqlTransaction& transaction) { return pay(transaction, value); });
      if (result.value() != "paid " + value) return 1;
      parent.say(value);
    } catch (const Error& error) {
      if (!error.safe_to_retry()) return 2;
    }
  }
}

// IDEMPOTENCY_KILLS says how many processes are killed; each after some more answers.
TEST(MySqlProcesses, HaveOneEffectAKeyHoweverManyOfThemAreKilled) {
  const char* wanted = std::getenv("IDEMPOTENCY_KILLS");
  const int kills = wanted == nullptr ? 12 : std::atoi(wanted);
  constexpr unsigned processes = 8;
  constexpr int answers_between = 15;  // of each process
  const int keys = kills * 60;
  MariaDbServer server;
  make_business_table(server.options());
  static_cast<void>(MySqlStore(server.options()));
  std::list<ChildProcess> children;
  unsigned seed = 1;
  const auto start_one = [&] {
    children.push_back(ChildProcess::fork([&](const ChildProcess::ToParent& parent) {
      return work_until_killed(server.options(), seed, keys, parent);
    }));
    ++seed;
  };
  for (unsigned index = 0; index < processes; ++index)
    start_one();

  for (int kill = 0; kill < kills; ++kill) {
    for (int answer = 0; answer < answers_between; ++answer) {
      for (ChildProcess& child : children)
        ASSERT_TRUE(child.next_line());
    }
    EXPECT_EQ(children.front().kill(), (testing_support::ProcessEnd{-1, SIGKILL}));
    children.pop_front();
    start_one();
  }
  for (ChildProcess& child : children)
    EXPECT_EQ(child.kill(), (testing_support::ProcessEnd{-1, SIGKILL}));

  PlainConnection plain(server.options());
  // The server goes on with what the killed had sent: only when their sessions have ended is it at rest.
  while (plain.ask("SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'root'") !=
         "1")
    std::this_thread::sleep_for(1ms);
  const std::string rows = plain.ask("SELECT COUNT(*) FROM paid");
  EXPECT_GE(std::stoi(rows), kills * 10);
  EXPECT_EQ(plain.ask("SELECT COUNT(DISTINCT value) FROM paid"), rows);
  EXPECT_EQ(plain.ask("SELECT COUNT(*) FROM idempotency_record AS r JOIN paid AS p "
                      "ON r.value = p.value WHERE r.state = 2"),
            rows);
  EXPECT_EQ(plain.ask("SELECT COUNT(*) FROM idempotency_record"), rows);
}

}  // namespace
}  // namespace idempotency
