// Locks on a real Redis: what goes over the wire, what a broken network and a lost server do to them.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "idempotency/patterns/distributed_lock.hpp"
#include "idempotency/patterns/fenced_resource.hpp"
#include "idempotency/patterns/redis_locks.hpp"
#include "idempotency/stores/redis.hpp"
#include "idempotency/testing/locks_conformance.hpp"
#include "support/error_of.hpp"
#include "support/event.hpp"
#include "support/fault_proxy.hpp"
#include "support/lock_clock.hpp"
#include "support/lock_holder.hpp"
#include "support/redis_monitor.hpp"
#include "support/redis_server.hpp"

namespace idempotency {
namespace {

using namespace std::chrono_literals;
using testing_support::code_of;
using testing_support::Event;
using testing_support::FaultProxy;
using testing_support::NetworkFault;
using testing_support::RedisMonitor;
using testing_support::RedisServer;
using Names = std::vector<std::string>;

struct RedisLocksBackend {
  using Store = RedisStore;
  using Locks = RedisLocks<RedisStore>;

  static RedisOptions options() { return RedisServer::shared().options(); }
  static std::string address() { return RedisServer::shared().address(); }
  static void clear() { RedisServer::shared().ask({"FLUSHALL"}); }
  static void remove(const Key& key) {
    RedisServer::shared().ask({"DEL", "idempotency:{" + key.text() + "}:lock"});
  }
};

}  // namespace

// LK-03, LK-13, LK-14, LK-20
namespace testing_support {
INSTANTIATE_TYPED_TEST_SUITE_P(RedisLocks, LockClock, RedisLocksBackend);
INSTANTIATE_TYPED_TEST_SUITE_P(RedisLocks, LockHolder, RedisLocksBackend);
}  // namespace testing_support

namespace {

const Key stock{"stock", "sku-7"};
const std::string stock_name = "idempotency:{stock:sku-7}:lock";

bool wait_for_stop(const std::stop_token& token) {
  Event stopped;
  const std::stop_callback callback(token, [&] { stopped.set(); });
  return stopped.wait();
}

class RedisLockTest : public ::testing::Test {
 protected:
  using Lock = DistributedLock<RedisLocks<RedisStore>>;

  RedisLockTest() { server().ask({"FLUSHALL"}); }
  static RedisServer& server() { return RedisServer::shared(); }
  std::chrono::milliseconds remaining() {
    const auto view = locks.look(stock);
    return view ? view->remaining : -1ms;
  }

  RedisStore store{server().options()};
  RedisLocks<RedisStore> locks{store};
  Lock lock{locks, {.lease = 1h}};
};

// LK-20
TEST_F(RedisLockTest, IsTwoCommandsForAcquiringAndReleasing) {
  static_cast<void>(lock.try_acquire(stock));  // the server has the scripts then
  RedisMonitor monitor(server());

  for (int round = 0; round < 3; ++round) {
    auto held = lock.try_acquire(stock);
    ASSERT_TRUE(held);
    ASSERT_EQ(held->release(), ReleaseOutcome::released);
    EXPECT_EQ(monitor.commands(), (Names{"EVALSHA", "EVALSHA"}));
  }
}

// LK-20: there is no moment without an expiry, and none is rounded to seconds.
TEST_F(RedisLockTest, NeverLastsForEver) {
  RedisLocks<RedisStore> forgetful{store, {.memory = 1ms}};
  const OwnerToken owner = OwnerToken::generate();
  for (const auto lease : {1ms, 10ms, 300ms, 999ms, 1500ms}) {
    const Key key = Key::of("lease", lease.count());
    const std::string name = store.name_for(key, "lock");
    const LockOutcome outcome = forgetful.acquire(key, owner, lease);
    ASSERT_TRUE(std::holds_alternative<LockAcquired>(outcome));

    const std::int64_t left = server().number({"PTTL", name});

    EXPECT_NE(left, -1) << lease.count();
    EXPECT_LE(left, lease.count() + 1);
    if (lease > 200ms) {
      EXPECT_GT(left, lease.count() - 200);
      const std::uint64_t fence = std::get<LockAcquired>(outcome).fence;
      ASSERT_EQ(forgetful.renew(key, {owner, fence}, 2 * lease), WriteOutcome::stored);
      EXPECT_GT(server().number({"PTTL", name}), lease.count());
      ASSERT_EQ(forgetful.release(key, owner), WriteOutcome::stored);
      EXPECT_NE(server().number({"PTTL", name}), -1);
      EXPECT_LE(server().number({"PTTL", name}), 2 * lease.count() + 1);
    }
  }
}

TEST_F(RedisLockTest, IsRememberedForADayWhenItIsReleased) {
  ASSERT_TRUE(lock.try_acquire(stock).has_value());

  EXPECT_LE(server().number({"PTTL", stock_name}), std::chrono::milliseconds{25h}.count());
  EXPECT_GT(server().number({"PTTL", stock_name}), std::chrono::milliseconds{24h}.count());
  EXPECT_EQ(server().number({"STRLEN", stock_name}), 33);
}

/// A lock's value as it is kept: released, with this fence.
std::string released_at(std::uint64_t fence) {
  std::string value = "1" + std::string(16, 'o');
  for (int shift = 56; shift >= 0; shift -= 8)
    value += static_cast<char>(fence >> static_cast<unsigned>(shift));
  return value + std::string(8, '\0');
}

// The clock was set back by decades: what is remembered counts.
TEST_F(RedisLockTest, RaisesTheFenceAlsoWhenTheServersClockFalls) {
  const std::uint64_t in_2100 = 4'102'444'800'000'000;
  server().ask({"SET", stock_name, released_at(in_2100)});

  const auto held = lock.try_acquire(stock);

  ASSERT_TRUE(held);
  EXPECT_EQ(held->fence(), in_2100 + 1);
}

TEST_F(RedisLockTest, RefusesWhatIsNoLock) {
  const std::string good = released_at(7);
  for (const std::string& value :
       {std::string("x"), good + 'x', good.substr(1), '2' + good.substr(1),
        released_at((std::uint64_t{1} << 53U) - 1), released_at(UINT64_MAX)}) {
    server().ask({"SET", stock_name, value});
    EXPECT_EQ(code_of([&] { static_cast<void>(lock.try_acquire(stock)); }), Errc::store_corrupt);
    EXPECT_EQ(server().text({"GET", stock_name}), value);
  }
  server().ask({"DEL", stock_name});
  server().ask({"LPUSH", stock_name, "x"});
  EXPECT_EQ(code_of([&] { static_cast<void>(lock.try_acquire(stock)); }), Errc::store_corrupt);
}

TEST_F(RedisLockTest, IsNoRecord) {
  const auto held = lock.try_acquire(stock);
  ASSERT_TRUE(held);

  EXPECT_TRUE(store.list({}, "", 10).records.empty());
  EXPECT_FALSE(store.find(stock));
  const BeginOutcome begun = store.begin({.key = stock, .owner = OwnerToken::generate()});
  EXPECT_EQ(begun, BeginOutcome(Acquired{1, 1}));
  EXPECT_EQ(store.statistics().processing, 1U);
}

// RD-01
TEST_F(RedisLockTest, SurvivesTheLossOfTheScripts) {
  for (int round = 0; round < 3; ++round) {
    server().ask({"SCRIPT", "FLUSH"});
    auto held = lock.try_acquire(stock);
    ASSERT_TRUE(held);
    server().ask({"SCRIPT", "FLUSH"});
    EXPECT_EQ(held->release(), ReleaseOutcome::released);
  }
}

// LK-01
TEST_F(RedisLockTest, IsNotRenewedOnceItIsReleased) {
  constexpr auto lease = 60ms;
  std::mt19937 random{20'240'102};
  RecordProperty("seed", 20'240'102);
  Lock hasty{locks, {.lease = lease}};
  for (int round = 0; round < 200; ++round) {
    auto held = hasty.acquire(stock, 30s);
    ASSERT_TRUE(held);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 25'000));  // wherever it stops
    ASSERT_NE(held->release(), ReleaseOutcome::unknown);
    ASSERT_EQ(remaining(), 0ms);
  }
  const std::string value = server().text({"GET", stock_name});
  RedisMonitor monitor(server());

  std::this_thread::sleep_for(3 * lease);

  EXPECT_EQ(monitor.commands(), Names{});
  EXPECT_EQ(server().text({"GET", stock_name}), value);
}

/// A lock whose way to the server is harmed.
class HarmedRedisLock : public RedisLockTest {
 protected:
  static constexpr auto lease = 600ms;

  HarmedRedisLock() {  // the connection is there then, and the server has the scripts
    static_cast<void>(harmed.try_acquire({"warm", "up"}));
    static_cast<void>(locks.renew({"warm", "up"}, {OwnerToken::generate(), 1}, lease));
  }

  FaultProxy proxy{server().port()};
  RedisStore far{{.port = proxy.port(), .command_timeout = 150ms}};
  RedisLocks<RedisStore> far_locks{far};
  std::atomic<int> losses{0};
  Lock harmed{far_locks, {.lease = lease, .on_lost = [this](const Key&, auto) { ++losses; }}};
};

// LK-05
TEST_F(HarmedRedisLock, IsGivenBackWhenItIsGrantedTooLate) {
  RedisStore patient{RedisOptions{.port = proxy.port()}};
  RedisLocks<RedisStore> patient_locks{patient};
  Lock late{patient_locks, {.lease = 200ms}};
  static_cast<void>(patient_locks.look(stock));  // is connected
  proxy.set_delay(300ms);
  proxy.harm_next(NetworkFault::delayed);

  EXPECT_EQ(code_of([&] { static_cast<void>(late.try_acquire(stock)); }), Errc::lease_too_short);

  EXPECT_EQ(remaining(), 0ms);
  EXPECT_TRUE(lock.try_acquire(stock).has_value());
}

// LK-07
TEST_F(HarmedRedisLock, IsRecognisedAsOnesOwnWhenTheAnswerIsLost) {
  for (const NetworkFault fault : {NetworkFault::cut_before_reply, NetworkFault::reset_before_reply,
                                   NetworkFault::reply_swallowed}) {
    proxy.harm_next(fault);
    auto held = harmed.try_acquire(stock);

    ASSERT_TRUE(held) << static_cast<int>(fault);
    EXPECT_EQ(held->fence(), locks.look(stock)->fence);
    EXPECT_EQ(held->release(), ReleaseOutcome::released);
  }
}

TEST_F(HarmedRedisLock, IsReleasedWhenTheAnswersToAcquiringStayLost) {
  std::atomic<int> swallowed{0};
  proxy.plan([&](std::uint64_t) {
    return ++swallowed <= 2 ? NetworkFault::reply_swallowed : NetworkFault::none;
  });

  EXPECT_EQ(code_of([&] { static_cast<void>(harmed.try_acquire(stock)); }), Errc::store_reply_lost);

  EXPECT_TRUE(lock.try_acquire(stock).has_value());
}

// LK-09: a renewal that was held up takes nothing back from who has the lock by then.
TEST_F(HarmedRedisLock, IsNotTakenBackByALateRenewal) {
  RedisStore patient{RedisOptions{.port = proxy.port()}};
  RedisLocks<RedisStore> patient_locks{patient};
  Lock late{patient_locks, {.lease = lease, .on_lost = [this](const Key&, auto) { ++losses; }}};
  auto held = late.try_acquire(stock);
  ASSERT_TRUE(held);
  proxy.set_delay(2 * lease);
  proxy.harm_next(NetworkFault::delayed);

  EXPECT_TRUE(wait_for_stop(held->stop_token()));
  const auto next = lock.acquire(stock, 30s);
  ASSERT_TRUE(next);
  const std::uint64_t requests = proxy.requests();
  proxy.settle();  // the renewal has arrived and was answered

  EXPECT_EQ(proxy.requests(), requests);
  EXPECT_EQ(proxy.harmed(), 1U);
  EXPECT_GT(next->fence(), held->fence());
  EXPECT_EQ(locks.look(stock)->fence, next->fence());
  EXPECT_GT(remaining(), 50min);
  EXPECT_FALSE(next->stop_token().stop_requested());
  EXPECT_EQ(held->release(), ReleaseOutcome::lost);
  EXPECT_EQ(losses, 1);
}

// LK-11, LK-22: who was forced out writes no more, whatever it believes.
TEST_F(RedisLockTest, KeepsALateWriterOutByItsFence) {
  FencedRedisResource<RedisStore> pieces{store};
  const auto held = lock.try_acquire(stock);
  ASSERT_TRUE(held);
  ASSERT_EQ(pieces.write(stock, held->fence(), "10"), FencedWrite::written);

  lock.force_release(stock, "alice", "its host burns");
  const auto next = lock.try_acquire(stock);
  ASSERT_TRUE(next);
  ASSERT_EQ(pieces.write(stock, next->fence(), "9"), FencedWrite::written);

  EXPECT_EQ(pieces.write(stock, held->fence(), "11"), FencedWrite::refused);
  EXPECT_EQ(pieces.read(stock), (FencedValue{next->fence(), "9"}));
  EXPECT_EQ(pieces.write(stock, next->fence(), "8"), FencedWrite::written);
  EXPECT_EQ(pieces.read({"stock", "sku-8"}), std::nullopt);
  for (const std::uint64_t none : {std::uint64_t{0}, std::uint64_t{1} << 53U}) {
    EXPECT_EQ(code_of([&] { static_cast<void>(pieces.write(stock, none, "x")); }),
              Errc::invalid_argument);
  }
}

/// A primary and its replica.
class ReplicatedRedisLock : public ::testing::Test {
 protected:
  using Lock = DistributedLock<RedisLocks<RedisStore>>;

  ReplicatedRedisLock() {
    replica.ask({"REPLICAOF", "127.0.0.1", std::to_string(primary.port())});
    wait_for_the_replica();
  }
  /// Until it has all that the primary has. The limit only ends tests that hang.
  void wait_for_the_replica() {
    const auto end = std::chrono::steady_clock::now() + 30s;
    while (primary.number({"WAIT", "1", "100"}) < 1 ||
           replica.info("replication", "master_link_status") != "up") {
      ASSERT_LT(std::chrono::steady_clock::now(), end) << "the replica does not follow";
    }
  }
  void fail_over() {
    primary.kill();
    replica.ask({"REPLICAOF", "NO", "ONE"});
  }

  RedisServer primary{{"--repl-diskless-sync-delay", "0"}};
  RedisServer replica;
  RedisStore store{primary.options()};
  RedisStore next_store{replica.options()};
  RedisLocks<RedisStore> plain{store};
  RedisLocks<RedisStore> careful{store, {.replicas = 1, .replica_wait = 1'000ms}};
  RedisLocks<RedisStore> promoted{next_store};
};

// LK-18: the limit of one Redis server, and what stands behind it.
TEST_F(ReplicatedRedisLock, IsHeldTwiceAfterAFailOverThatLosesIt) {
  Lock lock{plain, {.lease = 1h}};
  Lock next_lock{promoted, {.lease = 1h}};
  FencedRedisResource<RedisStore> pieces{next_store};
  replica.ask({"REPLICAOF", "127.0.0.1", "1"});  // it follows nobody any more
  const auto held = lock.try_acquire(stock);
  ASSERT_TRUE(held);
  fail_over();

  const auto next = next_lock.try_acquire(stock);

  ASSERT_TRUE(next) << "the replica had the lock after all";
  EXPECT_FALSE(held->stop_token().stop_requested());
  EXPECT_GT(next->fence(), held->fence());
  EXPECT_EQ(pieces.write(stock, next->fence(), "new"), FencedWrite::written);
  EXPECT_EQ(pieces.write(stock, held->fence(), "old"), FencedWrite::refused);
}

// LK-18
TEST_F(ReplicatedRedisLock, IsNotAcquiredWithoutTheReplicasThatItNeeds) {
  Lock lock{careful, {.lease = 1h}};
  replica.pause();

  EXPECT_EQ(code_of([&] { static_cast<void>(lock.try_acquire(stock)); }), Errc::store_reply_lost);

  EXPECT_EQ(plain.look(stock)->remaining, 0ms);
  replica.resume();
  wait_for_the_replica();
  EXPECT_TRUE(lock.try_acquire(stock).has_value());
}

// LK-18
TEST_F(ReplicatedRedisLock, IsKeptByAReplicaThatHadIt) {
  Lock lock{careful, {.lease = 1h}};
  const auto held = lock.try_acquire(stock);
  ASSERT_TRUE(held);
  fail_over();

  EXPECT_TRUE(
      std::holds_alternative<LockRefused>(promoted.acquire(stock, OwnerToken::generate(), 1h)));

  EXPECT_EQ(promoted.look(stock)->fence, held->fence());
}

}  // namespace
}  // namespace idempotency
