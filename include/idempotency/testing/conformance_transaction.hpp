#pragma once

// The strongest promise: record and effect commit or roll back together.

#include <atomic>
#include <concepts>
#include <cstddef>
#include <optional>
#include <thread>
#include <type_traits>

#include "idempotency/testing/conformance_concurrency.hpp"
#include "idempotency/testing/conformance_fixture.hpp"

namespace idempotency {
inline namespace v0 {
namespace testing {

/// A fixture with an application that lends its connection to the store.
///
/// Its `application()` has `connection()`, which makes the store's `Connection`; `begin()`, `commit()` and `rollback()`, the
/// application's own transaction on it; and `add_business_row()`, which writes in that.
template <class F>
concept LendsConnection = requires(F& fixture) {
  {
    fixture.application().connection()
    }
    -> std::convertible_to<typename std::remove_reference_t<decltype(fixture.store())>::Connection>;
  fixture.application().begin();
  fixture.application().add_business_row();
  fixture.application().commit();
  fixture.application().rollback();
};

/// The rules of a `TransactionalStore`, over connections of its own and over the caller's.
template <class FixtureT>
class TransactionalStoreConformance : public ConformanceTest<FixtureT> {
  using TestedStore = typename ConformanceTest<FixtureT>::StoreT;
  static_assert(TransactionalStore<TestedStore>,
                "idempotency: TransactionalStoreConformance is for stores that satisfy "
                "idempotency::TransactionalStore.");

 protected:
  using Transaction = typename TestedStore::Transaction;

  [[nodiscard]] Transaction open() { return this->store().open_transaction(TransactionOptions{}); }
  /// On the application's connection; joined when the application is in a transaction.
  [[nodiscard]] Transaction open_on_application() requires LendsConnection<FixtureT> {
    return this->store().open_transaction(this->fixture().application().connection(),
                                          TransactionOptions{});
  }
  /// Begins and completes within the transaction, and writes a row of the handler's own between.
  void run_in(Transaction& transaction, const BeginRequest& request, const std::string& result) {
    const BeginOutcome outcome = this->store().begin(transaction, request);
    ASSERT_TRUE(is<Acquired>(outcome));
    this->fixture().add_business_row(transaction);
    const Ownership by{request.owner, std::get<Acquired>(outcome).fence};
    ASSERT_EQ(this->store().complete(transaction, request.key, by, Completion{.result = result}),
              WriteOutcome::stored);
  }
  [[nodiscard]] std::size_t business_rows() {
    return static_cast<std::size_t>(this->fixture().business_rows());
  }
  /// A call outside of transactions, repeated while the store is busy with another's.
  [[nodiscard]] BeginOutcome begin_when_free(const BeginRequest& request) {
    while (true) {
      try {
        return this->store().begin(request);
      } catch (const Error& error) {
        if (error.code() != Errc::store_busy) throw;
      }
    }
  }
};

TYPED_TEST_SUITE_P(TransactionalStoreConformance);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TransactionalStoreConformance);

TYPED_TEST_P(TransactionalStoreConformance, CommitsTheRecordAndTheEffectTogether) {
  auto transaction = this->open();
  this->run_in(transaction, this->caller().request(), "moved");

  this->store().commit(transaction);

  EXPECT_EQ(this->business_rows(), 1U);
  EXPECT_TRUE(replays(this->caller().begin(), "moved"));
}

TYPED_TEST_P(TransactionalStoreConformance, RollsTheRecordAndTheEffectBackTogether) {
  auto transaction = this->open();
  this->run_in(transaction, this->caller().request(), "moved");

  this->store().rollback(transaction);

  EXPECT_EQ(this->business_rows(), 0U);
  EXPECT_FALSE(this->find());
  EXPECT_EQ(this->caller().begin(), acquired(1, 1));
}

TYPED_TEST_P(TransactionalStoreConformance, ShowsNothingBeforeTheCommit) {
  auto transaction = this->open();
  this->run_in(transaction, this->caller().request(), "moved");

  EXPECT_EQ(this->business_rows(), 0U);
  EXPECT_FALSE(this->find());

  this->store().commit(transaction);
  EXPECT_EQ(this->record().state, RecordState::success);
}

TYPED_TEST_P(TransactionalStoreConformance, ReplaysWithinATransaction) {
  auto outside = this->owner({.key = this->key("outside")});
  ASSERT_EQ(outside.complete("outside"), WriteOutcome::stored);
  auto inside = this->open();
  this->run_in(inside, this->caller({.key = this->key("inside")}).request(), "inside");
  this->store().commit(inside);

  auto transaction = this->open();
  const BeginOutcome of_outside =
      this->store().begin(transaction, this->caller({.key = this->key("outside")}).request());
  const BeginOutcome of_inside =
      this->store().begin(transaction, this->caller({.key = this->key("inside")}).request());
  this->store().rollback(transaction);

  EXPECT_TRUE(replays(of_outside, "outside"));
  EXPECT_TRUE(replays(of_inside, "inside"));
  EXPECT_EQ(this->business_rows(), 1U);
}

TYPED_TEST_P(TransactionalStoreConformance, RefusesWithinATransactionWhatAnotherOwns) {
  auto running = this->owner();

  auto transaction = this->open();
  const BeginOutcome outcome = this->store().begin(transaction, this->caller().request());
  this->store().rollback(transaction);

  EXPECT_TRUE(is<InProgress>(outcome));
  EXPECT_EQ(running.complete(), WriteOutcome::stored);
}

TYPED_TEST_P(TransactionalStoreConformance, JudgesFingerprintsWithinATransaction) {
  auto first = this->owner({.fingerprint = Fingerprint::of_bytes("100 cents")});
  ASSERT_EQ(first.complete(), WriteOutcome::stored);

  auto transaction = this->open();
  auto misuse = this->caller({.fingerprint = Fingerprint::of_bytes("200 cents")});
  const BeginOutcome outcome = this->store().begin(transaction, misuse.request());
  this->store().rollback(transaction);

  EXPECT_TRUE(is<Mismatch>(outcome));
}

TYPED_TEST_P(TransactionalStoreConformance, RefusesACompletionOfAnotherWithinATransaction) {
  auto owner = this->owner();
  auto stranger = this->caller();
  stranger.pretend_fence(owner.by().fence);

  auto transaction = this->open();
  const WriteOutcome outcome = this->store().complete(transaction, stranger.key(), stranger.by(),
                                                      Completion{.result = "of the stranger"});
  this->store().commit(transaction);

  EXPECT_EQ(outcome, WriteOutcome::lost);
  EXPECT_EQ(owner.complete("of the owner"), WriteOutcome::stored);
  EXPECT_TRUE(replays(this->caller().begin(), "of the owner"));
}

TYPED_TEST_P(TransactionalStoreConformance, LetsNobodyInBetweenBeginAndCommit) {
  auto transaction = this->open();
  this->run_in(transaction, this->caller().request(), "moved");
  const BeginRequest duplicate = this->caller().request();
  std::optional<BeginOutcome> outcome;

  std::jthread other([&] { outcome = this->begin_when_free(duplicate); });
  this->store().commit(transaction);
  other.join();

  ASSERT_TRUE(outcome);
  EXPECT_TRUE(replays(*outcome, "moved"));
}

TYPED_TEST_P(TransactionalStoreConformance, LetsTheNextOneInAfterARollBack) {
  auto transaction = this->open();
  this->run_in(transaction, this->caller().request(), "moved");
  this->store().rollback(transaction);

  auto again = this->open();
  this->run_in(again, this->caller().request(), "moved at the second try");
  this->store().commit(again);

  EXPECT_EQ(this->business_rows(), 1U);
  EXPECT_TRUE(replays(this->caller().begin(), "moved at the second try"));
}

TYPED_TEST_P(TransactionalStoreConformance, HasOneEffectHoweverManyTransactionsTryAtOnce) {
  std::atomic<int> ran{0};
  std::atomic<int> replayed{0};

  on_threads(concurrent_callers, [&](std::size_t) {
    const BeginRequest request = this->caller().request();
    auto transaction = this->open();
    const BeginOutcome outcome = this->store().begin(transaction, request);
    if (const Acquired* granted = std::get_if<Acquired>(&outcome)) {
      this->fixture().add_business_row(transaction);
      static_cast<void>(this->store().complete(transaction, request.key,
                                               {request.owner, granted->fence},
                                               Completion{.result = "moved"}));
      this->store().commit(transaction);
      ++ran;
    } else {
      this->store().rollback(transaction);
      if (replays(outcome, "moved")) ++replayed;
    }
  });

  EXPECT_EQ(ran, 1);
  EXPECT_EQ(replayed, static_cast<int>(concurrent_callers) - 1);
  EXPECT_EQ(this->business_rows(), 1U);
}

TYPED_TEST_P(TransactionalStoreConformance, CommitsWhatItBeganOnTheCallersConnection) {
  if constexpr (!LendsConnection<TypeParam>) {
    GTEST_SKIP() << "the fixture has no application()";
  } else {
    auto transaction = this->open_on_application();
    EXPECT_FALSE(this->store().is_joined(transaction));
    this->run_in(transaction, this->caller().request(), "moved");
    EXPECT_FALSE(this->find());

    this->store().commit(transaction);

    ASSERT_EQ(this->business_rows(), 1U);
    EXPECT_TRUE(replays(this->caller().begin(), "moved"));
  }
}

TYPED_TEST_P(TransactionalStoreConformance, RollsBackWhatItBeganOnTheCallersConnection) {
  if constexpr (!LendsConnection<TypeParam>) {
    GTEST_SKIP() << "the fixture has no application()";
  } else {
    auto transaction = this->open_on_application();
    this->run_in(transaction, this->caller().request(), "moved");

    this->store().rollback(transaction);

    EXPECT_EQ(this->business_rows(), 0U);
    EXPECT_FALSE(this->find());
    auto& application = this->fixture().application();  // its connection is as it was lent
    application.begin();
    application.add_business_row();
    application.commit();
    EXPECT_EQ(this->business_rows(), 1U);
  }
}

TYPED_TEST_P(TransactionalStoreConformance, LeavesTheCallersTransactionToTheCaller) {
  if constexpr (!LendsConnection<TypeParam>) {
    GTEST_SKIP() << "the fixture has no application()";
  } else {
    auto& application = this->fixture().application();
    application.begin();
    application.add_business_row();
    auto transaction = this->open_on_application();
    EXPECT_TRUE(this->store().is_joined(transaction));
    this->run_in(transaction, this->caller().request(), "moved");
    this->store().commit(transaction);
    EXPECT_EQ(this->business_rows(), 0U);
    EXPECT_FALSE(this->find());

    application.commit();

    EXPECT_EQ(this->business_rows(), 2U);
    EXPECT_TRUE(replays(this->caller().begin(), "moved"));
  }
}

TYPED_TEST_P(TransactionalStoreConformance, LosesAJoinedCommitWhenTheCallerRollsBack) {
  if constexpr (!LendsConnection<TypeParam>) {
    GTEST_SKIP() << "the fixture has no application()";
  } else {
    auto& application = this->fixture().application();
    application.begin();
    application.add_business_row();
    auto transaction = this->open_on_application();
    this->run_in(transaction, this->caller().request(), "moved");
    this->store().commit(transaction);

    application.rollback();

    EXPECT_EQ(this->business_rows(), 0U);
    EXPECT_FALSE(this->find());
    EXPECT_EQ(this->caller().begin(), acquired(1, 1));
  }
}

TYPED_TEST_P(TransactionalStoreConformance, RollsBackToWhereItJoinedTheCallersTransaction) {
  if constexpr (!LendsConnection<TypeParam>) {
    GTEST_SKIP() << "the fixture has no application()";
  } else {
    auto& application = this->fixture().application();
    application.begin();
    application.add_business_row();
    auto transaction = this->open_on_application();
    this->run_in(transaction, this->caller().request(), "moved");
    this->store().rollback(transaction);
    application.add_business_row();

    application.commit();

    EXPECT_EQ(this->business_rows(), 2U);
    EXPECT_FALSE(this->find());
    EXPECT_EQ(this->caller().begin(), acquired(1, 1));
  }
}

TYPED_TEST_P(TransactionalStoreConformance, SeesWhatWasJoinedBeforeInTheCallersTransaction) {
  if constexpr (!LendsConnection<TypeParam>) {
    GTEST_SKIP() << "the fixture has no application()";
  } else {
    auto& application = this->fixture().application();
    application.begin();
    auto first = this->open_on_application();
    this->run_in(first, this->caller().request(), "moved");
    this->store().commit(first);

    auto second = this->open_on_application();
    const BeginOutcome outcome = this->store().begin(second, this->caller().request());
    this->store().rollback(second);
    application.commit();

    EXPECT_TRUE(replays(outcome, "moved"));
    EXPECT_EQ(this->business_rows(), 1U);
  }
}

REGISTER_TYPED_TEST_SUITE_P(
    TransactionalStoreConformance, CommitsTheRecordAndTheEffectTogether,
    RollsTheRecordAndTheEffectBackTogether, ShowsNothingBeforeTheCommit, ReplaysWithinATransaction,
    RefusesWithinATransactionWhatAnotherOwns, JudgesFingerprintsWithinATransaction,
    RefusesACompletionOfAnotherWithinATransaction, LetsNobodyInBetweenBeginAndCommit,
    LetsTheNextOneInAfterARollBack, HasOneEffectHoweverManyTransactionsTryAtOnce,
    CommitsWhatItBeganOnTheCallersConnection, RollsBackWhatItBeganOnTheCallersConnection,
    LeavesTheCallersTransactionToTheCaller, LosesAJoinedCommitWhenTheCallerRollsBack,
    RollsBackToWhereItJoinedTheCallersTransaction, SeesWhatWasJoinedBeforeInTheCallersTransaction);

}  // namespace testing
}  // namespace v0
}  // namespace idempotency
