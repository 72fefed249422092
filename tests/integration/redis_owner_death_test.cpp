#include <gtest/gtest.h>
#include <pthread.h>

#include <chrono>
#include <thread>

#include "idempotency/stores/redis.hpp"
#include "support/fault_proxy.hpp"
#include "support/owner_death.hpp"
#include "support/redis_owner.hpp"
#include "support/redis_server.hpp"

namespace idempotency {
namespace testing_support {
namespace {

struct RedisBackend {
  using Store = RedisStore;
  [[nodiscard]] static RedisOptions options() { return RedisServer::shared().options(); }
};

INSTANTIATE_TYPED_TEST_SUITE_P(Redis, OwnerDeath, RedisBackend);

}  // namespace
}  // namespace testing_support

namespace {

using testing_support::FaultProxy;
using testing_support::first_of_all;
using testing_support::NetworkFault;
using testing_support::RedisOwner;
using testing_support::RedisServer;

struct CancelledOwner {
  RedisOwner owner;
  WriteOutcome outcome = WriteOutcome::lost;
};

void* cancelled_while_completing(void* argument) {
  auto& cancelled = *static_cast<CancelledOwner*>(argument);
  cancelled.outcome = cancelled.owner.complete();
  pthread_testcancel();
  return nullptr;
}

// CP-01: a cancellation in the middle of a call waits for its end; the connection is not lost and gives no other call's answer.
TEST(RedisCancellation, WaitsForTheAnswer) {
  FaultProxy proxy(RedisServer::shared().port());
  proxy.set_delay(std::chrono::milliseconds{200});
  RedisStore store(RedisOptions{
      .port = proxy.port(), .command_timeout = std::chrono::seconds{60}, .max_connections = 1});
  CancelledOwner cancelled{{store, {"cancelled", "7"}}};
  ASSERT_EQ(cancelled.owner.begin(), first_of_all());
  const std::uint64_t connections = proxy.connections();
  const std::uint64_t harmed = proxy.harmed();
  proxy.harm_next(NetworkFault::delayed);
  pthread_t thread{};
  ASSERT_EQ(pthread_create(&thread, nullptr, cancelled_while_completing, &cancelled), 0);
  while (proxy.harmed() == harmed)
    std::this_thread::yield();

  EXPECT_EQ(pthread_cancel(thread), 0);
  void* ended = nullptr;
  ASSERT_EQ(pthread_join(thread, &ended), 0);

  EXPECT_EQ(ended, PTHREAD_CANCELED);
  EXPECT_EQ(cancelled.outcome, WriteOutcome::stored);
  EXPECT_EQ(store.find(cancelled.owner.key)->state, RecordState::success);
  EXPECT_EQ(proxy.connections(), connections);
}

}  // namespace
}  // namespace idempotency
