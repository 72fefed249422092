#pragma once

// What one-time tokens promise, over any store that issues keys:
//
//   INSTANTIATE_TYPED_TEST_SUITE_P(MyStore, TokenServiceConformance, MyFixture);
//
// with a fixture as for `StoreConformance`. Each test runs with both kinds of tokens.

#include <optional>
#include <string>
#include <vector>

#include "idempotency/guard.hpp"
#include "idempotency/patterns/token_service.hpp"
#include "idempotency/testing/conformance_fixture.hpp"
#include "idempotency/testing/manual_clock.hpp"

namespace idempotency {
inline namespace v0 {
namespace testing {

enum class TokensAre : std::uint8_t { stored, signed_by_key };

inline void PrintTo(TokenVerdict verdict, std::ostream* out) {
  constexpr std::string_view names[] = {
      "none", "good", "expired", "wrong_purpose", "foreign_subject", "unknown"};
  *out << names[static_cast<std::size_t>(verdict)];
}

/// The rules of a `TokenService` over a store and a guard on it.
template <class FixtureT>
class TokenServiceConformance : public ConformanceTest<FixtureT> {
  using Base = ConformanceTest<FixtureT>;

 protected:
  using milliseconds = std::chrono::milliseconds;
  using StoreT = typename Base::StoreT;

  static constexpr milliseconds lifetime{std::chrono::minutes{5}};

  /// The same test with stored tokens, then with signed ones.
  template <class Test>
  void with_each_kind(Test test) {
    for (const TokensAre kind : {TokensAre::stored, TokensAre::signed_by_key}) {
      SCOPED_TRACE(kind == TokensAre::stored ? "stored tokens" : "signed tokens");
      kind_ = kind;
      runs_ = 0;
      test();
    }
  }
  [[nodiscard]] TokenService service(milliseconds longest = std::chrono::minutes{15}) {
    const TokenServiceOptions options{.longest_lifetime = longest, .clock = &clock_};
    if (kind_ == TokensAre::stored) return TokenService(this->store(), options);
    return TokenService(TokenSigner({{.id = "k1", .secret = std::string(32, 's')}}), options);
  }
  /// Purposes are business types, and no other test uses this one.
  [[nodiscard]] std::string purpose() const {
    return this->type() + (kind_ == TokensAre::stored ? "-a" : "-b");
  }
  [[nodiscard]] PresentedToken presented(std::string token, std::string subject = "alice") const {
    return {.token = std::move(token), .purpose = purpose(), .subject = std::move(subject)};
  }
  auto submit(TokenService& tokens, const PresentedToken& token) {
    return tokens.run(guard_, token, [&] { return "receipt " + std::to_string(++runs_); });
  }
  void pass(milliseconds span) {
    this->advance(span);
    clock_.advance(span);
  }
  /// How many records there are of tokens that were begun.
  [[nodiscard]] std::size_t begun() {
    std::size_t count = 0;
    std::string cursor;
    do {  // whatever their type: a wrong purpose is one as well
      const RecordPage page = this->store().list({}, cursor, 1'000);
      for (const Record& record : page.records) {
        const bool is_of_this_test = record.key.type().starts_with(purpose());
        if (is_of_this_test && record.state != RecordState::issued) ++count;
      }
      cursor = page.cursor;
    } while (!cursor.empty());
    return count;
  }

  ManualClock clock_{std::chrono::time_point_cast<milliseconds>(std::chrono::system_clock::now())};
  IdempotencyGuard<StoreT> guard_{this->store()};
  TokensAre kind_ = TokensAre::stored;
  int runs_ = 0;
};

TYPED_TEST_SUITE_P(TokenServiceConformance);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TokenServiceConformance);

TYPED_TEST_P(TokenServiceConformance, GivesASecondSubmissionTheResultOfTheFirst) {
  this->with_each_kind([&] {
    TokenService tokens = this->service();
    const std::string token = tokens.issue(this->purpose(), "alice", this->lifetime);

    const auto first = this->submit(tokens, this->presented(token));
    const auto second = this->submit(tokens, this->presented(token));

    EXPECT_EQ(first.status(), RunStatus::executed);
    EXPECT_EQ(second.status(), RunStatus::replayed);
    EXPECT_EQ(second.value(), "receipt 1");
    EXPECT_EQ(second.verdict(), TokenVerdict::good);
    EXPECT_EQ(this->runs_, 1);
  });
}

TYPED_TEST_P(TokenServiceConformance, TellsApartWhatItRefusesAndMakesNoRecordOfIt) {
  this->with_each_kind([&] {
    TokenService tokens = this->service();
    const std::string token = tokens.issue(this->purpose(), "alice", this->lifetime);
    std::string changed = token;
    changed[20] = changed[20] == 'A' ? 'B' : 'A';
    PresentedToken elsewhere = this->presented(token);
    elsewhere.purpose += "-other";

    const auto by_bob = this->submit(tokens, this->presented(token, "bob"));
    const auto for_other = this->submit(tokens, elsewhere);
    const auto of_nobody = this->submit(tokens, this->presented("no token at all"));
    const auto of_nothing = this->submit(tokens, this->presented(""));
    const auto of_change = this->submit(tokens, this->presented(changed));

    EXPECT_EQ(by_bob.verdict(), TokenVerdict::foreign_subject);
    EXPECT_EQ(for_other.verdict(), TokenVerdict::wrong_purpose);
    EXPECT_EQ(of_nobody.verdict(), TokenVerdict::unknown);
    EXPECT_EQ(of_nothing.verdict(), TokenVerdict::unknown);
    EXPECT_NE(of_change.verdict(), TokenVerdict::good);
    for (const auto& refused : {by_bob, for_other, of_nobody, of_nothing, of_change}) {
      EXPECT_EQ(refused.status(), RunStatus::not_issued);
      EXPECT_FALSE(refused.has_value());
    }
    EXPECT_EQ(this->runs_, 0);
    EXPECT_EQ(this->begun(), 0U);
  });
}

TYPED_TEST_P(TokenServiceConformance, LetsAnUnusedTokenEnd) {
  this->with_each_kind([&] {
    TokenService tokens = this->service();
    const std::string token = tokens.issue(this->purpose(), "alice", this->short_lease);
    this->pass(this->short_lease + this->tolerance);

    const auto late = this->submit(tokens, this->presented(token));

    EXPECT_EQ(late.status(), RunStatus::not_issued);
    EXPECT_EQ(late.verdict(), TokenVerdict::expired);
    EXPECT_EQ(this->runs_, 0);
    EXPECT_EQ(this->begun(), 0U);
  });
}

TYPED_TEST_P(TokenServiceConformance, AnswersARetryAfterTheTokensEnd) {
  this->with_each_kind([&] {
    TokenService tokens = this->service();
    const std::string token = tokens.issue(this->purpose(), "alice", this->short_lease * 2);
    ASSERT_EQ(this->submit(tokens, this->presented(token)).status(), RunStatus::executed);
    this->pass(this->short_lease * 2 + this->tolerance);

    const auto retry = this->submit(tokens, this->presented(token));

    EXPECT_EQ(retry.status(), RunStatus::replayed);
    EXPECT_EQ(retry.value(), "receipt 1");
    EXPECT_EQ(retry.verdict(), TokenVerdict::good);
  });
}

TYPED_TEST_P(TokenServiceConformance, LetsASubmissionThatFailedBeRepeated) {
  this->with_each_kind([&] {
    TokenService tokens = this->service();
    const PresentedToken token =
        this->presented(tokens.issue(this->purpose(), "alice", this->lifetime));
    const auto fails = []() -> std::string { throw RetryableFailure("the bank is closed"); };
    EXPECT_THROW(static_cast<void>(tokens.run(this->guard_, token, fails)), RetryableFailure);

    const auto again = this->submit(tokens, token);

    EXPECT_EQ(again.status(), RunStatus::executed);
    EXPECT_EQ(again.fence(), 2U);
  });
}

TYPED_TEST_P(TokenServiceConformance, BlocksATokenWhoseOutcomeIsNotKnown) {
  this->with_each_kind([&] {
    TokenService tokens = this->service();
    const PresentedToken token =
        this->presented(tokens.issue(this->purpose(), "alice", this->lifetime));
    const auto fails = []() -> std::string { throw OutcomeUnknown("no answer"); };
    EXPECT_THROW(static_cast<void>(tokens.run(this->guard_, token, fails)), OutcomeUnknown);

    const auto again = this->submit(tokens, token);

    EXPECT_EQ(again.status(), RunStatus::uncertain);
    EXPECT_EQ(this->runs_, 0);
  });
}

TYPED_TEST_P(TokenServiceConformance, ComparesWhatIsSubmittedUnderOneToken) {
  this->with_each_kind([&] {
    TokenService tokens = this->service();
    PresentedToken token = this->presented(tokens.issue(this->purpose(), "alice", this->lifetime));
    token.fingerprint = Fingerprint::of(500);
    ASSERT_EQ(this->submit(tokens, token).status(), RunStatus::executed);

    token.fingerprint = Fingerprint::of(900);

    EXPECT_EQ(this->submit(tokens, token).status(), RunStatus::mismatch);
  });
}

TYPED_TEST_P(TokenServiceConformance, RefusesRecordsThatWouldEndBeforeTheirTokens) {
  this->with_each_kind([&] {
    TokenService tokens = this->service();
    PresentedToken token = this->presented(tokens.issue(this->purpose(), "alice", this->lifetime));
    token.policy.success_retention = std::chrono::minutes{14};

    try {
      static_cast<void>(this->submit(tokens, token));
      FAIL() << "a retention shorter than a token's life was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::invalid_argument);
    }

    EXPECT_EQ(this->begun(), 0U);
    token.policy.success_retention = std::chrono::minutes{15};
    EXPECT_EQ(this->submit(tokens, token).status(), RunStatus::executed);
  });
}

TYPED_TEST_P(TokenServiceConformance, RefusesToIssueWhatCannotBeUsed) {
  this->with_each_kind([&] {
    TokenService tokens = this->service(std::chrono::minutes{1});
    const auto code_of = [&](const std::string& purpose,
                             std::chrono::milliseconds ttl) -> std::optional<Errc> {
      try {
        static_cast<void>(tokens.issue(purpose, "alice", ttl));
        return std::nullopt;
      } catch (const Error& error) {
        return error.code();
      }
    };

    EXPECT_EQ(code_of(this->purpose(), std::chrono::milliseconds{0}), Errc::invalid_argument);
    EXPECT_EQ(code_of(this->purpose(), std::chrono::minutes{2}), Errc::invalid_argument);
    EXPECT_EQ(code_of("no type", std::chrono::seconds{1}), Errc::invalid_key);
    EXPECT_EQ(code_of("", std::chrono::seconds{1}), Errc::invalid_key);
    EXPECT_EQ(code_of(this->purpose(), std::chrono::minutes{1}), std::nullopt);
  });
}

REGISTER_TYPED_TEST_SUITE_P(TokenServiceConformance, GivesASecondSubmissionTheResultOfTheFirst,
                            TellsApartWhatItRefusesAndMakesNoRecordOfIt, LetsAnUnusedTokenEnd,
                            AnswersARetryAfterTheTokensEnd, LetsASubmissionThatFailedBeRepeated,
                            BlocksATokenWhoseOutcomeIsNotKnown,
                            ComparesWhatIsSubmittedUnderOneToken,
                            RefusesRecordsThatWouldEndBeforeTheirTokens,
                            RefusesToIssueWhatCannotBeUsed);

}  // namespace testing
}  // namespace v0
}  // namespace idempotency
