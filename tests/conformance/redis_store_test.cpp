#include "idempotency/stores/redis.hpp"

#include <chrono>
#include <memory>
#include <thread>

#include "idempotency/testing/store_conformance.hpp"
#include "support/redis_server.hpp"
#include "support/redis_stand_in.hpp"

namespace idempotency::testing {
namespace {

using testing_support::RedisServer;
using testing_support::RedisStandIn;

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

/// The same with a server that is believed to be older, so that the scripts for older ones are used.
class OlderRedisFixture {
 public:
  static constexpr std::chrono::milliseconds clock_tolerance = RedisFixture::clock_tolerance;
  static constexpr std::chrono::milliseconds long_time = RedisFixture::long_time;

  RedisStore& store() { return first_; }
  RedisStore& other_store() { return second_; }
  static void advance(std::chrono::milliseconds span) { RedisFixture::advance(span); }
  static void remove_deadline(const Key& key) { RedisFixture::remove_deadline(key); }

 private:
  std::unique_ptr<RedisStandIn> older_ =
      RedisStandIn::of_version(RedisServer::shared().port(), "6.0.16");
  RedisStore first_{RedisOptions{.port = older_->port()}};
  RedisStore second_{RedisOptions{.port = older_->port()}};
};

// RD-13
INSTANTIATE_TYPED_TEST_SUITE_P(OlderRedisStore, StoreConformance, OlderRedisFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(OlderRedisStore, AdminStoreConformance, OlderRedisFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(OlderRedisStore, SettlementConformance, OlderRedisFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(OlderRedisStore, BatchStoreConformance, OlderRedisFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(OlderRedisStore, BatchBeginStoreConformance, OlderRedisFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(OlderRedisStore, IssuingStoreConformance, OlderRedisFixture);

INSTANTIATE_TYPED_TEST_SUITE_P(RedisStore, StoreConformance, RedisFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(RedisStore, AdminStoreConformance, RedisFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(RedisStore, SettlementConformance, RedisFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(RedisStore, BatchStoreConformance, RedisFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(RedisStore, BatchBeginStoreConformance, RedisFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(RedisStore, IssuingStoreConformance, RedisFixture);

}  // namespace
}  // namespace idempotency::testing
