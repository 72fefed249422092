// A lock on five Redis servers that know nothing of each other.

#include "idempotency/patterns/redlock.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <stop_token>
#include <vector>

#include "idempotency/patterns/distributed_lock.hpp"
#include "idempotency/patterns/redis_locks.hpp"
#include "idempotency/stores/redis.hpp"
#include "idempotency/testing/printers.hpp"
#include "support/barrier.hpp"
#include "support/error_of.hpp"
#include "support/event.hpp"
#include "support/redis_server.hpp"

namespace idempotency {
namespace {

using namespace std::chrono_literals;
using testing_support::code_of;
using testing_support::Event;
using testing_support::RedisServer;
using testing_support::run_together;
using Locks = RedisLocks<RedisStore>;
using Lock = DistributedLock<Redlock<Locks>>;

const Key stock{"stock", "sku-7"};

/// One of the five, and how a client reaches it.
struct Node {
  RedisServer server;
  RedisStore store{{.port = server.port(), .connect_timeout = 200ms, .command_timeout = 200ms}};
  Locks locks{store};
};

template <class T>
concept HasFence = requires(const T& held) {
  held.fence();
};
static_assert(HasFence<DistributedLock<Locks>::Held>);
static_assert(!HasFence<Lock::Held>, "a Redlock offers no fence");

class RedlockTest : public ::testing::Test {
 protected:
  static constexpr std::size_t servers = 5;

  RedlockTest() {
    for (std::size_t number = 0; number < servers; ++number) {
      nodes.push_back(std::make_unique<Node>());
      each.push_back(&nodes.back()->locks);
    }
    lock.emplace(redlock.emplace(each),
                 LockOptions{.lease = lease, .on_lost = [this](auto&, auto) { lost.set(); }});
  }
  /// On how many servers the lock is held; those that are dead do not count.
  std::size_t held_on() {
    std::size_t count = 0;
    for (const auto& node : nodes) {
      try {
        const auto view = node->locks.look(stock);
        count += view && view->remaining > 0ms ? 1U : 0U;
      } catch (const Error&) {
        continue;
      }
    }
    return count;
  }
  void occupy(std::size_t count) {
    for (std::size_t number = 0; number < count; ++number) {
      ASSERT_TRUE(
          std::holds_alternative<LockAcquired>(nodes[number]->locks.acquire(stock, other, 1h)));
    }
  }

  static constexpr auto lease = 2'000ms;
  const OwnerToken other = OwnerToken::generate();
  std::vector<std::unique_ptr<Node>> nodes;
  std::vector<Locks*> each;
  Event lost;
  std::optional<Redlock<Locks>> redlock;
  std::optional<Lock> lock;
};

TEST_F(RedlockTest, IsHeldWhereverItIsGrantedAndReleasedEverywhere) {
  auto held = lock->try_acquire(stock);
  ASSERT_TRUE(held);

  EXPECT_EQ(held_on(), servers);
  EXPECT_FALSE(lock->try_acquire(stock).has_value());
  EXPECT_EQ(held_on(), servers);
  EXPECT_EQ(held->release(), ReleaseOutcome::released);
  EXPECT_EQ(held_on(), 0U);
  EXPECT_TRUE(lock->try_acquire(stock).has_value());
}

// Two of five are killed: the others carry on, and a third loss ends it.
TEST_F(RedlockTest, SurvivesTheLossOfAMinority) {
  nodes[0]->server.kill();
  auto held = lock->try_acquire(stock);
  ASSERT_TRUE(held);
  nodes[3]->server.kill();
  const std::stop_token stop = held->stop_token();

  EXPECT_FALSE(lost.wait(2 * lease)) << "it was not renewed by the majority";

  EXPECT_FALSE(stop.stop_requested());
  EXPECT_EQ(held_on(), 3U);
  EXPECT_FALSE(lock->try_acquire(stock).has_value());
  EXPECT_EQ(held->release(), ReleaseOutcome::released);
  held = lock->try_acquire(stock);
  ASSERT_TRUE(held);

  nodes[4]->server.kill();
  EXPECT_TRUE(lost.wait());
  EXPECT_TRUE(held->stop_token().stop_requested());
  EXPECT_EQ(held->release(), ReleaseOutcome::unknown);
  EXPECT_EQ(code_of([&] { static_cast<void>(lock->try_acquire(stock)); }), Errc::store_undecidable);
  EXPECT_EQ(held_on(), 0U);
}

TEST_F(RedlockTest, GivesBackWhatAMinorityHasGranted) {
  occupy(3);

  EXPECT_FALSE(lock->try_acquire(stock).has_value());

  EXPECT_EQ(held_on(), 3U);
  EXPECT_EQ(nodes[0]->locks.release(stock, other), WriteOutcome::stored);
  auto held = lock->try_acquire(stock);
  ASSERT_TRUE(held);
  EXPECT_EQ(held_on(), servers);
  EXPECT_EQ(held->release(), ReleaseOutcome::released);
  EXPECT_EQ(held_on(), 2U);
}

TEST_F(RedlockTest, WaitsNoLongerForAServerThatHangsThanItsStoreDoes) {
  nodes[2]->server.pause();
  const auto asked = std::chrono::steady_clock::now();

  const auto held = lock->try_acquire(stock);

  EXPECT_TRUE(held);
  EXPECT_LT(std::chrono::steady_clock::now() - asked, lease);
  nodes[2]->server.resume();
}

// The servers' clocks may be faster by a hundredth and 2 ms.
TEST_F(RedlockTest, AsksForMoreThanItCounts) {
  const auto held = lock->try_acquire(stock);
  ASSERT_TRUE(held);

  const auto granted = nodes[0]->locks.look(stock)->remaining;

  EXPECT_GT(granted, held->remaining());
  EXPECT_LE(granted, lease + lease / 100 + 2ms);
}

TEST_F(RedlockTest, IsGrantedOnceHoweverManyAsk) {
  for (int round = 0; round < 5; ++round) {
    std::atomic<int> inside{0};
    std::atomic<int> most{0};
    std::atomic<int> granted{0};
    run_together(4, [&](std::size_t) {
      auto held = lock->acquire(stock, 20s);
      if (!held) return;
      ++granted;
      most = std::max(most.load(), ++inside);
      --inside;
    });
    EXPECT_EQ(granted, 4) << "round " << round;
    EXPECT_EQ(most, 1) << "round " << round;
  }
}

TEST_F(RedlockTest, IsForcedFromItsHolderOnEveryServer) {
  auto held = lock->try_acquire(stock);
  ASSERT_TRUE(held);

  EXPECT_EQ(lock->force_release(stock, "alice", "its host burns"), 0U);

  EXPECT_EQ(held_on(), 0U);
  EXPECT_TRUE(lost.wait());
  EXPECT_EQ(held->release(), ReleaseOutcome::lost);
}

TEST_F(RedlockTest, RefusesAnEvenNumberOfServersAndLessThanThree) {
  for (const std::size_t count : {0U, 1U, 2U, 4U}) {
    const std::vector<Locks*> some(each.begin(), each.begin() + static_cast<std::ptrdiff_t>(count));
    EXPECT_EQ(code_of([&] { const Redlock<Locks> refused(some); }), Errc::invalid_argument);
  }
  EXPECT_NO_THROW((Redlock<Locks>({each[0], each[1], each[2]})));
}

}  // namespace
}  // namespace idempotency
