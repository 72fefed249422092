#include "redis/redis_options.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "support/error_of.hpp"

namespace idempotency {
namespace {

using testing_support::code_of;
using testing_support::error_of;

TEST(RedisOptions, ReadsHostPortAndDatabaseFromAnAddress) {
  const RedisOptions options = RedisOptions::from_address("redis://cache.example:6380/5");

  EXPECT_EQ(options.host, "cache.example");
  EXPECT_EQ(options.port, 6380);
  EXPECT_EQ(options.database, 5U);
  EXPECT_EQ(options.encryption, RedisEncryption::off);
  EXPECT_TRUE(options.password.empty());
}

TEST(RedisOptions, LeavesTheDefaultsWhereAnAddressSaysNothing) {
  for (const char* address : {"redis://cache", "redis://cache/"}) {
    const RedisOptions options = RedisOptions::from_address(address);

    EXPECT_EQ(options.host, "cache");
    EXPECT_EQ(options.port, 6379);
    EXPECT_EQ(options.database, 0U);
  }
}

TEST(RedisOptions, ReadsCredentialsFromAnAddress) {
  const RedisOptions both = RedisOptions::from_address("redis://app:p%40ss:w%2Ford@cache:1/2");
  const RedisOptions password_only = RedisOptions::from_address("redis://:secret@cache");

  EXPECT_EQ(both.username, "app");
  EXPECT_EQ(both.password, "p@ss:w/ord");
  EXPECT_EQ(both.host, "cache");
  EXPECT_EQ(password_only.username, "");
  EXPECT_EQ(password_only.password, "secret");
}

TEST(RedisOptions, ReadsAnIpv6HostFromAnAddress) {
  EXPECT_EQ(RedisOptions::from_address("redis://[::1]:7000").host, "::1");
  EXPECT_EQ(RedisOptions::from_address("redis://[::1]:7000").port, 7000);
  EXPECT_EQ(RedisOptions::from_address("redis://[fe80::2]/3").database, 3U);
}

TEST(RedisOptions, ReadsASocketFromAnAddress) {
  const RedisOptions plain = RedisOptions::from_address("unix:///run/redis.sock");
  const RedisOptions full = RedisOptions::from_address("unix://app:secret@/run/r%20s.sock?db=4");

  EXPECT_EQ(plain.unix_socket, "/run/redis.sock");
  EXPECT_EQ(full.unix_socket, "/run/r s.sock");
  EXPECT_EQ(full.username, "app");
  EXPECT_EQ(full.password, "secret");
  EXPECT_EQ(full.database, 4U);
}

TEST(RedisOptions, EncryptsWhenTheAddressSaysSo) {
  EXPECT_EQ(RedisOptions::from_address("rediss://cache").encryption, RedisEncryption::tls);
}

TEST(RedisOptions, RefusesOtherAddresses) {
  for (const char* address : {"",
                              "cache",
                              "http://cache",
                              "redis:cache",
                              "redis://",
                              "redis://:6379",
                              "redis://cache:",
                              "redis://cache:0x1",
                              "redis://cache:65536",
                              "redis://cache:-1",
                              "redis://cache/one",
                              "redis://cache/1/2",
                              "redis://cache/-1",
                              "redis://user@cache",
                              "redis://::1",
                              "redis://[::1",
                              "redis://[::1]7",
                              "redis://cache?db=1",
                              "redis://:a%4@cache",
                              "redis://:a%zz@cache",
                              "unix://run/redis.sock",
                              "unix://",
                              "unix:///s?database=1",
                              "unix:///s?db="}) {
    EXPECT_EQ(code_of([&] { static_cast<void>(RedisOptions::from_address(address)); }),
              Errc::invalid_argument)
        << address;
  }
}

TEST(RedisOptions, DoesNotRepeatAPasswordInARefusal) {
  const Error error = error_of(
      [] { static_cast<void>(RedisOptions::from_address("redis://user:hunter2@cache:port")); });

  EXPECT_EQ(std::string(error.what()).find("hunter2"), std::string::npos);
  EXPECT_EQ(error.detail().find("hunter2"), std::string::npos);
}

TEST(RedisOptions, RefusesWhatNoStoreCanWorkWith) {
  using detail::redis::check_options;
  using std::chrono::milliseconds;
  check_options({});
  for (const RedisOptions& options :
       {RedisOptions{.host = ""}, RedisOptions{.port = 0}, RedisOptions{.username = "app"},
        RedisOptions{.prefix = ""}, RedisOptions{.prefix = "a{b"}, RedisOptions{.prefix = "a*"},
        RedisOptions{.prefix = std::string(65, 'x')},
        RedisOptions{.connect_timeout = milliseconds{0}},
        RedisOptions{.command_timeout = std::chrono::hours{25}},
        RedisOptions{.pool_wait = milliseconds{-1}}, RedisOptions{.max_connections = 0},
        RedisOptions{.host = std::string("a\0b", 3)},
        RedisOptions{.tls = {.ca_file = "authority.pem"}},
        RedisOptions{.tls = {.server_name = "a"}},
        RedisOptions{.unix_socket = "/run/redis.sock", .encryption = RedisEncryption::tls},
        RedisOptions{.encryption = RedisEncryption::tls, .tls = {.certificate_file = "own.pem"}},
        RedisOptions{.encryption = RedisEncryption::tls, .tls = {.key_file = "own.key"}},
        RedisOptions{.encryption = RedisEncryption::tls,
        .tls = {.ca_file = std::string("a\0b", 3)}}}) {
    EXPECT_EQ(code_of([&] { check_options(options); }), Errc::invalid_argument);
  }
}

}  // namespace
}  // namespace idempotency
