// Purgers beside those who claim records, on the SQL stores: nobody is disturbed, and nothing is removed too early.

#include "idempotency/operations/purger.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "idempotency/idempotency.hpp"
#include "idempotency/stores/open.hpp"
#include "support/mariadb_server.hpp"
#include "support/temporary_directory.hpp"

namespace idempotency {
namespace {

using namespace std::chrono_literals;
using testing_support::MariaDbServer;
using testing_support::TemporaryDirectory;

enum class Kind { sqlite, mariadb };

class PurgersBesideClaims : public ::testing::TestWithParam<Kind> {
 protected:
  std::string address() const {
    return GetParam() == Kind::sqlite ? "sqlite:" + folder_.file("records.db")
                                      : MariaDbServer::shared().address();
  }
  static PurgerOptions quick() {
    PurgerOptions options;
    options.batch = 50;
    options.pause = 0ms;
    return options;
  }

  TemporaryDirectory folder_;
};

// Three purgers without a pause; six callers run new operations, repeat them, and begin anew what has just expired.
TEST_P(PurgersBesideClaims, DisturbNoClaimAndRemoveNothingThatIsStillNeeded) {
  constexpr int callers = 6;
  constexpr int rounds = 150;
  AnyStore store = open_store(address());
  IdempotencyGuard guard{store};
  std::atomic<int> errors{0};
  std::atomic<int> lost{0};
  std::atomic<std::uint64_t> removed{0};
  std::atomic<std::uint64_t> failures{0};
  std::atomic<int> working{callers};

  const auto call = [&](int caller) {
    try {
      for (int round = 0; round < rounds; ++round) {
        const std::string value = std::to_string(caller) + "-" + std::to_string(round);
        const Operation kept{.key = {"kept", value}, .policy = {.success_retention = 1h}};
        static_cast<void>(guard.run(kept, [&] { return round; }));
        static_cast<void>(guard.run({.key = {"short", value}, .policy = {.success_retention = 1ms}},
                                    [] { return 1; }));
        // The same key for all, which expires all the time and is begun anew.
        static_cast<void>(guard.run({.key = {"short", "hot"}, .policy = {.success_retention = 1ms}},
                                    [] { return 1; }));
        const auto again = guard.run(kept, [] { return -1; });
        if (again.status() != RunStatus::replayed || again.value() != round) ++lost;
      }
    } catch (const Error& error) {
      ++errors;
      ADD_FAILURE() << error.what() << ": " << error.detail();
    }
    --working;
  };
  {
    std::vector<std::jthread> crowd;
    for (int number = 0; number < 3; ++number) {
      crowd.emplace_back([&] {
        AnyStore own = open_store(address());
        Purger purger(own, quick());
        while (working > 0) {
          const PurgeReport report = purger.run_once();
          removed += report.removed;
          failures += report.failures;
        }
      });
    }
    for (int caller = 0; caller < callers; ++caller)
      crowd.emplace_back(call, caller);
  }
  removed += Purger(store, quick()).run_once().removed;

  EXPECT_EQ(errors, 0);
  EXPECT_EQ(lost, 0);
  EXPECT_EQ(failures, 0U) << "a batch met a deadlock or waited in vain";
  EXPECT_GE(removed, static_cast<std::uint64_t>(callers * rounds) / 2);
  EXPECT_GE(store.admin()->statistics().success, static_cast<std::uint64_t>(callers * rounds));
}

// One removal leaves what another has just begun anew under the same key.
TEST_P(PurgersBesideClaims, RemoveEachRecordOnce) {
  constexpr std::uint64_t records = 400;
  AnyStore store = open_store(address());
  static_cast<void>(Purger(store, quick()).run_once());
  {
    IdempotencyGuard guard{store};
    for (std::uint64_t number = 0; number < records; ++number) {
      static_cast<void>(
          guard.run({.key = {"each", std::to_string(number)}, .policy = {.success_retention = 1ms}},
                    [] { return 1; }));
    }
  }
  std::atomic<std::uint64_t> removed{0};

  while (removed < records) {  // the last ones expire within a millisecond
    std::vector<std::jthread> crowd;
    for (int number = 0; number < 4; ++number) {
      crowd.emplace_back([&] {
        AnyStore own = open_store(address());
        removed += Purger(own, quick()).run_once().removed;
      });
    }
  }

  EXPECT_EQ(removed, records);
}

INSTANTIATE_TEST_SUITE_P(Stores, PurgersBesideClaims,
                         ::testing::Values(Kind::sqlite, Kind::mariadb),
                         [](const ::testing::TestParamInfo<Kind>& tested) {
                           return tested.param == Kind::sqlite ? "Sqlite" : "MariaDb";
                         });

}  // namespace
}  // namespace idempotency
