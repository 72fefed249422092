// Servers that are too old are refused with their version; what they are is seen by their greeting.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "idempotency/stores/redis.hpp"
#include "support/error_of.hpp"
#include "support/redis_server.hpp"
#include "support/redis_stand_in.hpp"

namespace idempotency {
namespace {

using testing_support::error_of;
using testing_support::RedisServer;
using testing_support::RedisStandIn;
using Words = std::vector<std::string>;

std::string bulk(const std::string& text) {
  return "$" + std::to_string(text.size()) + "\r\n" + text + "\r\n";
}

// RD-13
TEST(RedisVersions, RefuseServersWithoutTheGreetingAndNameThem) {
  for (const char* version : {"4.0.14", "5.0.7"}) {
    RedisStandIn old([&](const Words& words) -> std::string {
      if (words[0] == "INFO") {
        return bulk("# Server\r\nredis_version:" + std::string(version) + "\r\nos:Linux\r\n");
      }
      return "-ERR unknown command `" + words[0] + "`, with args beginning with: \r\n";
    });

    const Error error = error_of([&] { RedisStore store(RedisOptions{.port = old.port()}); });

    EXPECT_EQ(error.code(), Errc::store_refused);
    EXPECT_EQ(error.detail(), version);
    EXPECT_NE(std::string(error.what()).find("older than Redis 6.0"), std::string::npos);
  }
}

// RD-13
TEST(RedisVersions, RefuseServersThatMayNotBeAskedForTheirVersion) {
  RedisStandIn old([](const Words& words) -> std::string {
    if (words[0] == "INFO") return "-NOAUTH Authentication required.\r\n";
    return "-ERR unknown command 'HELLO'\r\n";
  });

  const Error error = error_of([&] { RedisStore store(RedisOptions{.port = old.port()}); });

  EXPECT_EQ(error.code(), Errc::store_refused);
  EXPECT_EQ(error.detail(), "NOAUTH Authentication required.");
}

// RD-13
TEST(RedisVersions, RefuseServersThatGreetAsOlder) {
  RedisServer& server = RedisServer::shared();
  const auto older = RedisStandIn::of_version(server.port(), "5.9.104");

  const Error error = error_of([&] { RedisStore store(RedisOptions{.port = older->port()}); });

  EXPECT_EQ(error.code(), Errc::store_refused);
  EXPECT_EQ(error.detail(), "5.9.104");
}

TEST(RedisVersions, RefuseWhatIsNoRedis) {
  RedisStandIn other(
      [](const Words&) -> std::string { return "HTTP/1.1 400 Bad Request\r\n\r\n"; });
  RedisStandIn odd([](const Words&) -> std::string { return ":7\r\n"; });

  const Error no_protocol = error_of([&] {
    RedisStore store(RedisOptions{.port = other.port()});
    static_cast<void>(store.find({"a", "b"}));
  });
  const Error no_greeting = error_of([&] { RedisStore store(RedisOptions{.port = odd.port()}); });

  EXPECT_EQ(no_protocol.code(), Errc::store_unavailable);
  EXPECT_FALSE(no_protocol.effect_possible());
  EXPECT_EQ(no_greeting.code(), Errc::store_refused);
}

}  // namespace
}  // namespace idempotency
