#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <latch>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "idempotency/idempotency.hpp"
#include "idempotency/stores/memory.hpp"
#include "idempotency/testing/faulty_store.hpp"
#include "support/waiting_threads.hpp"

namespace idempotency {
namespace {

using namespace std::chrono_literals;
using testing::FaultyStore;

/// Runs `body(index)` on many threads that start together; waits for all.
template <class Body>
void together(int threads, Body body) {
  std::barrier start(threads);
  std::vector<std::jthread> running;
  for (int index = 0; index < threads; ++index) {
    running.emplace_back([&, index] {
      start.arrive_and_wait();
      body(index);
    });
  }
}

// ID-37: 64 threads with the same key at the same moment run the handler once.
TEST(GuardRace, RunsOneHandlerForManyCallersAtOnce) {
  MemoryStore store;
  IdempotencyGuard guard{store};
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> runs{0};
    std::atomic<int> answered{0};
    const std::string id = std::to_string(round);

    together(64, [&](int) {
      const auto result = guard.run({.key = {"order", id}}, [&] { return ++runs; });
      if (result.has_value()) answered += result.value();
    });

    EXPECT_EQ(runs, 1);
    EXPECT_GE(answered, 1);
  }
}

/// Counts store errors that the guard tells.
class ErrorCounter : public Observer {
 public:
  void on_store_error(const Key& /*key*/, StoreCall /*call*/, const Error& /*error*/,
                      std::uint32_t /*attempt*/) noexcept override {
    ++errors;
  }
  std::atomic<int> errors{0};
};

// ID-15: duplicates are answers, not failures of the store; other keys go on.
TEST(GuardRace, CountsDuplicatesAsAnswersAndNotAsStoreErrors) {
  MemoryStore store;
  ErrorCounter counter;
  IdempotencyGuard guard{store, {.observer = &counter}};
  std::atomic<int> refused{0};

  const auto first = guard.run({.key = {"order", "hot"}}, [&] {
    together(8, [&](int) {
      for (int copy = 0; copy < 125; ++copy) {
        const auto result = guard.run({.key = {"order", "hot"}}, [] { return 2; });
        if (result.status() == RunStatus::in_progress) ++refused;
      }
    });
    return 1;
  });

  EXPECT_EQ(first.status(), RunStatus::executed);
  EXPECT_EQ(refused, 1'000);
  EXPECT_EQ(guard.run({.key = {"order", "fresh"}}, [] { return 3; }).status(), RunStatus::executed);
  EXPECT_EQ(counter.errors, 0);
}

// FB-06: a store that is gone costs each caller its own attempts and no more; all come back, whether they wait or not.
TEST(GuardRace, LetsEverybodyGoWhenTheStoreIsGone) {
  MemoryStore inner;
  FaultyStore store{inner};
  IdempotencyGuard guard{store};
  store.on(StoreCall::begin).fail_always(testing::Fault::request_lost);
  std::atomic<int> runs{0};
  std::atomic<int> told{0};

  together(100, [&](int index) {
    const PolicyOverride patience{.wait = index % 2 == 0 ? 0ms : 1000ms};
    try {
      static_cast<void>(guard.run(
          {.key = {"order", std::to_string(index % 10)}, .policy = patience}, [&] { ++runs; }));
    } catch (const Error& error) {
      if (error.safe_to_retry() && !error.effect_possible()) ++told;
    }
  });

  EXPECT_EQ(runs, 0);
  EXPECT_EQ(told, 100);
  EXPECT_LE(store.calls(StoreCall::begin), 300U);  // three attempts each, no loop without end
}

// A thousand callers with the same key cost the store a handful of calls.
TEST(GuardRace, AnswersAThousandWaitersWithAHandfulOfStoreCalls) {
  constexpr int callers = 1'000;
  MemoryStore inner;
  FaultyStore store{inner};
  IdempotencyGuard guard{store};
  std::atomic<int> runs{0};
  std::atomic<int> right{0};
  std::atomic<int> entered{0};

  std::vector<std::jthread> running;
  for (int index = 0; index < callers; ++index) {
    running.emplace_back([&] {
      ++entered;
      const auto result = guard.run({.key = {"order", "hot"}, .policy = {.wait = 60s}}, [&] {
        ++runs;
        while (entered < callers)
          std::this_thread::yield();  // the others are asking by now
        return std::string("once");
      });
      if (result.has_value() && result.value() == "once") ++right;
    });
  }
  running.clear();

  EXPECT_EQ(runs, 1);
  EXPECT_EQ(right, callers);
  // One leads; only callers that came after it had left ask for themselves.
  EXPECT_EQ(store.calls(StoreCall::complete), 1U);
  EXPECT_LE(store.calls(StoreCall::begin), 100U);
}

/// An owner in its handler and ten callers with the same key that stand in line behind it.
class GuardLine : public ::testing::Test {
 protected:
  static constexpr int waiters = 10;
  using Result = RunResult<int>;

  static Operation operation(std::chrono::milliseconds wait = 60s) {
    return {.key = {"order", "7"}, .policy = {.wait = wait}};
  }
  /// The owner's handler does `as_owner()` when everybody stands in line; a waiter who has the turn after it, `next()`.
  template <class AsOwner, class Next>
  void stand_in_line(AsOwner as_owner, Next next) {
    std::jthread owner([&] {
      ask([&]() -> int {
        owner_runs_.count_down();
        all_in_line_.wait();
        return as_owner();
      });
    });
    owner_runs_.wait();
    testing_support::WaitingThreads line;
    for (int waiter = 0; waiter < waiters; ++waiter)
      line.add([&] { ask(next); });
    EXPECT_EQ(returned_, 0);
    EXPECT_EQ(store_.calls(StoreCall::begin), 1U);  // of the owner
    all_in_line_.count_down();
  }
  template <class Handler>
  void ask(Handler handler) {
    try {
      note(guard_.run(operation(), handler));
    } catch (const RetryableFailure&) {
      ++thrown_;
    } catch (const PermanentFailure&) {
      ++thrown_;
    }
    ++returned_;
  }
  void note(const Result& result) {
    const std::lock_guard lock(mutex_);
    results_.push_back(result);
  }
  [[nodiscard]] int count(RunStatus status) const {
    return static_cast<int>(
        std::count_if(results_.begin(), results_.end(),
                      [&](const Result& result) { return result.status() == status; }));
  }
  [[nodiscard]] int count_value(int value) const {
    return static_cast<int>(std::count_if(
        results_.begin(), results_.end(),
        [&](const Result& result) { return result.has_value() && result.value() == value; }));
  }

  MemoryStore inner_;
  FaultyStore<MemoryStore> store_{inner_};
  IdempotencyGuard<FaultyStore<MemoryStore>> guard_{store_};
  std::latch owner_runs_{1};
  std::latch all_in_line_{1};
  std::mutex mutex_;
  std::vector<Result> results_;
  std::atomic<int> thrown_{0};
  std::atomic<int> returned_{0};
};

// ID-34: the owner fails; exactly one waiter runs next, the others go on waiting and get its result.
TEST_F(GuardLine, GivesTheNextTurnToOneWaiterWhenTheOwnerFails) {
  std::atomic<int> turns{0};

  stand_in_line([]() -> int { throw RetryableFailure("not now"); },
                [&] {
                  EXPECT_EQ(returned_, thrown_);  // but for the owner
                  return ++turns;
                });

  EXPECT_EQ(turns, 1);
  EXPECT_EQ(thrown_, 1);
  EXPECT_EQ(count_value(1), waiters);
  EXPECT_EQ(count(RunStatus::executed), 1);
  EXPECT_EQ(count(RunStatus::replayed), waiters - 1);
  EXPECT_EQ(store_.calls(StoreCall::begin), 2U);  // the others have asked nobody
}

// ID-34: and so on, for as many as fail.
TEST_F(GuardLine, GivesTheTurnOnUntilAWaiterSucceeds) {
  std::atomic<int> turns{0};

  stand_in_line([]() -> int { throw RetryableFailure("not now"); },
                [&] {
                  if (++turns < 4) throw RetryableFailure("nor now");
                  return 4;
                });

  EXPECT_EQ(turns, 4);
  EXPECT_EQ(thrown_, 1 + 3);
  EXPECT_EQ(count_value(4), waiters - 3);
  EXPECT_EQ(store_.calls(StoreCall::begin), 1U + 4U);
}

// ID-34: a permanent failure reaches every waiter as a failure, never as an empty success.
TEST_F(GuardLine, TellsEveryWaiterOfAPermanentFailure) {
  std::atomic<int> turns{0};

  stand_in_line([]() -> int { throw PermanentFailure("declined"); }, [&] { return ++turns; });

  EXPECT_EQ(turns, 0);
  EXPECT_EQ(thrown_, 1);
  EXPECT_EQ(count(RunStatus::failed), waiters);
  for (const Result& result : results_) {
    EXPECT_EQ(result.failure(), "declined");
    EXPECT_FALSE(result.has_value());
  }
  EXPECT_EQ(store_.calls(StoreCall::begin), 1U);
}

// ID-34: nobody waits past the own deadline, and nobody takes that for a success.
TEST_F(GuardLine, EndsAtEachWaitersOwnDeadlineWhileTheOwnerRuns) {
  std::atomic<int> turns{0};
  std::jthread owner([&] {
    ask([&] {
      owner_runs_.count_down();
      all_in_line_.wait();
      return 1;
    });
  });
  owner_runs_.wait();

  together(waiters, [&](int) { note(guard_.run(operation(20ms), [&] { return ++turns; })); });

  EXPECT_EQ(turns, 0);
  EXPECT_EQ(count(RunStatus::in_progress), waiters);
  all_in_line_.count_down();
}

// ID-34: an owner that was killed says nothing any more; when its lease has ended, one of those who wait has the turn.
TEST_F(GuardLine, GivesTheTurnOfAKilledOwnerToOneWaiter) {
  std::atomic<int> turns{0};
  ASSERT_EQ(inner_.begin({.key = operation().key,
                          .owner = OwnerToken::generate(),
                          .mode = RecordMode::take_over,
                          .lease = 1s}),
            BeginOutcome(Acquired{1, 1}));

  {
    testing_support::WaitingThreads line;
    for (int waiter = 0; waiter < waiters; ++waiter)
      line.add([&] { ask([&] { return ++turns; }); });
  }

  EXPECT_EQ(turns, 1);
  EXPECT_EQ(count_value(1), waiters);
  EXPECT_EQ(count(RunStatus::executed), 1);
  EXPECT_EQ(inner_.find(operation().key)->ownership.fence, 2U);
}

// Two guards stand for two processes: they do not share a room, so the waiter polls.
TEST(GuardRace, WaitsForAnOwnerOfAnotherProcess) {
  MemoryStore store;
  IdempotencyGuard here{store};
  IdempotencyGuard there{store};
  std::latch running(1);
  std::latch finish(1);
  std::jthread owner([&] {
    static_cast<void>(there.run({.key = {"order", "7"}}, [&] {
      running.count_down();
      finish.wait();
      return 42;
    }));
  });
  running.wait();

  std::jthread finisher([&] { finish.count_down(); });
  const auto result = here.run({.key = {"order", "7"}, .policy = {.wait = 60s}}, [] { return 0; });

  EXPECT_EQ(result.status(), RunStatus::replayed);
  EXPECT_EQ(result.value(), 42);
}

TEST(GuardRace, EndsAWaitAtTheCallersOwnDeadline) {
  MemoryStore store;
  IdempotencyGuard guard{store};
  static_cast<void>(guard.run({.key = {"order", "7"}}, [&] {
    std::jthread waiter([&] {
      const auto result =
          guard.run({.key = {"order", "7"}, .policy = {.wait = 20ms}}, [] { return 0; });
      EXPECT_EQ(result.status(), RunStatus::in_progress);
      EXPECT_GT(result.retry_after(), 0ms);
    });
    waiter.join();
    return 1;
  }));
}

/// Knows which records are finished, and counts the renewals that come after that.
class WatchedStore : public MemoryStore {
 public:
  WriteOutcome complete(const Key& key, const Ownership& by, const Completion& completion) {
    const WriteOutcome outcome = MemoryStore::complete(key, by, completion);
    const std::lock_guard lock(mutex_);
    finished_.insert(key.text());
    return outcome;
  }
  std::vector<WriteOutcome> renew_many(const std::vector<Renewal>& renewals) {
    std::vector<bool> finished;
    {
      const std::lock_guard lock(mutex_);
      for (const Renewal& renewal : renewals)
        finished.push_back(finished_.count(renewal.key.text()) != 0);
    }
    std::vector<WriteOutcome> outcomes = MemoryStore::renew_many(renewals);
    for (std::size_t at = 0; at < outcomes.size(); ++at) {
      if (outcomes[at] != WriteOutcome::stored) continue;
      ++renewed;
      if (finished[at]) ++renewed_when_finished;
    }
    return outcomes;
  }

  std::atomic<int> renewed{0};
  std::atomic<int> renewed_when_finished{0};

 private:
  std::mutex mutex_;
  std::set<std::string> finished_;
};

std::ptrdiff_t threads_of_this_process() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
}

// CP-06: short leases and short calls: renewals and completions race, no renewal counts after completion, and no thread
// stays behind.
TEST(GuardRace, RenewsNothingAfterCompletion) {
  constexpr int callers = 4;
  constexpr int calls = 500;
  // The one that schedules, those that renew, those that tell of losses, and one of the thread sanitizer's own.
  constexpr int own_threads = 1 + 4 + 2 + 1;
  WatchedStore store;
  IdempotencyGuard guard{store};
  std::atomic<int> executed{0};
  const std::ptrdiff_t threads_before = threads_of_this_process();
  std::atomic<std::ptrdiff_t> most_threads{0};

  together(callers, [&](int index) {
    for (int call = 0; call < calls; ++call) {
      const std::string id = std::to_string(index) + "." + std::to_string(call);
      const auto result = guard.run({.key = {"order", id}, .policy = {.lease = 5ms}}, [] {
        std::this_thread::sleep_for(2ms);  // a third of the lease passes, and a renewal is due
      });
      if (result.status() == RunStatus::executed || result.status() == RunStatus::superseded) {
        ++executed;
      }
      if (index == 0) most_threads = std::max(most_threads.load(), threads_of_this_process());
    }
  });

  EXPECT_EQ(executed, callers * calls);
  EXPECT_GT(store.renewed, 0);
  EXPECT_EQ(store.renewed_when_finished, 0);
  EXPECT_EQ(store.statistics().processing, 0U);
  EXPECT_EQ(store.statistics().success, static_cast<std::uint64_t>(callers * calls));
  EXPECT_LE(most_threads, threads_before + callers + own_threads);
}

}  // namespace
}  // namespace idempotency
