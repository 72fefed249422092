#include <gtest/gtest.h>

#include <chrono>
#include <string_view>

#include "idempotency/stores/redis.hpp"
#include "network/network_calls.hpp"
#include "network/network_rounds.hpp"
#include "support/redis_server.hpp"

namespace idempotency::network {
namespace {

struct RedisBackend {
  using Store = RedisStore;
  static constexpr std::string_view name = "redis";
  static constexpr std::chrono::milliseconds patience{300};
  static constexpr std::chrono::milliseconds timeout = patience;

  /// Whether a call whose request of this number is cut off may have had an effect, as far as the client can know.
  static bool counts_as_sent(std::string_view, std::size_t) { return true; }

  static std::uint16_t server_port() { return testing_support::RedisServer::shared().port(); }
  static RedisOptions options(std::uint16_t port) {
    return {.host = "127.0.0.1",
            .port = port,
            .connect_timeout = patience,
            .command_timeout = port == server_port() ? std::chrono::milliseconds(10'000) : patience,
            .max_connections = 64};
  }
};

TEST(RedisNetwork, LetsEveryCallTellTheTruthUnderEveryFaultAtEveryRequest) {
  try_every_call_under_every_fault<RedisBackend>(3, 16);
}

TEST(RedisNetwork, StartsNoHandlerTwiceAndGivesOneAnswerInThousandsOfRounds) {
  play_rounds<RedisBackend>(3'000, 24);
}

}  // namespace
}  // namespace idempotency::network
