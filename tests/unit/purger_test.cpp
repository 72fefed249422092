#include "idempotency/operations/purger.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "idempotency/idempotency.hpp"
#include "idempotency/stores/memory.hpp"
#include "idempotency/stores/sqlite.hpp"
#include "idempotency/testing/faulty_store.hpp"
#include "support/error_of.hpp"
#include "support/event.hpp"
#include "support/sqlite_file.hpp"

namespace idempotency {
namespace {

using namespace std::chrono_literals;
using testing::AdminCall;
using testing::Fault;
using testing::FaultyStore;
using testing_support::code_of;
using testing_support::PlainConnection;
using testing_support::StandingClock;
using testing_support::TemporaryFolder;

/// A file with records of which some are past their retention.
class Purgers : public ::testing::Test {
 protected:
  static constexpr auto old = 1min;

  void finish(const std::string& value, std::chrono::milliseconds retention) {
    const Key key{"order", value};
    const Ownership by{OwnerToken::generate(), 1};
    ASSERT_EQ(store.begin({.key = key, .owner = by.owner}), BeginOutcome(Acquired{1, 1}));
    ASSERT_EQ(store.complete(key, by, {"result", retention}), WriteOutcome::stored);
  }
  void finish_many(std::size_t count) {
    for (std::size_t number = 0; number < count; ++number)
      finish("old-" + std::to_string(number), old);
    finish("kept", 24h);
    clock.advance(old);
  }
  std::size_t rows() {
    return std::stoul(PlainConnection(path).ask("SELECT count(*) FROM idempotency_record"));
  }
  static PurgerOptions quick() {
    PurgerOptions options;
    options.batch = 10;
    options.pause = 0ms;
    options.first_back_off = 1ms;
    options.longest_back_off = 2ms;
    return options;
  }

  TemporaryFolder folder;
  StandingClock clock;
  std::string path = folder.file("records.db");
  SqliteStore store{{.path = path, .durability = SqliteDurability::normal, .clock = &clock}};
};

TEST_F(Purgers, RemoveWhatIsPastItsRetentionAndNothingElse) {
  finish_many(95);
  Purger purger(store, quick());

  const PurgeReport report = purger.run_once();

  EXPECT_EQ(report.removed, 95U);
  EXPECT_EQ(report.batches, 10U);
  EXPECT_FALSE(report.ended_early);
  EXPECT_EQ(rows(), 1U);
  EXPECT_EQ(purger.run_once().removed, 0U);
}

TEST_F(Purgers, TellOfEachBatch) {
  finish_many(25);
  std::vector<std::uint64_t> told;
  PurgerOptions options = quick();
  options.on_batch = [&](const PurgeReport& report) { told.push_back(report.removed); };

  static_cast<void>(Purger(store, options).run_once());

  EXPECT_EQ(told, (std::vector<std::uint64_t>{10, 20, 25}));
}

TEST_F(Purgers, StopBetweenTwoBatches) {
  finish_many(50);
  std::stop_source stop;
  PurgerOptions options = quick();
  options.pause = 1h;
  testing_support::Event begun;
  FaultyStore watched{store};
  watched.on(AdminCall::purge).after([&] { begun.set(); });
  Purger purger(watched, options);

  PurgeReport report;
  std::jthread thread([&] { report = purger.run_once(stop.get_token()); });
  ASSERT_TRUE(begun.wait());
  stop.request_stop();
  thread.join();

  EXPECT_EQ(report.removed, 10U);
  EXPECT_TRUE(report.ended_early);
}

TEST_F(Purgers, BackOffFromABusyStoreAndGoOn) {
  finish_many(25);
  FaultyStore faulty{store};
  faulty.on(AdminCall::purge)
      .fail_next(2, Fault::busy)
      .pass_next(1)
      .fail_next(2, Fault::reply_lost)
      .fail_next(1, Fault::request_lost);
  PurgerOptions options = quick();
  options.max_failures_in_a_row = 4;

  const PurgeReport report = Purger(faulty, options).run_once();

  EXPECT_EQ(report.failures, 5U);
  EXPECT_FALSE(report.ended_early);
  EXPECT_EQ(rows(), 1U);
}

TEST_F(Purgers, EndAPassWhenTheStoreIsAwayForLong) {
  FaultyStore faulty{store};
  faulty.on(AdminCall::purge).fail_always(Fault::request_lost);
  PurgerOptions options = quick();
  options.max_failures_in_a_row = 3;

  const PurgeReport report = Purger(faulty, options).run_once();

  EXPECT_EQ(report.failures, 3U);
  EXPECT_EQ(report.batches, 0U);
  EXPECT_TRUE(report.ended_early);
}

TEST_F(Purgers, PassOnWhatRepeatingDoesNotMend) {
  FaultyStore faulty{store};
  faulty.on(AdminCall::purge).fail_always(Fault::refused);
  Purger purger(faulty, quick());

  EXPECT_EQ(code_of([&] { static_cast<void>(purger.run_once()); }), Errc::store_refused);
  EXPECT_EQ(code_of([&] { purger.run({}); }), Errc::store_refused);
}

TEST_F(Purgers, AreHarmlessToEachOther) {
  finish_many(300);
  std::atomic<std::uint64_t> removed{0};
  {
    std::vector<std::jthread> crowd;
    for (int number = 0; number < 4; ++number) {
      crowd.emplace_back([&] {
        SqliteStore own{{.path = path, .durability = SqliteDurability::normal, .clock = &clock}};
        removed += Purger(own, quick()).run_once().removed;
      });
    }
  }

  EXPECT_EQ(removed, 300U);
  EXPECT_EQ(rows(), 1U);
}

TEST_F(Purgers, LeaveAloneWhatIsBegunAnewMeanwhile) {
  finish_many(40);
  FaultyStore meanwhile{store};
  IdempotencyGuard guard{store};
  int runs = 0;
  meanwhile.on(AdminCall::purge).before([&] {
    static_cast<void>(guard.run({.key = {"order", "old-39"}}, [&] { return ++runs; }));
  });

  static_cast<void>(Purger(meanwhile, quick()).run_once());

  EXPECT_EQ(runs, 1);
  EXPECT_EQ(store.find({"order", "old-39"})->state, RecordState::success);
  EXPECT_EQ(rows(), 2U);
}

TEST_F(Purgers, RunUntilTheyAreAskedToStop) {
  finish_many(15);
  testing_support::Event second;
  int passes = 0;
  PurgerOptions options = quick();
  options.every = 1ms;
  options.on_pass = [&](const PurgeReport&) {
    if (++passes == 2) second.set();
  };
  Purger purger(store, options);

  std::jthread thread([&](const std::stop_token& stop) { purger.run(stop); });
  ASSERT_TRUE(second.wait());
  thread.request_stop();
  thread.join();

  EXPECT_EQ(rows(), 1U);
}

TEST_F(Purgers, RefuseWhatCannotBeMeant) {
  const auto refused = [&](const std::function<void(PurgerOptions&)>& change) {
    PurgerOptions options;
    change(options);
    return code_of([&] { Purger(store, options); }) == Errc::invalid_argument;
  };

  EXPECT_TRUE(refused([](auto& o) { o.batch = 0; }));
  EXPECT_TRUE(refused([](auto& o) { o.batch = 100'001; }));
  EXPECT_TRUE(refused([](auto& o) { o.pause = -1ms; }));
  EXPECT_TRUE(refused([](auto& o) { o.first_back_off = 0ms; }));
  EXPECT_TRUE(refused([](auto& o) { o.longest_back_off = 1ms; }));
  EXPECT_TRUE(refused([](auto& o) { o.max_failures_in_a_row = 0; }));
  EXPECT_TRUE(refused([](auto& o) { o.every = 0ms; }));
}

TEST(PurgerOnMemory, HasNothingToDoThatTheStoreWouldNotDoItself) {
  MemoryStore store;

  const PurgeReport report = Purger(store).run_once();

  EXPECT_EQ(report.removed, 0U);
  EXPECT_FALSE(report.ended_early);
}

}  // namespace
}  // namespace idempotency
