#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include "idempotency/patterns/distributed_lock.hpp"
#include "support/child_process.hpp"
#include "support/event.hpp"

namespace idempotency::testing_support {

/// What becomes of a lock whose holder is stopped, killed or robbed. A backend has
///
///   using Store = ...; using Locks = ...;  // a store, and the carrier that is made from one
///   static auto options();                 // of the store
///   static void clear();                   // there are no locks then
///   static void remove(const Key& key);    // behind everybody's back
template <class Backend>
class LockHolder : public ::testing::Test {
 protected:
  using Store = typename Backend::Store;
  using Locks = typename Backend::Locks;
  using Lock = DistributedLock<Locks>;

  static constexpr std::chrono::milliseconds lease{900};
  static constexpr std::chrono::hours long_lease{1};
  static constexpr std::chrono::seconds patience{30};

  LockHolder() { Backend::clear(); }

  /// A process that acquires the lock, tells its fence, and then does what `holds` says.
  template <class Holds>
  ChildProcess start_holder(Holds holds) {
    return ChildProcess::fork([this, holds](const ChildProcess::ToParent& parent) {
      Store own{options_};
      Locks own_locks{own};
      Lock own_lock{own_locks, {.lease = lease}};
      auto held = own_lock.try_acquire(key_);
      if (!held) return 1;
      parent.say(std::to_string(held->fence()));
      return holds(*held, parent);
    });
  }

  decltype(Backend::options()) options_ = Backend::options();  // here, not in a child
  const Key key_{"stock", "sku-7"};
};
TYPED_TEST_SUITE_P(LockHolder);

// LK-03: a holder that was stopped finds its token set before its next effect.
TYPED_TEST_P(LockHolder, IsToldOfItsLossWhenItWasStopped) {
  ChildProcess holder =
      this->start_holder([](HeldLock& held, const ChildProcess::ToParent& parent) {
        while (!held.stop_token().stop_requested())  // each look stands before an effect
          std::this_thread::sleep_for(std::chrono::milliseconds{1});
        parent.say("stopped");
        return held.release() == ReleaseOutcome::lost ? 0 : 2;
      });
  const std::optional<std::string> fence = holder.next_line();
  ASSERT_TRUE(fence);
  holder.send(SIGSTOP);  // before the first renewal
  typename TestFixture::Store store{this->options_};
  typename TestFixture::Locks locks{store};
  typename TestFixture::Lock lock{locks, {.lease = this->long_lease}};

  const auto held = lock.acquire(this->key_, this->patience);
  ASSERT_TRUE(held);
  holder.send(SIGCONT);

  EXPECT_EQ(holder.next_line(), "stopped");
  EXPECT_EQ(holder.wait(), (ProcessEnd{0, 0}));
  EXPECT_GT(held->fence(), std::stoull(*fence));
  EXPECT_EQ(locks.look(this->key_)->fence, held->fence());
}

// LK-20: nothing that is left behind lasts for ever.
TYPED_TEST_P(LockHolder, LeavesItsLockForALeaseWhenItIsKilled) {
  ChildProcess holder = this->start_holder([](HeldLock&, const ChildProcess::ToParent&) {
    while (true)
      ::pause();
    return 0;
  });
  const std::optional<std::string> fence = holder.next_line();
  ASSERT_TRUE(fence);
  holder.kill();
  typename TestFixture::Store store{this->options_};
  typename TestFixture::Locks locks{store};
  typename TestFixture::Lock lock{locks, {.lease = this->long_lease}};

  const auto held = lock.acquire(this->key_, this->patience);

  ASSERT_TRUE(held);
  EXPECT_GT(held->fence(), std::stoull(*fence));
}

// LK-13: told once, and nothing is acquired again.
TYPED_TEST_P(LockHolder, IsToldOnceWhenItsLockIsDeleted) {
  std::atomic<int> losses{0};
  typename TestFixture::Store store{this->options_};
  typename TestFixture::Locks locks{store};
  {
    typename TestFixture::Lock lock{
        locks, {.lease = this->lease, .on_lost = [&](const Key&, auto) { ++losses; }}};
    const auto held = lock.try_acquire(this->key_);
    ASSERT_TRUE(held);
    Event stopped;
    const std::stop_callback callback(held->stop_token(), [&] { stopped.set(); });

    TypeParam::remove(this->key_);

    EXPECT_TRUE(stopped.wait());
    EXPECT_EQ(held->remaining(), std::chrono::milliseconds{0});
    std::this_thread::sleep_for(2 * this->lease);  // in which nothing may be acquired
    EXPECT_EQ(locks.look(this->key_), std::nullopt);
  }
  EXPECT_EQ(losses, 1);
}

REGISTER_TYPED_TEST_SUITE_P(LockHolder, IsToldOfItsLossWhenItWasStopped,
                            LeavesItsLockForALeaseWhenItIsKilled, IsToldOnceWhenItsLockIsDeleted);

}  // namespace idempotency::testing_support
