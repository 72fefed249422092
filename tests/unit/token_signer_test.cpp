#include "idempotency/patterns/token_signer.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <set>
#include <string>

#include "support/error_of.hpp"

namespace idempotency {
namespace {

using std::chrono::milliseconds;
using testing_support::code_of;

const Timestamp now{milliseconds{1'800'000'000'000}};
const TokenKey old_key{"2026-10", std::string(32, 'o')};
const TokenKey new_key{"2026-11", std::string(32, 'n')};

TokenVerdict verdict_of(const TokenSigner& signer, std::string_view token,
                        std::string_view purpose = "pay", std::string_view subject = "alice",
                        Timestamp at = now) {
  return signer.look(token, purpose, subject, at).verdict;
}

class TokenSignerTest : public ::testing::Test {
 protected:
  TokenSigner signer{{new_key, old_key}};
  std::string token = signer.issue("pay", "alice", milliseconds{1'000}, now);
};

TEST_F(TokenSignerTest, KnowsItsOwnTokensAgain) {
  const TokenReading reading = signer.look(token, "pay", "alice", now);

  EXPECT_EQ(reading.verdict, TokenVerdict::good);
  ASSERT_TRUE(reading.facts);
  EXPECT_EQ(reading.facts->purpose, "pay");
  EXPECT_EQ(reading.facts->expires_at, now + milliseconds{1'000});
  EXPECT_EQ(reading.facts->nonce.size(), 16U);
  EXPECT_EQ(
      token.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"),
      std::string::npos);
}

TEST_F(TokenSignerTest, TellsWhatIsWrongWithAToken) {
  EXPECT_EQ(verdict_of(signer, token, "refund"), TokenVerdict::wrong_purpose);
  EXPECT_EQ(verdict_of(signer, token, "pay", "bob"), TokenVerdict::foreign_subject);
  EXPECT_EQ(verdict_of(signer, token, "pay", ""), TokenVerdict::foreign_subject);
  EXPECT_EQ(verdict_of(signer, token, "pay", "alice", now + milliseconds{999}), TokenVerdict::good);
  EXPECT_EQ(verdict_of(signer, token, "pay", "alice", now + milliseconds{1'000}),
            TokenVerdict::expired);
  EXPECT_EQ(verdict_of(signer, "pay"), TokenVerdict::unknown);
  EXPECT_EQ(verdict_of(signer, ""), TokenVerdict::unknown);
  EXPECT_EQ(verdict_of(signer, std::string(100'000, 'A')), TokenVerdict::unknown);
}

TEST_F(TokenSignerTest, RefusesATokenWithAnyCharacterChanged) {
  for (std::size_t at = 0; at < token.size(); ++at) {
    for (const char other : {'A', 'b', '-', '=', '\n', '\0'}) {
      if (token[at] == other) continue;
      std::string forged = token;
      forged[at] = other;
      ASSERT_EQ(verdict_of(signer, forged), TokenVerdict::unknown) << at;
    }
  }
  for (std::size_t size = 0; size < token.size(); ++size)
    ASSERT_EQ(verdict_of(signer, token.substr(0, size)), TokenVerdict::unknown) << size;
  EXPECT_EQ(verdict_of(signer, token + "A"), TokenVerdict::unknown);
  EXPECT_EQ(verdict_of(signer, token + "="), TokenVerdict::unknown);
}

TEST_F(TokenSignerTest, SurvivesAnyBytes) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::minstd_rand random(seed);
  for (int round = 0; round < 10'000; ++round) {
    std::string bytes(random() % 200, '\0');
    for (char& byte : bytes)
      byte = static_cast<char>(random());
    ASSERT_EQ(verdict_of(signer, bytes), TokenVerdict::unknown);
  }
}

TEST_F(TokenSignerTest, AcceptsOlderKeysAndSignsWithTheFirst) {
  const std::string old_token =
      TokenSigner({old_key}).issue("pay", "alice", milliseconds{1'000}, now);

  EXPECT_EQ(verdict_of(signer, old_token), TokenVerdict::good);
  EXPECT_EQ(verdict_of(TokenSigner({new_key}), old_token), TokenVerdict::unknown);
  EXPECT_EQ(verdict_of(TokenSigner({new_key}), token), TokenVerdict::good);
  const TokenKey stolen_name{new_key.id, std::string(32, 'x')};
  EXPECT_EQ(verdict_of(TokenSigner({stolen_name}), token), TokenVerdict::unknown);
}

TEST_F(TokenSignerTest, NeverIssuesATokenTwice) {
  std::set<std::string> tokens;
  for (int time = 0; time < 1'000; ++time)
    tokens.insert(signer.issue("pay", "alice", milliseconds{1'000}, now));

  EXPECT_EQ(tokens.size(), 1'000U);
}

TEST_F(TokenSignerTest, KeepsSubjectsThatLookAlikeApart) {
  const std::string other = signer.issue("pay", std::string("a\0b", 3), milliseconds{1}, now);

  EXPECT_EQ(verdict_of(signer, other, "pay", std::string("a\0b", 3)), TokenVerdict::good);
  EXPECT_EQ(verdict_of(signer, other, "pay", "a"), TokenVerdict::foreign_subject);
}

TEST_F(TokenSignerTest, RefusesWhatMakesNoSense) {
  const auto issue = [&](std::string_view purpose, milliseconds ttl) {
    return code_of([&] { static_cast<void>(signer.issue(purpose, "alice", ttl, now)); });
  };
  const auto make = [](std::vector<TokenKey> keys) {
    return code_of([&] { TokenSigner made(std::move(keys)); });
  };

  EXPECT_EQ(issue("", milliseconds{1}), Errc::invalid_argument);
  EXPECT_EQ(issue(std::string(65, 'p'), milliseconds{1}), Errc::invalid_argument);
  EXPECT_EQ(issue("pay", milliseconds{0}), Errc::invalid_argument);
  EXPECT_EQ(issue("pay", milliseconds::max()), Errc::invalid_argument);
  EXPECT_EQ(make({}), Errc::invalid_argument);
  EXPECT_EQ(make({{"a", "short"}}), Errc::invalid_argument);
  EXPECT_EQ(make({{"a b", std::string(32, 'x')}}), Errc::invalid_argument);
  EXPECT_EQ(make({new_key, new_key}), Errc::invalid_argument);
}

}  // namespace
}  // namespace idempotency
