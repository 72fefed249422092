#pragma once

// Keys that are made before they are begun: one-time tokens.

#include <latch>
#include <thread>
#include <vector>

#include "idempotency/testing/conformance_fixture.hpp"

namespace idempotency {
inline namespace v0 {
namespace testing {

/// The rules of an `IssuingStore`.
template <class FixtureT>
class IssuingStoreConformance : public ConformanceTest<FixtureT> {
  static_assert(IssuingStore<typename ConformanceTest<FixtureT>::StoreT>,
                "idempotency: IssuingStoreConformance is for stores that satisfy "
                "idempotency::IssuingStore.");

 protected:
  static constexpr std::chrono::milliseconds lifetime{std::chrono::hours{1}};

  WriteOutcome issue(std::chrono::milliseconds span = lifetime) {
    return this->store().issue({this->key(), issuer_, span});
  }
  /// A call that admits issued keys only.
  [[nodiscard]] auto taker(const CallerOptions& options = {}) {
    auto call = this->caller(options);
    call.request().admission = Admission::issued;
    return call;
  }

  OwnerToken issuer_ = OwnerToken::generate();
};

TYPED_TEST_SUITE_P(IssuingStoreConformance);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(IssuingStoreConformance);

TYPED_TEST_P(IssuingStoreConformance, LetsOneCallerTakeAnIssuedKey) {
  ASSERT_EQ(this->issue(), WriteOutcome::stored);
  auto first = this->taker();

  const BeginOutcome taken = first.begin();
  const BeginOutcome meanwhile = this->taker().begin();

  EXPECT_EQ(taken, acquired(1, 1));
  EXPECT_TRUE(is<InProgress>(meanwhile));
  EXPECT_EQ(first.complete("result"), WriteOutcome::stored);
  EXPECT_TRUE(replays(this->taker().begin(), "result"));
  EXPECT_TRUE(replays(this->caller().begin(), "result")) << "it is a record like any other now";
}

TYPED_TEST_P(IssuingStoreConformance, CreatesNothingForAKeyThatNobodyIssued) {
  const BeginOutcome outcome = this->taker().begin();

  EXPECT_TRUE(is<NotIssued>(outcome));
  EXPECT_FALSE(this->find());
}

TYPED_TEST_P(IssuingStoreConformance, RefusesAnIssuedKeyToACallThatAdmitsAny) {
  ASSERT_EQ(this->issue(), WriteOutcome::stored);

  try {
    static_cast<void>(this->caller().begin());
    FAIL() << "a key that was issued was taken by a call without a token";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::store_refused);
    EXPECT_FALSE(error.effect_possible());
  }

  EXPECT_EQ(this->record().state, RecordState::issued);
  EXPECT_EQ(this->taker().begin(), acquired(1, 1));
}

TYPED_TEST_P(IssuingStoreConformance, ShowsWhatAnIssuedRecordHolds) {
  ASSERT_EQ(this->issue(), WriteOutcome::stored);

  const Record record = this->record();

  EXPECT_EQ(record.state, RecordState::issued);
  EXPECT_EQ(record.ownership, (Ownership{this->issuer_, 0}));
  EXPECT_EQ(record.attempt, 0U);
  EXPECT_FALSE(record.fingerprint);
  EXPECT_FALSE(record.lease_until);
  ASSERT_TRUE(record.expires_at);
  EXPECT_EQ(*record.expires_at - record.created_at, this->lifetime);
}

TYPED_TEST_P(IssuingStoreConformance, CountsWhatIsIssuedUntilItIsTaken) {
  if constexpr (AdminStore<typename TestFixture::StoreT>) {
    const std::uint64_t before = this->store().statistics().issued;
    ASSERT_EQ(this->issue(), WriteOutcome::stored);
    EXPECT_EQ(this->store().statistics().issued, before + 1);

    EXPECT_EQ(this->taker().begin(), acquired(1, 1));

    EXPECT_EQ(this->store().statistics().issued, before);
  } else {
    SUCCEED() << "it counts nothing";
  }
}

TYPED_TEST_P(IssuingStoreConformance, ForgetsAKeyWhoseLifetimeIsOver) {
  ASSERT_EQ(this->issue(this->short_lease), WriteOutcome::stored);
  this->advance(this->short_lease + this->tolerance);

  EXPECT_TRUE(is<NotIssued>(this->taker().begin()));
  EXPECT_FALSE(this->find());
  EXPECT_EQ(this->issue(), WriteOutcome::stored) << "it can be issued anew";
  EXPECT_EQ(this->taker().begin(), acquired(1, 1));
}

TYPED_TEST_P(IssuingStoreConformance, LetsACallWithoutATokenHaveAKeyWhoseLifetimeIsOver) {
  ASSERT_EQ(this->issue(this->short_lease), WriteOutcome::stored);
  this->advance(this->short_lease + this->tolerance);

  EXPECT_EQ(this->caller().begin(), acquired(1, 1));
  EXPECT_EQ(this->issue(), WriteOutcome::lost);
}

TYPED_TEST_P(IssuingStoreConformance, StoresARepeatedIssueAndNoOther) {
  ASSERT_EQ(this->issue(), WriteOutcome::stored);

  EXPECT_EQ(this->issue(), WriteOutcome::stored);
  EXPECT_EQ(
      this->store().issue({this->key(), OwnerToken::generate(), std::chrono::milliseconds{1}}),
      WriteOutcome::lost);
  auto taker = this->taker();
  ASSERT_EQ(taker.begin(), acquired(1, 1));
  EXPECT_EQ(this->issue(), WriteOutcome::lost) << "it is in use";
  ASSERT_EQ(taker.complete(), WriteOutcome::stored);
  EXPECT_EQ(this->issue(), WriteOutcome::lost) << "it is used";
}

TYPED_TEST_P(IssuingStoreConformance, RefusesALifetimeThatIsNone) {
  for (const std::chrono::milliseconds span :
       {std::chrono::milliseconds{0}, std::chrono::milliseconds{-1}}) {
    try {
      static_cast<void>(this->issue(span));
      FAIL() << "a key was issued for " << span.count() << " ms";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::invalid_argument);
    }
  }

  EXPECT_FALSE(this->find());
}

TYPED_TEST_P(IssuingStoreConformance, BeginsALifeWithTheFirstCallerWhoTakesTheKey) {
  ASSERT_EQ(this->issue(), WriteOutcome::stored);
  const Timestamp issued = this->record().created_at;
  this->advance(this->short_lease);
  const Fingerprint meaning = Fingerprint::of(1);

  auto taker = this->taker({.mode = RecordMode::hold, .fingerprint = meaning, .trace = "trace-1"});
  ASSERT_EQ(taker.begin(), acquired(1, 1));

  const Record record = this->record();
  EXPECT_EQ(record.ownership, taker.by());
  EXPECT_EQ(record.mode, RecordMode::hold);
  EXPECT_EQ(record.fingerprint, meaning.current());
  EXPECT_EQ(record.trace, "trace-1");
  EXPECT_GE(record.created_at - issued, this->short_lease - this->tolerance);
  EXPECT_FALSE(record.expires_at);
  EXPECT_TRUE(is<Mismatch>(this->taker({.fingerprint = Fingerprint::of(2)}).begin()));
}

TYPED_TEST_P(IssuingStoreConformance, GrantsARepeatedBeginTheSameTurnAgain) {
  ASSERT_EQ(this->issue(), WriteOutcome::stored);
  auto taker = this->taker();

  EXPECT_EQ(taker.begin(), acquired(1, 1));
  EXPECT_EQ(taker.begin(), acquired(1, 1));
}

TYPED_TEST_P(IssuingStoreConformance, LetsTheNextCallerTryAfterAFailureThatMayBeRetried) {
  ASSERT_EQ(this->issue(), WriteOutcome::stored);
  auto first = this->taker();
  ASSERT_EQ(first.begin(), acquired(1, 1));
  ASSERT_EQ(first.fail(retryable_failure()), WriteOutcome::stored);

  EXPECT_TRUE(is<Failed>(first.begin()));
  EXPECT_EQ(this->taker().begin(), acquired(2, 2));
}

TYPED_TEST_P(IssuingStoreConformance, HandsOverOrBlocksWhenALeaseRanOut) {
  for (const RecordMode mode : {RecordMode::take_over, RecordMode::hold}) {
    const Key key = this->key(mode == RecordMode::hold ? "hold" : "take_over");
    ASSERT_EQ(this->store().issue({key, this->issuer_, this->lifetime}), WriteOutcome::stored);
    auto silent = this->taker({.key = key, .mode = mode, .lease = this->short_lease});
    ASSERT_EQ(silent.begin(), acquired(1, 1));
    this->advance(this->short_lease + this->tolerance);

    const BeginOutcome next = this->taker({.key = key}).begin();

    if (mode == RecordMode::hold) {
      EXPECT_TRUE(is<Uncertain>(next));
    } else {
      EXPECT_EQ(next, acquired(2, 2));
    }
  }
}

TYPED_TEST_P(IssuingStoreConformance, AnswersLongAfterTheLifetimeOfTheToken) {
  ASSERT_EQ(this->issue(this->short_lease), WriteOutcome::stored);
  auto taker = this->taker();
  ASSERT_EQ(taker.begin(), acquired(1, 1));
  ASSERT_EQ(taker.complete("result", this->short_lease * 4), WriteOutcome::stored);

  this->advance(this->short_lease * 2);
  EXPECT_TRUE(replays(this->taker().begin(), "result"));
  this->advance(this->short_lease * 2 + this->tolerance);
  EXPECT_TRUE(is<NotIssued>(this->taker().begin())) << "past its retention it starts nothing";
}

TYPED_TEST_P(IssuingStoreConformance, LetsOneOfManyConcurrentCallersTakeAnIssuedKey) {
  constexpr int callers = 8;
  ASSERT_EQ(this->issue(), WriteOutcome::stored);
  std::latch all(callers);
  std::vector<BeginOutcome> outcomes(callers);
  std::vector<std::thread> threads;
  for (int number = 0; number < callers; ++number) {
    threads.emplace_back([&, number, call = this->taker()]() mutable {
      all.arrive_and_wait();
      outcomes[static_cast<std::size_t>(number)] = call.begin();
    });
  }
  for (std::thread& thread : threads)
    thread.join();

  int taken = 0;
  for (const BeginOutcome& outcome : outcomes) {
    if (outcome == acquired(1, 1)) {
      ++taken;
    } else {
      EXPECT_TRUE(is<InProgress>(outcome));
    }
  }
  EXPECT_EQ(taken, 1);
}

REGISTER_TYPED_TEST_SUITE_P(
    IssuingStoreConformance, LetsOneCallerTakeAnIssuedKey, CreatesNothingForAKeyThatNobodyIssued,
    RefusesAnIssuedKeyToACallThatAdmitsAny, ShowsWhatAnIssuedRecordHolds,
    CountsWhatIsIssuedUntilItIsTaken, ForgetsAKeyWhoseLifetimeIsOver,
    LetsACallWithoutATokenHaveAKeyWhoseLifetimeIsOver, StoresARepeatedIssueAndNoOther,
    RefusesALifetimeThatIsNone, BeginsALifeWithTheFirstCallerWhoTakesTheKey,
    GrantsARepeatedBeginTheSameTurnAgain, LetsTheNextCallerTryAfterAFailureThatMayBeRetried,
    HandsOverOrBlocksWhenALeaseRanOut, AnswersLongAfterTheLifetimeOfTheToken,
    LetsOneOfManyConcurrentCallersTakeAnIssuedKey);

}  // namespace testing
}  // namespace v0
}  // namespace idempotency
