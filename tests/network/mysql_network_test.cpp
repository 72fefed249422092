#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <string_view>

#include "idempotency/stores/mysql.hpp"
#include "network/network_calls.hpp"
#include "network/network_rounds.hpp"
#include "support/mariadb_server.hpp"

namespace idempotency::network {
namespace {

struct MySqlBackend {
  using Store = MySqlStore;
  static constexpr std::string_view name = "mysql";
  // The client counts in seconds and waits two, which is less than a delayed request takes.
  static constexpr std::chrono::milliseconds patience{1'250};
  static constexpr std::chrono::milliseconds timeout{2'000};

  /// Whether a call whose request of this number is cut off may have had an effect, as far as its caller can know: the first
  /// prepares the statement, except that batches go as text and that `release` tells no difference.
  static bool counts_as_sent(std::string_view call, std::size_t request) {
    return request > 0 || call == "renew_many" || call == "release";
  }

  static testing_support::MariaDbServer& server() {
    static testing_support::MariaDbServer own({"--max-connections=1000"});
    return own;
  }
  static std::uint16_t server_port() { return server().port(); }
  static MySqlOptions options(std::uint16_t port) {
    MySqlOptions options = server().options();
    if (port == server_port()) {
      options.connections = 64;
      return options;
    }
    options.port = port;
    options.connect_timeout = patience;
    options.read_timeout = patience;
    options.write_timeout = patience;
    options.lock_wait = patience;
    return options;
  }
};

TEST(MySqlNetwork, LetsEveryCallTellTheTruthUnderEveryFaultAtEveryRequest) {
  try_every_call_under_every_fault<MySqlBackend>(3, 32);
}

TEST(MySqlNetwork, StartsNoHandlerTwiceAndGivesOneAnswerInThousandsOfRounds) {
  play_rounds<MySqlBackend>(2'000, 64);
}

/// Transfers whose statements, record and COMMIT are harmed: whatever the callers were told, there is one effect, and
/// everybody who was given an answer was given the same.
TEST(MySqlNetwork, GivesEachTransactionOneEffectInThousandsOfRounds) {
  using testing_support::PlainConnection;
  PlainConnection plain(MySqlBackend::server().options());
  std::mutex plain_mutex;
  const auto effects_of = [&](const std::string& name) {
    const std::lock_guard lock(plain_mutex);
    return plain.ask("SELECT COUNT(*) FROM effect WHERE name = '" + name + "'");
  };
  plain.run(
      "CREATE TABLE effect (id BIGINT AUTO_INCREMENT PRIMARY KEY, name VARBINARY(64) NOT NULL, "
      "value INT NOT NULL) ENGINE = InnoDB");
  const std::size_t rounds = number_from("IDEMPOTENCY_NETWORK_ROUNDS", 1'500);
  const std::uint64_t first_seed = number_from("IDEMPOTENCY_NETWORK_SEED", std::random_device{}());
  std::printf("seeds from %llu\n", static_cast<unsigned long long>(first_seed));
  MySqlStore direct{MySqlBackend::options(MySqlBackend::server_port())};
  std::atomic<std::size_t> errors{0};
  std::atomic<std::size_t> repeated{0};

  spread(rounds, 64, [&](std::size_t round) {
    SCOPED_TRACE("seed " + std::to_string(first_seed + round));
    std::mt19937_64 random(first_seed + round);
    const std::string name = std::to_string(round);
    std::set<int> answers;
    int runs = 0;
    const auto transfer = [&](MySqlStore& store) {
      IdempotencyGuard guard{store};
      const auto result =
          guard.run_in_transaction({.key = {"transfer", name}}, [&](MySqlTransaction& transaction) {
            transaction.execute("INSERT INTO effect (name, value) VALUES (?, ?)", name, ++runs);
            return runs;
          });
      if (result.status() == RunStatus::executed || result.status() == RunStatus::replayed) {
        answers.insert(result.value());
      }
      return result.status();
    };
    Node<MySqlBackend> node;
    if (random() % 2 == 0) static_cast<void>(node.store.find(Key("transfer", "warm")));
    const std::uint64_t at = node.proxy.requests() + random() % 10;
    const bool lasting = random() % 3 == 0;
    const std::uint64_t last = at + (lasting ? 1'000 : random() % 4);
    const NetworkFault fault = every_fault[random() % every_fault.size()].fault;
    node.proxy.plan([=](std::uint64_t number) {
      return number == at || number == last || (lasting && number > at) ? fault
                                                                        : NetworkFault::none;
    });

    try {
      static_cast<void>(transfer(node.store));
      EXPECT_EQ(effects_of(name), "1");
    } catch (const Error& error) {
      ++errors;
      EXPECT_TRUE(error.safe_to_retry()) << error.what() << ": " << error.detail();
      node.proxy.settle();
      const bool is_cut = fault == NetworkFault::cut_before_request;
      EXPECT_TRUE(lasting || !is_cut) << "what the server has not seen is sent once more";
      // Of a COMMIT that never came as well, which nobody can know.
      if (is_cut || !error.effect_possible()) {
        EXPECT_EQ(effects_of(name), "0") << to_string(error.code());
        EXPECT_FALSE(direct.find({"transfer", name})) << to_string(error.code());
      }
      if (is_cut && error.code() != Errc::commit_unknown) {
        EXPECT_EQ(error.code(), Errc::store_unavailable) << error.what();
      }
    }
    const RunStatus last_status = transfer(direct);

    repeated += runs > 1 ? 1 : 0;
    EXPECT_TRUE(last_status == RunStatus::executed || last_status == RunStatus::replayed);
    EXPECT_EQ(answers.size(), 1U);
  });

  EXPECT_EQ(plain.ask("SELECT COUNT(*) FROM effect"), std::to_string(rounds));
  EXPECT_EQ(plain.ask("SELECT COUNT(DISTINCT name) FROM effect"), std::to_string(rounds));
  std::printf("%zu rounds, %zu calls with an error, %zu handlers repeated after a rollback\n",
              rounds, errors.load(), repeated.load());
  EXPECT_GT(errors, 0U);
  EXPECT_GT(repeated, 0U);
}

}  // namespace
}  // namespace idempotency::network
