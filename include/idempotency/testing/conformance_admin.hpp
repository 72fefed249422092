#pragma once

// What operators and reconcilers rely on.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <set>
#include <vector>

#include "idempotency/testing/conformance_concurrency.hpp"
#include "idempotency/testing/conformance_fixture.hpp"

namespace idempotency {
inline namespace v0 {
namespace testing {

/// The rules of an `AdminStore`.
template <class FixtureT>
class AdminStoreConformance : public ConformanceTest<FixtureT> {
  static_assert(AdminStore<typename ConformanceTest<FixtureT>::StoreT>,
                "idempotency: AdminStoreConformance is for stores that satisfy "
                "idempotency::AdminStore.");

 protected:
  using Verdict = Resolution::Verdict;

  [[nodiscard]] static Resolution resolution(Verdict verdict) {
    return {.verdict = verdict,
            .result = verdict == Verdict::succeeded ? std::optional<std::string>("found out")
                                                    : std::nullopt,
            .reason = verdict == Verdict::failed ? "the bank never saw it" : "",
            .resolver = OwnerToken::generate()};
  }
  [[nodiscard]] auto uncertain(const CallerOptions& options = {}) {
    auto call = this->owner(options);
    EXPECT_EQ(call.doubt(), WriteOutcome::stored);
    return call;
  }
  /// The values of all keys of this test's type that the filter lets through, a page at a time.
  [[nodiscard]] std::vector<std::string> listed(RecordFilter filter, std::size_t limit) {
    constexpr int most_pages = 100;
    filter.type = this->type();
    std::vector<std::string> values;
    std::string cursor;
    for (int page_number = 0; page_number < most_pages; ++page_number) {
      const RecordPage page = this->store().list(filter, cursor, limit);
      EXPECT_LE(page.records.size(), limit);
      for (const Record& record : page.records)
        values.emplace_back(record.key.value());
      if (page.cursor.empty()) return values;
      cursor = page.cursor;
    }
    ADD_FAILURE() << "the listing does not end";
    return values;
  }
};

TYPED_TEST_SUITE_P(AdminStoreConformance);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(AdminStoreConformance);

TYPED_TEST_P(AdminStoreConformance, SettlesAnUncertainRecordAsSucceeded) {
  auto first = this->uncertain();

  const WriteOutcome outcome =
      this->store().resolve(this->key(), 1, this->resolution(Resolution::Verdict::succeeded));

  EXPECT_EQ(outcome, WriteOutcome::stored);
  EXPECT_TRUE(replays(this->caller().begin(), "found out"));
  EXPECT_EQ(this->record().ownership.fence, 2U);
}

TYPED_TEST_P(AdminStoreConformance, SettlesAnUncertainRecordAsFailedForGood) {
  auto first = this->uncertain();

  const WriteOutcome outcome =
      this->store().resolve(this->key(), 1, this->resolution(Resolution::Verdict::failed));

  EXPECT_EQ(outcome, WriteOutcome::stored);
  EXPECT_TRUE(replays(this->caller().begin(), permanent_failure("the bank never saw it")));
  EXPECT_EQ(this->record().ownership.fence, 2U);
}

TYPED_TEST_P(AdminStoreConformance, SettlesAnUncertainRecordForAnotherTry) {
  auto first = this->uncertain();

  const WriteOutcome outcome =
      this->store().resolve(this->key(), 1, this->resolution(Resolution::Verdict::retry));

  EXPECT_EQ(outcome, WriteOutcome::stored);
  EXPECT_EQ(this->record().state, RecordState::failed);
  EXPECT_EQ(this->caller().begin(), acquired(3, 2));
}

TYPED_TEST_P(AdminStoreConformance, SettlesAsSucceededWithoutAResult) {
  auto first = this->uncertain();
  Resolution resolution = this->resolution(Resolution::Verdict::succeeded);
  resolution.result.reset();

  ASSERT_EQ(this->store().resolve(this->key(), 1, resolution), WriteOutcome::stored);

  EXPECT_TRUE(replays(this->caller().begin(), std::nullopt));
}

TYPED_TEST_P(AdminStoreConformance, SettlesARecordWhoseLeaseRanOut) {
  for (const RecordMode mode : {RecordMode::take_over, RecordMode::hold}) {
    const Key key = this->key(to_string(mode));
    auto stalled = this->owner({.key = key, .mode = mode, .lease = this->short_lease});
    this->advance(this->short_lease + this->tolerance);

    const WriteOutcome outcome =
        this->store().resolve(key, 1, this->resolution(Resolution::Verdict::succeeded));

    EXPECT_EQ(outcome, WriteOutcome::stored) << to_string(mode);
    EXPECT_EQ(stalled.complete("late"), WriteOutcome::lost) << to_string(mode);
    EXPECT_TRUE(replays(this->caller({.key = key}).begin(), "found out")) << to_string(mode);
  }
}

TYPED_TEST_P(AdminStoreConformance, RefusesToSettleALiveRecord) {
  auto running = this->owner();

  for (const auto verdict :
       {Resolution::Verdict::succeeded, Resolution::Verdict::failed, Resolution::Verdict::retry}) {
    EXPECT_EQ(this->store().resolve(this->key(), 1, this->resolution(verdict)), WriteOutcome::lost);
  }

  EXPECT_EQ(this->record().ownership, running.by());
  EXPECT_EQ(running.complete(), WriteOutcome::stored);
}

TYPED_TEST_P(AdminStoreConformance, RefusesToSettleAtAnotherFenceThanTheRecords) {
  auto first = this->uncertain();

  for (const std::uint64_t fence : {std::uint64_t{0}, std::uint64_t{2}, ~std::uint64_t{0}}) {
    EXPECT_EQ(
        this->store().resolve(this->key(), fence, this->resolution(Resolution::Verdict::succeeded)),
        WriteOutcome::lost)
        << "fence " << fence;
  }

  EXPECT_EQ(this->record().state, RecordState::uncertain);
}

TYPED_TEST_P(AdminStoreConformance, RefusesToSettleWhatIsFinishedOrUnknown) {
  auto succeeded = this->owner({.key = this->key("succeeded")});
  auto failed = this->owner({.key = this->key("failed")});
  ASSERT_EQ(succeeded.complete("result"), WriteOutcome::stored);
  ASSERT_EQ(failed.fail(permanent_failure()), WriteOutcome::stored);

  for (const Key& key : {succeeded.key(), failed.key(), this->key("unknown")}) {
    EXPECT_EQ(this->store().resolve(key, 1, this->resolution(Resolution::Verdict::retry)),
              WriteOutcome::lost)
        << key.text();
  }

  EXPECT_TRUE(replays(this->caller({.key = succeeded.key()}).begin(), "result"));
  EXPECT_TRUE(replays(this->caller({.key = failed.key()}).begin(), permanent_failure()));
  EXPECT_FALSE(this->store().find(this->key("unknown")));
}

TYPED_TEST_P(AdminStoreConformance, RecognisesARepeatedSettlement) {
  for (const auto verdict :
       {Resolution::Verdict::succeeded, Resolution::Verdict::failed, Resolution::Verdict::retry}) {
    const Key key = this->key(std::to_string(static_cast<int>(verdict)));
    auto first = this->uncertain({.key = key});
    const Resolution resolution = this->resolution(verdict);
    ASSERT_EQ(this->store().resolve(key, 1, resolution), WriteOutcome::stored);

    EXPECT_EQ(this->store().resolve(key, 1, resolution), WriteOutcome::stored);
    EXPECT_EQ(this->store().resolve(key, 1, this->resolution(verdict)), WriteOutcome::lost);

    EXPECT_EQ(this->record(key).ownership.fence, 2U);
  }
}

// LK-22
TYPED_TEST_P(AdminStoreConformance, RefusesEveryWriteOfTheOwnerAfterASettlement) {
  for (const auto verdict :
       {Resolution::Verdict::succeeded, Resolution::Verdict::failed, Resolution::Verdict::retry}) {
    const Key key = this->key(std::to_string(static_cast<int>(verdict)));
    auto late = this->uncertain({.key = key});
    ASSERT_EQ(this->store().resolve(key, 1, this->resolution(verdict)), WriteOutcome::stored);
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

TYPED_TEST_P(AdminStoreConformance, KeepsASettlementForItsRetention) {
  auto first = this->uncertain();
  Resolution resolution = this->resolution(Resolution::Verdict::succeeded);
  resolution.retention = this->short_lease;
  ASSERT_EQ(this->store().resolve(this->key(), 1, resolution), WriteOutcome::stored);

  if (this->advance_to_just_before(this->short_lease)) {
    EXPECT_TRUE(replays(this->caller().begin(), "found out"));
  }
  this->advance_over(this->short_lease);

  EXPECT_EQ(this->caller().begin(), acquired(1, 1));
}

TYPED_TEST_P(AdminStoreConformance, LetsEitherTheOwnerOrTheResolverWin) {
  for (int round = 0; round < concurrent_rounds; ++round) {
    const Key key = this->key(std::to_string(round));
    auto owner = this->uncertain({.key = key});
    const Resolution resolution = this->resolution(Resolution::Verdict::succeeded);
    std::atomic<int> won{0};

    on_threads(2, [&](std::size_t index) {
      const WriteOutcome outcome =
          index == 0 ? owner.complete("of the owner") : this->store().resolve(key, 1, resolution);
      if (outcome == WriteOutcome::stored) ++won;
    });

    ASSERT_EQ(won, 1) << "round " << round;
  }
}

TYPED_TEST_P(AdminStoreConformance, PurgesOnlyWhatIsPastItsRetention) {
  auto running = this->owner({.key = this->key("running"), .lease = this->short_lease});
  auto doubted = this->uncertain({.key = this->key("doubted")});
  auto kept = this->owner({.key = this->key("kept")});
  ASSERT_EQ(kept.complete("kept"), WriteOutcome::stored);
  for (int number = 0; number < 5; ++number) {
    auto call = this->owner({.key = this->key(std::to_string(number))});
    ASSERT_EQ(call.complete("old", this->short_lease), WriteOutcome::stored);
  }
  this->advance(this->short_lease + this->tolerance);

  constexpr std::size_t limit = 2;
  constexpr int most_rounds = 1'000;
  int rounds = 0;
  std::size_t removed = limit;
  while (removed > 0 && ++rounds < most_rounds) {
    removed = this->store().purge(limit);
    ASSERT_LE(removed, limit);
  }

  EXPECT_LT(rounds, most_rounds) << "purge never says that nothing is left";
  EXPECT_EQ(this->record(running.key()).state, RecordState::processing);
  EXPECT_EQ(this->record(doubted.key()).state, RecordState::uncertain);
  EXPECT_EQ(this->record(kept.key()).result, "kept");
  for (int number = 0; number < 5; ++number) {
    EXPECT_FALSE(this->store().find(this->key(std::to_string(number))));
  }
}

TYPED_TEST_P(AdminStoreConformance, ListsEveryRecordOnceInTheOrderOfTheirKeys) {
  std::vector<std::string> expected;
  for (const char* value : {"b", "a", "a ", "A", "c:d", "caf\xc3\xa9", "10", "9", "z"}) {
    auto call = this->owner({.key = this->key(value)});
    expected.emplace_back(value);
  }
  std::sort(expected.begin(), expected.end());

  for (const std::size_t limit :
       {std::size_t{1}, std::size_t{2}, std::size_t{4}, std::size_t{100}}) {
    EXPECT_EQ(this->listed({}, limit), expected) << "limit " << limit;
  }
}

TYPED_TEST_P(AdminStoreConformance, EndsAListingThatFillsItsLastPage) {
  for (const char* value : {"a", "b", "c", "d"}) {
    auto call = this->owner({.key = this->key(value)});
  }

  EXPECT_EQ(this->listed({}, 2).size(), 4U);
  EXPECT_EQ(this->listed({}, 4).size(), 4U);
}

TYPED_TEST_P(AdminStoreConformance, ListsByType) {
  auto ours = this->owner({.key = this->key("ours")});
  auto of_another_type = this->owner({.key = Key(this->type() + "x", "other")});

  EXPECT_EQ(this->listed({}, 100), std::vector<std::string>{"ours"});
}

TYPED_TEST_P(AdminStoreConformance, ListsByState) {
  auto running = this->owner({.key = this->key("running")});
  auto doubted = this->uncertain({.key = this->key("doubted")});
  auto succeeded = this->owner({.key = this->key("succeeded")});
  auto failed = this->owner({.key = this->key("failed")});
  ASSERT_EQ(succeeded.complete(), WriteOutcome::stored);
  ASSERT_EQ(failed.fail(permanent_failure()), WriteOutcome::stored);
  const auto with = [&](RecordState state) { return this->listed({.state = state}, 1); };

  EXPECT_EQ(with(RecordState::processing), std::vector<std::string>{"running"});
  EXPECT_EQ(with(RecordState::uncertain), std::vector<std::string>{"doubted"});
  EXPECT_EQ(with(RecordState::success), std::vector<std::string>{"succeeded"});
  EXPECT_EQ(with(RecordState::failed), std::vector<std::string>{"failed"});
}

TYPED_TEST_P(AdminStoreConformance, ListsByAge) {
  using std::chrono::hours;
  auto older = this->uncertain({.key = this->key("older")});
  this->advance(this->short_lease);
  auto newer = this->uncertain({.key = this->key("newer")});

  EXPECT_EQ(this->listed({.unchanged_for = this->short_lease - this->tolerance}, 100),
            std::vector<std::string>{"older"});
  EXPECT_EQ(this->listed({.unchanged_for = hours{1}}, 100), std::vector<std::string>{});
  EXPECT_EQ(this->listed({.unchanged_for = std::chrono::milliseconds{0}}, 100).size(), 2U);
}

TYPED_TEST_P(AdminStoreConformance, ListsRecordsWithAllThatTheyHold) {
  const Fingerprint fingerprint = Fingerprint::of_bytes("100 cents");
  auto first =
      this->uncertain({.mode = RecordMode::hold, .fingerprint = fingerprint, .trace = "request-1"});

  const RecordPage page = this->store().list({.type = this->type()}, "", 10);

  ASSERT_EQ(page.records.size(), 1U);
  const Record& record = page.records.front();
  EXPECT_EQ(record.key, first.key());
  EXPECT_EQ(record.state, RecordState::uncertain);
  EXPECT_EQ(record.mode, RecordMode::hold);
  EXPECT_EQ(record.ownership.fence, 1U);
  EXPECT_EQ(record.attempt, 1U);
  EXPECT_EQ(record.fingerprint, fingerprint.current());
  EXPECT_EQ(record.trace, "request-1");
}

// Counted as differences, because other runs may share the store.
TYPED_TEST_P(AdminStoreConformance, CountsRecordsByState) {
  const StoreStatistics before = this->store().statistics();
  std::vector<Key> keys;
  for (int number = 0; number < 10; ++number)
    keys.push_back(this->key(std::to_string(number)));
  for (std::size_t i = 0; i < keys.size(); ++i) {
    auto call = this->owner({.key = keys[i]});
    if (i < 4) {
      ASSERT_EQ(call.complete(), WriteOutcome::stored);
    }
    if (i >= 4 && i < 7) {
      ASSERT_EQ(call.fail(permanent_failure()), WriteOutcome::stored);
    }
    if (i >= 7 && i < 9) {
      ASSERT_EQ(call.doubt(), WriteOutcome::stored);
    }
  }

  const StoreStatistics after = this->store().statistics();

  EXPECT_EQ(after.success - before.success, 4U);
  EXPECT_EQ(after.failed - before.failed, 3U);
  EXPECT_EQ(after.uncertain - before.uncertain, 2U);
  EXPECT_EQ(after.processing - before.processing, 1U);
  EXPECT_GT(after.bytes, 0U);
}

REGISTER_TYPED_TEST_SUITE_P(AdminStoreConformance, SettlesAnUncertainRecordAsSucceeded,
                            SettlesAnUncertainRecordAsFailedForGood,
                            SettlesAnUncertainRecordForAnotherTry, SettlesAsSucceededWithoutAResult,
                            SettlesARecordWhoseLeaseRanOut, RefusesToSettleALiveRecord,
                            RefusesToSettleAtAnotherFenceThanTheRecords,
                            RefusesToSettleWhatIsFinishedOrUnknown, RecognisesARepeatedSettlement,
                            RefusesEveryWriteOfTheOwnerAfterASettlement,
                            KeepsASettlementForItsRetention, LetsEitherTheOwnerOrTheResolverWin,
                            PurgesOnlyWhatIsPastItsRetention,
                            ListsEveryRecordOnceInTheOrderOfTheirKeys,
                            EndsAListingThatFillsItsLastPage, ListsByType, ListsByState, ListsByAge,
                            ListsRecordsWithAllThatTheyHold, CountsRecordsByState);

}  // namespace testing
}  // namespace v0
}  // namespace idempotency
