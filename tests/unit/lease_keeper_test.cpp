#include "core/lease_keeper.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <latch>
#include <mutex>
#include <set>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "idempotency/idempotency.hpp"
#include "idempotency/stores/memory.hpp"
#include "idempotency/testing/faulty_store.hpp"
#include "idempotency/testing/manual_clock.hpp"

namespace idempotency {
namespace {

using namespace std::chrono_literals;
using testing::Fault;
using testing::FaultyStore;
using testing::ManualClock;

/// Counts what the keeper tells, and lets a test wait for it.
class Watcher : public Observer {
 public:
  void on_lease_renewed(const Key& key, std::uint64_t /*fence*/) noexcept override {
    const std::lock_guard lock(mutex_);
    ++renewed_;
    renewed_keys_.emplace(key.value());
    changed_.notify_all();
  }
  void on_lease_lost(const Key& /*key*/, std::uint64_t fence) noexcept override {
    const std::lock_guard lock(mutex_);
    ++lost_;
    lost_fence_ = fence;
    changed_.notify_all();
  }
  void wait_for_renewals(int count) {
    std::unique_lock lock(mutex_);
    ASSERT_TRUE(changed_.wait_for(lock, 30s, [&] { return renewed_ >= count; }));
  }
  void wait_for_loss() {
    std::unique_lock lock(mutex_);
    ASSERT_TRUE(changed_.wait_for(lock, 30s, [&] { return lost_ > 0; }));
  }
  std::set<std::string> renewed_keys() {
    const std::lock_guard lock(mutex_);
    return renewed_keys_;
  }
  int lost() {
    const std::lock_guard lock(mutex_);
    return lost_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int renewed_ = 0;
  std::set<std::string> renewed_keys_;
  int lost_ = 0;
  std::uint64_t lost_fence_ = 0;
};

bool wait_for_stop(const std::stop_token& token) {
  std::promise<void> stopped;
  const std::stop_callback callback(token, [&] { stopped.set_value(); });
  return stopped.get_future().wait_for(30s) == std::future_status::ready;
}

Operation short_lease(std::chrono::milliseconds lease) {
  return {.key = {"order", "7"}, .policy = {.lease = lease, .max_total_hold = 1h}};
}

// ID-25: a handler that runs for several leases keeps its record while rivals call all the time.
TEST(LeaseKeeper, RenewsWhileTheHandlerRuns) {
  MemoryStore store;
  Watcher watcher;
  IdempotencyGuard guard{store, {.observer = &watcher}};
  IdempotencyGuard rival{store};

  const auto result = guard.run(short_lease(120ms), [&](Execution& execution) {
    for (int renewals = 3; renewals <= 15; renewals += 3) {
      watcher.wait_for_renewals(renewals);
      EXPECT_EQ(rival.run(short_lease(120ms), [] { return 2; }).status(), RunStatus::in_progress);
    }
    EXPECT_FALSE(execution.stop_token().stop_requested());
    return 1;
  });

  EXPECT_EQ(result.status(), RunStatus::executed);
  EXPECT_EQ(watcher.lost(), 0);
}

// One observer that is slow about a loss must not hide the next one.
TEST(LeaseKeeper, ShowsALossWhileAnotherIsStillBeingTold) {
  MemoryStore inner;
  FaultyStore store{inner};
  store.on(StoreCall::renew).fail_always(Fault::request_lost);
  struct Slow : Observer {
    void on_lease_lost(const Key& key, std::uint64_t /*fence*/) noexcept override {
      if (key.value() != "first") return;
      is_telling.count_down();
      go_on.wait();
    }
    std::latch is_telling{1};
    std::latch go_on{1};
  } slow;
  IdempotencyGuard guard{store, {.observer = &slow}};
  const auto run = [&](const char* value, const std::function<void(Execution&)>& handler) {
    return guard.run({.key = {"order", value}, .policy = {.lease = 200ms, .max_total_hold = 1h}},
                     [&](Execution& execution) {
                       handler(execution);
                       return 1;
                     });
  };

  auto first = std::async(std::launch::async, [&] {
    static_cast<void>(run("first", [&](Execution&) { slow.is_telling.wait(); }));
  });
  slow.is_telling.wait();
  bool is_called_back = false;
  static_cast<void>(run("second", [&](Execution& execution) {
    is_called_back = wait_for_stop(execution.stop_token());
    EXPECT_TRUE(execution.stop_token().stop_requested());
  }));
  slow.go_on.count_down();
  first.get();

  EXPECT_TRUE(is_called_back);
}

// LK-03, LK-13: a lease that cannot be renewed is told once, before it ends, and not acquired again.
TEST(LeaseKeeper, AsksTheHandlerToStopBeforeAnUnrenewedLeaseEnds) {
  MemoryStore inner;
  FaultyStore store{inner};
  Watcher watcher;
  IdempotencyGuard guard{store, {.observer = &watcher}};
  store.on(StoreCall::renew).fail_always(Fault::request_lost);

  static_cast<void>(guard.run(short_lease(400ms), [&](Execution& execution) {
    EXPECT_TRUE(wait_for_stop(execution.stop_token()));
    EXPECT_THROW(execution.point_of_no_return(), Error);
    return 1;
  }));

  watcher.wait_for_loss();  // told behind the stop
  EXPECT_EQ(watcher.lost(), 1);
}

/// A lease far in the future, so that the process's own scheduler does not look at it: the test does.
class SweptLease : public ::testing::Test {
 protected:
  SweptLease() { held.arm(); }

  const SteadyTime start = std::chrono::steady_clock::now() + 1h;
  MemoryStore inner;
  FaultyStore<MemoryStore> store{inner};
  detail::StorePortOf<FaultyStore<MemoryStore>> port{store};
  Watcher watcher;
  detail::LeaseLane lane{port, &watcher};
  const Key key{"order", "7"};
  detail::HeldLease held{lane, key, {}, 400ms, start + 400ms, start + 1h};
};

TEST_F(SweptLease, IsRenewedAtAThirdAndLostAMarginBeforeItsEnd) {
  store.on(StoreCall::renew).fail_always(Fault::request_lost);
  const auto third = 400ms / 3;
  const auto margin = Protocol::margin(400ms);

  EXPECT_EQ(lane.sweep(start), start + third);
  EXPECT_EQ(lane.sweep(start + third - 1ms), start + third);
  EXPECT_EQ(store.calls(StoreCall::renew), 0U);
  EXPECT_EQ(lane.sweep(start + third), start + 400ms - margin);  // now a renewal is under way
  EXPECT_FALSE(held.lost());
  static_cast<void>(lane.sweep(start + 400ms - margin - 1ms));
  EXPECT_FALSE(held.lost());
  static_cast<void>(lane.sweep(start + 400ms - margin));

  EXPECT_TRUE(held.lost());
  watcher.wait_for_loss();
}

TEST_F(SweptLease, IsNotRenewedAfterItsTotalHold) {
  detail::HeldLease bounded{lane, key, {}, 400ms, start + 400ms, start + 100ms};
  bounded.arm();
  held.disarm();

  EXPECT_EQ(lane.sweep(start + 400ms / 3), start + 400ms - Protocol::margin(400ms));

  EXPECT_EQ(store.calls(StoreCall::renew), 0U);
}

// After a pause of the whole process the handler may look before the keeper has.
TEST_F(SweptLease, IsSeenToBeLostByWhoLooksFirst) {
  const SteadyTime now = std::chrono::steady_clock::now();
  detail::HeldLease paused{lane, key, {}, 400ms, now + 1h, now + 2h};
  detail::HeldLease over{lane, key, {}, 1h, now + 1min, now + 2h};  // less than its margin is left
  paused.arm();
  over.arm();

  EXPECT_FALSE(paused.stop_token().stop_requested());
  EXPECT_TRUE(over.stop_token().stop_requested());

  EXPECT_TRUE(over.lost());
  watcher.wait_for_loss();
  EXPECT_EQ(watcher.lost(), 1);
}

// What users hang on a lost lease may block or call the library: nobody's renewals wait for it.
TEST(LeaseKeeper, RenewsOthersWhileAStopCallbackBlocks) {
  MemoryStore inner;
  FaultyStore lossy{inner};
  lossy.on(StoreCall::renew).fail_always(Fault::request_lost);
  MemoryStore good;
  Watcher watcher;
  IdempotencyGuard losing{lossy};
  IdempotencyGuard renewing{good, {.observer = &watcher}};

  static_cast<void>(losing.run(short_lease(40ms), [&](Execution& execution) {
    std::promise<void> called;
    const std::stop_callback blocks(execution.stop_token(), [&] {
      static_cast<void>(renewing.run(short_lease(60ms), [&] {
        watcher.wait_for_renewals(3);
        return 1;
      }));
      called.set_value();
    });
    EXPECT_EQ(called.get_future().wait_for(30s), std::future_status::ready);
    return 1;
  }));

  EXPECT_EQ(watcher.lost(), 0);
}

// LK-09: a renewal after another has taken over is refused, and the old owner learns it.
TEST(LeaseKeeper, LearnsThatAnotherHasTakenOver) {
  ManualClock clock;
  MemoryStore store{{.clock = &clock}};
  Watcher watcher;
  IdempotencyGuard guard{store, {.observer = &watcher}};
  IdempotencyGuard rival{store};

  const auto result = guard.run(short_lease(300ms), [&](Execution& execution) {
    clock.advance(301ms);
    EXPECT_EQ(rival.run(short_lease(300ms), [] { return 2; }).status(), RunStatus::executed);
    EXPECT_TRUE(wait_for_stop(execution.stop_token()));
    return 1;
  });

  EXPECT_EQ(result.status(), RunStatus::superseded);
  EXPECT_EQ(result.value(), 2);
  watcher.wait_for_loss();
  EXPECT_EQ(watcher.lost(), 1);
}

TEST(LeaseKeeper, TellsALossAlsoToATokenThatIsAskedForLater) {
  MemoryStore inner;
  FaultyStore store{inner};
  Watcher watcher;
  IdempotencyGuard guard{store, {.observer = &watcher}};
  store.on(StoreCall::renew).fail_always(Fault::request_lost);

  static_cast<void>(guard.run(short_lease(60ms), [&](Execution& execution) {
    watcher.wait_for_loss();
    EXPECT_TRUE(execution.stop_token().stop_requested());
    return 1;
  }));
}

TEST(LeaseKeeper, StopsRenewingAtTheTotalHold) {
  MemoryStore store;
  Watcher watcher;
  IdempotencyGuard guard{store, {.observer = &watcher}};
  const Operation asked{.key = {"order", "7"}, .policy = {.lease = 90ms, .max_total_hold = 200ms}};

  static_cast<void>(guard.run(asked, [&](Execution& execution) {
    EXPECT_TRUE(wait_for_stop(execution.stop_token()));
    return 1;
  }));

  watcher.wait_for_loss();
  EXPECT_EQ(watcher.lost(), 1);
}

// One slow store does not starve another's leases.
/// Refuses every batch that holds the key "bad".
class StoreWithABadRow {
 public:
  [[nodiscard]] std::vector<WriteOutcome> renew_many(const std::vector<Renewal>& renewals) {
    const auto is_bad = [](const Renewal& renewal) { return renewal.key.value() == "bad"; };
    if (std::any_of(renewals.begin(), renewals.end(), is_bad)) {
      throw Error(Errc::store_corrupt, "a record cannot be read");
    }
    largest_ = std::max<std::size_t>(largest_, renewals.size());
    return std::vector<WriteOutcome>(renewals.size(), WriteOutcome::stored);
  }
  /// Of the batches that were not refused.
  [[nodiscard]] std::size_t largest() const { return largest_; }

  BeginOutcome begin(const BeginRequest& request) { return inner_.begin(request); }
  WriteOutcome complete(const Key& key, const Ownership& by, const Completion& completion) {
    return inner_.complete(key, by, completion);
  }
  WriteOutcome fail(const Key& key, const Ownership& by, const Failure& failure,
                    std::chrono::milliseconds retention) {
    return inner_.fail(key, by, failure, retention);
  }
  WriteOutcome doubt(const Key& key, const Ownership& by) { return inner_.doubt(key, by); }
  WriteOutcome mark_effect(const Key& key, const Ownership& by) {
    return inner_.mark_effect(key, by);
  }
  WriteOutcome renew(const Key& key, const Ownership& by, std::chrono::milliseconds lease) {
    return inner_.renew(key, by, lease);
  }
  ReleaseOutcome release(const Key& key, const Ownership& by,
                         std::chrono::milliseconds retention) noexcept {
    return inner_.release(key, by, retention);
  }
  std::optional<Record> find(const Key& key) { return inner_.find(key); }

 private:
  MemoryStore inner_;
  std::atomic<std::size_t> largest_{0};
};

// One row that cannot be renewed loses its own lease only.
TEST(LeaseKeeper, RenewsTheOthersOfABatchThatFailed) {
  StoreWithABadRow store;
  detail::StorePortOf<StoreWithABadRow> port{store};
  Watcher watcher;
  detail::LeaseLane lane{port, &watcher};
  const auto start = std::chrono::steady_clock::now() + 1h;  // the test sweeps, not the scheduler
  const Key good{"order", "good"};
  const Key bad{"order", "bad"};
  const Key other{"order", "other"};
  detail::HeldLease first{lane, good, {}, 3s, start + 3s, start + 1h};
  detail::HeldLease second{lane, bad, {}, 3s, start + 3s, start + 1h};
  detail::HeldLease third{lane, other, {}, 3s, start + 3s, start + 1h};
  for (detail::HeldLease* held : {&first, &second, &third})
    held->arm();

  static_cast<void>(lane.sweep(start + 1s));
  watcher.wait_for_renewals(2);

  EXPECT_EQ(watcher.renewed_keys(), (std::set<std::string>{"good", "other"}));
  EXPECT_EQ(store.largest(), 1U);
}

TEST(LeaseKeeper, RenewsInOneStoreWhileAnotherHangs) {
  MemoryStore slow_inner;
  FaultyStore slow{slow_inner};
  std::promise<void> release;
  std::shared_future<void> released = release.get_future().share();
  std::latch hanging(1);
  std::once_flag once;
  slow.on(StoreCall::renew).before([&] {
    std::call_once(once, [&] { hanging.count_down(); });
    released.wait();
  });
  MemoryStore quick;
  Watcher watcher;
  IdempotencyGuard slow_guard{slow};
  IdempotencyGuard quick_guard{quick, {.observer = &watcher}};

  std::jthread stuck([&] {
    static_cast<void>(slow_guard.run(short_lease(60ms), [&] {
      hanging.wait();
      released.wait();
      return 1;
    }));
  });
  hanging.wait();
  static_cast<void>(quick_guard.run(short_lease(60ms), [&] {
    watcher.wait_for_renewals(4);
    return 1;
  }));
  release.set_value();

  EXPECT_EQ(watcher.lost(), 0);
}

// LK-01: nothing is renewed after the end, and nothing is left behind.
TEST(LeaseKeeper, RunsOneSchedulingThreadAndEndsItWithTheLastGuard) {
  MemoryStore store;
  EXPECT_EQ(detail::scheduling_threads(), 0U);
  {
    IdempotencyGuard first{store};
    EXPECT_EQ(detail::scheduling_threads(), 0U);
    static_cast<void>(first.run({.key = {"order", "1"}}, [] {}));
    IdempotencyGuard second{store};
    static_cast<void>(second.run({.key = {"order", "2"}}, [] {}));
    EXPECT_EQ(detail::scheduling_threads(), 1U);
  }
  EXPECT_EQ(detail::scheduling_threads(), 0U);
  {
    IdempotencyGuard again{store};
    static_cast<void>(again.run({.key = {"order", "3"}}, [] {}));
    EXPECT_EQ(detail::scheduling_threads(), 1U);
  }
  EXPECT_EQ(detail::scheduling_threads(), 0U);
}

TEST(LeaseKeeper, SendsNoRenewalAfterTheRunHasEnded) {
  MemoryStore inner;
  FaultyStore store{inner};
  Watcher watcher;
  IdempotencyGuard guard{store, {.observer = &watcher}};
  static_cast<void>(guard.run(short_lease(30ms), [&] { watcher.wait_for_renewals(1); }));
  const auto renewals = store.calls(StoreCall::renew);

  // Another lease's renewals show that the keeper has looked several times since.
  const Operation other{.key = {"order", "8"}, .policy = {.lease = 30ms}};
  const auto of_others = store.calls(StoreCall::renew);
  static_cast<void>(guard.run(other, [&] { watcher.wait_for_renewals(6); }));

  EXPECT_GE(renewals, 1U);
  EXPECT_EQ(of_others, renewals);
  EXPECT_EQ(inner.find(Key("order", "7"))->state, RecordState::success);
  EXPECT_EQ(watcher.lost(), 0);
}

}  // namespace
}  // namespace idempotency
