#include "idempotency/stores/redis.hpp"

#include <chrono>
#include <thread>

#include "idempotency/testing/store_conformance.hpp"
#include "support/redis_server.hpp"

namespace idempotency::testing {
namespace {

using testing_support::RedisServer;

class RedisFixture {
 public:
  /// How late a loaded machine may be.
  static constexpr std::chrono::milliseconds clock_tolerance{200};
  static constexpr std::chrono::milliseconds long_time{1'000};

  RedisStore& store() { return first_; }
  RedisStore& other_store() { return second_; }
  static void advance(std::chrono::milliseconds span) { std::this_thread::sleep_for(span); }
  static void remove_deadline(const Key& key) {
    RedisServer::shared().ask({"PERSIST", "idempotency:{" + key.text() + "}"});
  }

 private:
  RedisStore first_{RedisServer::shared().options()};
  RedisStore second_{RedisServer::shared().options()};
};

INSTANTIATE_TYPED_TEST_SUITE_P(RedisStore, StoreConformance, RedisFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(RedisStore, AdminStoreConformance, RedisFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(RedisStore, SettlementConformance, RedisFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(RedisStore, BatchStoreConformance, RedisFixture);

}  // namespace
}  // namespace idempotency::testing
