#pragma once

// Leases and retentions: in milliseconds of the store's clock, never rounded, each for itself.

#include <vector>

#include "idempotency/testing/conformance_fixture.hpp"

namespace idempotency {
inline namespace v0 {
namespace testing {

// ID-11: at several phases of the second, because a store may have lost the seconds.
TYPED_TEST_P(StoreConformance, EndsALeaseWhenItIsOver) {
  using std::chrono::milliseconds;
  int number = 0;
  for (const milliseconds lease :
       {milliseconds{50}, milliseconds{999}, milliseconds{1001}, milliseconds{5000}}) {
    for (const milliseconds phase : {milliseconds{0}, milliseconds{377}, milliseconds{620}}) {
      if (!this->exact && phase != milliseconds{0}) continue;
      this->advance(phase);
      const Key key = this->key(std::to_string(++number));
      auto first = this->owner({.key = key, .lease = lease});

      if (this->advance_to_just_before(lease)) {
        EXPECT_TRUE(is<InProgress>(this->caller({.key = key}).begin())) << lease.count() << " ms";
      }
      this->advance_over(lease);

      EXPECT_EQ(this->caller({.key = key}).begin(), acquired(2, 2)) << lease.count() << " ms";
    }
  }
}

TYPED_TEST_P(StoreConformance, EndsALeaseUnderHoldWhenItIsOver) {
  using std::chrono::milliseconds;
  const milliseconds lease{999};
  auto first = this->owner({.mode = RecordMode::hold, .lease = lease});

  if (this->advance_to_just_before(lease)) {
    EXPECT_TRUE(is<InProgress>(this->caller().begin()));
  }
  this->advance_over(lease);

  EXPECT_TRUE(is<Uncertain>(this->caller().begin()));
}

// RD-09
TYPED_TEST_P(StoreConformance, NeverRoundsALeaseToNothing) {
  using std::chrono::milliseconds;
  auto first = this->owner({.lease = milliseconds{1}});

  if (this->exact) {
    const BeginOutcome at_once = this->caller().begin();
    ASSERT_TRUE(is<InProgress>(at_once));
    EXPECT_EQ(std::get<InProgress>(at_once).lease_remaining, milliseconds{1});
  }
  this->advance(milliseconds{1} + this->tolerance);

  EXPECT_EQ(this->caller().begin(), acquired(2, 2));
}

// RD-09
TYPED_TEST_P(StoreConformance, NeverRoundsARetention) {
  using std::chrono::milliseconds;
  int number = 0;
  for (const milliseconds retention : {milliseconds{1}, milliseconds{999}, milliseconds{1500}}) {
    const Key key = this->key(std::to_string(++number));
    auto first = this->owner({.key = key});
    ASSERT_EQ(first.complete("result", retention), WriteOutcome::stored);

    if (this->advance_to_just_before(retention)) {
      EXPECT_TRUE(replays(this->caller({.key = key}).begin(), "result")) << retention.count();
      EXPECT_TRUE(this->store().find(key)) << retention.count();
    }
    this->advance_over(retention);

    EXPECT_FALSE(this->store().find(key)) << retention.count();
    EXPECT_EQ(this->caller({.key = key}).begin(), acquired(1, 1)) << retention.count();
  }
}

TYPED_TEST_P(StoreConformance, TellsHowMuchOfALeaseRemains) {
  auto first = this->owner({.lease = std::chrono::seconds{10}});
  this->advance(this->short_lease);

  const BeginOutcome outcome = this->caller().begin();

  ASSERT_TRUE(is<InProgress>(outcome));
  EXPECT_TRUE(this->near(std::get<InProgress>(outcome).lease_remaining,
                         std::chrono::seconds{10} - this->short_lease));
}

TYPED_TEST_P(StoreConformance, CountsARenewedLeaseFromTheRenewal) {
  auto longer = this->owner({.key = this->key("longer"), .lease = this->short_lease});
  auto shorter = this->owner({.key = this->key("shorter"), .lease = std::chrono::hours{1}});

  ASSERT_EQ(longer.renew(std::chrono::hours{1}), WriteOutcome::stored);
  ASSERT_EQ(shorter.renew(this->short_lease), WriteOutcome::stored);
  this->advance(this->short_lease + this->tolerance);

  EXPECT_TRUE(is<InProgress>(this->caller({.key = longer.key()}).begin()));
  EXPECT_EQ(this->caller({.key = shorter.key()}).begin(), acquired(2, 2));
}

TYPED_TEST_P(StoreConformance, CountsANewOwnersLeaseFromItsOwnBegin) {
  auto first = this->owner({.lease = this->short_lease});
  this->advance(this->short_lease + this->tolerance);
  auto second = this->owner({.lease = std::chrono::seconds{10}});

  const BeginOutcome outcome = this->caller().begin();

  ASSERT_TRUE(is<InProgress>(outcome));
  EXPECT_TRUE(this->near(std::get<InProgress>(outcome).lease_remaining, std::chrono::seconds{10}));
}

// ID-12, ID-21: one time-to-live for both would block a key for the whole retention, or forget it with the lease.
TYPED_TEST_P(StoreConformance, KeepsRetentionsApartFromLeasesAndFromEachOther) {
  using std::chrono::hours;
  auto succeeded = this->owner({.key = this->key("succeeded"), .lease = this->short_lease});
  auto failed = this->owner({.key = this->key("failed"), .lease = hours{1}});
  auto released = this->owner({.key = this->key("released"), .lease = hours{1}});
  ASSERT_EQ(succeeded.complete("kept", hours{24}), WriteOutcome::stored);
  ASSERT_EQ(failed.fail(permanent_failure(), this->short_lease), WriteOutcome::stored);
  ASSERT_EQ(released.release(this->short_lease), ReleaseOutcome::released);

  this->advance(this->short_lease + this->tolerance);

  EXPECT_TRUE(replays(this->caller({.key = succeeded.key()}).begin(), "kept"));
  EXPECT_EQ(this->caller({.key = failed.key()}).begin(), acquired(1, 1));
  EXPECT_EQ(this->caller({.key = released.key()}).begin(), acquired(1, 1));
}

TYPED_TEST_P(StoreConformance, CountsTheRetentionFromTheCompletion) {
  using std::chrono::seconds;
  auto first = this->owner();
  this->advance(this->short_lease);
  ASSERT_EQ(first.complete("result", seconds{10}), WriteOutcome::stored);

  const BeginOutcome outcome = this->caller().begin();

  ASSERT_TRUE(is<Completed>(outcome));
  EXPECT_TRUE(this->near(std::get<Completed>(outcome).retention_remaining, seconds{10}));
}

TYPED_TEST_P(StoreConformance, DoesNotCountTheRetentionAnewForAReplayOrARepeatedWrite) {
  using std::chrono::seconds;
  auto succeeded = this->owner({.key = this->key("succeeded")});
  auto failed = this->owner({.key = this->key("failed")});
  ASSERT_EQ(succeeded.complete("result", seconds{10}), WriteOutcome::stored);
  ASSERT_EQ(failed.fail(permanent_failure(), seconds{10}), WriteOutcome::stored);
  this->advance(this->short_lease);

  ASSERT_TRUE(is<Completed>(this->caller({.key = succeeded.key()}).begin()));
  ASSERT_EQ(succeeded.complete("result", seconds{10}), WriteOutcome::stored);
  ASSERT_TRUE(is<Failed>(this->caller({.key = failed.key()}).begin()));
  ASSERT_EQ(failed.fail(permanent_failure(), seconds{10}), WriteOutcome::stored);

  const BeginOutcome completed = this->caller({.key = succeeded.key()}).begin();
  const BeginOutcome refused = this->caller({.key = failed.key()}).begin();
  ASSERT_TRUE(is<Completed>(completed));
  ASSERT_TRUE(is<Failed>(refused));
  const auto remaining = seconds{10} - this->short_lease;
  EXPECT_TRUE(this->near(std::get<Completed>(completed).retention_remaining, remaining));
  EXPECT_TRUE(this->near(std::get<Failed>(refused).retention_remaining, remaining));
}

// LK-17
TYPED_TEST_P(StoreConformance, AcceptsTheLongestTimes) {
  constexpr std::chrono::milliseconds longest = std::chrono::milliseconds::max();
  auto running = this->owner({.key = this->key("running"), .lease = longest});
  auto finished = this->owner({.key = this->key("finished")});
  ASSERT_EQ(finished.complete("kept", longest), WriteOutcome::stored);
  ASSERT_EQ(running.renew(longest), WriteOutcome::stored);

  this->advance(this->long_time);

  EXPECT_TRUE(is<InProgress>(this->caller({.key = running.key()}).begin()));
  EXPECT_TRUE(replays(this->caller({.key = finished.key()}).begin(), "kept"));
}

// ID-01: without a hook of the fixture, the longest lease stands for the missing deadline.
TYPED_TEST_P(StoreConformance, NeverStealsARecordWithoutADeadline) {
  auto first = this->owner({.lease = std::chrono::milliseconds::max()});
  if constexpr (requires { this->fixture().remove_deadline(first.key()); }) {
    this->fixture().remove_deadline(first.key());
  }
  this->advance(this->long_time);

  for (const RecordMode mode : {RecordMode::take_over, RecordMode::hold}) {
    const BeginOutcome outcome = this->caller({.mode = mode}).begin();

    EXPECT_TRUE(is<InProgress>(outcome));
  }
  EXPECT_EQ(this->record().lease_until, std::nullopt);
  EXPECT_EQ(first.complete("still mine"), WriteOutcome::stored);
}

}  // namespace testing
}  // namespace v0
}  // namespace idempotency
