#pragma once

// What the lease keeper relies on when it renews many leases at once.

#include <string>
#include <vector>

#include "idempotency/testing/conformance_fixture.hpp"

namespace idempotency {
inline namespace v0 {
namespace testing {

/// The rules of a `BatchStore`.
template <class FixtureT>
class BatchStoreConformance : public ConformanceTest<FixtureT> {
  static_assert(BatchStore<typename ConformanceTest<FixtureT>::StoreT>,
                "idempotency: BatchStoreConformance is for stores that satisfy "
                "idempotency::BatchStore.");
};

TYPED_TEST_SUITE_P(BatchStoreConformance);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(BatchStoreConformance);

TYPED_TEST_P(BatchStoreConformance, RenewsEachLeaseForItself) {
  auto longer = this->owner({.key = this->key("longer"), .lease = this->short_lease});
  auto shorter = this->owner({.key = this->key("shorter")});
  const std::vector<Renewal> renewals{{longer.key(), longer.by(), std::chrono::hours{1}},
                                      {shorter.key(), shorter.by(), this->short_lease}};

  const std::vector<WriteOutcome> outcomes = this->store().renew_many(renewals);
  this->advance(this->short_lease + this->tolerance);

  EXPECT_EQ(outcomes, (std::vector<WriteOutcome>{WriteOutcome::stored, WriteOutcome::stored}));
  EXPECT_TRUE(is<InProgress>(this->caller({.key = longer.key()}).begin()));
  EXPECT_EQ(this->caller({.key = shorter.key()}).begin(), acquired(2, 2));
}

TYPED_TEST_P(BatchStoreConformance, AnswersInTheOrderOfTheRequestsAlsoBetweenLosses) {
  auto stalled = this->owner({.key = this->key("stalled"), .lease = this->short_lease});
  auto finished = this->owner({.key = this->key("finished")});
  auto first = this->owner({.key = this->key("first")});
  auto last = this->owner({.key = this->key("last")});
  ASSERT_EQ(finished.complete(), WriteOutcome::stored);
  this->advance(this->short_lease + this->tolerance);
  auto next = this->owner({.key = stalled.key()});
  const std::chrono::hours lease{1};

  const std::vector<WriteOutcome> outcomes =
      this->store().renew_many(std::vector<Renewal>{{first.key(), first.by(), lease},
                                                    {stalled.key(), stalled.by(), lease},
                                                    {this->key("unknown"), first.by(), lease},
                                                    {finished.key(), finished.by(), lease},
                                                    {first.key(), last.by(), lease},
                                                    {last.key(), last.by(), lease}});

  constexpr WriteOutcome stored = WriteOutcome::stored;
  constexpr WriteOutcome lost = WriteOutcome::lost;
  EXPECT_EQ(outcomes, (std::vector<WriteOutcome>{stored, lost, lost, lost, lost, stored}));
  EXPECT_EQ(this->record(stalled.key()).ownership, next.by());
  EXPECT_FALSE(this->store().find(this->key("unknown")));
}

TYPED_TEST_P(BatchStoreConformance, RenewsNothingWhenAskedForNothing) {
  EXPECT_EQ(this->store().renew_many(std::vector<Renewal>{}), std::vector<WriteOutcome>{});
}

TYPED_TEST_P(BatchStoreConformance, RenewsManyLeasesAtOnce) {
  constexpr int count = 300;
  std::vector<Renewal> renewals;
  for (int number = 0; number < count; ++number) {
    auto call = this->owner({.key = this->key(std::to_string(number))});
    renewals.push_back({call.key(), call.by(), std::chrono::hours{2}});
  }

  const std::vector<WriteOutcome> outcomes = this->store().renew_many(renewals);

  EXPECT_EQ(outcomes, std::vector<WriteOutcome>(count, WriteOutcome::stored));
  const BeginOutcome last = this->caller({.key = renewals.back().key}).begin();
  ASSERT_TRUE(is<InProgress>(last));
  EXPECT_GT(std::get<InProgress>(last).lease_remaining, std::chrono::hours{1});
}

REGISTER_TYPED_TEST_SUITE_P(BatchStoreConformance, RenewsEachLeaseForItself,
                            AnswersInTheOrderOfTheRequestsAlsoBetweenLosses,
                            RenewsNothingWhenAskedForNothing, RenewsManyLeasesAtOnce);

}  // namespace testing
}  // namespace v0
}  // namespace idempotency
