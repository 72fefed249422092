#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "idempotency/idempotency.hpp"
#include "idempotency/stores/memory.hpp"
#include "idempotency/testing/faulty_store.hpp"
#include "support/barrier.hpp"
#include "support/error_of.hpp"
#include "support/event.hpp"

namespace idempotency {
namespace {

using namespace std::chrono_literals;
using testing::Fault;
using testing_support::error_of;
using testing_support::Event;
using Store_ = testing::FaultyStore<MemoryStore>;

Key key_of_order(const std::string& value) { return Key("order", value); }

std::vector<Operation> operations(const std::vector<std::string>& values,
                                  const PolicyOverride& policy = {}) {
  std::vector<Operation> all;
  for (const std::string& value : values)
    all.push_back({.key = key_of_order(value), .policy = policy});
  return all;
}

/// What became of leases.
class Leases final : public Observer {
 public:
  explicit Leases(std::string watched = "b") : watched_(std::move(watched)) {}
  void on_lease_renewed(const Key& key, std::uint64_t /*fence*/) noexcept override {
    if (key.value() == watched_) renewed.set();
  }
  void on_lease_lost(const Key& key, std::uint64_t /*fence*/) noexcept override {
    if (key.value() == watched_) lost.set();
  }
  Event renewed;
  Event lost;

 private:
  std::string watched_;
};

struct Desk {
  explicit Desk(Observer* observer = nullptr)
      : guard(store, {.observer = observer, .write_budget = 50ms}) {}
  std::optional<Record> record(const std::string& value) {
    return memory.find(key_of_order(value));
  }

  MemoryStore memory;
  Store_ store{memory};
  IdempotencyGuard<Store_> guard;
};

TEST(RunBatch, BeginsAllInOneCallOfTheStore) {
  Desk desk;
  RunBatch batch = desk.guard.begin_many(operations({"a", "b", "c"}));

  EXPECT_EQ(batch.size(), 3U);
  EXPECT_EQ(desk.store.calls(StoreCall::begin), 1U);
  for (std::size_t place = 0; place < batch.size(); ++place) {
    const auto result = batch.run(place, [&] { return std::to_string(place); });
    EXPECT_EQ(result.status(), RunStatus::executed);
    EXPECT_EQ(result.value(), std::to_string(place));
  }
  EXPECT_EQ(desk.store.calls(StoreCall::begin), 1U);
  EXPECT_EQ(desk.record("c")->state, RecordState::success);
}

TEST(RunBatch, AnswersFinishedDuplicatesWithoutAnotherCall) {
  Desk desk;
  static_cast<void>(desk.guard.run({.key = key_of_order("a")}, [] { return 1; }));
  EXPECT_THROW(static_cast<void>(desk.guard.run({.key = key_of_order("b")},
                                                []() -> int { throw PermanentFailure("no"); })),
               PermanentFailure);
  const std::size_t before = desk.store.calls(StoreCall::begin);

  RunBatch batch = desk.guard.begin_many(operations({"a", "b"}));
  const auto first = batch.run(0, [] { return 2; });
  const auto second = batch.run(1, [] { return 2; });

  EXPECT_EQ(first.status(), RunStatus::replayed);
  EXPECT_EQ(first.value(), 1);
  EXPECT_EQ(second.status(), RunStatus::failed);
  EXPECT_EQ(second.failure(), "no");
  EXPECT_EQ(desk.store.calls(StoreCall::begin), before + 1);
}

TEST(RunBatch, ReplaysTheSecondOfTheSameKey) {
  Desk desk;
  RunBatch batch = desk.guard.begin_many(operations({"a", "b", "a"}));

  static_cast<void>(batch.run(0, [] { return 1; }));
  static_cast<void>(batch.run(1, [] { return 2; }));
  const auto again = batch.run(2, [] { return 3; });

  EXPECT_EQ(again.status(), RunStatus::replayed);
  EXPECT_EQ(again.value(), 1);
}

TEST(RunBatch, TakesTurnsInAnyOrderAndEachOnce) {
  Desk desk;
  RunBatch batch = desk.guard.begin_many(operations({"a", "b"}));

  EXPECT_EQ(batch.run(1, [] { return 1; }).status(), RunStatus::executed);
  EXPECT_EQ(error_of([&] { static_cast<void>(batch.run(1, [] { return 1; })); }).code(),
            Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { static_cast<void>(batch.run(2, [] { return 1; })); }).code(),
            Errc::invalid_argument);
  EXPECT_EQ(batch.run(0, [] { return 1; }).status(), RunStatus::executed);
}

TEST(RunBatch, GivesBackWhatHasNotHadItsTurn) {
  Desk desk;
  {
    RunBatch batch = desk.guard.begin_many(operations({"a", "b"}));
    static_cast<void>(batch.run(0, [] { return 1; }));
  }

  EXPECT_EQ(desk.record("a")->state, RecordState::success);
  ASSERT_EQ(desk.record("b")->state, RecordState::failed);
  ASSERT_TRUE(desk.record("b")->failure);
  EXPECT_EQ(desk.record("b")->failure->retryability, Retryability::retryable);
  EXPECT_EQ(desk.guard.run({.key = key_of_order("b")}, [] { return 1; }).status(),
            RunStatus::executed);
}

// The store is one that can be cancelled, as the library's own cannot.
TEST(RunBatch, GivesBackAlsoInAThreadThatIsCancelled) {
  Desk desk;
  desk.store.on(StoreCall::release).before([] { pthread_testcancel(); });
  std::atomic<bool> went_on{false};
  std::thread thread([&] {
    {
      const RunBatch batch = desk.guard.begin_many(operations({"a", "b"}));
      pthread_cancel(pthread_self());
    }
    pthread_testcancel();
    went_on = true;
  });
  thread.join();

  EXPECT_FALSE(went_on) << "it is acted on afterwards";
  EXPECT_EQ(desk.record("a")->state, RecordState::failed);
  EXPECT_EQ(desk.record("b")->state, RecordState::failed);
}

TEST(RunBatch, RenewsWhatWaitsForItsTurn) {
  Leases leases;
  Desk desk(&leases);
  RunBatch batch = desk.guard.begin_many(operations({"a", "b"}, {.lease = 300ms}));

  static_cast<void>(batch.run(0, [&] { return leases.renewed.wait(); }));
  std::uint64_t fence = 0;
  const auto second = batch.run(1, [&](Execution& execution) {
    fence = execution.fence();
    return true;
  });

  EXPECT_EQ(second.status(), RunStatus::executed);
  EXPECT_EQ(fence, 1U);
  EXPECT_EQ(desk.store.calls(StoreCall::begin), 1U);
}

TEST(RunBatch, AsksAgainForWhatWasTakenBeforeItsTurn) {
  Leases leases;
  Desk desk(&leases);
  IdempotencyGuard other(desk.memory);
  desk.store.on(StoreCall::renew).fail_always(Fault::request_lost);
  RunBatch batch = desk.guard.begin_many(operations({"a", "b"}, {.lease = 100ms}));

  static_cast<void>(batch.run(0, [&] {
    if (!leases.lost.wait()) return 0;
    const auto taken =
        other.run({.key = key_of_order("b"), .policy = {.wait = 10s}}, [] { return 7; });
    return taken.status() == RunStatus::executed ? 1 : 0;
  }));
  desk.store.heal();
  const auto second = batch.run(1, [] { return 2; });

  EXPECT_EQ(second.status(), RunStatus::replayed);
  EXPECT_EQ(second.value(), 7);
}

TEST(RunBatch, LeavesWhatHasNotStartedToBeTakenOverAlsoUnderHold) {
  Desk desk;
  RunBatch batch =
      desk.guard.begin_many(operations({"a", "b"}, {.on_expired_lease = RecordMode::hold}));
  ASSERT_EQ(desk.record("b")->mode, RecordMode::take_over);
  EXPECT_FALSE(desk.record("b")->effect_marked);

  std::optional<Record> during;
  const auto run = batch.run(0, [&] {
    during = desk.record("a");
    return 1;
  });

  EXPECT_EQ(run.status(), RunStatus::executed);
  ASSERT_TRUE(during);
  EXPECT_TRUE(during->effect_marked) << "from its start on it is held";
  EXPECT_FALSE(desk.record("b")->effect_marked);
}

TEST(RunBatch, HoldsARunThatThrewUnderHold) {
  Desk desk;
  RunBatch batch =
      desk.guard.begin_many(operations({"a", "b"}, {.on_expired_lease = RecordMode::hold}));

  EXPECT_THROW(static_cast<void>(batch.run(0, []() -> int { throw std::runtime_error("?"); })),
               std::runtime_error);
  EXPECT_THROW(static_cast<void>(batch.run(
                   1, [](Execution&) -> int { throw std::runtime_error("before the effect"); })),
               std::runtime_error);

  EXPECT_EQ(desk.record("a")->state, RecordState::uncertain);
  EXPECT_EQ(desk.record("b")->state, RecordState::failed);
}

TEST(RunBatch, StartsNoHandlerUnderHoldThatCouldNotBeMarked) {
  Desk desk;
  desk.store.on(StoreCall::mark_effect).fail_always(Fault::request_lost);
  RunBatch batch =
      desk.guard.begin_many(operations({"a", "b"}, {.on_expired_lease = RecordMode::hold}));
  int runs = 0;

  const Error error = error_of([&] { static_cast<void>(batch.run(0, [&] { return ++runs; })); });
  desk.store.heal();

  EXPECT_EQ(error.code(), Errc::store_unavailable);
  EXPECT_EQ(runs, 0);
  EXPECT_EQ(desk.guard.run({.key = key_of_order("a")}, [&] { return ++runs; }).status(),
            RunStatus::executed)
      << "it was given back";
}

TEST(RunBatch, RepeatsABeginWhoseReplyWasLostWithTheSameTokens) {
  Desk desk;
  desk.store.on(StoreCall::begin).fail_next(1, Fault::reply_lost);
  RunBatch batch = desk.guard.begin_many(operations({"a", "b"}));

  for (std::size_t place = 0; place < 2; ++place) {
    std::uint64_t fence = 0;
    std::uint32_t attempt = 0;
    const auto run = batch.run(place, [&](Execution& execution) {
      fence = execution.fence();
      attempt = execution.attempt();
      return 1;
    });
    EXPECT_EQ(run.status(), RunStatus::executed);
    EXPECT_EQ(fence, 1U) << "it owned the record all the time";
    EXPECT_EQ(attempt, 1U);
  }
}

TEST(RunBatch, TellsEachRunOfAStoreThatCannotBeAsked) {
  Desk desk;
  desk.store.on(StoreCall::begin).fail_always(Fault::request_lost);
  RunBatch batch = desk.guard.begin_many(operations({"a", "b"}));

  for (std::size_t place = 0; place < 2; ++place) {
    const Error error = error_of([&] { static_cast<void>(batch.run(place, [] { return 1; })); });
    EXPECT_EQ(error.code(), Errc::store_unavailable);
    EXPECT_FALSE(error.effect_possible());
  }
}

TEST(RunBatch, LetsEachAskForItselfWhenTheBatchIsRefused) {
  Desk desk;
  desk.store.on(StoreCall::begin).fail_next(1, Fault::full);
  RunBatch batch = desk.guard.begin_many(operations({"a", "b"}));

  EXPECT_EQ(batch.run(0, [] { return 1; }).status(), RunStatus::executed);
  EXPECT_EQ(batch.run(1, [] { return 1; }).status(), RunStatus::executed);
  EXPECT_EQ(desk.store.calls(StoreCall::begin), 3U);
}

TEST(RunBatch, TellsAnInvalidPolicyAtItsTurn) {
  Desk desk;
  std::vector<Operation> both = operations({"a", "b"});
  both[0].policy.lease = 0ms;
  RunBatch batch = desk.guard.begin_many(both);

  EXPECT_EQ(error_of([&] { static_cast<void>(batch.run(0, [] { return 1; })); }).code(),
            Errc::invalid_policy);
  EXPECT_EQ(batch.run(1, [] { return 1; }).status(), RunStatus::executed);
}

TEST(RunBatch, RenewsWhatWaitsAlsoWhereItMayBeHeldForEver) {
  Leases leases;
  Desk desk(&leases);
  RunBatch batch = desk.guard.begin_many(
      operations({"a", "b"}, {.lease = 300ms, .max_total_hold = std::chrono::milliseconds::max()}));

  static_cast<void>(batch.run(0, [&] { return leases.renewed.wait() ? 1 : 0; }));
  std::uint64_t fence = 0;
  const auto second = batch.run(1, [&](Execution& execution) {
    fence = execution.fence();
    return true;
  });

  EXPECT_EQ(second.status(), RunStatus::executed);
  EXPECT_EQ(fence, 1U);
}

TEST(RunBatch, IsNotInItsOwnWayWhenItsLeaseIsNearlyOver) {
  Leases leases;
  Desk desk(&leases);
  desk.store.on(StoreCall::renew).fail_always(Fault::request_lost);
  RunBatch batch = desk.guard.begin_many(operations({"a", "b"}, {.lease = 5s}));

  ASSERT_TRUE(leases.lost.wait());
  const auto second = batch.run(1, [] { return 2; });

  EXPECT_EQ(second.status(), RunStatus::executed)
      << "status " << static_cast<int>(second.status()) << ", retry after "
      << second.retry_after().count() << " ms, and nobody else is there";
}

TEST(RunBatch, OfOneOrNoneIsAnOrdinaryRun) {
  Desk desk;
  RunBatch none = desk.guard.begin_many({});
  RunBatch one = desk.guard.begin_many(operations({"a"}));

  EXPECT_EQ(none.size(), 0U);
  EXPECT_EQ(desk.store.calls(StoreCall::begin), 0U);
  EXPECT_EQ(one.run(0, [] { return 1; }).status(), RunStatus::executed);
}

/// A store that knows no batches.
class PlainStore {
 public:
  BeginOutcome begin(const BeginRequest& request) {
    ++begins;
    return memory_.begin(request);
  }
  WriteOutcome complete(const Key& key, const Ownership& by, const Completion& completion) {
    return memory_.complete(key, by, completion);
  }
  WriteOutcome fail(const Key& key, const Ownership& by, const Failure& failure,
                    std::chrono::milliseconds retention) {
    return memory_.fail(key, by, failure, retention);
  }
  WriteOutcome doubt(const Key& key, const Ownership& by) { return memory_.doubt(key, by); }
  WriteOutcome mark_effect(const Key& key, const Ownership& by) {
    return memory_.mark_effect(key, by);
  }
  WriteOutcome renew(const Key& key, const Ownership& by, std::chrono::milliseconds lease) {
    return memory_.renew(key, by, lease);
  }
  ReleaseOutcome release(const Key& key, const Ownership& by,
                         std::chrono::milliseconds retention) noexcept {
    return memory_.release(key, by, retention);
  }
  std::optional<Record> find(const Key& key) { return memory_.find(key); }

  int begins = 0;

 private:
  MemoryStore memory_;
};
static_assert(Store<PlainStore> && !BatchBeginStore<PlainStore>);

TEST(RunBatch, HoldsNothingBeforeItsTurnWhereTheStoreKnowsNoBatches) {
  PlainStore store;
  IdempotencyGuard guard(store);
  RunBatch batch = guard.begin_many(operations({"a", "b"}));

  EXPECT_EQ(store.begins, 0);
  EXPECT_EQ(batch.run(0, [] { return 1; }).status(), RunStatus::executed);
  EXPECT_EQ(store.begins, 1);
}

TEST(RunBatch, OfManyThreadsRunsEachKeyOnce) {
  Desk desk;
  constexpr int keys = 40;
  std::vector<std::string> values;
  for (int key = 0; key < keys; ++key)
    values.push_back(std::to_string(key));
  std::vector<std::atomic<int>> runs(keys);

  testing_support::run_together(4, [&](std::size_t thread) {
    std::vector<std::string> mine = values;
    if (thread % 2 == 1) std::reverse(mine.begin(), mine.end());
    RunBatch batch = desk.guard.begin_many(operations(mine, {.wait = 20s}));
    for (std::size_t place = 0; place < batch.size(); ++place) {
      const int key = std::stoi(mine[place]);
      const auto result = batch.run(place, [&] {
        ++runs[static_cast<std::size_t>(key)];
        return key;
      });
      EXPECT_EQ(result.value(), key);
    }
  });

  for (const std::atomic<int>& count : runs)
    EXPECT_EQ(count, 1);
}

TEST(RunBatch, SurvivesAStoreThatFailsByChance) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    Desk desk;
    desk.store.fail_randomly(seed, {.request_lost = 0.1, .reply_lost = 0.1, .busy = 0.1});
    std::map<std::string, int> runs;
    for (int round = 0; round < 6; ++round) {
      RunBatch batch = desk.guard.begin_many(operations({"a", "b", "c", "b"}, {.lease = 10s}));
      for (const std::size_t place : {0U, 1U, 2U, 3U}) {
        const std::string value = std::string("abcb").substr(place, 1);
        try {
          const auto result = batch.run(place, [&] { return ++runs[value]; });
          if (result.status() == RunStatus::replayed) {
            EXPECT_EQ(result.value(), 1);
          }
        } catch (const Error& error) {
          EXPECT_TRUE(error.safe_to_retry()) << error.what();
        }
      }
    }
    for (const auto& [value, count] : runs)
      EXPECT_EQ(count, 1) << value << " with seed " << seed;
  }
}

}  // namespace
}  // namespace idempotency
