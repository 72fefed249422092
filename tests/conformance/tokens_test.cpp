#include <chrono>
#include <thread>

#include "idempotency/stores/redis.hpp"
#include "idempotency/testing/faulty_store.hpp"
#include "idempotency/testing/manual_clock.hpp"
#include "idempotency/testing/tokens_conformance.hpp"
#include "memory_fixture.hpp"
#include "sqlite_fixture.hpp"
#include "support/error_of.hpp"
#include "support/redis_server.hpp"

namespace idempotency::testing {
namespace {

using testing_support::MemoryFixture;

class SqliteFixture {
 public:
  SqliteStore& store() { return file_.first(); }
  void advance(std::chrono::milliseconds span) { file_.clock().advance(span); }

 private:
  testing_support::SqliteFile file_;
};

class RedisFixture {
 public:
  static constexpr std::chrono::milliseconds clock_tolerance{200};

  RedisStore& store() { return store_; }
  static void advance(std::chrono::milliseconds span) { std::this_thread::sleep_for(span); }

 private:
  RedisStore store_{testing_support::RedisServer::shared().options()};
};

INSTANTIATE_TYPED_TEST_SUITE_P(MemoryTokens, TokenServiceConformance, MemoryFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(SqliteTokens, TokenServiceConformance, SqliteFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(RedisTokens, TokenServiceConformance, RedisFixture);

PresentedToken presented(const std::string& token) {
  return {.token = token, .purpose = "order", .subject = "alice"};
}

// A service that is deployed with a shorter longest_lifetime still meets the tokens of the one before.
TEST(TokenService, RefusesRecordsThatWouldEndBeforeAnotherServicesToken) {
  ManualClock clock{
      std::chrono::time_point_cast<std::chrono::milliseconds>(std::chrono::system_clock::now())};
  MemoryStore store;
  IdempotencyGuard guard{store};
  const auto signer = [] { return TokenSigner({{.id = "k1", .secret = std::string(32, 's')}}); };
  TokenService before(signer(), {.longest_lifetime = std::chrono::hours{2}, .clock = &clock});
  TokenService after(signer(), {.clock = &clock});
  PresentedToken token = presented(before.issue("order", "alice", std::chrono::hours{2}));
  token.policy.success_retention = std::chrono::hours{1};
  token.policy.failure_retention = std::chrono::hours{3};
  const auto submit = [&] { return after.run(guard, token, [] { return 1; }); };

  EXPECT_EQ(testing_support::code_of([&] { static_cast<void>(submit()); }), Errc::invalid_argument);
  EXPECT_FALSE(store.list({}, "", 10).records.size());

  clock.advance(std::chrono::minutes{61});  // what is left of it is shorter than the record lives
  EXPECT_EQ(submit().status(), RunStatus::executed);
}

TEST(TokenService, TakesTheTokenAndWritesTheBusinessInOneCommit) {
  testing_support::SqliteFile file;
  TokenService tokens{file.first()};
  IdempotencyGuard guard{file.first()};
  const std::string token = tokens.issue("order", "alice", std::chrono::minutes{5});
  const auto buys = [&](bool fails) {
    return tokens.run_in_transaction(guard, presented(token), [&](SqliteTransaction& transaction) {
      testing_support::SqliteFile::add_business_row(transaction);
      if (fails) throw RetryableFailure("out of stock");
      return 1;
    });
  };

  EXPECT_THROW(static_cast<void>(buys(true)), RetryableFailure);
  EXPECT_EQ(file.business_rows(), 0U);
  EXPECT_EQ(buys(false).status(), RunStatus::executed);
  EXPECT_EQ(buys(false).status(), RunStatus::replayed);
  EXPECT_EQ(file.business_rows(), 1U);
}

TEST(TokenService, LetsNoInventedTokenInWhileTheStoreCannotBeAsked) {
  MemoryStore memory;
  FaultyStore store{memory};
  TokenService tokens{store};
  IdempotencyGuard guard{store, {.begin_attempts = 1}};
  PresentedToken token = presented(tokens.issue("order", "alice", std::chrono::minutes{5}));
  token.policy.on_store_failure = OnStoreFailure::run_unprotected;
  store.on(StoreCall::begin).fail_next(1, Fault::request_lost);

  EXPECT_THROW(static_cast<void>(tokens.run(guard, token, [] { return 1; })), Error);
  EXPECT_EQ(tokens.run(guard, token, [] { return 2; }).status(), RunStatus::executed);
}

TEST(TokenService, RefusesOptionsUnderWhichNoTokenLives) {
  MemoryStore store;

  EXPECT_THROW(TokenService(store, {.longest_lifetime = std::chrono::milliseconds{0}}), Error);
}

}  // namespace
}  // namespace idempotency::testing
