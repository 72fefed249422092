#include <gtest/gtest.h>

#include <array>

#include "idempotency/stores/redis.hpp"
#include "network/process_storm.hpp"
#include "support/redis_server.hpp"

namespace idempotency::network {
namespace {

struct RedisBackend {
  using Store = RedisStore;
  static constexpr std::array promises{Promise::hold, Promise::take_over};
  static testing_support::RedisServer& server() {
    static testing_support::RedisServer own(testing_support::RedisServer::durable());
    return own;
  }
  static RedisOptions options() { return server().options(); }
};

TEST(RedisProcesses, KeepTheirPromisesWhileOneIsKilledEachSecond) {
  static_cast<void>(RedisBackend::server());
  ProcessStorm<RedisBackend> storm;

  storm.rage(storm_span());

  storm.judge();
}

}  // namespace
}  // namespace idempotency::network
