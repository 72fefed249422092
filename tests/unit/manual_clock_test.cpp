#include "idempotency/testing/manual_clock.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>

#include "support/barrier.hpp"

namespace idempotency {
namespace {

using namespace std::chrono_literals;
using testing::ManualClock;

TEST(ManualClock, StandsStillUntilItIsMoved) {
  const ManualClock clock;

  const Timestamp first = clock.now();

  EXPECT_EQ(clock.now(), first);
}

TEST(ManualClock, MovesByWhatItIsTold) {
  ManualClock clock{Timestamp{5s}};

  clock.advance(1ms);
  const Timestamp later = clock.now();
  clock.advance(-2s);

  EXPECT_EQ(later, Timestamp{5'001ms});
  EXPECT_EQ(clock.now(), Timestamp{3'001ms});
}

TEST(ManualClock, CanBeSet) {
  ManualClock clock;

  clock.set(Timestamp{24h});

  EXPECT_EQ(clock.now(), Timestamp{24h});
}

TEST(ManualClock, LosesNoStepOfSeveralThreads) {
  ManualClock clock{Timestamp{}};

  testing_support::run_together(4, [&](std::size_t) {
    for (int i = 0; i < 1'000; ++i)
      clock.advance(1ms);
  });

  EXPECT_EQ(clock.now(), Timestamp{4s});
}

}  // namespace
}  // namespace idempotency
