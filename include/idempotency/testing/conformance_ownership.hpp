#pragma once

// Who may write: the owner at its fence, as often as it likes; nobody else, however late.

#include "idempotency/testing/conformance_fixture.hpp"

namespace idempotency {
inline namespace v0 {
namespace testing {

// LK-07
TYPED_TEST_P(StoreConformance, GrantsARepeatedBeginTheSameTurnAgain) {
  auto first = this->owner();

  const BeginOutcome repeated = first.begin();

  EXPECT_EQ(repeated, acquired(1, 1));
  EXPECT_EQ(this->record().attempt, 1U);
}

TYPED_TEST_P(StoreConformance, CountsTheLeaseOfARepeatedBeginAnew) {
  auto first = this->owner({.lease = this->short_lease});
  this->advance(this->short_lease / 2);
  ASSERT_EQ(first.begin(), acquired(1, 1));

  this->advance(this->short_lease / 2 + this->tolerance);

  EXPECT_TRUE(is<InProgress>(this->caller().begin()));
}

TYPED_TEST_P(StoreConformance, StoresARepeatedCompletionAndKeepsTheFirstResult) {
  auto first = this->owner();
  ASSERT_EQ(first.complete("first"), WriteOutcome::stored);

  EXPECT_EQ(first.complete("first"), WriteOutcome::stored);
  EXPECT_EQ(first.complete("another"), WriteOutcome::stored);

  EXPECT_TRUE(replays(this->caller().begin(), "first"));
  EXPECT_EQ(this->record().result, "first");
}

TYPED_TEST_P(StoreConformance, StoresRepeatedFailuresAndKeepsTheFirst) {
  auto for_good = this->owner({.key = this->key("for-good")});
  auto to_retry = this->owner({.key = this->key("to-retry")});
  ASSERT_EQ(for_good.fail(permanent_failure("first")), WriteOutcome::stored);
  ASSERT_EQ(to_retry.fail(retryable_failure("first")), WriteOutcome::stored);

  EXPECT_EQ(for_good.fail(permanent_failure("again")), WriteOutcome::stored);
  EXPECT_EQ(to_retry.fail(retryable_failure("again")), WriteOutcome::stored);

  EXPECT_EQ(this->record(for_good.key()).failure, permanent_failure("first"));
  EXPECT_EQ(this->record(to_retry.key()).failure, retryable_failure("first"));
}

TYPED_TEST_P(StoreConformance, StoresARepeatedReleaseDoubtMarkAndRenewal) {
  auto released = this->owner({.key = this->key("released")});
  auto doubted = this->owner({.key = this->key("doubted")});
  auto running = this->owner({.key = this->key("running")});

  EXPECT_EQ(released.release(), ReleaseOutcome::released);
  EXPECT_EQ(released.release(), ReleaseOutcome::released);
  EXPECT_EQ(doubted.doubt(), WriteOutcome::stored);
  EXPECT_EQ(doubted.doubt(), WriteOutcome::stored);
  EXPECT_EQ(running.mark_effect(), WriteOutcome::stored);
  EXPECT_EQ(running.mark_effect(), WriteOutcome::stored);
  EXPECT_EQ(running.renew(), WriteOutcome::stored);
  EXPECT_EQ(running.renew(), WriteOutcome::stored);

  EXPECT_EQ(this->record(released.key()).state, RecordState::failed);
  EXPECT_EQ(this->record(doubted.key()).state, RecordState::uncertain);
  EXPECT_EQ(this->record(running.key()).state, RecordState::processing);
}

// ID-29
TYPED_TEST_P(StoreConformance, RefusesEveryWriteOfAnOwnerThatWasReplaced) {
  auto stalled = this->owner({.lease = this->short_lease});
  this->advance(this->short_lease + this->tolerance);
  auto next = this->owner();

  EXPECT_EQ(stalled.complete("of the stalled"), WriteOutcome::lost);
  EXPECT_EQ(stalled.fail(permanent_failure()), WriteOutcome::lost);
  EXPECT_EQ(stalled.fail(retryable_failure()), WriteOutcome::lost);
  EXPECT_EQ(stalled.doubt(), WriteOutcome::lost);
  EXPECT_EQ(stalled.mark_effect(), WriteOutcome::lost);
  EXPECT_EQ(stalled.renew(), WriteOutcome::lost);
  EXPECT_EQ(stalled.release(), ReleaseOutcome::lost);

  EXPECT_EQ(this->record().ownership, next.by());
  EXPECT_FALSE(this->record().effect_marked);
  EXPECT_EQ(next.complete("of the next"), WriteOutcome::stored);
  EXPECT_EQ(stalled.complete("of the stalled"), WriteOutcome::lost);
  EXPECT_EQ(stalled.fail(permanent_failure()), WriteOutcome::lost);
  EXPECT_TRUE(replays(this->caller().begin(), "of the next"));
}

// LK-09
TYPED_TEST_P(StoreConformance, DoesNotGiveALeaseBackToALateHeartbeat) {
  auto stalled = this->owner({.lease = this->short_lease});
  this->advance(this->short_lease + this->tolerance);
  auto next = this->owner({.lease = this->short_lease});

  ASSERT_EQ(stalled.renew(std::chrono::hours{10}), WriteOutcome::lost);
  this->advance(this->short_lease + this->tolerance);

  EXPECT_EQ(this->caller().begin(), acquired(3, 3));
}

// LK-11
TYPED_TEST_P(StoreConformance, RefusesEveryWriteAtAnotherFence) {
  auto first = this->owner();
  for (const std::uint64_t fence : {std::uint64_t{0}, std::uint64_t{2}, ~std::uint64_t{0}}) {
    auto wrong = first;
    wrong.pretend_fence(fence);

    EXPECT_EQ(wrong.complete(), WriteOutcome::lost) << "fence " << fence;
    EXPECT_EQ(wrong.fail(permanent_failure()), WriteOutcome::lost) << "fence " << fence;
    EXPECT_EQ(wrong.doubt(), WriteOutcome::lost) << "fence " << fence;
    EXPECT_EQ(wrong.mark_effect(), WriteOutcome::lost) << "fence " << fence;
    EXPECT_EQ(wrong.renew(), WriteOutcome::lost) << "fence " << fence;
    EXPECT_EQ(wrong.release(), ReleaseOutcome::lost) << "fence " << fence;
  }
  EXPECT_EQ(this->record().state, RecordState::processing);
  EXPECT_EQ(first.complete(), WriteOutcome::stored);
}

// ID-04, LK-22: a duplicate that cleans up after itself must not touch the original's record.
TYPED_TEST_P(StoreConformance, RefusesEveryWriteOfADuplicate) {
  auto first = this->owner();
  auto duplicate = this->caller();
  ASSERT_TRUE(is<InProgress>(duplicate.begin()));
  duplicate.pretend_fence(first.by().fence);

  EXPECT_EQ(duplicate.release(), ReleaseOutcome::lost);
  EXPECT_EQ(duplicate.complete("of the duplicate"), WriteOutcome::lost);
  EXPECT_EQ(duplicate.fail(permanent_failure()), WriteOutcome::lost);
  EXPECT_EQ(duplicate.fail(retryable_failure()), WriteOutcome::lost);
  EXPECT_EQ(duplicate.doubt(), WriteOutcome::lost);
  EXPECT_EQ(duplicate.mark_effect(), WriteOutcome::lost);
  EXPECT_EQ(duplicate.renew(), WriteOutcome::lost);

  EXPECT_EQ(this->record().ownership, first.by());
  EXPECT_FALSE(this->record().effect_marked);
  EXPECT_TRUE(is<InProgress>(this->caller().begin()));
  EXPECT_EQ(first.complete("of the first"), WriteOutcome::stored);
}

TYPED_TEST_P(StoreConformance, LetsNobodyElseSettleADoubt) {
  auto first = this->owner();
  ASSERT_EQ(first.doubt(), WriteOutcome::stored);
  auto stranger = this->caller();
  ASSERT_TRUE(is<Uncertain>(stranger.begin()));
  stranger.pretend_fence(first.by().fence);

  EXPECT_EQ(stranger.complete(), WriteOutcome::lost);
  EXPECT_EQ(stranger.fail(permanent_failure()), WriteOutcome::lost);
  EXPECT_EQ(stranger.fail(retryable_failure()), WriteOutcome::lost);
  EXPECT_EQ(stranger.release(), ReleaseOutcome::lost);

  EXPECT_EQ(this->record().state, RecordState::uncertain);
}

TYPED_TEST_P(StoreConformance, RefusesWritesToAKeyThatNobodyHasUsedAndCreatesNothing) {
  auto nobody = this->caller();
  nobody.pretend_fence(1);

  EXPECT_EQ(nobody.complete(), WriteOutcome::lost);
  EXPECT_EQ(nobody.fail(permanent_failure()), WriteOutcome::lost);
  EXPECT_EQ(nobody.doubt(), WriteOutcome::lost);
  EXPECT_EQ(nobody.mark_effect(), WriteOutcome::lost);
  EXPECT_EQ(nobody.renew(), WriteOutcome::lost);
  EXPECT_EQ(nobody.release(), ReleaseOutcome::lost);

  EXPECT_FALSE(this->find());
  EXPECT_EQ(this->caller().begin(), acquired(1, 1));
}

TYPED_TEST_P(StoreConformance, ChangesNoFinishedRecordNotEvenForItsOwner) {
  auto succeeded = this->owner({.key = this->key("succeeded")});
  auto failed = this->owner({.key = this->key("failed")});
  ASSERT_EQ(succeeded.complete("result"), WriteOutcome::stored);
  ASSERT_EQ(failed.fail(permanent_failure("declined")), WriteOutcome::stored);

  EXPECT_EQ(succeeded.fail(permanent_failure()), WriteOutcome::lost);
  EXPECT_EQ(failed.complete("late"), WriteOutcome::lost);
  for (auto* call : {&succeeded, &failed}) {
    EXPECT_EQ(call->fail(retryable_failure()), WriteOutcome::lost);
    EXPECT_EQ(call->doubt(), WriteOutcome::lost);
    EXPECT_EQ(call->mark_effect(), WriteOutcome::lost);
    EXPECT_EQ(call->renew(), WriteOutcome::lost);
    EXPECT_EQ(call->release(), ReleaseOutcome::lost);
  }

  EXPECT_TRUE(replays(this->caller({.key = succeeded.key()}).begin(), "result"));
  EXPECT_TRUE(replays(this->caller({.key = failed.key()}).begin(), permanent_failure("declined")));
}

TYPED_TEST_P(StoreConformance, LetsNoLateWriteReopenAReleasedRecord) {
  auto first = this->owner();
  ASSERT_EQ(first.fail(retryable_failure("gave up")), WriteOutcome::stored);

  EXPECT_EQ(first.complete("late"), WriteOutcome::lost);
  EXPECT_EQ(first.fail(permanent_failure()), WriteOutcome::lost);
  EXPECT_EQ(first.doubt(), WriteOutcome::lost);
  EXPECT_EQ(first.mark_effect(), WriteOutcome::lost);
  EXPECT_EQ(first.renew(), WriteOutcome::lost);

  EXPECT_EQ(this->record().failure, retryable_failure("gave up"));
  EXPECT_EQ(this->caller().begin(), acquired(2, 2));
}

TYPED_TEST_P(StoreConformance, RefusesWritesThatAnUncertainRecordDoesNotAllow) {
  auto first = this->owner();
  ASSERT_EQ(first.doubt(), WriteOutcome::stored);

  EXPECT_EQ(first.renew(), WriteOutcome::lost);
  EXPECT_EQ(first.mark_effect(), WriteOutcome::lost);
  EXPECT_EQ(first.release(), ReleaseOutcome::lost);

  EXPECT_EQ(this->record().state, RecordState::uncertain);
}

TYPED_TEST_P(StoreConformance, RefusesWritesOfAnEarlierLife) {
  auto first = this->owner();
  ASSERT_EQ(first.complete("old", this->short_lease), WriteOutcome::stored);
  this->advance(this->short_lease + this->tolerance);

  EXPECT_EQ(first.complete("old"), WriteOutcome::lost);
  EXPECT_EQ(first.renew(), WriteOutcome::lost);
  EXPECT_FALSE(this->find());

  auto second = this->owner();
  EXPECT_EQ(first.complete("old"), WriteOutcome::lost);
  EXPECT_EQ(second.complete("new"), WriteOutcome::stored);
  EXPECT_TRUE(replays(this->caller().begin(), "new"));
}

TYPED_TEST_P(StoreConformance, StartsNothingForALateCopyOfBegin) {
  auto ended = this->owner({.lease = this->short_lease});
  ASSERT_EQ(ended.fail(retryable_failure()), WriteOutcome::stored);
  auto copy = ended;
  ASSERT_TRUE(is<Failed>(copy.begin()));

  auto second = this->owner();
  EXPECT_TRUE(is<InProgress>(copy.begin()));
  ASSERT_EQ(second.complete("of the second"), WriteOutcome::stored);
  EXPECT_TRUE(replays(copy.begin(), "of the second"));

  EXPECT_EQ(this->record().attempt, 2U);
}

TYPED_TEST_P(StoreConformance, LetsAnOwnerGoOnWhoseLeaseRanOutUnnoticed) {
  auto begins_again = this->owner({.key = this->key("begins"), .lease = this->short_lease});
  auto renews = this->owner({.key = this->key("renews"), .lease = this->short_lease});
  auto completes = this->owner({.key = this->key("completes"), .lease = this->short_lease});
  this->advance(this->short_lease + this->tolerance);

  EXPECT_EQ(begins_again.begin(), acquired(1, 1));
  EXPECT_EQ(renews.renew(), WriteOutcome::stored);
  EXPECT_EQ(completes.complete("just in time"), WriteOutcome::stored);

  EXPECT_TRUE(is<InProgress>(this->caller({.key = renews.key()}).begin()));
  EXPECT_TRUE(replays(this->caller({.key = completes.key()}).begin(), "just in time"));
}

TYPED_TEST_P(StoreConformance, TellsAReleaseOfTheOwnerFromOneOfAStranger) {
  auto first = this->owner();

  EXPECT_EQ(first.release(), ReleaseOutcome::released);
  EXPECT_EQ(this->caller().release(), ReleaseOutcome::lost);
}

TYPED_TEST_P(StoreConformance, SharesItsRecordsWithASecondHandle) {
  auto here = this->owner();
  auto there = this->caller_of(this->other_store());

  EXPECT_TRUE(is<InProgress>(there.begin()));
  ASSERT_EQ(here.complete("from here"), WriteOutcome::stored);
  EXPECT_TRUE(replays(there.begin(), "from here"));
  const std::optional<Record> seen = this->other_store().find(here.key());
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->result, "from here");
}

TYPED_TEST_P(StoreConformance, HandsATurnFromOneHandleToAnother) {
  auto here = this->owner({.lease = this->short_lease});
  this->advance(this->short_lease + this->tolerance);
  auto there = this->caller_of(this->other_store());

  ASSERT_EQ(there.begin(), acquired(2, 2));

  EXPECT_EQ(here.complete("of the stalled"), WriteOutcome::lost);
  EXPECT_EQ(there.complete("of the next"), WriteOutcome::stored);
  EXPECT_TRUE(replays(this->caller().begin(), "of the next"));
}

}  // namespace testing
}  // namespace v0
}  // namespace idempotency
