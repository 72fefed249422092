#pragma once

// Order of judgement: retention, then fingerprint, then state. A mismatch never replays and changes nothing.

#include "idempotency/testing/conformance_fixture.hpp"

namespace idempotency {
inline namespace v0 {
namespace testing {

[[nodiscard]] inline Fingerprint one_request() { return Fingerprint::of_bytes("100 cents"); }
[[nodiscard]] inline Fingerprint another_request() { return Fingerprint::of_bytes("200 cents"); }

[[nodiscard]] inline BeginOutcome mismatch(FingerprintMatch match, std::uint8_t stored_scheme = 1) {
  return Mismatch{match, stored_scheme};
}

// ID-07
TYPED_TEST_P(StoreConformance, RefusesAnotherRequestOnAFinishedRecord) {
  auto succeeded = this->owner({.key = this->key("succeeded"), .fingerprint = one_request()});
  auto failed = this->owner({.key = this->key("failed"), .fingerprint = one_request()});
  auto to_retry = this->owner({.key = this->key("to-retry"), .fingerprint = one_request()});
  ASSERT_EQ(succeeded.complete(), WriteOutcome::stored);
  ASSERT_EQ(failed.fail(permanent_failure()), WriteOutcome::stored);
  ASSERT_EQ(to_retry.fail(retryable_failure()), WriteOutcome::stored);

  for (auto* call : {&succeeded, &failed, &to_retry}) {
    auto misuse = this->caller({.key = call->key(), .fingerprint = another_request()});
    EXPECT_EQ(misuse.begin(), mismatch(FingerprintMatch::different)) << call->key().text();
    EXPECT_EQ(misuse.begin(), mismatch(FingerprintMatch::different)) << call->key().text();
  }
  EXPECT_TRUE(
      is<Completed>(this->caller({.key = succeeded.key(), .fingerprint = one_request()}).begin()));
}

// ID-17
TYPED_TEST_P(StoreConformance, RefusesAnotherRequestOnAnUnfinishedRecord) {
  auto running = this->owner({.key = this->key("running"), .fingerprint = one_request()});
  auto doubted = this->owner({.key = this->key("doubted"), .fingerprint = one_request()});
  ASSERT_EQ(doubted.doubt(), WriteOutcome::stored);

  for (auto* call : {&running, &doubted}) {
    auto misuse = this->caller({.key = call->key(), .fingerprint = another_request()});
    EXPECT_EQ(misuse.begin(), mismatch(FingerprintMatch::different)) << call->key().text();
  }
}

TYPED_TEST_P(StoreConformance, ChangesNothingForAMismatch) {
  auto stalled = this->owner({.lease = this->short_lease, .fingerprint = one_request()});
  this->advance(this->short_lease + this->tolerance);

  const BeginOutcome outcome = this->caller({.fingerprint = another_request()}).begin();

  EXPECT_EQ(outcome, mismatch(FingerprintMatch::different));
  EXPECT_EQ(this->record().ownership, stalled.by());
  EXPECT_EQ(this->record().fingerprint, one_request().current());
  EXPECT_EQ(stalled.complete(), WriteOutcome::stored);
}

TYPED_TEST_P(StoreConformance, JudgesTheRetentionBeforeTheFingerprint) {
  auto first = this->owner({.fingerprint = one_request()});
  ASSERT_EQ(first.complete("old", this->short_lease), WriteOutcome::stored);
  this->advance(this->short_lease + this->tolerance);

  const BeginOutcome outcome = this->caller({.fingerprint = another_request()}).begin();

  EXPECT_EQ(outcome, acquired(1, 1));
}

TYPED_TEST_P(StoreConformance, ComparesTheFingerprintOfTheOwnerToo) {
  auto first = this->owner({.fingerprint = one_request()});
  first.request().fingerprint = another_request();

  const BeginOutcome outcome = first.begin();

  EXPECT_EQ(outcome, mismatch(FingerprintMatch::different));
}

TYPED_TEST_P(StoreConformance, ComparesNothingWhenEitherSideHasNoFingerprint) {
  auto with = this->owner({.key = this->key("with"), .fingerprint = one_request()});
  auto without = this->owner({.key = this->key("without")});
  ASSERT_EQ(with.complete("with"), WriteOutcome::stored);
  ASSERT_EQ(without.complete("without"), WriteOutcome::stored);

  EXPECT_TRUE(replays(this->caller({.key = with.key()}).begin(), "with"));
  EXPECT_TRUE(replays(this->caller({.key = without.key(), .fingerprint = one_request()}).begin(),
                      "without"));
}

TYPED_TEST_P(StoreConformance, KeepsTheFingerprintThroughEveryChange) {
  auto first = this->owner({.lease = this->short_lease, .fingerprint = one_request()});
  this->advance(this->short_lease + this->tolerance);
  auto second = this->owner({.fingerprint = one_request()});
  ASSERT_EQ(second.renew(), WriteOutcome::stored);
  ASSERT_EQ(second.mark_effect(), WriteOutcome::stored);
  ASSERT_EQ(second.doubt(), WriteOutcome::stored);
  EXPECT_EQ(this->record().fingerprint, one_request().current());
  ASSERT_EQ(second.complete(), WriteOutcome::stored);

  EXPECT_EQ(this->record().fingerprint, one_request().current());
  EXPECT_EQ(this->caller({.fingerprint = another_request()}).begin(),
            mismatch(FingerprintMatch::different));
}

TYPED_TEST_P(StoreConformance, TellsTheRecordsFingerprintWithItsAnswer) {
  auto succeeded = this->owner({.key = this->key("succeeded"), .fingerprint = one_request()});
  auto failed = this->owner({.key = this->key("failed"), .fingerprint = one_request()});
  ASSERT_EQ(succeeded.complete(), WriteOutcome::stored);
  ASSERT_EQ(failed.fail(permanent_failure()), WriteOutcome::stored);

  const BeginOutcome completed = this->caller({.key = succeeded.key()}).begin();
  const BeginOutcome refused = this->caller({.key = failed.key()}).begin();

  ASSERT_TRUE(is<Completed>(completed));
  ASSERT_TRUE(is<Failed>(refused));
  EXPECT_EQ(std::get<Completed>(completed).fingerprint, one_request().current());
  EXPECT_EQ(std::get<Failed>(refused).fingerprint, one_request().current());
  EXPECT_EQ(std::get<Completed>(completed).fence, 1U);
  EXPECT_EQ(std::get<Failed>(refused).fence, 1U);
}

// KF-03
TYPED_TEST_P(StoreConformance, RefusesToCompareAnUnknownScheme) {
  auto first = this->owner({.fingerprint = one_request().as_scheme(7)});
  ASSERT_EQ(first.complete(), WriteOutcome::stored);

  const BeginOutcome outcome = this->caller({.fingerprint = one_request().as_scheme(8)}).begin();

  EXPECT_EQ(outcome, mismatch(FingerprintMatch::not_comparable, 7));
}

// KF-03
TYPED_TEST_P(StoreConformance, ComparesUnderTheSchemeOfTheRecord) {
  auto first = this->owner({.fingerprint = one_request()});
  ASSERT_EQ(first.complete("by the older program"), WriteOutcome::stored);
  const Fingerprint newer = Fingerprint::of(100, "EUR").as_scheme(2);

  const BeginOutcome same = this->caller({.fingerprint = newer.or_earlier(one_request())}).begin();
  const BeginOutcome different =
      this->caller({.fingerprint = newer.or_earlier(another_request())}).begin();

  EXPECT_TRUE(replays(same, "by the older program"));
  EXPECT_EQ(different, mismatch(FingerprintMatch::different));
}

TYPED_TEST_P(StoreConformance, StoresTheFingerprintUnderTheCurrentScheme) {
  const Fingerprint newer = Fingerprint::of(100, "EUR").as_scheme(200);

  auto first = this->owner({.fingerprint = newer.or_earlier(one_request())});

  EXPECT_EQ(this->record().fingerprint, newer.current());
}

}  // namespace testing
}  // namespace v0
}  // namespace idempotency
