#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include "idempotency/patterns/redis_locks.hpp"
#include "idempotency/patterns/redis_states.hpp"
#include "idempotency/stores/redis.hpp"
#include "idempotency/testing/locks_conformance.hpp"
#include "idempotency/testing/states_conformance.hpp"
#include "support/redis_server.hpp"

namespace idempotency::testing {
namespace {

using testing_support::RedisServer;

class RedisLocksFixture {
 public:
  RedisLocksFixture() { RedisServer::shared().ask({"FLUSHALL"}); }
  RedisLocks<RedisStore>& carrier() { return locks_; }
  RedisLocks<RedisStore>& other_carrier() { return other_locks_; }
  static void advance(std::chrono::milliseconds span) { std::this_thread::sleep_for(span); }

 private:
  RedisStore store_{RedisServer::shared().options()};
  RedisStore other_store_{RedisServer::shared().options()};
  RedisLocks<RedisStore> locks_{store_};
  RedisLocks<RedisStore> other_locks_{other_store_};
};

class RedisStatesFixture {
 public:
  RedisStatesFixture() { RedisServer::shared().ask({"FLUSHALL"}); }
  static void create(const std::string& id, OrderState state) {
    RedisServer::shared().ask(
        {"SET", "idempotency:{order:" + id + "}:state", std::string(order_machine.name_of(state))});
  }
  TransitionResult<OrderState> transition(const std::string& id, OrderState from, OrderState to) {
    return states_.transition(id, from, to);
  }
  std::optional<OrderState> look(const std::string& id) { return states_.look(id); }

 private:
  RedisStore store_{RedisServer::shared().options()};
  RedisStates<OrderState, RedisStore> states_{store_, order_machine, {.type = "order"}};
};

INSTANTIATE_TYPED_TEST_SUITE_P(RedisStates, StatesConformance, RedisStatesFixture);

// LK-07, LK-09, LK-13, LK-14, LK-20, LK-22
INSTANTIATE_TYPED_TEST_SUITE_P(RedisLocks, LocksConformance, RedisLocksFixture);

}  // namespace
}  // namespace idempotency::testing
