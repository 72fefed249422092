#include "idempotency/patterns/distributed_lock.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <optional>
#include <random>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "idempotency/testing/printers.hpp"
#include "support/child_process.hpp"
#include "support/error_of.hpp"
#include "support/event.hpp"
#include "support/watched_locks.hpp"

namespace idempotency {
namespace {

using namespace std::chrono_literals;
using testing_support::ChildProcess;
using testing_support::code_of;
using testing_support::Event;
using testing_support::ProcessEnd;
using testing_support::WatchedLocks;

const Key stock{"stock", "sku-7"};

bool wait_for_stop(const std::stop_token& token) {
  Event stopped;
  const std::stop_callback callback(token, [&] { stopped.set(); });
  return stopped.wait();
}

class DistributedLockTest : public ::testing::Test {
 protected:
  std::chrono::milliseconds remaining() { return locks.look(stock)->remaining; }

  WatchedLocks locks;
  DistributedLock<WatchedLocks> lock{locks, {.lease = 1h}};
};

TEST_F(DistributedLockTest, IsOneHoldersUntilItIsReleased) {
  auto held = lock.try_acquire(stock);
  ASSERT_TRUE(held);

  EXPECT_EQ(held->key(), stock);
  EXPECT_EQ(held->fence(), locks.look(stock)->fence);
  EXPECT_GT(held->remaining(), 50min);
  EXPECT_FALSE(held->stop_token().stop_requested());
  EXPECT_FALSE(lock.try_acquire(stock).has_value());
  EXPECT_EQ(held->release(), ReleaseOutcome::released);
  EXPECT_EQ(held->release(), ReleaseOutcome::released);  // nothing is sent again
  EXPECT_EQ(locks.releases(), 1);
  EXPECT_EQ(held->remaining(), 0ms);
  const auto again = lock.try_acquire(stock);
  EXPECT_GT(again->fence(), held->fence());
}

TEST_F(DistributedLockTest, IsReleasedWhenItsHolderEndsWhereverItWasMoved) {
  {
    std::optional<HeldLock> moved;
    {
      auto held = lock.try_acquire(stock);
      ASSERT_TRUE(held);
      moved = std::move(*held);
    }
    EXPECT_GT(remaining(), 0ms);
    EXPECT_GT(moved->remaining(), 0ms);
  }
  EXPECT_EQ(remaining(), 0ms);

  auto first = lock.try_acquire(stock);
  auto second = lock.try_acquire({"stock", "sku-8"});
  ASSERT_TRUE(first && second);
  *first = std::move(*second);

  EXPECT_EQ(remaining(), 0ms);
  EXPECT_EQ(first->key().value(), "sku-8");
}

TEST_F(DistributedLockTest, WakesWhoWaitsInMemory) {
  const OwnerToken owner = OwnerToken::generate();
  MemoryLocks memory;
  ASSERT_TRUE(std::holds_alternative<LockAcquired>(memory.acquire(stock, owner, 1h)));
  const auto until = std::chrono::steady_clock::now() + 10min;
  auto waiter = std::async(std::launch::async, [&] {
    memory.wait_until_free(stock, until);
    return std::chrono::steady_clock::now();
  });

  EXPECT_EQ(memory.release(stock, owner), WriteOutcome::stored);

  EXPECT_LT(waiter.get(), until);
}

TEST_F(DistributedLockTest, IsWaitedForUntilItIsReleased) {
  auto held = lock.try_acquire(stock);
  ASSERT_TRUE(held);
  const std::uint64_t fence = held->fence();
  // LK-17: as long as milliseconds count, which is longer than the clock does.
  auto waiter = std::async(std::launch::async,
                           [&] { return lock.acquire(stock, std::chrono::milliseconds::max()); });
  while (locks.askers().size() < 2)
    std::this_thread::yield();

  EXPECT_EQ(held->release(), ReleaseOutcome::released);

  const auto next = waiter.get();
  ASSERT_TRUE(next);
  EXPECT_GT(next->fence(), fence);
}

// LK-17
TEST_F(DistributedLockTest, IsNotWaitedForWhenTheDeadlineHasPassed) {
  using Time = std::chrono::steady_clock::time_point;
  const auto held = lock.try_acquire(stock);
  ASSERT_TRUE(held);
  const std::size_t asked = locks.askers().size();

  EXPECT_FALSE(lock.acquire(stock, std::chrono::steady_clock::now() - 1h).has_value());
  EXPECT_FALSE(lock.acquire(stock, Time::min()).has_value());
  EXPECT_FALSE(lock.acquire(stock, Time{}).has_value());
  EXPECT_FALSE(lock.acquire(stock, std::chrono::milliseconds::min()).has_value());
  EXPECT_FALSE(lock.acquire(stock, -1ms).has_value());

  EXPECT_EQ(locks.askers().size(), asked + 5);
  EXPECT_EQ(detail::deadline_after(std::chrono::milliseconds::max()), Time::max());
  const Time at_once = detail::deadline_after(std::chrono::milliseconds::min());
  EXPECT_LE(at_once, std::chrono::steady_clock::now());
}

TEST_F(DistributedLockTest, IsAskedForOnceMoreAtTheDeadline) {
  const auto held = lock.try_acquire(stock);
  ASSERT_TRUE(held);
  const std::size_t asked = locks.askers().size();
  const auto deadline = std::chrono::steady_clock::now() + 30ms;

  EXPECT_FALSE(lock.acquire(stock, deadline).has_value());

  EXPECT_GE(std::chrono::steady_clock::now(), deadline);
  EXPECT_GE(locks.askers().size(), asked + 2);
}

// LK-07
TEST_F(DistributedLockTest, RecognisesItsOwnWhenTheFirstAnswerIsLost) {
  int answers = 0;
  locks.after_acquire = [&](LockOutcome&) {
    if (++answers == 1) throw Error(Errc::store_reply_lost, "lost");
  };

  const auto held = lock.try_acquire(stock);

  ASSERT_TRUE(held);
  ASSERT_EQ(locks.askers().size(), 2U);
  EXPECT_EQ(locks.askers()[0], locks.askers()[1]);
  EXPECT_EQ(held->fence(), locks.look(stock)->fence);
}

TEST_F(DistributedLockTest, GivesBackWhatItMayHaveWhenEveryAnswerIsLost) {
  locks.after_acquire = [](LockOutcome&) { throw Error(Errc::store_reply_lost, "lost"); };

  EXPECT_EQ(code_of([&] { static_cast<void>(lock.try_acquire(stock)); }), Errc::store_reply_lost);

  EXPECT_EQ(locks.askers().size(), 2U);
  EXPECT_EQ(remaining(), 0ms);
}

TEST_F(DistributedLockTest, PassesAnErrorOnThatCannotHaveHadAnEffect) {
  locks.before_acquire = [] { throw Error(Errc::store_unavailable, "away"); };

  EXPECT_EQ(code_of([&] { static_cast<void>(lock.acquire(stock, 1h)); }), Errc::store_unavailable);

  EXPECT_EQ(locks.askers().size(), 1U);
  EXPECT_EQ(locks.releases(), 0);
}

// LK-05: the lease counts from when it was asked for.
TEST_F(DistributedLockTest, GivesBackALockThatIsGrantedTooLate) {
  DistributedLock<WatchedLocks> hasty{locks, {.lease = 8ms}};
  locks.after_acquire = [](LockOutcome&) {
    const auto late = std::chrono::steady_clock::now() + 8ms;
    while (std::chrono::steady_clock::now() < late)
      std::this_thread::yield();
  };

  EXPECT_EQ(code_of([&] { static_cast<void>(hasty.try_acquire(stock)); }), Errc::lease_too_short);
  EXPECT_EQ(locks.releases(), 1);
  EXPECT_EQ(code_of([&] { static_cast<void>(hasty.acquire(stock, 20ms)); }), Errc::lease_too_short);

  EXPECT_EQ(locks.releases(), static_cast<int>(locks.askers().size()));
  EXPECT_EQ(remaining(), 0ms);
}

// LK-18: what the carrier forgets, this process remembers.
TEST_F(DistributedLockTest, RefusesAFenceThatIsNotAboveOneItHasSeen) {
  std::uint64_t next = 7;
  locks.after_acquire = [&](LockOutcome& outcome) { outcome = LockAcquired{next}; };
  const auto acquire = [&] { static_cast<void>(lock.try_acquire(stock)); };
  acquire();

  for (const std::uint64_t fence : {7U, 6U, 1U}) {
    next = fence;
    EXPECT_EQ(code_of(acquire), Errc::store_corrupt);
    EXPECT_EQ(remaining(), 0ms);
  }
  next = 8;
  EXPECT_NO_THROW(acquire());
  EXPECT_EQ(locks.releases(), 5);
}

TEST_F(DistributedLockTest, ForgetsOldFencesWhenThereAreManyKeys) {
  std::optional<std::uint64_t> forged;
  locks.after_acquire = [&](LockOutcome& outcome) {
    if (forged) outcome = LockAcquired{*forged};
  };
  constexpr int many = 5'000;
  for (int number = 0; number < many; ++number)
    ASSERT_TRUE(lock.try_acquire(Key::of("stock", number)).has_value());

  forged = 1;
  EXPECT_TRUE(lock.try_acquire(Key::of("stock", 0)).has_value());
  EXPECT_EQ(code_of([&] { static_cast<void>(lock.try_acquire(Key::of("stock", many - 1))); }),
            Errc::store_corrupt);
}

/// A lease short enough to be renewed in a test, and long enough for a machine that is busy.
class WatchedLease : public DistributedLockTest {
 protected:
  static constexpr std::chrono::milliseconds lease{360};

  std::atomic<int> losses{0};
  Event lost;
  Event under_way;  // what hooks wait for outlives the lock whose renewals call them
  Event goes_on;
  DistributedLock<WatchedLocks> watched{locks,
                                        {.lease = lease, .on_lost = [this](const Key&, auto) {
                                           ++losses;
                                           lost.set();
                                         }}};
};

// LK-11: every renewal carries the fence.
TEST_F(WatchedLease, IsRenewedAtItsFenceAsLongAsItIsHeld) {
  auto held = watched.try_acquire(stock);
  ASSERT_TRUE(held);

  ASSERT_TRUE(locks.wait_for_renewals(5));

  EXPECT_FALSE(held->stop_token().stop_requested());
  for (const Renewal& renewal : locks.renewals()) {
    EXPECT_EQ(renewal.ownership, (Ownership{locks.askers().front(), held->fence()}));
    EXPECT_EQ(renewal.lease, lease);
  }
  EXPECT_EQ(held->release(), ReleaseOutcome::released);
  EXPECT_EQ(losses, 0);
}

// LK-13, LK-09: told once, and nothing is acquired again.
TEST_F(WatchedLease, IsLostOnceWhenItIsTakenBehindItsBack) {
  {
    auto held = watched.try_acquire(stock);
    ASSERT_TRUE(held);
    const std::stop_token stop = held->stop_token();

    locks.force_release(stock);

    EXPECT_TRUE(wait_for_stop(stop));
    EXPECT_TRUE(lost.wait());
    EXPECT_EQ(held->remaining(), 0ms);
    EXPECT_EQ(held->release(), ReleaseOutcome::lost);
  }
  EXPECT_EQ(losses, 1);
  EXPECT_EQ(locks.askers().size(), 1U);
  EXPECT_EQ(remaining(), 0ms);
}

// LK-03
TEST_F(WatchedLease, AsksItsHolderToStopBeforeAnUnrenewedLeaseEnds) {
  locks.before_renew = [](const Key&) { throw Error(Errc::store_unavailable, "away"); };
  const auto asked = std::chrono::steady_clock::now();
  auto held = watched.try_acquire(stock);
  ASSERT_TRUE(held);
  const std::uint64_t fence = held->fence();

  ASSERT_TRUE(wait_for_stop(held->stop_token()));
  EXPECT_GE(std::chrono::steady_clock::now(), asked + lease - lease / 8 - 1ms);
  EXPECT_TRUE(lost.wait());
  const auto next = lock.acquire(stock, 30s);

  ASSERT_TRUE(next);
  EXPECT_GT(next->fence(), fence);
  EXPECT_EQ(losses, 1);
}

// LK-03: a pause of the process hides the loss from the watchdog, but not from who looks before an effect.
TEST_F(DistributedLockTest, ShowsALossToWhoLooksFirst) {
  Event looked;
  DistributedLock<WatchedLocks> hasty{locks, {.lease = 40ms}};
  locks.before_renew = [&looked](const Key&) { static_cast<void>(looked.wait()); };
  auto held = hasty.try_acquire(stock);
  ASSERT_TRUE(held);
  while (held->remaining() > 0ms)
    std::this_thread::yield();

  EXPECT_TRUE(held->stop_token().stop_requested());

  looked.set();
}

TEST_F(WatchedLease, IsHeldNoLongerThanItsBound) {
  DistributedLock<WatchedLocks> bounded{
      locks, {.lease = lease, .max_total_hold = 3 * lease, .on_lost = [this](const Key&, auto) {
                lost.set();
              }}};
  const auto asked = std::chrono::steady_clock::now();
  auto held = bounded.try_acquire(stock);
  ASSERT_TRUE(held);

  ASSERT_TRUE(wait_for_stop(held->stop_token()));

  EXPECT_GE(std::chrono::steady_clock::now(), asked + lease);
  EXPECT_TRUE(lost.wait());
  EXPECT_FALSE(locks.renewals().empty());
  EXPECT_TRUE(lock.acquire(stock, 30s).has_value());
}

TEST_F(WatchedLease, IsNotRenewedWhenItsBoundIsItsLease) {
  DistributedLock<WatchedLocks> bounded{locks, {.lease = lease, .max_total_hold = lease}};
  auto held = bounded.try_acquire(stock);
  ASSERT_TRUE(held);

  ASSERT_TRUE(wait_for_stop(held->stop_token()));

  EXPECT_TRUE(locks.renewals().empty());
}

// LK-01: a renewal that is under way when the lock is released finds nothing to renew.
TEST_F(WatchedLease, IsNotRenewedOnceItIsReleased) {
  locks.before_renew = [this](const Key&) {
    under_way.set();
    static_cast<void>(goes_on.wait());
  };
  auto held = watched.try_acquire(stock);
  ASSERT_TRUE(held);
  ASSERT_TRUE(under_way.wait());

  EXPECT_EQ(held->release(), ReleaseOutcome::released);
  goes_on.set();

  EXPECT_TRUE(locks.wait_for_renewals(1));
  EXPECT_EQ(remaining(), 0ms);
  EXPECT_EQ(losses, 0);
}

// LK-01
TEST_F(DistributedLockTest, LeavesNothingBehindWhereverItsHolderStops) {
  constexpr int rounds = 3'000;
  std::mt19937 random{20'240'101};
  RecordProperty("seed", 20'240'101);
  DistributedLock<WatchedLocks> hasty{locks, {.lease = 24ms}};
  for (int round = 0; round < rounds; ++round) {
    auto held = hasty.acquire(stock, 30s);
    ASSERT_TRUE(held);
    const auto stops = std::chrono::steady_clock::now() +
                       std::chrono::microseconds(random() % (round % 100 == 0 ? 10'000 : 100));
    while (std::chrono::steady_clock::now() < stops)
      std::this_thread::yield();
    ASSERT_NE(held->release(), ReleaseOutcome::unknown);
    ASSERT_EQ(remaining(), 0ms);
  }

  const std::size_t renewals = locks.renewals().size();
  std::this_thread::sleep_for(72ms);  // three leases in which nothing may happen
  EXPECT_EQ(locks.renewals().size(), renewals);
  EXPECT_EQ(remaining(), 0ms);
}

TEST_F(WatchedLease, IsRenewedWhileAnothersRenewalHangs) {
  const Key slow{"stock", "slow"};
  locks.before_renew = [this, slow](const Key& key) {
    if (key == slow) static_cast<void>(goes_on.wait());
  };
  auto hanging = watched.try_acquire(slow);
  auto held = watched.try_acquire(stock);
  ASSERT_TRUE(hanging && held);

  EXPECT_TRUE(locks.wait_for_renewals(6, stock));

  EXPECT_FALSE(held->stop_token().stop_requested());
  EXPECT_TRUE(wait_for_stop(hanging->stop_token()));
  goes_on.set();
}

class LostCalls : public Observer {
 public:
  void on_store_error(const Key&, StoreCall call, const Error& error,
                      std::uint32_t) noexcept override {
    if (call == StoreCall::release && error.code() == Errc::store_unavailable) ++releases;
  }
  int releases = 0;
};

TEST_F(DistributedLockTest, TellsTheObserverOfAReleaseThatFails) {
  LostCalls observer;
  DistributedLock<WatchedLocks> observed{locks, {.lease = 1h, .observer = &observer}};
  locks.before_release = [] { throw Error(Errc::store_unavailable, "away"); };
  auto held = observed.try_acquire(stock);
  ASSERT_TRUE(held);

  EXPECT_EQ(held->release(), ReleaseOutcome::unknown);

  EXPECT_EQ(observer.releases, 1);
}

// LK-22
TEST_F(DistributedLockTest, IsForcedFromItsHolderUnderAudit) {
  std::vector<std::string> audit;
  std::optional<std::uint64_t> told;
  DistributedLock<WatchedLocks> audited{
      locks, {.on_force_release = [&](const ForcedRelease& forced) {
        audit.push_back(std::string(forced.who) + ": " + std::string(forced.why) + ": " +
                        std::string(forced.key.value()));
        told = forced.fence;
      }}};
  auto held = lock.try_acquire(stock);
  ASSERT_TRUE(held);

  const std::uint64_t fence = audited.force_release(stock, "alice", "its host burns");

  EXPECT_GT(fence, held->fence());
  EXPECT_EQ(audit, std::vector<std::string>{"alice: its host burns: sku-7"});
  EXPECT_EQ(told, fence);
  EXPECT_EQ(held->release(), ReleaseOutcome::lost);
  EXPECT_EQ(code_of([&] { audited.force_release(stock, "", "why"); }), Errc::invalid_argument);
  EXPECT_EQ(code_of([&] { audited.force_release(stock, "who", ""); }), Errc::invalid_argument);
  EXPECT_EQ(audit.size(), 1U);
}

TEST_F(DistributedLockTest, IsAuditedAlsoWhenTheAnswerToForceIsLost) {
  int told = 0;
  DistributedLock<WatchedLocks> audited{
      locks,
      {.on_force_release = [&](const ForcedRelease& forced) { told += forced.fence ? 0 : 1; }}};
  locks.after_force_release = [] { throw Error(Errc::store_reply_lost, "lost"); };

  EXPECT_EQ(code_of([&] { audited.force_release(stock, "alice", "its host burns"); }),
            Errc::store_reply_lost);

  EXPECT_EQ(told, 1);
}

TEST_F(DistributedLockTest, RefusesOptionsThatContradictEachOther) {
  const auto code_with = [&](LockOptions options) {
    return code_of([&] { const DistributedLock<WatchedLocks> refused{locks, options}; });
  };

  EXPECT_EQ(code_with({.lease = 0ms}), Errc::invalid_argument);
  EXPECT_EQ(code_with({.lease = -1ms}), Errc::invalid_argument);
  EXPECT_EQ(code_with({.lease = 25h, .max_total_hold = 25h}), Errc::invalid_argument);
  EXPECT_EQ(code_with({.lease = 10s, .max_total_hold = 9s}), Errc::invalid_argument);
}

// LK-11: what runs under the lock gets the fence.
TEST_F(DistributedLockTest, RunsWhatIsNotDoneYetUnderTheLock) {
  bool done = false;
  std::uint64_t fence = 0;
  const auto work = [&](const HeldLock& held) {
    fence = held.fence();
    EXPECT_FALSE(lock.try_acquire(stock).has_value());
    done = true;
  };

  EXPECT_EQ(lock.run_locked(
                stock, [&] { return done; }, work),
            LockedRun::ran);
  EXPECT_EQ(fence, locks.look(stock)->fence);
  const std::size_t asked = locks.askers().size();
  EXPECT_EQ(lock.run_locked(
                stock, [&] { return done; }, work),
            LockedRun::already_done);

  EXPECT_EQ(locks.askers().size(), asked);
  EXPECT_EQ(remaining(), 0ms);
}

TEST_F(DistributedLockTest, LooksAgainUnderTheLock) {
  int looks = 0;
  int runs = 0;

  const LockedRun ended = lock.run_locked(
      stock, [&] { return ++looks == 2; }, [&] { ++runs; });

  EXPECT_EQ(ended, LockedRun::already_done);
  EXPECT_EQ(runs, 0);
  EXPECT_EQ(locks.releases(), 1);
}

TEST_F(DistributedLockTest, RunsNothingWhileAnotherHoldsTheLock) {
  const auto held = lock.try_acquire(stock);
  DistributedLock<WatchedLocks> impatient{locks, {.wait = 0ms}};
  int runs = 0;

  EXPECT_EQ(impatient.run_locked(
                stock, [] { return false; }, [&] { ++runs; }),
            LockedRun::busy);

  EXPECT_EQ(runs, 0);
}

TEST_F(DistributedLockTest, ReleasesWhenWhatItRunsThrows) {
  const auto fails = [] { throw std::runtime_error("the business failed"); };

  EXPECT_THROW(static_cast<void>(lock.run_locked(
                   stock, [] { return false; }, fails)),
               std::runtime_error);

  EXPECT_EQ(remaining(), 0ms);
}

TEST_F(DistributedLockTest, SaysThatTheLockWasLostUnderWhatItRan) {
  const auto ended = lock.run_locked(
      stock, [] { return false; }, [&] { locks.force_release(stock); });

  EXPECT_EQ(ended, LockedRun::ran_past_lease);
}

TEST_F(DistributedLockTest, RunsOnceHoweverManyAsk) {
  constexpr int callers = 8;
  std::atomic<int> runs{0};
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  std::atomic<int> other{0};
  for (int caller = 0; caller < callers; ++caller) {
    threads.emplace_back([&] {
      const auto ended = lock.run_locked(
          stock, [&] { return done.load(); },
          [&] {
            ++runs;
            done = true;
          });
      if (ended != LockedRun::ran && ended != LockedRun::already_done) ++other;
    });
  }
  for (std::thread& thread : threads)
    thread.join();

  EXPECT_EQ(runs, 1);
  EXPECT_EQ(other, 0);
}

TEST_F(DistributedLockTest, IsNobodysInTheChildOfAFork) {
  auto held = lock.try_acquire(stock);
  ASSERT_TRUE(held);

  ChildProcess child = ChildProcess::fork([&](const ChildProcess::ToParent&) {
    const Errc code = code_of([&] { static_cast<void>(lock.try_acquire(stock)); });
    const bool is_left_alone = held->release() == ReleaseOutcome::lost;
    { const HeldLock ended = std::move(*held); }
    return code == Errc::used_after_fork && is_left_alone && locks.releases() == 0 ? 0 : 1;
  });

  EXPECT_EQ(child.wait(), (ProcessEnd{0, 0}));
  EXPECT_EQ(held->release(), ReleaseOutcome::released);
}

}  // namespace
}  // namespace idempotency
