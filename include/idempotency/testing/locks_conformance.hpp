#pragma once

// The rules that every carrier of locks keeps. A fixture has
//
//   C& carrier();         // a FencingLockCarrier without any locks
//   C& other_carrier();   // another one in the same place, or the same
//   void advance(std::chrono::milliseconds);  // lets time pass on the carrier's clock
//
// and both may be used by several threads.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <ostream>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "idempotency/error.hpp"
#include "idempotency/patterns/lock_carrier.hpp"
#include "idempotency/testing/printers.hpp"

namespace idempotency {
inline namespace v0 {

inline void PrintTo(const LockAcquired& acquired, std::ostream* out) {
  *out << "acquired at fence " << acquired.fence;
}
inline void PrintTo(const LockRefused& refused, std::ostream* out) {
  *out << "refused for " << refused.remaining.count() << " ms";
}
inline void PrintTo(const LockView& view, std::ostream* out) {
  *out << "fence " << view.fence << ", held for " << view.remaining.count() << " ms";
}

namespace testing {

template <class FixtureT>
class LocksConformance : public ::testing::Test {
 protected:
  using milliseconds = std::chrono::milliseconds;
  static constexpr milliseconds long_lease = std::chrono::hours{1};
  static constexpr milliseconds short_lease{60};

  auto& carrier() { return fixture_.carrier(); }
  auto& other_carrier() { return fixture_.other_carrier(); }
  void advance(milliseconds span) { fixture_.advance(span); }

  /// The fence of an acquisition that succeeds; a failed test and 0 otherwise.
  std::uint64_t acquire(const Key& key, const OwnerToken& owner, milliseconds lease = long_lease) {
    const LockOutcome outcome = carrier().acquire(key, owner, lease);
    const auto* acquired = std::get_if<LockAcquired>(&outcome);
    if (acquired == nullptr) ADD_FAILURE() << "the lock is another's";
    return acquired == nullptr ? 0 : acquired->fence;
  }
  bool is_refused(const Key& key, const OwnerToken& owner) {
    return std::holds_alternative<LockRefused>(carrier().acquire(key, owner, long_lease));
  }
  milliseconds remaining(const Key& key) {
    const std::optional<LockView> view = carrier().look(key);
    return view ? view->remaining : milliseconds{-1};
  }

  const Key key_{"stock", "sku-7"};
  const OwnerToken first_ = OwnerToken::generate();
  const OwnerToken second_ = OwnerToken::generate();

 private:
  FixtureT fixture_;
};

TYPED_TEST_SUITE_P(LocksConformance);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LocksConformance);

TYPED_TEST_P(LocksConformance, GrantALockToOneOwnerAtATime) {
  ASSERT_NE(this->acquire(this->key_, this->first_), 0U);

  const LockOutcome met =
      this->other_carrier().acquire(this->key_, this->second_, this->long_lease);

  const auto* refused = std::get_if<LockRefused>(&met);
  ASSERT_NE(refused, nullptr);
  EXPECT_GT(refused->remaining, this->long_lease - std::chrono::minutes{1});
  EXPECT_LE(refused->remaining, this->long_lease);
  ASSERT_EQ(this->carrier().release(this->key_, this->first_), WriteOutcome::stored);
  EXPECT_NE(this->acquire(this->key_, this->second_), 0U);
}

TYPED_TEST_P(LocksConformance, RaiseTheFenceWithEveryAcquisition) {
  constexpr std::uint64_t in_2017 = 1'500'000'000'000'000;  // microseconds
  std::uint64_t last = in_2017;
  for (int round = 0; round < 20; ++round) {
    const OwnerToken owner = OwnerToken::generate();
    const std::uint64_t fence = this->acquire(this->key_, owner);
    EXPECT_GT(fence, last) << "round " << round;
    last = fence;
    ASSERT_EQ(this->carrier().release(this->key_, owner), WriteOutcome::stored);
  }
  EXPECT_LT(last, std::uint64_t{1} << 53U);
}

// LK-07
TYPED_TEST_P(LocksConformance, AnswerARepeatedAcquisitionWithTheSameFence) {
  const std::uint64_t fence = this->acquire(this->key_, this->first_, this->short_lease);

  EXPECT_EQ(this->acquire(this->key_, this->first_), fence);

  EXPECT_GT(this->remaining(this->key_), this->long_lease - std::chrono::minutes{1});
  EXPECT_TRUE(this->is_refused(this->key_, this->second_));
}

TYPED_TEST_P(LocksConformance, AcquireNothingForALateCopyOfACallWhoseOwnerHasReleased) {
  const std::uint64_t fence = this->acquire(this->key_, this->first_);
  ASSERT_EQ(this->carrier().release(this->key_, this->first_), WriteOutcome::stored);

  EXPECT_TRUE(this->is_refused(this->key_, this->first_));

  EXPECT_EQ(this->remaining(this->key_), std::chrono::milliseconds{0});
  EXPECT_GT(this->acquire(this->key_, this->second_), fence);
}

// LK-14
TYPED_TEST_P(LocksConformance, GrantALockWhoseLeaseHasEndedAndNotBefore) {
  const std::uint64_t fence = this->acquire(this->key_, this->first_, this->short_lease);
  const LockOutcome met = this->carrier().acquire(this->key_, this->second_, this->long_lease);
  if (const auto* refused = std::get_if<LockRefused>(&met)) {
    EXPECT_GE(refused->remaining, std::chrono::milliseconds{1});
    EXPECT_LE(refused->remaining, this->short_lease);
  }

  this->advance(this->short_lease + std::chrono::milliseconds{1});

  EXPECT_GT(this->acquire(this->key_, this->second_), fence);
}

// LK-09, LK-13: a renewal acquires nothing, whoever sends it.
TYPED_TEST_P(LocksConformance, RenewOnlyForTheOwnerAtItsFence) {
  EXPECT_EQ(this->carrier().renew(this->key_, {this->first_, 1}, this->long_lease),
            WriteOutcome::lost);
  const std::uint64_t fence = this->acquire(this->key_, this->first_, this->long_lease / 2);
  const auto renew = [&](const OwnerToken& owner, std::uint64_t at) {
    return this->other_carrier().renew(this->key_, {owner, at}, this->long_lease);
  };

  EXPECT_EQ(renew(this->second_, fence), WriteOutcome::lost);
  EXPECT_EQ(renew(this->first_, fence - 1), WriteOutcome::lost);
  EXPECT_LE(this->remaining(this->key_), this->long_lease / 2);

  EXPECT_EQ(renew(this->first_, fence), WriteOutcome::stored);
  EXPECT_EQ(renew(this->first_, fence), WriteOutcome::stored);
  EXPECT_GT(this->remaining(this->key_), this->long_lease / 2);
}

TYPED_TEST_P(LocksConformance, RenewNothingThatHasEnded) {
  const std::uint64_t fence = this->acquire(this->key_, this->first_, this->short_lease);
  this->advance(this->short_lease + std::chrono::milliseconds{1});

  EXPECT_EQ(this->carrier().renew(this->key_, {this->first_, fence}, this->long_lease),
            WriteOutcome::lost);

  EXPECT_EQ(this->remaining(this->key_), std::chrono::milliseconds{0});
  const std::uint64_t next = this->acquire(this->key_, this->second_);
  EXPECT_EQ(this->carrier().renew(this->key_, {this->first_, fence}, this->long_lease),
            WriteOutcome::lost);
  EXPECT_EQ(this->carrier().look(this->key_)->fence, next);
}

// LK-22
TYPED_TEST_P(LocksConformance, ReleaseForTheOwnerOnly) {
  EXPECT_EQ(this->carrier().release(this->key_, this->first_), WriteOutcome::lost);
  const std::uint64_t fence = this->acquire(this->key_, this->first_);

  EXPECT_EQ(this->carrier().release(this->key_, this->second_), WriteOutcome::lost);
  EXPECT_TRUE(this->is_refused(this->key_, this->second_));

  EXPECT_EQ(this->other_carrier().release(this->key_, this->first_), WriteOutcome::stored);
  EXPECT_EQ(this->carrier().release(this->key_, this->first_), WriteOutcome::stored);  // repeated
  EXPECT_EQ(this->carrier().renew(this->key_, {this->first_, fence}, this->long_lease),
            WriteOutcome::lost);
}

// LK-22
TYPED_TEST_P(LocksConformance, TakeALockFromItsHolderByForce) {
  const std::uint64_t fence = this->acquire(this->key_, this->first_);

  const std::uint64_t forced = this->other_carrier().force_release(this->key_);

  EXPECT_GT(forced, fence);
  EXPECT_EQ(this->carrier().look(this->key_), (LockView{forced, std::chrono::milliseconds{0}}));
  EXPECT_EQ(this->carrier().renew(this->key_, {this->first_, fence}, this->long_lease),
            WriteOutcome::lost);
  EXPECT_EQ(this->carrier().release(this->key_, this->first_), WriteOutcome::lost);
  EXPECT_GT(this->acquire(this->key_, this->second_), forced);
}

TYPED_TEST_P(LocksConformance, TakeALockByForceThatNobodyHasHeld) {
  const std::uint64_t forced = this->carrier().force_release(this->key_);

  EXPECT_GT(forced, 0U);
  EXPECT_GT(this->acquire(this->key_, this->first_), forced);
}

// LK-20: no lease is rounded to seconds, and none lasts for ever.
TYPED_TEST_P(LocksConformance, KeepLeasesToTheMillisecond) {
  EXPECT_EQ(this->carrier().look(this->key_), std::nullopt);
  for (const auto lease : {std::chrono::milliseconds{300}, std::chrono::milliseconds{999},
                           std::chrono::milliseconds{1'500}}) {
    const Key key = Key::of("lease", lease.count());
    const std::uint64_t fence = this->acquire(key, this->first_, lease);

    const std::optional<LockView> view = this->carrier().look(key);

    ASSERT_TRUE(view);
    EXPECT_EQ(view->fence, fence);
    EXPECT_LE(view->remaining, lease);
    EXPECT_GT(view->remaining, lease - std::chrono::milliseconds{280});
  }
}

TYPED_TEST_P(LocksConformance, RefuseALeaseThatIsNoneBeforeAnythingIsKept) {
  using std::chrono::milliseconds;
  const auto code_of = [](auto call) {
    try {
      static_cast<void>(call());
    } catch (const Error& error) {
      return error.code();
    }
    return Errc{};
  };
  for (const milliseconds lease : {milliseconds{0}, milliseconds{-1}, milliseconds::min(),
                                   longest_lock_lease + milliseconds{1}, milliseconds::max()}) {
    EXPECT_EQ(code_of([&] { return this->carrier().acquire(this->key_, this->first_, lease); }),
              Errc::invalid_argument);
    EXPECT_EQ(code_of([&] {
                return this->carrier().renew(this->key_, {this->first_, 1}, lease);
              }),
              Errc::invalid_argument);
  }

  EXPECT_EQ(this->carrier().look(this->key_), std::nullopt);
  EXPECT_NE(this->acquire(this->key_, this->first_, longest_lock_lease), 0U);
}

TYPED_TEST_P(LocksConformance, TellKeysApartByTheirBytes) {
  const std::string longest(Key::max_value_bytes, 'x');
  for (const Key& key : {Key{"stock", "a"}, Key{"stock", "A"}, Key{"stock", "a "},
                         Key{"Stock", "a"}, Key{"stock", "a}:{b"}, Key{"stock", "\xc3\xa4"},
                         Key{std::string(Key::max_type_bytes, 't'), longest}}) {
    EXPECT_NE(this->acquire(key, OwnerToken::generate()), 0U) << key.text();
    EXPECT_TRUE(this->is_refused(key, OwnerToken::generate())) << key.text();
  }
}

TYPED_TEST_P(LocksConformance, GrantALockOnceHoweverManyAsk) {
  constexpr int rounds = 20;
  constexpr std::size_t rivals = 8;
  std::uint64_t last = 0;
  for (int round = 0; round < rounds; ++round) {
    std::array<OwnerToken, rivals> owners;
    std::generate(owners.begin(), owners.end(), [] { return OwnerToken::generate(); });
    std::array<LockOutcome, rivals> told{};
    std::atomic<std::size_t> waiting{rivals};
    std::vector<std::thread> threads;
    for (std::size_t rival = 0; rival < rivals; ++rival) {
      threads.emplace_back([&, rival] {
        auto& carrier = rival % 2 == 0 ? this->carrier() : this->other_carrier();
        for (--waiting; waiting != 0;)
          std::this_thread::yield();
        told[rival] = carrier.acquire(this->key_, owners[rival], this->long_lease);
      });
    }
    for (std::thread& thread : threads)
      thread.join();

    int granted = 0;
    for (std::size_t rival = 0; rival < rivals; ++rival) {
      const auto* acquired = std::get_if<LockAcquired>(&told[rival]);
      if (acquired == nullptr) continue;
      ++granted;
      EXPECT_GT(acquired->fence, last);
      last = acquired->fence;
      EXPECT_EQ(this->carrier().release(this->key_, owners[rival]), WriteOutcome::stored);
    }
    ASSERT_EQ(granted, 1) << "round " << round;
  }
}

TYPED_TEST_P(LocksConformance, GrantDifferentLocksToAllThatAskAtOnce) {
  constexpr int callers = 4;
  constexpr int locks = 15;
  std::atomic<int> waiting{callers};
  std::atomic<int> granted{0};
  std::atomic<int> released{0};
  std::vector<std::thread> threads;
  threads.reserve(callers);
  for (int caller = 0; caller < callers; ++caller) {
    threads.emplace_back([&, caller] {
      for (--waiting; waiting != 0;)
        std::this_thread::yield();
      for (int number = 0; number < locks; ++number) {
        const Key key = Key::of("stock", number, caller);
        const OwnerToken owner = OwnerToken::generate();
        const LockOutcome outcome = this->carrier().acquire(key, owner, this->long_lease);
        if (std::holds_alternative<LockAcquired>(outcome)) ++granted;
        if (this->carrier().release(key, owner) == WriteOutcome::stored) ++released;
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();

  EXPECT_EQ(granted, callers * locks);
  EXPECT_EQ(released, callers * locks);
}

REGISTER_TYPED_TEST_SUITE_P(LocksConformance, GrantALockToOneOwnerAtATime,
                            RaiseTheFenceWithEveryAcquisition,
                            AnswerARepeatedAcquisitionWithTheSameFence,
                            AcquireNothingForALateCopyOfACallWhoseOwnerHasReleased,
                            GrantALockWhoseLeaseHasEndedAndNotBefore,
                            RenewOnlyForTheOwnerAtItsFence, RenewNothingThatHasEnded,
                            ReleaseForTheOwnerOnly, TakeALockFromItsHolderByForce,
                            TakeALockByForceThatNobodyHasHeld, KeepLeasesToTheMillisecond,
                            RefuseALeaseThatIsNoneBeforeAnythingIsKept, TellKeysApartByTheirBytes,
                            GrantALockOnceHoweverManyAsk, GrantDifferentLocksToAllThatAskAtOnce);

}  // namespace testing
}  // namespace v0
}  // namespace idempotency
