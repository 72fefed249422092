#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "idempotency/idempotency.hpp"
#include "idempotency/testing/printers.hpp"
#include "support/child_process.hpp"

namespace idempotency::testing_support {

using namespace std::chrono_literals;

/// What other processes see of an owner that was killed or stopped. A backend has a type `Store` and `options()`, from
/// which each process makes a store of its own.
template <class Backend>
class OwnerDeath : public ::testing::Test {
 protected:
  using Store = typename Backend::Store;

  Operation asked(RecordMode mode, std::chrono::milliseconds lease,
                  std::chrono::milliseconds wait = 0ms) const {
    return {.key = key_,
            .policy = {
                .lease = lease, .success_retention = 24h, .wait = wait, .on_expired_lease = mode}};
  }

  /// A process begins the operation and is killed in its handler.
  void kill_an_owner(RecordMode mode, std::chrono::milliseconds lease) {
    ChildProcess owner = ChildProcess::fork([&](const ChildProcess::ToParent& parent) {
      Store store{options_};
      IdempotencyGuard guard{store};
      static_cast<void>(guard.run(asked(mode, lease), [&] {
        parent.say("here");
        while (true)
          ::pause();
      }));
      return 0;
    });
    ASSERT_EQ(owner.next_line(), "here");
    owner.kill();
  }

  Backend backend_;
  decltype(std::declval<Backend&>().options()) options_ =
      backend_.options();  // here, not in a child
  Key key_{"order", ::testing::UnitTest::GetInstance()->current_test_info()->name()};
};
TYPED_TEST_SUITE_P(OwnerDeath);

// ID-12: a killed owner blocks the key for its lease, not for the retention; the success then keeps its own.
TYPED_TEST_P(OwnerDeath, IsTakenOverWhenTheLeaseHasEnded) {
  this->kill_an_owner(RecordMode::take_over, 2s);

  typename TypeParam::Store store{this->options_};
  IdempotencyGuard guard{store};
  const auto early = guard.run(this->asked(RecordMode::take_over, 2s), [] { return 1; });
  const auto later =
      guard.run(this->asked(RecordMode::take_over, 2s, 30s), [](Execution& execution) {
        EXPECT_EQ(execution.attempt(), 2U);
        return 2;
      });

  EXPECT_EQ(early.status(), RunStatus::in_progress);
  EXPECT_LE(early.retry_after(), 2s);
  EXPECT_EQ(later.status(), RunStatus::executed);
  const std::optional<Record> record = store.find(this->key_);
  ASSERT_TRUE(record && record->expires_at);
  EXPECT_EQ(*record->expires_at - record->updated_at, 24h);
}

// ID-34: of those who wait for a killed owner, here and elsewhere, one has the turn; all others get its answer.
TYPED_TEST_P(OwnerDeath, GivesTheTurnToOneOfSeveralWhoWait) {
  this->kill_an_owner(RecordMode::take_over, 1s);
  typename TypeParam::Store here{this->options_};
  typename TypeParam::Store elsewhere{this->options_};
  IdempotencyGuard first{here};
  IdempotencyGuard second{elsewhere};
  std::atomic<int> turns{0};
  std::atomic<int> executed{0};
  std::atomic<int> answered{0};

  {
    std::vector<std::jthread> waiters;
    for (int waiter = 0; waiter < 10; ++waiter) {
      waiters.emplace_back([&, waiter] {
        auto& guard = waiter % 2 == 0 ? first : second;
        const auto result =
            guard.run(this->asked(RecordMode::take_over, 30s, 60s), [&] { return ++turns; });
        executed += result.status() == RunStatus::executed ? 1 : 0;
        answered += result.has_value() && result.value() == 1 ? 1 : 0;
      });
    }
  }

  EXPECT_EQ(turns, 1);
  EXPECT_EQ(executed, 1);
  EXPECT_EQ(answered, 10);
  EXPECT_EQ(here.find(this->key_)->ownership.fence, 2U);
}

// ID-21: under hold the handler is not started again, whatever the next caller's policy says.
TYPED_TEST_P(OwnerDeath, LeavesTheRecordUncertainUnderHold) {
  this->kill_an_owner(RecordMode::hold, 300ms);

  typename TypeParam::Store store{this->options_};
  IdempotencyGuard guard{store};
  const auto result = guard.run(this->asked(RecordMode::take_over, 300ms, 30s), [] { return 1; });

  EXPECT_EQ(result.status(), RunStatus::uncertain);
  const std::optional<Record> seen = store.find(this->key_);
  ASSERT_TRUE(seen.has_value());
  const WriteOutcome settled = store.resolve(*seen, {.verdict = Resolution::Verdict::succeeded,
                                                     .result = encode_result<int>(42),
                                                     .resolver = OwnerToken::generate()});
  EXPECT_EQ(settled, WriteOutcome::stored);
  EXPECT_EQ(guard.run(this->asked(RecordMode::hold, 1s), [] { return 1; }).value(), 42);
}

// ID-25, LK-03: a stopped owner is taken over once; when it goes on it is told and cannot overwrite.
TYPED_TEST_P(OwnerDeath, SupersedesAnOwnerThatWasStoppedPastItsLease) {
  ChildProcess owner = ChildProcess::fork([&](const ChildProcess::ToParent& parent) {
    typename TypeParam::Store store{this->options_};
    IdempotencyGuard guard{store};
    const auto result =
        guard.run(this->asked(RecordMode::take_over, 300ms), [&](Execution& execution) {
          parent.say("here");
          const std::stop_token stop = execution.stop_token();
          std::latch stopped(1);
          const std::stop_callback callback(stop, [&] { stopped.count_down(); });
          stopped.wait();  // the loss arrives before another protected write
          return std::string("late");
        });
    const bool right = result.status() == RunStatus::superseded && result.value() == "next";
    return right ? 0 : 4;
  });
  ASSERT_EQ(owner.next_line(), "here");
  owner.send(SIGSTOP);

  typename TypeParam::Store store{this->options_};
  {
    IdempotencyGuard guard{store};
    const auto next = guard.run(this->asked(RecordMode::take_over, 300ms, 30s),
                                [] { return std::string("next"); });
    EXPECT_EQ(next.status(), RunStatus::executed);
    EXPECT_EQ(next.fence(), 2U);
  }
  owner.send(SIGCONT);

  EXPECT_EQ(owner.wait(), (ProcessEnd{0, 0}));
  EXPECT_EQ(store.find(this->key_)->ownership.fence, 2U);
}

REGISTER_TYPED_TEST_SUITE_P(OwnerDeath, IsTakenOverWhenTheLeaseHasEnded,
                            GivesTheTurnToOneOfSeveralWhoWait, LeavesTheRecordUncertainUnderHold,
                            SupersedesAnOwnerThatWasStoppedPastItsLease);

}  // namespace idempotency::testing_support
