#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <latch>
#include <stdexcept>
#include <string>
#include <variant>

#include "idempotency/guard.hpp"
#include "idempotency/stores/breaker.hpp"
#include "idempotency/stores/memory.hpp"
#include "idempotency/testing/faulty_store.hpp"
#include "idempotency/testing/manual_clock.hpp"
#include "support/barrier.hpp"
#include "support/error_of.hpp"

namespace idempotency {
namespace {

using namespace std::chrono_literals;
using testing::Fault;
using testing_support::code_of;
using testing_support::ending_of;
using testing_support::run_together;

constexpr std::size_t callers = 100;

class BreakerRace : public ::testing::Test {
 protected:
  BreakerRace() {
    faulty_.on(StoreCall::begin).fail_next(1, Fault::request_lost);
    EXPECT_EQ(code_of([&] { begin("opens"); }), Errc::store_unavailable);
    clock_.advance(1s);
  }
  void begin(const std::string& key) {
    static_cast<void>(breaker_.begin({.key = {"payment", key}, .owner = OwnerToken::generate()}));
  }
  /// All at the instant at which one may try; the one that does is held until the others are refused.
  void rush() {
    const std::size_t before = faulty_.calls(StoreCall::find);
    std::latch refused(callers - 1);
    std::atomic<std::size_t> others{0};
    faulty_.on(StoreCall::find).before([&] { refused.wait(); });
    run_together(callers, [&](std::size_t caller) {
      try {
        begin("rush-" + std::to_string(caller));
      } catch (const Error& error) {
        if (std::string(error.what()).find("breaker") == std::string::npos) throw;
        ++others;
        refused.count_down();
      }
    });
    EXPECT_EQ(others, callers - 1);
    EXPECT_EQ(faulty_.calls(StoreCall::find), before + 1);
  }

  testing::ManualClock clock_;
  MemoryStore memory_;
  testing::FaultyStore<MemoryStore> faulty_{memory_};
  BreakerStore<testing::FaultyStore<MemoryStore>> breaker_{
      faulty_, {.failure_threshold = 1, .open_duration = 1s, .clock = &clock_}};
};

// FB-04
TEST_F(BreakerRace, LetsOneOfAllTryAndClosesWhenItIsAnswered) {
  rush();

  EXPECT_EQ(breaker_.state(), BreakerState::closed);
}

// FB-04
TEST_F(BreakerRace, LetsOneOfAllTryAndStaysOpenWhenItFails) {
  faulty_.on(StoreCall::find).fail_next(1, Fault::reply_lost);

  EXPECT_THROW(rush(), Error);

  EXPECT_EQ(breaker_.state(), BreakerState::open);
}

// ID-15
TEST(BreakerRaceOfDuplicates, IsClosedAfterAThousandOfThem) {
  MemoryStore memory;
  BreakerStore breaker{memory, {.failure_threshold = 10}};
  IdempotencyGuard guard{breaker};
  std::atomic<int> runs{0};

  run_together(20, [&](std::size_t) {
    for (int call = 0; call < 50; ++call) {
      const auto result = guard.run({.key = {"payment", "one"}}, [&] { return ++runs; });
      EXPECT_TRUE(result.status() == RunStatus::in_progress || result.value() == 1);
    }
  });

  EXPECT_EQ(runs, 1);
  EXPECT_EQ(breaker.state(), BreakerState::closed);
  EXPECT_EQ(guard.run({.key = {"payment", "two"}}, [] { return 2; }).status(), RunStatus::executed);
}

// Failures, answers and changes of state go on beside each other; at the end an answer closes it.
TEST(BreakerRaceOfFailures, EndsClosedWhenTheStoreIsBack) {
  MemoryStore memory;
  testing::FaultyStore<MemoryStore> faulty{memory};
  BreakerStore breaker{faulty, {.failure_threshold = 2, .open_duration = 1ms}};
  faulty.on(StoreCall::begin).fail_randomly(7, {.request_lost = 0.4, .reply_lost = 0.3});

  run_together(8, [&](std::size_t caller) {
    for (int call = 0; call < 2'000; ++call) {
      const std::string key = std::to_string(caller) + "-" + std::to_string(call);
      static_cast<void>(ending_of([&] {
        static_cast<void>(
            breaker.begin({.key = {"payment", key}, .owner = OwnerToken::generate()}));
      }));
    }
  });
  faulty.heal();
  const auto end = std::chrono::steady_clock::now() + 30s;
  while (breaker.state() != BreakerState::closed && std::chrono::steady_clock::now() < end) {
    static_cast<void>(ending_of([&] {
      static_cast<void>(
          breaker.begin({.key = {"payment", "last"}, .owner = OwnerToken::generate()}));
    }));
  }

  EXPECT_EQ(breaker.state(), BreakerState::closed);
}

}  // namespace
}  // namespace idempotency
