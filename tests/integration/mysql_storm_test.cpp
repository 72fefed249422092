// A network that harms any request of any run, between callers who repeat their calls until they have an answer.

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>

#include "idempotency/idempotency.hpp"
#include "idempotency/stores/mysql.hpp"
#include "idempotency/testing/printers.hpp"
#include "support/barrier.hpp"
#include "support/fault_proxy.hpp"
#include "support/mariadb_server.hpp"

namespace idempotency {
namespace {

using namespace std::chrono_literals;
using testing_support::FaultProxy;
using testing_support::MariaDbServer;
using testing_support::NetworkFault;
using testing_support::PlainConnection;

constexpr std::size_t callers = 8;
constexpr std::array all_faults{NetworkFault::delayed,          NetworkFault::cut_before_request,
                                NetworkFault::cut_before_reply, NetworkFault::reset_before_reply,
                                NetworkFault::half_open,        NetworkFault::reply_swallowed,
                                NetworkFault::trickle};

enum class Way : std::uint8_t { plain, in_transaction };

/// One caller with a network of its own.
class Caller {
 public:
  explicit Caller(std::size_t number) : number_(number), proxy_(server_.port) {
    proxy_.set_delay(5ms);
  }

  /// `fault` for the request behind `others` of a run whose store is warm.
  void harm_one(NetworkFault fault, std::uint64_t others, Way way) {
    answer_of(way, "warm-up");
    proxy_.harm(others, fault);
    ask(way);
    proxy_.heal();
  }
  /// About one request in five is harmed.
  void harm_many(unsigned seed, Way way) {
    proxy_.plan([random = std::minstd_rand(seed)](std::uint64_t) mutable {
      const auto dice = random() % 1000;
      if (dice < 45) return NetworkFault::cut_before_request;
      if (dice < 90) return NetworkFault::cut_before_reply;
      if (dice < 130) return NetworkFault::reset_before_reply;
      if (dice < 165) return NetworkFault::trickle;
      if (dice < 200) return NetworkFault::delayed;
      if (dice < 204) return NetworkFault::half_open;
      if (dice < 208) return NetworkFault::reply_swallowed;
      return NetworkFault::none;
    });
    ask(way);
    proxy_.heal();
  }

 private:
  MySqlOptions through_proxy() const {
    MySqlOptions options = server_;
    options.port = proxy_.port();
    options.read_timeout = 1s;
    options.write_timeout = 1s;
    options.connect_timeout = 1s;
    return options;
  }
  std::string rows(const std::string& value) {
    return plain_.ask("SELECT COUNT(*) FROM stormed WHERE value = '" + value + "'");
  }

  RunResult<std::string> call(Way way, const std::string& value) {
    const Operation operation{.key = {"storm", value}, .policy = {.lease = 3s, .wait = 500ms}};
    if (way == Way::plain) {
      return guard_.run(operation, [&] {
        ++starts_;
        plain_.run("INSERT INTO stormed (value) VALUES ('" + value + "')");
        return value + " at start " + std::to_string(starts_);
      });
    }
    return guard_.run_in_transaction(operation, [&](MySqlTransaction& transaction) {
      ++starts_;
      transaction.execute("INSERT INTO stormed (value) VALUES (?)", value);
      return value + " at start " + std::to_string(starts_);
    });
  }
  /// Repeats the call until it is answered, and looks at what each error says.
  std::string answer_of(Way way, const std::string& value) {
    bool effect_on_its_way = false;  // of an earlier call, whose commit may still take place
    while (true) {
      const int starts_before = starts_;
      const std::string rows_before = rows(value);
      const auto began = std::chrono::steady_clock::now();
      try {
        const auto result = call(way, value);
        EXPECT_LT(std::chrono::steady_clock::now() - began, 60s);
        if (result.status() == RunStatus::in_progress) continue;
        EXPECT_TRUE(result.status() == RunStatus::executed ||
                    result.status() == RunStatus::replayed ||
                    result.status() == RunStatus::executed_unrecorded)
            << ::testing::PrintToString(result.status());
        return result.value();
      } catch (const Error& error) {
        EXPECT_LT(std::chrono::steady_clock::now() - began, 60s);
        EXPECT_TRUE(error.safe_to_retry()) << error.what() << ' ' << error.detail();
        effect_on_its_way = effect_on_its_way || error.effect_possible();
        if (error.effect_possible()) continue;
        if (!effect_on_its_way) {
          EXPECT_EQ(rows(value), rows_before) << error.what();
        }
        EXPECT_TRUE(way == Way::in_transaction || starts_ == starts_before) << error.what();
      }
    }
  }
  void ask(Way way) {
    const std::string value = std::to_string(number_) + "-" + std::to_string(++asked_);
    starts_ = 0;
    const std::string first = answer_of(way, value);
    proxy_.heal();
    const std::string second = answer_of(way, value);

    EXPECT_EQ(first, second);
    EXPECT_EQ(rows(value), "1") << value;
    EXPECT_TRUE(way == Way::in_transaction || starts_ == 1) << value;
  }

  std::size_t number_;
  MySqlOptions server_ = MariaDbServer::shared().options();
  FaultProxy proxy_;
  MySqlStore store_{through_proxy()};
  IdempotencyGuard<MySqlStore> guard_{store_};
  PlainConnection plain_{server_};
  int starts_ = 0;
  int asked_ = 0;
};

class MySqlStorm : public ::testing::TestWithParam<Way> {
 protected:
  MySqlStorm() {
    PlainConnection plain(MariaDbServer::shared().options());
    plain.run(
        "CREATE TABLE IF NOT EXISTS stormed (id INT AUTO_INCREMENT PRIMARY KEY, "
        "value VARCHAR(99), KEY (value)) ENGINE = InnoDB");
    plain.run("DELETE FROM stormed");
    static_cast<void>(MySqlStore(MariaDbServer::shared().options()));
    plain.run("DELETE FROM idempotency_record");
  }
};

TEST_P(MySqlStorm, HasOneEffectWhicheverRequestIsHarmedInWhateverWay) {
  constexpr std::size_t requests = 4;
  testing_support::run_together(callers, [&](std::size_t number) {
    Caller caller(number);
    for (std::size_t place = number; place < all_faults.size() * requests; place += callers)
      caller.harm_one(all_faults[place % all_faults.size()], place / all_faults.size(), GetParam());
  });
}

// IDEMPOTENCY_STORM_ROUNDS says how many each caller tries.
TEST_P(MySqlStorm, HasOneEffectWhenManyRequestsAreHarmed) {
  const char* wanted = std::getenv("IDEMPOTENCY_STORM_ROUNDS");
  const int rounds = wanted == nullptr ? 25 : std::atoi(wanted);
  testing_support::run_together(callers, [&](std::size_t number) {
    Caller caller(number);
    for (int round = 0; round < rounds; ++round) {
      const unsigned seed = static_cast<unsigned>(number) * 100'000U + static_cast<unsigned>(round);
      SCOPED_TRACE("seed " + std::to_string(seed));
      caller.harm_many(seed, GetParam());
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ways, MySqlStorm, ::testing::Values(Way::plain, Way::in_transaction),
                         [](const auto& way) {
                           return way.param == Way::plain ? "Plain" : "InTransaction";
                         });

}  // namespace
}  // namespace idempotency
