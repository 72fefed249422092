// Consumers of a Redis stream with their effects and records in MariaDB, one of them killed each second.

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "idempotency/edges/consumer.hpp"
#include "idempotency/edges/redis_streams.hpp"
#include "idempotency/idempotency.hpp"
#include "idempotency/stores/mysql.hpp"
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
using Moment = std::chrono::steady_clock::time_point;

/// How messages are handled.
enum class Handling : std::uint8_t {
  in_transactions,  ///< one by one, each with its record in one transaction
  in_batches,  ///< begun together; the effect is recognised by its derived key, as a bank would
};

class ConsumerStorm {
 public:
  static constexpr std::size_t processes = 4;

  explicit ConsumerStorm(Handling handling) : handling_(handling), redis_(RedisServer::durable()) {
    PlainConnection plain(MariaDbServer::shared().options());
    plain.run("DROP TABLE IF EXISTS booked, started");
    static_cast<void>(MySqlStore{MariaDbServer::shared().options()});  // makes its table
    plain.run("DELETE FROM idempotency_record");
    plain.run(
        "CREATE TABLE booked (id BIGINT AUTO_INCREMENT PRIMARY KEY, name VARBINARY(64) NOT NULL, "
        "derived VARBINARY(128) UNIQUE) ENGINE = InnoDB");
    plain.run(
        "CREATE TABLE started (id BIGINT AUTO_INCREMENT PRIMARY KEY, name VARBINARY(64) NOT NULL) "
        "ENGINE = InnoDB");
  }

  /// Orders come in all the time, every fourth of them twice; each second a consumer dies and is replaced.
  void rage(std::chrono::seconds span) {
    const Moment begin = std::chrono::steady_clock::now();
    const Moment end = begin + span;
    std::vector<std::optional<ChildProcess>> team(processes);
    for (auto& process : team)
      process.emplace(start(end));
    for (Moment kill = begin + 1s; kill < end - 500ms; kill += 1s) {
      while (std::chrono::steady_clock::now() < kill) {
        send(orders_++);
        std::this_thread::sleep_for(5ms);  // the pace of the orders
      }
      std::optional<ChildProcess>& victim = team[kills_ % team.size()];
      EXPECT_EQ(victim->kill(), (ProcessEnd{-1, SIGKILL}));
      victim.emplace(start(end));
      ++kills_;
    }
    for (auto& process : team)
      EXPECT_EQ(process->wait(), (ProcessEnd{0, 0}));
  }

  void judge() {
    drain();
    EXPECT_EQ(redis_.number({"XLEN", "orders:dead"}), 0);
    PlainConnection plain(MariaDbServer::shared().options());
    EXPECT_EQ(plain.ask("SELECT COUNT(*) FROM booked"), std::to_string(orders_));
    EXPECT_EQ(plain.ask("SELECT COUNT(DISTINCT name) FROM booked"), std::to_string(orders_));
    if (handling_ == Handling::in_batches) {
      // Only what was in its handler when its process died may have been started again: what waited for its turn had not.
      const std::size_t starts = std::stoull(plain.ask("SELECT COUNT(*) FROM started"));
      EXPECT_GE(starts, orders_);
      EXPECT_LE(starts, orders_ + kills_);
    }
    std::printf("%zu orders, %lld messages, %zu kills\n", orders_,
                static_cast<long long>(redis_.number({"XLEN", "orders"})), kills_);
    EXPECT_GT(orders_, kills_ * 20);
  }

 private:
  void send(std::size_t order) {
    const std::string name = std::to_string(order);
    redis_.ask({"XADD", "orders", "*", "order", name});
    if (order % 4 == 0) redis_.ask({"XADD", "orders", "*", "order", name});
  }

  [[nodiscard]] RedisStreamOptions source_options() const {
    return {.server = redis_.options(),
            .stream = "orders",
            .group = "booking",
            .redelivery_idle = 500ms,
            .block = 20ms,
            .batch = 8};
  }

  /// For a storm in which a message may fail often, through no fault of its own.
  static ConsumerOptions patient(const PolicyOverride& policy = {}) {
    return {.max_attempts = 1'000,
            .max_deliveries = 10'000,
            .first_delay = 5ms,
            .longest_delay = 50ms,
            .policy = policy};
  }

  /// Calls `more()` between the rounds of a consumer until it says that there are no more.
  template <class More>
  static void consume_in_batches(const RedisStreamOptions& options, More more) {
    MySqlStore store{MariaDbServer::shared().options()};
    IdempotencyGuard guard{store};
    IdempotentConsumer consumer{guard, key_of("order", header("order")), patient({.lease = 2s})};
    RedisStreamConsumer source{options};
    PlainConnection bank(MariaDbServer::shared().options());
    const auto book = [&](const ReceivedMessage& message, Execution& execution) {
      const std::string& name = message.headers.at(0).second;
      bank.run("INSERT INTO started (name) VALUES ('" + name + "')");
      bank.run("INSERT IGNORE INTO booked (name, derived) VALUES ('" + name + "', '" +
               execution.derived_key("book") + "')");
      std::this_thread::sleep_for(2ms);  // the work
    };
    while (more()) {
      static_cast<void>(
          source.poll_batch([&](MessageBatch& batch) { consumer.handle_batch(batch, book); }));
    }
  }

  template <class More>
  static void consume_in_transactions(const RedisStreamOptions& options, More more) {
    MySqlStore store{MariaDbServer::shared().options()};
    IdempotencyGuard guard{store};
    IdempotentConsumer consumer{guard, key_of("order", header("order")), patient()};
    RedisStreamConsumer source{options};
    std::minstd_rand random(std::random_device{}());
    const auto book = [&](const ReceivedMessage& message, MySqlTransaction& transaction) {
      transaction.execute("INSERT INTO booked (name) VALUES (?)", message.headers.at(0).second);
      std::this_thread::sleep_for(2ms);  // the work
      if (random() % 10 == 0) throw std::runtime_error("broken");
    };
    while (more()) {
      static_cast<void>(source.poll([&](const ReceivedMessage& message) {
        return consumer.handle_in_transaction(message, book);
      }));
    }
  }

  template <class More>
  static void consume(Handling handling, const RedisStreamOptions& options, More more) {
    return handling == Handling::in_batches ? consume_in_batches(options, more)
                                            : consume_in_transactions(options, more);
  }

  ChildProcess start(Moment end) const {
    const RedisStreamOptions options = source_options();
    return ChildProcess::fork([=, handling = handling_](const ChildProcess::ToParent&) {
      consume(handling, options, [end] { return std::chrono::steady_clock::now() < end; });
      return 0;
    });
  }

  /// In peace, until the group holds nothing any more and has seen everything.
  void drain() {
    int rounds = 0;
    consume(handling_, source_options(), [&] { return ++rounds < 3'000 && !is_drained(); });
    EXPECT_TRUE(is_drained()) << "messages are left over";
  }
  [[nodiscard]] bool is_drained() {
    if (redis_.ask({"XPENDING", "orders", "booking"})->element[0]->integer != 0) return false;
    const auto groups = redis_.ask({"XINFO", "GROUPS", "orders"});
    const redisReply* group = groups->element[0];
    for (std::size_t at = 0; at + 1 < group->elements; at += 2) {
      if (std::string_view(group->element[at]->str) == "lag") {
        return group->element[at + 1]->integer == 0;
      }
    }
    return false;
  }

  Handling handling_;
  RedisServer redis_;
  std::size_t orders_ = 0;
  std::size_t kills_ = 0;
};

TEST(ConsumerProcesses, BookEachOrderOnceAndLoseNoneWhileOneIsKilledEachSecond) {
  ConsumerStorm storm(Handling::in_transactions);

  storm.rage(std::chrono::seconds(number_from("IDEMPOTENCY_STORM_SECONDS", 20)));

  storm.judge();
}

TEST(ConsumerProcesses, BookEachOrderOnceInBatchesWhileOneIsKilledEachSecond) {
  ConsumerStorm storm(Handling::in_batches);

  storm.rage(std::chrono::seconds(number_from("IDEMPOTENCY_STORM_SECONDS", 12)));

  storm.judge();
}

}  // namespace
}  // namespace idempotency::network
