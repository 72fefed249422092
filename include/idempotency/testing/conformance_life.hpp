#pragma once

// The arrows of a record's life: which call leads from which state to which.

#include "idempotency/testing/conformance_fixture.hpp"

namespace idempotency {
inline namespace v0 {
namespace testing {

TYPED_TEST_P(StoreConformance, LetsTheFirstCallerIn) {
  auto first = this->caller();

  const BeginOutcome outcome = first.begin();

  EXPECT_EQ(outcome, acquired(1, 1));
  EXPECT_EQ(this->record().state, RecordState::processing);
}

TYPED_TEST_P(StoreConformance, KnowsNothingOfAKeyThatNobodyHasUsed) {
  const auto elsewhere = this->owner({.key = this->key("order-2")});

  EXPECT_FALSE(this->find());
}

TYPED_TEST_P(StoreConformance, RefusesADuplicateWhileTheLeaseRuns) {
  auto first = this->owner();
  auto second = this->caller();

  const BeginOutcome outcome = second.begin();

  EXPECT_TRUE(is<InProgress>(outcome));
  EXPECT_EQ(this->record().ownership, first.by());
}

TYPED_TEST_P(StoreConformance, ReplaysTheResultToOthersAndToTheOwner) {
  auto first = this->owner();
  ASSERT_EQ(first.complete("charge-1"), WriteOutcome::stored);

  auto second = this->caller();

  EXPECT_TRUE(replays(second.begin(), "charge-1"));
  EXPECT_TRUE(replays(second.begin(), "charge-1"));
  EXPECT_TRUE(replays(first.begin(), "charge-1"));
  EXPECT_EQ(this->record().state, RecordState::success);
}

TYPED_TEST_P(StoreConformance, ReplaysAPermanentFailure) {
  auto first = this->owner();
  ASSERT_EQ(first.fail(permanent_failure("card declined")), WriteOutcome::stored);

  EXPECT_TRUE(replays(this->caller().begin(), permanent_failure("card declined")));
  EXPECT_TRUE(replays(first.begin(), permanent_failure("card declined")));
  EXPECT_EQ(this->record().state, RecordState::failed);
}

TYPED_TEST_P(StoreConformance, LetsTheNextCallerInAfterARetryableFailure) {
  auto first = this->owner();
  ASSERT_EQ(first.fail(retryable_failure()), WriteOutcome::stored);
  auto second = this->caller();

  const BeginOutcome outcome = second.begin();

  EXPECT_EQ(outcome, acquired(2, 2));
  EXPECT_EQ(second.complete("second"), WriteOutcome::stored);
  EXPECT_TRUE(replays(this->caller().begin(), "second"));
}

TYPED_TEST_P(StoreConformance, TellsTheCallThatFailedOfItsFailureInsteadOfStartingItAgain) {
  auto first = this->owner();
  ASSERT_EQ(first.fail(retryable_failure("timed out at the bank")), WriteOutcome::stored);

  const BeginOutcome late_copy = first.begin();

  EXPECT_TRUE(replays(late_copy, retryable_failure("timed out at the bank")));
  EXPECT_EQ(this->record().state, RecordState::failed);
  EXPECT_EQ(this->record().attempt, 1U);
}

TYPED_TEST_P(StoreConformance, LetsTheNextCallerInAfterARelease) {
  auto first = this->owner();

  const ReleaseOutcome released = first.release();

  EXPECT_EQ(released, ReleaseOutcome::released);
  const Record record = this->record();
  EXPECT_EQ(record.state, RecordState::failed);
  EXPECT_EQ(record.failure, retryable_failure(""));
  EXPECT_TRUE(is<Failed>(first.begin()));
  EXPECT_EQ(this->caller().begin(), acquired(2, 2));
}

TYPED_TEST_P(StoreConformance, BlocksEverybodyWhileTheOutcomeIsUncertain) {
  auto first = this->owner({.lease = this->short_lease});
  ASSERT_EQ(first.doubt(), WriteOutcome::stored);

  const BeginOutcome of_another = this->caller().begin();
  const BeginOutcome of_the_owner = first.begin();
  this->advance(this->short_lease + this->tolerance);
  const BeginOutcome after_the_lease = this->caller().begin();

  for (const BeginOutcome& outcome : {of_another, of_the_owner, after_the_lease}) {
    ASSERT_TRUE(is<Uncertain>(outcome));
    EXPECT_EQ(std::get<Uncertain>(outcome).fence, 1U);
  }
  EXPECT_EQ(this->record().state, RecordState::uncertain);
}

TYPED_TEST_P(StoreConformance, TellsSinceWhenTheOutcomeIsUncertain) {
  auto first = this->owner();
  this->advance(this->short_lease);
  ASSERT_EQ(first.doubt(), WriteOutcome::stored);
  const Record record = this->record();
  this->advance(this->short_lease);

  const BeginOutcome outcome = this->caller().begin();

  ASSERT_TRUE(is<Uncertain>(outcome));
  EXPECT_EQ(std::get<Uncertain>(outcome).since, record.updated_at);
  EXPECT_GE(record.updated_at - record.created_at, this->short_lease - this->tolerance);
}

TYPED_TEST_P(StoreConformance, HandsOverWhenALeaseRanOutUnderTakeOver) {
  auto first = this->owner({.mode = RecordMode::take_over, .lease = this->short_lease});
  this->advance(this->short_lease + this->tolerance);
  auto second = this->caller();

  const BeginOutcome outcome = second.begin();

  EXPECT_EQ(outcome, acquired(2, 2));
  EXPECT_EQ(this->record().ownership, second.by());
  EXPECT_TRUE(is<InProgress>(this->caller().begin()));
}

TYPED_TEST_P(StoreConformance, BecomesUncertainWhenALeaseRanOutUnderHold) {
  auto first = this->owner({.mode = RecordMode::hold, .lease = this->short_lease});
  this->advance(this->short_lease + this->tolerance);

  const BeginOutcome outcome = this->caller({.mode = RecordMode::hold}).begin();

  ASSERT_TRUE(is<Uncertain>(outcome));
  EXPECT_EQ(std::get<Uncertain>(outcome).fence, 1U);
  EXPECT_EQ(this->record().state, RecordState::uncertain);
  EXPECT_EQ(this->record().ownership, first.by());
  EXPECT_TRUE(is<Uncertain>(this->caller().begin()));
}

TYPED_TEST_P(StoreConformance, ObeysTheRecordsHoldAndNotTheCallersMode) {
  auto first = this->owner({.mode = RecordMode::hold, .lease = this->short_lease});
  this->advance(this->short_lease + this->tolerance);

  const BeginOutcome outcome = this->caller({.mode = RecordMode::take_over}).begin();

  EXPECT_TRUE(is<Uncertain>(outcome));
}

TYPED_TEST_P(StoreConformance, ObeysTheRecordsTakeOverAndNotTheCallersMode) {
  auto first = this->owner({.mode = RecordMode::take_over, .lease = this->short_lease});
  this->advance(this->short_lease + this->tolerance);

  const BeginOutcome outcome = this->caller({.mode = RecordMode::hold}).begin();

  EXPECT_EQ(outcome, acquired(2, 2));
}

TYPED_TEST_P(StoreConformance, WritesTheModeOfEachNewOwnerIntoTheRecord) {
  auto first = this->owner({.mode = RecordMode::take_over, .lease = this->short_lease});
  this->advance(this->short_lease + this->tolerance);
  auto second = this->owner({.mode = RecordMode::hold, .lease = this->short_lease});
  ASSERT_EQ(this->record().mode, RecordMode::hold);
  this->advance(this->short_lease + this->tolerance);

  const BeginOutcome outcome = this->caller({.mode = RecordMode::take_over}).begin();

  EXPECT_TRUE(is<Uncertain>(outcome));
}

TYPED_TEST_P(StoreConformance, HoldsARecordWhoseEffectIsMarked) {
  auto first = this->owner({.mode = RecordMode::take_over, .lease = this->short_lease});
  ASSERT_EQ(first.mark_effect(), WriteOutcome::stored);
  ASSERT_TRUE(this->record().effect_marked);
  this->advance(this->short_lease + this->tolerance);

  const BeginOutcome outcome = this->caller({.mode = RecordMode::take_over}).begin();

  EXPECT_TRUE(is<Uncertain>(outcome));
}

TYPED_TEST_P(StoreConformance, KeepsTheEffectMarkThroughRenewalsAndRepeatedCalls) {
  auto first = this->owner({.mode = RecordMode::take_over, .lease = this->short_lease});
  ASSERT_EQ(first.mark_effect(), WriteOutcome::stored);
  ASSERT_EQ(first.renew(this->short_lease), WriteOutcome::stored);
  ASSERT_EQ(first.begin(), acquired(1, 1));
  this->advance(this->short_lease + this->tolerance);

  const BeginOutcome outcome = this->caller().begin();

  EXPECT_TRUE(is<Uncertain>(outcome));
}

TYPED_TEST_P(StoreConformance, DoesNotHandTheEffectMarkToTheNextOwner) {
  auto first = this->owner();
  ASSERT_EQ(first.mark_effect(), WriteOutcome::stored);
  ASSERT_EQ(first.fail(retryable_failure()), WriteOutcome::stored);
  auto second = this->owner({.lease = this->short_lease});
  EXPECT_FALSE(this->record().effect_marked);
  this->advance(this->short_lease + this->tolerance);

  const BeginOutcome outcome = this->caller().begin();

  EXPECT_EQ(outcome, acquired(3, 3));
}

TYPED_TEST_P(StoreConformance, LetsTheOwnerSettleItsOwnDoubt) {
  auto succeeded = this->owner({.key = this->key("succeeded")});
  auto failed = this->owner({.key = this->key("failed")});
  auto to_retry = this->owner({.key = this->key("to-retry")});
  for (auto* call : {&succeeded, &failed, &to_retry}) {
    ASSERT_EQ(call->doubt(), WriteOutcome::stored);
  }

  EXPECT_EQ(succeeded.complete("known after all"), WriteOutcome::stored);
  EXPECT_EQ(failed.fail(permanent_failure()), WriteOutcome::stored);
  EXPECT_EQ(to_retry.fail(retryable_failure()), WriteOutcome::stored);

  EXPECT_TRUE(replays(this->caller({.key = succeeded.key()}).begin(), "known after all"));
  EXPECT_TRUE(replays(this->caller({.key = failed.key()}).begin(), permanent_failure()));
  EXPECT_EQ(this->caller({.key = to_retry.key()}).begin(), acquired(2, 2));
}

TYPED_TEST_P(StoreConformance, BelievesALateOwnerUnderHold) {
  auto first = this->owner({.mode = RecordMode::hold, .lease = this->short_lease});
  this->advance(this->short_lease + this->tolerance);
  ASSERT_TRUE(is<Uncertain>(this->caller().begin()));

  const WriteOutcome late = first.complete("late, but true");

  EXPECT_EQ(late, WriteOutcome::stored);
  EXPECT_TRUE(replays(this->caller().begin(), "late, but true"));
}

TYPED_TEST_P(StoreConformance, RaisesFenceAndAttemptsWithEveryTurn) {
  for (std::uint32_t turn = 1; turn <= 5; ++turn) {
    auto call = this->caller({.lease = this->short_lease});

    ASSERT_EQ(call.begin(), acquired(turn, turn));

    if (turn % 2 == 0) {
      ASSERT_EQ(call.fail(retryable_failure()), WriteOutcome::stored);
    } else {
      this->advance(this->short_lease + this->tolerance);
    }
  }
  EXPECT_EQ(this->record().attempt, 5U);
  EXPECT_EQ(this->record().ownership.fence, 5U);
}

// A record that nobody has finished must not be forgotten: the next call would run as if it were the first.
TYPED_TEST_P(StoreConformance, NeverForgetsARunningRecord) {
  auto first = this->owner({.mode = RecordMode::take_over, .lease = this->short_lease});

  this->advance(this->long_time);

  EXPECT_EQ(this->record().state, RecordState::processing);
  EXPECT_EQ(this->caller().begin(), acquired(2, 2));
}

TYPED_TEST_P(StoreConformance, NeverForgetsAnUncertainRecord) {
  auto first = this->owner();
  ASSERT_EQ(first.doubt(), WriteOutcome::stored);

  this->advance(this->long_time);

  EXPECT_EQ(this->record().state, RecordState::uncertain);
  EXPECT_TRUE(is<Uncertain>(this->caller().begin()));
}

TYPED_TEST_P(StoreConformance, StartsANewLifeWhenTheRetentionIsOver) {
  const Fingerprint before = Fingerprint::of_bytes("100 cents");
  const Fingerprint after = Fingerprint::of_bytes("200 cents");
  auto first = this->owner({.fingerprint = before, .trace = "request-1"});
  ASSERT_EQ(first.fail(retryable_failure()), WriteOutcome::stored);
  auto second = this->owner({.fingerprint = before});
  ASSERT_EQ(second.complete("old", this->short_lease), WriteOutcome::stored);
  const Timestamp created_before = this->record().created_at;
  this->advance(this->short_lease + this->tolerance);
  auto third = this->caller({.fingerprint = after, .trace = "request-3"});

  const BeginOutcome outcome = third.begin();

  EXPECT_EQ(outcome, acquired(1, 1));
  const Record record = this->record();
  EXPECT_EQ(record.fingerprint, after.current());
  EXPECT_EQ(record.trace, "request-3");
  EXPECT_EQ(record.result, std::nullopt);
  EXPECT_GT(record.created_at, created_before);
}

// LK-20: no moment has a record without its deadline; begin writes both in one step.
TYPED_TEST_P(StoreConformance, ShowsWhatARunningRecordHolds) {
  const Fingerprint fingerprint = Fingerprint::of_bytes("100 cents");
  auto first = this->owner({.mode = RecordMode::hold,
                            .lease = this->short_lease,
                            .fingerprint = fingerprint,
                            .trace = "request-1"});

  const Record record = this->record();

  EXPECT_EQ(record.key, first.key());
  EXPECT_EQ(record.state, RecordState::processing);
  EXPECT_EQ(record.mode, RecordMode::hold);
  EXPECT_FALSE(record.effect_marked);
  EXPECT_EQ(record.ownership, first.by());
  EXPECT_EQ(record.attempt, 1U);
  EXPECT_EQ(record.fingerprint, fingerprint.current());
  EXPECT_EQ(record.updated_at, record.created_at);
  ASSERT_TRUE(record.lease_until);
  EXPECT_EQ(*record.lease_until - record.created_at, this->short_lease);
  EXPECT_EQ(record.expires_at, std::nullopt);
  EXPECT_EQ(record.result, std::nullopt);
  EXPECT_EQ(record.failure, std::nullopt);
  EXPECT_EQ(record.trace, "request-1");
}

TYPED_TEST_P(StoreConformance, ShowsWhatAFinishedRecordHolds) {
  using std::chrono::hours;
  auto first = this->owner({.trace = "request-1"});
  this->advance(this->short_lease);
  ASSERT_EQ(first.complete("charge-1", hours{2}), WriteOutcome::stored);

  const Record record = this->record();

  EXPECT_EQ(record.state, RecordState::success);
  EXPECT_EQ(record.ownership.fence, 1U);
  EXPECT_EQ(record.attempt, 1U);
  EXPECT_EQ(record.result, "charge-1");
  EXPECT_EQ(record.failure, std::nullopt);
  EXPECT_EQ(record.lease_until, std::nullopt);
  ASSERT_TRUE(record.expires_at);
  EXPECT_EQ(*record.expires_at - record.updated_at, hours{2});
  EXPECT_GE(record.updated_at - record.created_at, this->short_lease - this->tolerance);
  EXPECT_EQ(record.trace, "request-1");
}

}  // namespace testing
}  // namespace v0
}  // namespace idempotency
