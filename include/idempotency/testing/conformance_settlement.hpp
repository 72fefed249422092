#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "idempotency/testing/conformance_admin.hpp"

namespace idempotency {
inline namespace v0 {
namespace testing {

/// `AdminStore::resolve`: what an operator may settle, and what a settlement means for everybody else.
template <class FixtureT>
class SettlementConformance : public AdminStoreConformance<FixtureT> {};

TYPED_TEST_SUITE_P(SettlementConformance);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SettlementConformance);

TYPED_TEST_P(SettlementConformance, SettlesAnUncertainRecordAsSucceeded) {
  auto first = this->uncertain();

  const WriteOutcome outcome =
      this->settle(this->key(), this->resolution(Resolution::Verdict::succeeded));

  EXPECT_EQ(outcome, WriteOutcome::stored);
  EXPECT_TRUE(replays(this->caller().begin(), "found out"));
  EXPECT_EQ(this->record().ownership.fence, 2U);
}

TYPED_TEST_P(SettlementConformance, SettlesAnUncertainRecordAsFailedForGood) {
  auto first = this->uncertain();

  const WriteOutcome outcome =
      this->settle(this->key(), this->resolution(Resolution::Verdict::failed));

  EXPECT_EQ(outcome, WriteOutcome::stored);
  EXPECT_TRUE(replays(this->caller().begin(), permanent_failure("the bank never saw it")));
  EXPECT_EQ(this->record().ownership.fence, 2U);
}

TYPED_TEST_P(SettlementConformance, SettlesAnUncertainRecordForAnotherTry) {
  auto first = this->uncertain();

  const WriteOutcome outcome =
      this->settle(this->key(), this->resolution(Resolution::Verdict::retry));

  EXPECT_EQ(outcome, WriteOutcome::stored);
  EXPECT_EQ(this->record().state, RecordState::failed);
  EXPECT_EQ(this->caller().begin(), acquired(3, 2));
}

TYPED_TEST_P(SettlementConformance, SettlesAsSucceededWithoutAResult) {
  auto first = this->uncertain();
  Resolution resolution = this->resolution(Resolution::Verdict::succeeded);
  resolution.result.reset();

  ASSERT_EQ(this->settle(this->key(), resolution), WriteOutcome::stored);

  EXPECT_TRUE(replays(this->caller().begin(), std::nullopt));
}

TYPED_TEST_P(SettlementConformance, SettlesARecordWhoseLeaseRanOut) {
  for (const RecordMode mode : {RecordMode::take_over, RecordMode::hold}) {
    const Key key = this->key(to_string(mode));
    auto stalled = this->owner({.key = key, .mode = mode, .lease = this->short_lease});
    this->advance(this->short_lease + this->tolerance);

    const WriteOutcome outcome =
        this->settle(key, this->resolution(Resolution::Verdict::succeeded));

    EXPECT_EQ(outcome, WriteOutcome::stored) << to_string(mode);
    EXPECT_EQ(stalled.complete("late"), WriteOutcome::lost) << to_string(mode);
    EXPECT_TRUE(replays(this->caller({.key = key}).begin(), "found out")) << to_string(mode);
  }
}

TYPED_TEST_P(SettlementConformance, RefusesToSettleALiveRecord) {
  auto running = this->owner();

  for (const auto verdict :
       {Resolution::Verdict::succeeded, Resolution::Verdict::failed, Resolution::Verdict::retry}) {
    EXPECT_EQ(this->settle(this->key(), this->resolution(verdict)), WriteOutcome::lost);
  }

  EXPECT_EQ(this->record().ownership, running.by());
  EXPECT_EQ(running.complete(), WriteOutcome::stored);
}

TYPED_TEST_P(SettlementConformance, RefusesToSettleAtAnotherFenceThanTheRecords) {
  auto first = this->uncertain();
  Record seen = this->record();

  for (const std::uint64_t fence : {std::uint64_t{0}, std::uint64_t{2}, ~std::uint64_t{0}}) {
    seen.ownership.fence = fence;
    EXPECT_EQ(this->store().resolve(seen, this->resolution(Resolution::Verdict::succeeded)),
              WriteOutcome::lost)
        << "fence " << fence;
  }

  EXPECT_EQ(this->record().state, RecordState::uncertain);
}

TYPED_TEST_P(SettlementConformance, RefusesToSettleWhatIsFinishedOrUnknown) {
  auto succeeded = this->owner({.key = this->key("succeeded")});
  auto failed = this->owner({.key = this->key("failed")});
  ASSERT_EQ(succeeded.complete("result"), WriteOutcome::stored);
  ASSERT_EQ(failed.fail(permanent_failure()), WriteOutcome::stored);
  Record unknown = this->record(succeeded.key());
  unknown.key = this->key("unknown");

  for (const Record& seen : {this->record(succeeded.key()), this->record(failed.key()), unknown}) {
    EXPECT_EQ(this->store().resolve(seen, this->resolution(Resolution::Verdict::retry)),
              WriteOutcome::lost)
        << seen.key.text();
  }

  EXPECT_TRUE(replays(this->caller({.key = succeeded.key()}).begin(), "result"));
  EXPECT_TRUE(replays(this->caller({.key = failed.key()}).begin(), permanent_failure()));
  EXPECT_FALSE(this->store().find(this->key("unknown")));
}

// What the operator found out about the record it saw says nothing of what its owner did after it came back.
TYPED_TEST_P(SettlementConformance, RefusesToSettleWhatItsOwnerRenewedMeanwhile) {
  auto stalled = this->owner({.mode = RecordMode::hold, .lease = this->short_lease});
  this->advance(this->short_lease + this->tolerance);
  const Record seen = this->record();
  ASSERT_EQ(stalled.renew(this->short_lease), WriteOutcome::stored);
  this->advance(this->short_lease + this->tolerance);

  EXPECT_EQ(this->store().resolve(seen, this->resolution(Resolution::Verdict::retry)),
            WriteOutcome::lost);

  EXPECT_EQ(this->record().state, RecordState::processing);
  EXPECT_EQ(this->settle(this->key(), this->resolution(Resolution::Verdict::retry)),
            WriteOutcome::stored);
}

TYPED_TEST_P(SettlementConformance, RefusesToSettleWhatItsOwnerMarkedMeanwhile) {
  auto stalled = this->owner({.mode = RecordMode::take_over, .lease = this->short_lease});
  this->advance(this->short_lease + this->tolerance);
  const Record seen = this->record();
  ASSERT_EQ(stalled.mark_effect(), WriteOutcome::stored);

  EXPECT_EQ(this->store().resolve(seen, this->resolution(Resolution::Verdict::retry)),
            WriteOutcome::lost);

  EXPECT_EQ(this->record().state, RecordState::processing);
}

TYPED_TEST_P(SettlementConformance, RefusesToSettleWhatBecameUncertainMeanwhile) {
  auto stalled = this->owner({.mode = RecordMode::hold, .lease = this->short_lease});
  this->advance(this->short_lease + this->tolerance);
  const Record seen = this->record();
  ASSERT_EQ(stalled.doubt(), WriteOutcome::stored);

  EXPECT_EQ(this->store().resolve(seen, this->resolution(Resolution::Verdict::retry)),
            WriteOutcome::lost);

  EXPECT_EQ(this->record().state, RecordState::uncertain);
}

TYPED_TEST_P(SettlementConformance, RefusesToSettleTheNextLife) {
  auto first = this->uncertain();
  const Record seen = this->record();
  ASSERT_EQ(first.complete("late", this->short_lease), WriteOutcome::stored);
  this->advance(this->short_lease + this->tolerance);
  auto next = this->uncertain();
  ASSERT_EQ(this->record().ownership.fence, seen.ownership.fence);

  EXPECT_EQ(this->store().resolve(seen, this->resolution(Resolution::Verdict::retry)),
            WriteOutcome::lost);

  EXPECT_EQ(this->record().state, RecordState::uncertain);
}

TYPED_TEST_P(SettlementConformance, RecognisesARepeatedSettlement) {
  for (const auto verdict :
       {Resolution::Verdict::succeeded, Resolution::Verdict::failed, Resolution::Verdict::retry}) {
    const Key key = this->key(std::to_string(static_cast<int>(verdict)));
    auto first = this->uncertain({.key = key});
    const Record seen = this->record(key);
    const Resolution resolution = this->resolution(verdict);
    ASSERT_EQ(this->store().resolve(seen, resolution), WriteOutcome::stored);

    EXPECT_EQ(this->store().resolve(seen, resolution), WriteOutcome::stored);
    EXPECT_EQ(this->store().resolve(seen, this->resolution(verdict)), WriteOutcome::lost);

    EXPECT_EQ(this->record(key).ownership.fence, 2U);
  }
}

// LK-22
TYPED_TEST_P(SettlementConformance, RefusesEveryWriteOfTheOwnerAfterASettlement) {
  for (const auto verdict :
       {Resolution::Verdict::succeeded, Resolution::Verdict::failed, Resolution::Verdict::retry}) {
    const Key key = this->key(std::to_string(static_cast<int>(verdict)));
    auto late = this->uncertain({.key = key});
    ASSERT_EQ(this->settle(key, this->resolution(verdict)), WriteOutcome::stored);
    const RecordState settled = this->record(key).state;

    EXPECT_EQ(late.complete("late"), WriteOutcome::lost);
    EXPECT_EQ(late.fail(permanent_failure()), WriteOutcome::lost);
    EXPECT_EQ(late.fail(retryable_failure()), WriteOutcome::lost);
    EXPECT_EQ(late.doubt(), WriteOutcome::lost);
    EXPECT_EQ(late.renew(), WriteOutcome::lost);
    EXPECT_EQ(late.release(), ReleaseOutcome::lost);

    EXPECT_EQ(this->record(key).state, settled);
  }
}

TYPED_TEST_P(SettlementConformance, KeepsASettlementForItsRetention) {
  auto first = this->uncertain();
  Resolution resolution = this->resolution(Resolution::Verdict::succeeded);
  resolution.retention = this->short_lease;
  ASSERT_EQ(this->settle(this->key(), resolution), WriteOutcome::stored);

  if (this->advance_to_just_before(this->short_lease)) {
    EXPECT_TRUE(replays(this->caller().begin(), "found out"));
  }
  this->advance_over(this->short_lease);

  EXPECT_EQ(this->caller().begin(), acquired(1, 1));
}

TYPED_TEST_P(SettlementConformance, LetsEitherTheOwnerOrTheResolverWin) {
  for (int round = 0; round < concurrent_rounds; ++round) {
    const Key key = this->key(std::to_string(round));
    auto owner = this->uncertain({.key = key});
    const Record seen = this->record(key);
    const Resolution resolution = this->resolution(Resolution::Verdict::succeeded);
    std::atomic<int> won{0};

    on_threads(2, [&](std::size_t index) {
      const WriteOutcome outcome =
          index == 0 ? owner.complete("of the owner") : this->store().resolve(seen, resolution);
      if (outcome == WriteOutcome::stored) ++won;
    });

    ASSERT_EQ(won, 1) << "round " << round;
  }
}

REGISTER_TYPED_TEST_SUITE_P(
    SettlementConformance, SettlesAnUncertainRecordAsSucceeded,
    SettlesAnUncertainRecordAsFailedForGood, SettlesAnUncertainRecordForAnotherTry,
    SettlesAsSucceededWithoutAResult, SettlesARecordWhoseLeaseRanOut, RefusesToSettleALiveRecord,
    RefusesToSettleAtAnotherFenceThanTheRecords, RefusesToSettleWhatIsFinishedOrUnknown,
    RefusesToSettleWhatItsOwnerRenewedMeanwhile, RefusesToSettleWhatItsOwnerMarkedMeanwhile,
    RefusesToSettleWhatBecameUncertainMeanwhile, RefusesToSettleTheNextLife,
    RecognisesARepeatedSettlement, RefusesEveryWriteOfTheOwnerAfterASettlement,
    KeepsASettlementForItsRetention, LetsEitherTheOwnerOrTheResolverWin);

}  // namespace testing
}  // namespace v0
}  // namespace idempotency
