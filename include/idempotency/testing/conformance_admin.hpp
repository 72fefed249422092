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
  /// Settles the record as it is now.
  [[nodiscard]] WriteOutcome settle(const Key& key, const Resolution& resolution) {
    return this->store().resolve(this->record(key), resolution);
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

// One type may be the beginning of another: "a-b:x" comes before "a:x" as text, but the type "a" before "a-b".
TYPED_TEST_P(AdminStoreConformance, ListsTypeByType) {
  std::vector<std::string> expected;
  for (const char* ending : {"", "-b", ".c", "/d", "0", "a", "b"}) {
    for (const char* value : {"1", "2"}) {
      const Key key(this->type() + ending, value);
      auto call = this->uncertain({.key = key});
      expected.push_back(key.text());
    }
  }

  for (const std::size_t limit : {std::size_t{1}, std::size_t{3}, std::size_t{100}}) {
    std::vector<std::string> listed;
    std::string cursor;
    do {
      const RecordPage page = this->store().list({.state = RecordState::uncertain}, cursor, limit);
      for (const Record& record : page.records) {  // others may share the store
        if (record.key.type().starts_with(this->type())) listed.push_back(record.key.text());
      }
      cursor = page.cursor;
    } while (!cursor.empty() && listed.size() <= expected.size());

    EXPECT_EQ(listed, expected) << "limit " << limit;
  }
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

REGISTER_TYPED_TEST_SUITE_P(AdminStoreConformance, PurgesOnlyWhatIsPastItsRetention,
                            ListsEveryRecordOnceInTheOrderOfTheirKeys,
                            EndsAListingThatFillsItsLastPage, ListsByType, ListsTypeByType,
                            ListsByState, ListsByAge, ListsRecordsWithAllThatTheyHold,
                            CountsRecordsByState);

}  // namespace testing
}  // namespace v0
}  // namespace idempotency
