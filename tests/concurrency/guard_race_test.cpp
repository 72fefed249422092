#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "idempotency/idempotency.hpp"
#include "idempotency/stores/memory.hpp"
#include "idempotency/testing/faulty_store.hpp"

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

// ID-34: the owner fails; exactly one waiter runs next, the others get its result.
TEST(GuardRace, GivesTheNextTurnToOneWaiterWhenTheOwnerFails) {
  MemoryStore store;
  IdempotencyGuard guard{store};
  std::atomic<int> runs{0};
  std::atomic<int> thrown{0};
  std::atomic<int> right{0};
  std::latch owner_runs(1);
  const auto handler = [&]() -> int {
    const int run = ++runs;
    if (run == 1) {
      owner_runs.count_down();
      throw RetryableFailure("not now");
    }
    return run;
  };

  together(11, [&](int) {
    try {
      const auto result = guard.run({.key = {"order", "7"}, .policy = {.wait = 60s}}, handler);
      if (result.value() == 2) ++right;
    } catch (const RetryableFailure&) {
      ++thrown;
    }
  });

  EXPECT_EQ(runs, 2);
  EXPECT_EQ(thrown, 1);
  EXPECT_EQ(right, 10);
}

// ID-34: a permanent failure reaches every waiter as a failure, never as an empty success.
TEST(GuardRace, TellsEveryWaiterOfAPermanentFailure) {
  MemoryStore store;
  IdempotencyGuard guard{store};
  std::atomic<int> runs{0};
  std::atomic<int> failed{0};

  together(11, [&](int) {
    try {
      const auto result = guard.run({.key = {"order", "7"}, .policy = {.wait = 60s}}, [&]() -> int {
        ++runs;
        throw PermanentFailure("declined");
      });
      if (result.status() == RunStatus::failed && result.failure() == "declined" &&
          !result.has_value()) {
        ++failed;
      }
    } catch (const PermanentFailure&) {
      ++failed;
    }
  });

  EXPECT_EQ(runs, 1);
  EXPECT_EQ(failed, 11);
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

// CP-06: short leases and short calls: renewals and completions race, no renewal counts after completion.
TEST(GuardRace, RenewsNothingAfterCompletion) {
  MemoryStore store;
  IdempotencyGuard guard{store};
  std::atomic<int> executed{0};

  together(4, [&](int index) {
    for (int call = 0; call < 2'500; ++call) {
      const std::string id = std::to_string(index) + "." + std::to_string(call);
      const auto result = guard.run({.key = {"order", id}, .policy = {.lease = 5ms}}, [] {});
      if (result.status() == RunStatus::executed || result.status() == RunStatus::superseded) {
        ++executed;
      }
    }
  });

  EXPECT_EQ(executed, 10'000);
  EXPECT_EQ(store.statistics().processing, 0U);
  EXPECT_EQ(store.statistics().success, 10'000U);
}

}  // namespace
}  // namespace idempotency
