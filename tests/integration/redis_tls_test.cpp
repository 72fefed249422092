// Encrypted connections: whom they trust, what they show, and that they fail as plain ones do.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <random>
#include <string>

#include "idempotency/idempotency.hpp"
#include "idempotency/stores/redis.hpp"
#include "idempotency/testing/printers.hpp"
#include "support/error_of.hpp"
#include "support/fault_proxy.hpp"
#include "support/redis_closing_socket.hpp"
#include "support/redis_server.hpp"
#include "support/test_certificates.hpp"

namespace idempotency {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing_support::code_of;
using testing_support::error_of;
using testing_support::FaultProxy;
using testing_support::NetworkFault;
using testing_support::RedisServer;
using testing_support::TestCertificates;

const TestCertificates& certificates() {
  static const TestCertificates made;
  return made;
}

/// A server that speaks TLS too, shared by the tests that only talk to it.
RedisServer& server() {
  static RedisServer shared(
      {}, RedisServer::Encryption{certificates().authority(), certificates().server(),
                                  certificates().server_key()});
  return shared;
}

RedisOptions encrypted(const RedisServer& to) {
  return {.host = "127.0.0.1",
          .port = to.encrypted_port(),
          .encryption = RedisEncryption::tls,
          .tls = {.ca_file = certificates().authority()}};
}

Key fresh_key() {
  static std::atomic<int> number{0};
  return {"encrypted", std::to_string(::getpid()) + "-" + std::to_string(++number)};
}

/// Whether a record can be written and read back.
bool works(RedisStore& store) {
  const Key key = fresh_key();
  const OwnerToken owner = OwnerToken::generate();
  if (store.begin({.key = key, .owner = owner}) != BeginOutcome(Acquired{1, 1})) return false;
  if (store.complete(key, {owner, 1}, {"result", std::chrono::hours{1}}) != WriteOutcome::stored) {
    return false;
  }
  return std::holds_alternative<Completed>(
      store.begin({.key = key, .owner = OwnerToken::generate()}));
}

TEST(RedisTls, ReachesAServerByNameAndByAddress) {
  RedisOptions by_name = RedisOptions::from_address(
      "rediss://localhost:" + std::to_string(server().encrypted_port()) + "/3");
  by_name.tls.ca_file = certificates().authority();
  RedisStore first(by_name);
  RedisStore second(encrypted(server()));

  EXPECT_TRUE(works(first));
  EXPECT_TRUE(works(second));
}

TEST(RedisTls, CarriesEveryByteAndLargeResults) {
  RedisStore store(encrypted(server()));
  std::string result(std::size_t{3} * 1024 * 1024 + 17, '\0');
  std::mt19937 random(7);
  for (char& byte : result)
    byte = static_cast<char>(random());
  const Key key = fresh_key();
  const OwnerToken owner = OwnerToken::generate();
  ASSERT_EQ(store.begin({.key = key, .owner = owner}), BeginOutcome(Acquired{1, 1}));

  ASSERT_EQ(store.complete(key, {owner, 1}, {result, std::chrono::hours{1}}), WriteOutcome::stored);

  const BeginOutcome outcome = store.begin({.key = key, .owner = OwnerToken::generate()});
  ASSERT_TRUE(std::holds_alternative<Completed>(outcome));
  EXPECT_TRUE(std::get<Completed>(outcome).result == result);
}

TEST(RedisTls, RefusesAServerOfAnotherAuthority) {
  RedisOptions options = encrypted(server());
  options.tls.ca_file = certificates().stranger();
  const Error stranger = error_of([&] { RedisStore store(options); });
  options.tls.ca_file.clear();
  const Error by_the_system = error_of([&] { RedisStore store(options); });

  EXPECT_EQ(stranger.code(), Errc::store_refused);
  EXPECT_EQ(by_the_system.code(), Errc::store_refused);
  EXPECT_NE(stranger.detail().find("certificate"), std::string::npos) << stranger.detail();
}

TEST(RedisTls, RefusesACertificateForAnotherName) {
  RedisOptions options = encrypted(server());
  options.tls.server_name = "cache.example";
  const Error name = error_of([&] { RedisStore store(options); });
  options.tls.server_name = "127.0.0.2";
  const Error address = error_of([&] { RedisStore store(options); });
  options.tls.server_name = "localhost";

  EXPECT_EQ(name.code(), Errc::store_refused);
  EXPECT_NE(name.detail().find("ostname mismatch"), std::string::npos) << name.detail();
  EXPECT_EQ(address.code(), Errc::store_refused);
  EXPECT_NO_THROW(RedisStore{options}) << "the host's address, checked by name";
}

TEST(RedisTls, ShowsItsOwnCertificateToAServerThatAsks) {
  RedisServer own({"--tls-auth-clients", "yes"},
                  RedisServer::Encryption{certificates().authority(), certificates().server(),
                                          certificates().server_key()});
  RedisOptions options = encrypted(own);

  const Error refused = error_of([&] { static_cast<void>(RedisStore(options).find(fresh_key())); });
  EXPECT_NE(refused.detail().find("certificate"), std::string::npos) << refused.detail();
  EXPECT_FALSE(refused.effect_possible());
  options.tls.certificate_file = certificates().client();
  options.tls.key_file = certificates().client_key();
  RedisStore store(options);
  EXPECT_TRUE(works(store));
}

TEST(RedisTls, RefusesFilesThatCannotBeUsedEvenWithoutAServer) {
  RedisOptions missing{.port = 1,
                       .encryption = RedisEncryption::tls,
                       .tls = {.ca_file = certificates().authority() + ".missing"}};
  RedisOptions other_key{.port = 1,
                         .encryption = RedisEncryption::tls,
                         .tls = {.ca_file = certificates().authority(),
                                 .certificate_file = certificates().client(),
                                 .key_file = certificates().server_key()}};
  RedisOptions locked_key = other_key;
  locked_key.tls.key_file = certificates().locked_key();

  EXPECT_EQ(code_of([&] { RedisStore store(missing); }), Errc::store_refused);
  EXPECT_EQ(code_of([&] { RedisStore store(other_key); }), Errc::store_refused);
  EXPECT_EQ(code_of([&] { RedisStore store(locked_key); }), Errc::store_refused)
      << "and asks nobody for the passphrase";
}

// Redis takes a client's first words for the beginning of a command and waits for the rest.
TEST(RedisTls, GetsNoAnswerFromAPortWithoutIt) {
  RedisOptions options = encrypted(server());
  options.port = server().port();
  options.connect_timeout = milliseconds{100};
  RedisStore store(options);

  const auto started = std::chrono::steady_clock::now();
  EXPECT_EQ(code_of([&] { static_cast<void>(store.find(fresh_key())); }), Errc::store_unavailable);
  EXPECT_LT(std::chrono::steady_clock::now() - started, 10 * options.connect_timeout + seconds{5});
}

TEST(RedisTls, IsMissedByAPlainClientAtOnce) {
  RedisOptions options = encrypted(server());
  options.encryption = RedisEncryption::off;
  options.tls = {};
  RedisStore store(options);

  EXPECT_EQ(code_of([&] { static_cast<void>(store.find(fresh_key())); }), Errc::store_unavailable);
}

TEST(RedisTls, WaitsForTheHandshakeNoLongerThanForAConnection) {
  FaultProxy proxy(server().encrypted_port());
  proxy.plan([](std::uint64_t) { return NetworkFault::half_open; });
  RedisOptions options = encrypted(server());
  options.port = proxy.port();
  options.connect_timeout = milliseconds{100};
  RedisStore store(options);

  const auto started = std::chrono::steady_clock::now();
  EXPECT_EQ(code_of([&] { static_cast<void>(store.find(fresh_key())); }), Errc::store_unavailable);
  EXPECT_LT(std::chrono::steady_clock::now() - started, 10 * options.connect_timeout + seconds{5});
  proxy.heal();
  EXPECT_TRUE(works(store));
}

// HI-01
TEST(RedisTls, SurvivesBeingClosedByTheServerWhileIdle) {
  ASSERT_NE(std::signal(SIGPIPE, SIG_DFL), SIG_ERR);
  RedisServer own({}, RedisServer::Encryption{certificates().authority(), certificates().server(),
                                              certificates().server_key()});
  RedisStore store(encrypted(own));

  for (int round = 0; round < 20; ++round) {
    own.ask({"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"});

    EXPECT_TRUE(works(store)) << "round " << round;
  }
  own.kill();
  EXPECT_EQ(code_of([&] { static_cast<void>(store.find(fresh_key())); }), Errc::store_unavailable);
  own.start();
  EXPECT_TRUE(works(store));
}

// HI-01
TEST(RedisTls, SurvivesAServerThatGoesWhileMuchIsWrittenToIt) {
  RedisServer own({}, RedisServer::Encryption{certificates().authority(), certificates().server(),
                                              certificates().server_key()});
  testing_support::expect_to_outlive_a_closing_socket(own.encrypted_port(), encrypted(own));
}

/// Faults that take no time.
constexpr NetworkFault quick_faults[] = {NetworkFault::cut_before_request,
                                         NetworkFault::cut_before_reply,
                                         NetworkFault::reset_before_reply};

TEST(RedisTls, RunsNoHandlerTwiceThroughCutConnections) {
  FaultProxy proxy(server().encrypted_port());
  RedisOptions options = encrypted(server());
  options.port = proxy.port();
  RedisStore store(options);
  IdempotencyGuard guard{store};
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  proxy.plan([&](std::uint64_t) {
    return random() % 4 == 0 ? quick_faults[random() % std::size(quick_faults)]
                             : NetworkFault::none;
  });

  for (int round = 0; round < 50; ++round) {
    const Key key = fresh_key();
    int runs = 0;
    for (int attempt = 0; attempt < 10; ++attempt) {
      try {
        const auto result = guard.run({.key = key}, [&] { return std::to_string(++runs); });
        if (result.status() == RunStatus::replayed) {
          EXPECT_EQ(result.value(), "1");
          break;
        }
      } catch (const Error& error) {
        ASSERT_TRUE(error.safe_to_retry() || error.effect_possible()) << error.what();
      }
    }
    ASSERT_LE(runs, 1) << "round " << round;
  }
  proxy.heal();
  EXPECT_GT(proxy.harmed(), 0U);
}

}  // namespace
}  // namespace idempotency
