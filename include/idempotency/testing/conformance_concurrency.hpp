#pragma once

// Every arrow is one atomic step, however many callers there are.

#include <atomic>
#include <cstddef>
#include <latch>
#include <thread>
#include <vector>

#include "idempotency/testing/conformance_fixture.hpp"

namespace idempotency {
inline namespace v0 {
namespace testing {

/// Calls `work(index)` on threads that start at the same moment, and waits for them.
template <class Work>
void on_threads(std::size_t count, Work work) {
  std::latch start(static_cast<std::ptrdiff_t>(count));
  std::vector<std::jthread> threads;
  threads.reserve(count);
  for (std::size_t index = 0; index < count; ++index) {
    threads.emplace_back([&start, &work, index] {
      start.arrive_and_wait();
      work(index);
    });
  }
}

inline constexpr std::size_t concurrent_callers = 8;
inline constexpr int concurrent_rounds = 20;

// ID-37
TYPED_TEST_P(StoreConformance, LetsOneOfManyConcurrentCallersIn) {
  for (int round = 0; round < concurrent_rounds; ++round) {
    const Key key = this->key(std::to_string(round));
    std::atomic<int> let_in{0};
    std::atomic<int> refused{0};

    on_threads(concurrent_callers, [&](std::size_t) {
      const BeginOutcome outcome = this->caller({.key = key}).begin();
      if (std::holds_alternative<Acquired>(outcome)) ++let_in;
      if (std::holds_alternative<InProgress>(outcome)) ++refused;
    });

    ASSERT_EQ(let_in, 1) << "round " << round;
    ASSERT_EQ(refused, static_cast<int>(concurrent_callers) - 1) << "round " << round;
  }
}

// LK-07
TYPED_TEST_P(StoreConformance, GrantsAllConcurrentCopiesOfOneCallTheSameTurn) {
  for (int round = 0; round < concurrent_rounds; ++round) {
    const auto call = this->caller({.key = this->key(std::to_string(round))});
    std::atomic<int> same_turn{0};

    on_threads(concurrent_callers, [&](std::size_t) {
      auto copy = call;
      if (copy.begin() == acquired(1, 1)) ++same_turn;
    });

    ASSERT_EQ(same_turn, static_cast<int>(concurrent_callers)) << "round " << round;
  }
}

// ID-02
TYPED_TEST_P(StoreConformance, LetsOneOfManyConcurrentCallersTakeOver) {
  for (int round = 0; round < concurrent_rounds; ++round) {
    const Key key = this->key(std::to_string(round));
    auto stalled = this->owner({.key = key, .lease = std::chrono::milliseconds{1}});
    this->advance(std::chrono::milliseconds{1} + this->tolerance);
    std::atomic<int> let_in{0};

    on_threads(concurrent_callers, [&](std::size_t) {
      if (this->caller({.key = key}).begin() == acquired(2, 2)) ++let_in;
    });

    ASSERT_EQ(let_in, 1) << "round " << round;
    ASSERT_EQ(this->record(key).ownership.fence, 2U) << "round " << round;
  }
}

// ID-02: the owner completes while others recover its record.
TYPED_TEST_P(StoreConformance, LetsEitherALateCompletionOrATakeOverWin) {
  for (int round = 0; round < concurrent_rounds; ++round) {
    const Key key = this->key(std::to_string(round));
    auto stalled = this->owner({.key = key, .lease = std::chrono::milliseconds{1}});
    this->advance(std::chrono::milliseconds{1} + this->tolerance);
    std::atomic<int> won{0};
    std::atomic<bool> completed{false};

    on_threads(3, [&](std::size_t index) {
      if (index == static_cast<std::size_t>(round) % 3) {
        completed = stalled.complete("of the stalled") == WriteOutcome::stored;
        if (completed) ++won;
      } else if (std::holds_alternative<Acquired>(this->caller({.key = key}).begin())) {
        ++won;
      }
    });

    ASSERT_EQ(won, 1) << "round " << round;
    if (completed) {
      ASSERT_EQ(this->record(key).result, "of the stalled") << "round " << round;
    } else {
      ASSERT_EQ(this->record(key).state, RecordState::processing) << "round " << round;
    }
  }
}

TYPED_TEST_P(StoreConformance, KeepsManyKeysApartUnderLoad) {
  constexpr int keys_each = 25;
  std::atomic<int> wrong{0};

  on_threads(concurrent_callers, [&](std::size_t index) {
    for (int number = 0; number < keys_each; ++number) {
      const std::string name = std::to_string(index) + "-" + std::to_string(number);
      auto call = this->caller({.key = this->key(name)});
      if (call.begin() != acquired(1, 1)) ++wrong;
      if (call.complete("result of " + name) != WriteOutcome::stored) ++wrong;
      if (!replays(this->caller({.key = call.key()}).begin(), "result of " + name)) ++wrong;
    }
  });

  EXPECT_EQ(wrong, 0);
}

}  // namespace testing
}  // namespace v0
}  // namespace idempotency
