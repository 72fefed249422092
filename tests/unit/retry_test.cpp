#include "idempotency/patterns/retry.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "idempotency/idempotency.hpp"
#include "idempotency/stores/memory.hpp"
#include "idempotency/testing/faulty_store.hpp"
#include "support/error_of.hpp"

namespace idempotency {
namespace {

using std::chrono::milliseconds;
using testing::Fault;
using testing::FaultyStore;
using testing_support::code_of;

/// Time passes only in pauses, which are as long as they can be.
class StandingRetryClock : public RetryClock {
 public:
  Time now() override { return now_; }
  void sleep(milliseconds pause) override {
    now_ += pause;
    pauses.push_back(pause);
    if (when_sleeping) when_sleeping();
  }
  milliseconds any_up_to(milliseconds most) override { return most; }

  std::vector<milliseconds> pauses;
  std::function<void()> when_sleeping;

 private:
  Time now_{std::chrono::hours{1}};
};

class Retry : public ::testing::Test {
 protected:
  /// Fails `times` times with `code`, then gives 42.
  auto failing(int times, Errc code) {
    return [this, times, code] {
      if (++calls < times + 1) throw Error(code, "the test says so");
      return 42;
    };
  }

  StandingRetryClock clock;
  RetryBudget budget{10, 0};
  RetryParts parts{&budget, &clock};
  int calls = 0;
};

TEST_F(Retry, RepeatsWhatIsSafeToRepeatWithGrowingPauses) {
  EXPECT_EQ(retry({.attempts = 5, .base = milliseconds{100}, .longest = milliseconds{300}},
                  failing(4, Errc::store_unavailable), parts),
            42);

  EXPECT_EQ(calls, 5);
  EXPECT_EQ(clock.pauses, (std::vector{milliseconds{100}, milliseconds{200}, milliseconds{300},
                                       milliseconds{300}}));
}

TEST_F(Retry, DoesNotRepeatWhatIsNot) {
  EXPECT_EQ(code_of([&] { retry({}, failing(1, Errc::store_corrupt), parts); }),
            Errc::store_corrupt);
  EXPECT_THROW(retry(
                   {},
                   [&]() -> int {
                     ++calls;
                     throw std::runtime_error("mine");
                   },
                   parts),
               std::runtime_error);

  EXPECT_EQ(calls, 2);
}

TEST_F(Retry, EndsWithTheLastErrorAfterItsAttempts) {
  EXPECT_EQ(code_of([&] { retry({.attempts = 3}, failing(9, Errc::store_unavailable), parts); }),
            Errc::store_unavailable);

  EXPECT_EQ(calls, 3);
}

TEST_F(Retry, StartsNoAttemptBehindItsDeadline) {
  EXPECT_EQ(code_of([&] {
              retry({.attempts = 100,
                     .base = milliseconds{100},
                     .longest = milliseconds{100},
                     .deadline = milliseconds{250}},
                    failing(99, Errc::store_unavailable), parts);
            }),
            Errc::store_unavailable);

  EXPECT_EQ(calls, 3);
}

// FB-06: when the store is down for everybody, the callers together make few more calls than they would anyway.
TEST_F(Retry, SpendsNoMoreThanTheBudgetOfAllCallers) {
  for (int caller = 0; caller < 50; ++caller) {
    EXPECT_EQ(code_of([&] {
                retry(
                    {.attempts = 10},
                    [&]() -> int {
                      ++calls;
                      throw Error(Errc::store_unavailable, "down");
                    },
                    parts);
              }),
              Errc::store_unavailable);
  }

  EXPECT_EQ(calls, 50 + 10);
}

TEST(RetryBudget, IsEarnedByCallsUpToItsMost) {
  RetryBudget budget(2, 50);
  ASSERT_TRUE(budget.spend());
  ASSERT_TRUE(budget.spend());
  EXPECT_FALSE(budget.spend());

  budget.earn();
  EXPECT_FALSE(budget.spend());
  budget.earn();
  EXPECT_TRUE(budget.spend());
  for (int call = 0; call < 100; ++call)
    budget.earn();

  EXPECT_TRUE(budget.spend());
  EXPECT_TRUE(budget.spend());
  EXPECT_FALSE(budget.spend());
}

TEST(RetryBudget, RefusesWhatMakesNoSense) {
  EXPECT_EQ(code_of([] { RetryBudget budget(0); }), Errc::invalid_argument);
  EXPECT_EQ(code_of([] { RetryBudget budget(1, 1'001); }), Errc::invalid_argument);
}

TEST_F(Retry, RefusesAPolicyThatMakesNoSense) {
  const auto fn = [] { return 1; };
  EXPECT_EQ(code_of([&] { retry({.attempts = 0}, fn, parts); }), Errc::invalid_argument);
  EXPECT_EQ(
      code_of([&] { retry({.base = milliseconds{9}, .longest = milliseconds{8}}, fn, parts); }),
      Errc::invalid_argument);
  EXPECT_EQ(code_of([&] { retry({.deadline = milliseconds{-1}}, fn, parts); }),
            Errc::invalid_argument);
  EXPECT_EQ(retry({.deadline = milliseconds::max()}, fn, parts), 1);  // LK-17
  EXPECT_EQ(retry({.longest = milliseconds::max(), .deadline = milliseconds::max()},
                  failing(1, Errc::store_unavailable), parts),
            42);
}

TEST_F(Retry, GivesTheRecordedResultOnceAnotherHasFinished) {
  MemoryStore store;
  IdempotencyGuard guard{store};
  const Operation operation{.key = {"order", "7"}};
  const BeginRequest other{.key = operation.key, .owner = OwnerToken::generate()};
  ASSERT_EQ(store.begin(other), BeginOutcome(Acquired{1, 1}));
  clock.when_sleeping = [&] {
    if (clock.pauses.size() == 2) {
      EXPECT_EQ(
          store.complete(other.key, {other.owner, 1}, {encode_result(7), std::chrono::hours{1}}),
          WriteOutcome::stored);
    }
  };

  const auto result =
      run_with_retries({.attempts = 5}, guard, operation, failing(0, Errc{}), parts);

  EXPECT_EQ(result.status(), RunStatus::replayed);
  EXPECT_EQ(result.value(), 7);
  EXPECT_EQ(calls, 0);
  EXPECT_EQ(clock.pauses.size(), 2U);
}

// FB-06, counted at the store: the guard's own repetitions of `begin` would treble what the budget allows.
TEST_F(Retry, AsksAStoreThatIsDownNoMoreThanTheBudgetAllows) {
  MemoryStore inner;
  FaultyStore store{inner};
  IdempotencyGuard guard{store};
  store.on(StoreCall::begin).fail_always(Fault::request_lost);

  for (int caller = 0; caller < 50; ++caller) {
    EXPECT_EQ(code_of([&] {
                static_cast<void>(run_with_retries({.attempts = 10}, guard,
                                                   {.key = {"order", std::to_string(caller)}},
                                                   failing(0, Errc{}), parts));
              }),
              Errc::store_unavailable);
  }

  EXPECT_EQ(store.calls(StoreCall::begin), 50U + 10U);
  EXPECT_EQ(calls, 0);
}

// Another token would find the record of its own lost one in progress.
TEST_F(Retry, LeavesALostReplyToTheGuard) {
  MemoryStore inner;
  FaultyStore store{inner};
  IdempotencyGuard guard{store};
  store.on(StoreCall::begin).fail_next(1, Fault::reply_lost);

  const auto result =
      run_with_retries({.attempts = 5}, guard, {.key = {"order", "7"}}, failing(0, Errc{}), parts);

  EXPECT_EQ(result.status(), RunStatus::executed);
  EXPECT_TRUE(clock.pauses.empty());
}

TEST_F(Retry, PaysNothingForWaitingForAnothersRun) {
  MemoryStore store;
  IdempotencyGuard guard{store};
  RetryBudget empty(1, 0);
  ASSERT_TRUE(empty.spend());
  const Operation operation{.key = {"order", "7"}};
  const BeginRequest other{.key = operation.key, .owner = OwnerToken::generate()};
  ASSERT_EQ(store.begin(other), BeginOutcome(Acquired{1, 1}));

  const auto result =
      run_with_retries({.attempts = 5}, guard, operation, failing(0, Errc{}), {&empty, &clock});

  EXPECT_EQ(result.status(), RunStatus::in_progress);
  EXPECT_EQ(clock.pauses.size(), 4U);
}

TEST_F(Retry, RunsTheHandlerOnceHoweverOftenTheStoreWasAsked) {
  MemoryStore inner;
  FaultyStore store{inner};
  IdempotencyGuard guard{store, {.begin_attempts = 1}};
  store.on(StoreCall::begin).fail_next(3, Fault::request_lost);

  const auto result =
      run_with_retries({.attempts = 5}, guard, {.key = {"order", "7"}}, failing(0, Errc{}), parts);

  EXPECT_EQ(result.status(), RunStatus::executed);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(clock.pauses.size(), 3U);
}

TEST(RetryClock, DrawsPausesFromTheWholeRange) {
  bool low = false;
  bool high = false;
  for (int draw = 0; draw < 1'000; ++draw) {
    const milliseconds pause = RetryClock::of_machine().any_up_to(milliseconds{10});
    ASSERT_GE(pause, milliseconds{0});
    ASSERT_LE(pause, milliseconds{10});
    low = low || pause < milliseconds{3};
    high = high || pause > milliseconds{7};
  }
  EXPECT_TRUE(low && high);
}

}  // namespace
}  // namespace idempotency
