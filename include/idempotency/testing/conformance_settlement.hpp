#pragma once

// What reconcilers rely on: a record is settled as it was seen, or not at all.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "idempotency/testing/conformance_admin.hpp"

namespace idempotency {
inline namespace v0 {
namespace testing {

/// `AdminStore::resolve`: what an operator may settle, and what a settlement means for everybody else.
template <class FixtureT>
class SettlementConformance : public AdminStoreConformance<FixtureT> {
 protected:
  using Verdict = Resolution::Verdict;
  static constexpr Verdict verdicts[] = {Verdict::succeeded, Verdict::failed, Verdict::retry};

  /// An owner whose lease has run out and whom nobody has missed yet.
  [[nodiscard]] auto silent(CallerOptions options = {}) {
    options.lease = this->short_lease;
    auto call = this->owner(options);
    this->advance(this->short_lease + this->tolerance);
    return call;
  }
  /// Whether none of the verdicts moves the record: what was seen is not what there is now.
  [[nodiscard]] ::testing::AssertionResult refuses_to_settle(const Record& seen) {
    const std::optional<Record> before = this->store().find(seen.key);
    for (const Verdict verdict : verdicts) {
      if (this->store().resolve(seen, this->resolution(verdict)) == WriteOutcome::lost) continue;
      return ::testing::AssertionFailure() << "a resolution was stored";
    }
    const std::optional<Record> after = this->store().find(seen.key);
    if (before.has_value() != after.has_value()) {
      return ::testing::AssertionFailure() << "a refused resolution made or removed a record";
    }
    if (!before) return ::testing::AssertionSuccess();
    if (before->state == after->state && before->ownership == after->ownership) {
      return ::testing::AssertionSuccess();
    }
    return ::testing::AssertionFailure() << "a refused resolution changed the record";
  }
};

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
    auto stalled = this->silent({.key = key, .mode = mode});

    const WriteOutcome outcome =
        this->settle(key, this->resolution(Resolution::Verdict::succeeded));

    EXPECT_EQ(outcome, WriteOutcome::stored) << to_string(mode);
    EXPECT_EQ(stalled.complete("late"), WriteOutcome::lost) << to_string(mode);
    EXPECT_TRUE(replays(this->caller({.key = key}).begin(), "found out")) << to_string(mode);
  }
}

TYPED_TEST_P(SettlementConformance, SettlesWhatWasListed) {
  auto doubted = this->uncertain({.key = this->key("doubted")});
  auto stalled = this->silent({.key = this->key("stalled")});
  const RecordPage page = this->store().list({.type = this->type()}, "", 10);
  ASSERT_EQ(page.records.size(), 2U);

  for (const Record& seen : page.records) {
    const Resolution resolution = this->resolution(Resolution::Verdict::succeeded);
    EXPECT_EQ(this->store().resolve(seen, resolution), WriteOutcome::stored) << seen.key.text();
  }

  EXPECT_TRUE(replays(this->caller({.key = doubted.key()}).begin(), "found out"));
  EXPECT_TRUE(replays(this->caller({.key = stalled.key()}).begin(), "found out"));
}

// To ask what happened may take days, and questions of others in the meantime move nothing.
TYPED_TEST_P(SettlementConformance, SettlesHoweverLateWhatHasNotMoved) {
  auto doubted = this->uncertain({.key = this->key("doubted")});
  auto stalled = this->silent({.key = this->key("stalled")});
  const std::vector<Record> seen{this->record(doubted.key()), this->record(stalled.key())};

  ASSERT_TRUE(is<Uncertain>(this->caller({.key = doubted.key()}).begin()));
  this->advance(this->long_time);

  for (const Record& record : seen) {
    const Resolution resolution = this->resolution(Resolution::Verdict::retry);
    EXPECT_EQ(this->store().resolve(record, resolution), WriteOutcome::stored) << record.key.text();
  }
  EXPECT_EQ(this->caller({.key = doubted.key()}).begin(), acquired(3, 2));
  EXPECT_EQ(this->caller({.key = stalled.key()}).begin(), acquired(3, 2));
}

TYPED_TEST_P(SettlementConformance, RefusesToSettleALiveRecord) {
  auto running = this->owner();

  EXPECT_TRUE(this->refuses_to_settle(this->record()));

  EXPECT_EQ(this->record().ownership, running.by());
  EXPECT_EQ(running.complete(), WriteOutcome::stored);
}

// ID-01: without a hook of the fixture, the longest lease stands for the missing deadline.
TYPED_TEST_P(SettlementConformance, RefusesToSettleARunningRecordWithoutADeadline) {
  auto first = this->owner({.lease = std::chrono::milliseconds::max()});
  if constexpr (requires { this->fixture().remove_deadline(first.key()); }) {
    this->fixture().remove_deadline(first.key());
  }
  this->advance(this->long_time);

  EXPECT_TRUE(this->refuses_to_settle(this->record()));

  EXPECT_EQ(first.complete("still mine"), WriteOutcome::stored);
}

TYPED_TEST_P(SettlementConformance, RefusesToSettleAtAnotherFenceThanTheRecords) {
  auto first = this->uncertain();

  for (const std::uint64_t fence : {std::uint64_t{0}, std::uint64_t{2}, ~std::uint64_t{0}}) {
    Record seen = this->record();
    seen.ownership.fence = fence;
    EXPECT_TRUE(this->refuses_to_settle(seen)) << "fence " << fence;
  }

  EXPECT_EQ(this->record().state, RecordState::uncertain);
}

// The owner was only slow: it is at work again, at the fence that was seen, and may have had its effect since.
TYPED_TEST_P(SettlementConformance, RefusesToSettleWhatItsOwnerRenewedMeanwhile) {
  auto slow = this->silent({.mode = RecordMode::hold});
  const Record seen = this->record();
  ASSERT_EQ(slow.renew(this->short_lease), WriteOutcome::stored);
  EXPECT_TRUE(this->refuses_to_settle(seen)) << "while it runs";

  this->advance(this->short_lease + this->tolerance);

  EXPECT_TRUE(this->refuses_to_settle(seen)) << "when it is silent again";
  EXPECT_EQ(slow.complete("of the slow"), WriteOutcome::stored);
}

TYPED_TEST_P(SettlementConformance, RefusesToSettleWhatItsOwnerBeganAgainMeanwhile) {
  auto slow = this->silent({.mode = RecordMode::hold});
  const Record seen = this->record();
  ASSERT_EQ(slow.begin(), acquired(1, 1));

  this->advance(this->short_lease + this->tolerance);

  EXPECT_TRUE(this->refuses_to_settle(seen));
  EXPECT_EQ(slow.complete("of the slow"), WriteOutcome::stored);
}

TYPED_TEST_P(SettlementConformance, RefusesToSettleWhatItsOwnerMarkedMeanwhile) {
  auto slow = this->silent();
  const Record seen = this->record();

  ASSERT_EQ(slow.mark_effect(), WriteOutcome::stored);

  EXPECT_TRUE(this->refuses_to_settle(seen));
  EXPECT_EQ(slow.complete("of the slow"), WriteOutcome::stored);
}

TYPED_TEST_P(SettlementConformance, RefusesToSettleWhatBecameUncertainMeanwhile) {
  auto slow = this->silent({.mode = RecordMode::hold});
  const Record seen = this->record();

  ASSERT_EQ(slow.doubt(),
            WriteOutcome::stored);  // it came back, and its call to the bank ended unclearly

  EXPECT_TRUE(this->refuses_to_settle(seen));
  EXPECT_EQ(this->settle(this->key(), this->resolution(Resolution::Verdict::succeeded)),
            WriteOutcome::stored);
}

// Fences begin anew with each life, and a late copy of `begin` brings the same token too.
TYPED_TEST_P(SettlementConformance, RefusesToSettleTheNextLife) {
  auto first = this->uncertain();
  const Record seen = this->record();
  ASSERT_EQ(first.complete("known after all", this->short_lease), WriteOutcome::stored);
  this->advance(this->short_lease + this->tolerance);

  for (auto next : {first, this->caller()}) {
    ASSERT_EQ(next.begin(), acquired(1, 1));
    ASSERT_EQ(next.doubt(), WriteOutcome::stored);
    EXPECT_TRUE(this->refuses_to_settle(seen));
    ASSERT_EQ(next.complete("of the next life", this->short_lease), WriteOutcome::stored);
    this->advance(this->short_lease + this->tolerance);
  }
}

TYPED_TEST_P(SettlementConformance, RefusesToSettleWhatIsFinishedOrUnknown) {
  auto succeeded = this->uncertain({.key = this->key("succeeded")});
  auto failed = this->uncertain({.key = this->key("failed")});
  Record never_begun = this->record(failed.key());
  never_begun.key = this->key("unknown");
  const std::vector<Record> seen{this->record(succeeded.key()), this->record(failed.key()),
                                 never_begun};
  ASSERT_EQ(succeeded.complete("result"), WriteOutcome::stored);
  ASSERT_EQ(failed.fail(permanent_failure()), WriteOutcome::stored);

  for (const Record& record : seen) {
    EXPECT_TRUE(this->refuses_to_settle(record)) << record.key.text();
    if (const std::optional<Record> now = this->store().find(record.key)) {
      EXPECT_TRUE(this->refuses_to_settle(*now)) << record.key.text();
    }
  }

  EXPECT_TRUE(replays(this->caller({.key = succeeded.key()}).begin(), "result"));
  EXPECT_TRUE(replays(this->caller({.key = failed.key()}).begin(), permanent_failure()));
  EXPECT_FALSE(this->store().find(this->key("unknown")));
}

TYPED_TEST_P(SettlementConformance, RecognisesARepeatedSettlement) {
  for (const auto verdict : this->verdicts) {
    const std::string name = std::to_string(static_cast<int>(verdict));
    auto doubted = this->uncertain({.key = this->key("doubted-" + name)});
    auto stalled = this->silent({.key = this->key("stalled-" + name)});
    for (const Key& key : {doubted.key(), stalled.key()}) {
      const Record seen = this->record(key);
      const Resolution resolution = this->resolution(verdict);
      ASSERT_EQ(this->store().resolve(seen, resolution), WriteOutcome::stored);

      EXPECT_EQ(this->store().resolve(seen, resolution), WriteOutcome::stored);
      EXPECT_EQ(this->store().resolve(seen, this->resolution(verdict)), WriteOutcome::lost);

      EXPECT_EQ(this->record(key).ownership.fence, 2U);
    }
  }
}

// LK-22
TYPED_TEST_P(SettlementConformance, RefusesEveryWriteOfTheOwnerAfterASettlement) {
  for (const auto verdict : this->verdicts) {
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
    const bool doubted = round % 2 == 0;
    auto owner = doubted ? this->uncertain({.key = key}) : this->silent({.key = key});
    const Record seen = this->record(key);
    const Resolution resolution = this->resolution(Resolution::Verdict::succeeded);
    std::atomic<int> won{0};

    on_threads(2, [&](std::size_t index) {
      const auto of_owner = [&] {
        return doubted ? owner.complete("of the owner") : owner.renew();
      };
      const WriteOutcome outcome =
          index == 0 ? of_owner() : this->store().resolve(seen, resolution);
      if (outcome == WriteOutcome::stored) ++won;
    });

    ASSERT_EQ(won, 1) << "round " << round;
  }
}

REGISTER_TYPED_TEST_SUITE_P(
    SettlementConformance, SettlesAnUncertainRecordAsSucceeded,
    SettlesAnUncertainRecordAsFailedForGood, SettlesAnUncertainRecordForAnotherTry,
    SettlesAsSucceededWithoutAResult, SettlesARecordWhoseLeaseRanOut, SettlesWhatWasListed,
    SettlesHoweverLateWhatHasNotMoved, RefusesToSettleALiveRecord,
    RefusesToSettleARunningRecordWithoutADeadline, RefusesToSettleAtAnotherFenceThanTheRecords,
    RefusesToSettleWhatItsOwnerRenewedMeanwhile, RefusesToSettleWhatItsOwnerBeganAgainMeanwhile,
    RefusesToSettleWhatItsOwnerMarkedMeanwhile, RefusesToSettleWhatBecameUncertainMeanwhile,
    RefusesToSettleTheNextLife, RefusesToSettleWhatIsFinishedOrUnknown,
    RecognisesARepeatedSettlement, RefusesEveryWriteOfTheOwnerAfterASettlement,
    KeepsASettlementForItsRetention, LetsEitherTheOwnerOrTheResolverWin);

}  // namespace testing
}  // namespace v0
}  // namespace idempotency
