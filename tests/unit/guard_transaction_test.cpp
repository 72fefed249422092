// `run_in_transaction` through the guard: what its promise says, and each way that a transaction can end.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "idempotency/idempotency.hpp"
#include "idempotency/stores/sqlite.hpp"
#include "support/error_of.hpp"
#include "support/event.hpp"
#include "support/sqlite_file.hpp"

namespace idempotency {
namespace {

using namespace std::chrono_literals;
using testing_support::code_of;
using testing_support::PlainConnection;
using testing_support::TemporaryFolder;

enum class CommitFault { none, lost, unknown_and_committed, unknown_and_rolled_back };

/// A store whose commits end as a test says, the next one first.
class UncertainCommits {
 public:
  using Transaction = SqliteStore::Transaction;
  using Connection = SqliteStore::Connection;

  explicit UncertainCommits(SqliteStore& inner) : inner_(&inner) {}
  std::vector<CommitFault> faults;
  bool failures_cannot_be_recorded = false;
  std::optional<Errc> openings_fail = std::nullopt;  ///< from the first commit on
  int unreachable = 0;  ///< so many openings fail before others succeed
  int openings = 0;
  int finds = 0;

  BeginOutcome begin(const BeginRequest& request) { return inner_->begin(request); }
  WriteOutcome complete(const Key& key, const Ownership& by, const Completion& completion) {
    return inner_->complete(key, by, completion);
  }
  WriteOutcome fail(const Key& key, const Ownership& by, const Failure& failure,
                    std::chrono::milliseconds retention) {
    if (failures_cannot_be_recorded) throw Error(Errc::store_unavailable, "gone");
    return inner_->fail(key, by, failure, retention);
  }
  WriteOutcome doubt(const Key& key, const Ownership& by) { return inner_->doubt(key, by); }
  WriteOutcome mark_effect(const Key& key, const Ownership& by) {
    return inner_->mark_effect(key, by);
  }
  WriteOutcome renew(const Key& key, const Ownership& by, std::chrono::milliseconds lease) {
    return inner_->renew(key, by, lease);
  }
  ReleaseOutcome release(const Key& key, const Ownership& by,
                         std::chrono::milliseconds retention) noexcept {
    return inner_->release(key, by, retention);
  }
  std::optional<Record> find(const Key& key) {
    ++finds;
    return inner_->find(key);
  }
  Transaction open_transaction(const TransactionOptions& options) {
    ++openings;
    if (unreachable-- > 0) throw Error(Errc::store_unavailable, "not there yet");
    if (openings_fail && commits_ > 0) throw Error(*openings_fail, "gone");
    return inner_->open_transaction(options);
  }
  Transaction open_transaction(Connection connection, const TransactionOptions& options) {
    ++openings;
    if (unreachable-- > 0) throw Error(Errc::store_unavailable, "not there yet");
    return inner_->open_transaction(connection, options);
  }
  BeginOutcome begin(Transaction& transaction, const BeginRequest& request) {
    return inner_->begin(transaction, request);
  }
  WriteOutcome complete(Transaction& transaction, const Key& key, const Ownership& by,
                        const Completion& completion) {
    return inner_->complete(transaction, key, by, completion);
  }
  bool is_joined(Transaction& transaction) { return inner_->is_joined(transaction); }
  void commit(Transaction& transaction) {
    ++commits_;
    CommitFault fault = CommitFault::none;
    if (!faults.empty()) {
      fault = faults.front();
      faults.erase(faults.begin());
    }
    if (fault == CommitFault::none || fault == CommitFault::unknown_and_committed) {
      inner_->commit(transaction);
    } else {
      inner_->rollback(transaction);
    }
    if (fault == CommitFault::lost) throw Error(Errc::transaction_lost, "a conflict");
    if (fault != CommitFault::none) throw Error(Errc::commit_unknown, "no answer");
  }
  void rollback(Transaction& transaction) noexcept { inner_->rollback(transaction); }

 private:
  SqliteStore* inner_;
  int commits_ = 0;
};
static_assert(TransactionalStore<UncertainCommits>);
static_assert(!detail::CanPeek<UncertainCommits>);
static_assert(detail::CanPeek<SqliteStore>);

class GuardTransactionTest : public ::testing::Test {
 protected:
  GuardTransactionTest() { application.run("CREATE TABLE moved (cents INTEGER)"); }

  [[nodiscard]] static Operation transfer(PolicyOverride policy = {}) {
    return {.key = {"transfer", "7"}, .policy = policy};
  }
  static int move(SqliteTransaction& transaction) {
    transaction.execute("INSERT INTO moved VALUES (?)", 5);
    return 5;
  }
  [[nodiscard]] std::string moves() { return application.ask("SELECT count(*) FROM moved"); }

  TemporaryFolder folder;
  std::string path = folder.file("shop.db");
  SqliteStore store{{.path = path, .durability = SqliteDurability::normal}};
  PlainConnection application{path};
  IdempotencyGuard<SqliteStore> guard{store};
};

TEST_F(GuardTransactionTest, CommitsRecordAndEffectTogetherAndReplaysTheResult) {
  const auto first = guard.run_in_transaction(transfer(), move);
  const auto second = guard.run_in_transaction(transfer(), move);

  EXPECT_EQ(first.status(), RunStatus::executed);
  EXPECT_EQ(second.status(), RunStatus::replayed);
  EXPECT_EQ(second.value(), 5);
  EXPECT_EQ(second.fence(), store.find(Key("transfer", "7"))->ownership.fence);
  EXPECT_EQ(moves(), "1");
}

TEST_F(GuardTransactionTest, ReplaysAcrossBothWaysToRun) {
  ASSERT_EQ(guard.run(transfer(), [] { return 5; }).status(), RunStatus::executed);

  EXPECT_EQ(guard.run_in_transaction(transfer(), move).status(), RunStatus::replayed);
  EXPECT_EQ(moves(), "0");
}

TEST_F(GuardTransactionTest, RefusesARequestOfAnotherMeaning) {
  Operation first = transfer();
  first.fingerprint = Fingerprint::of(5);
  Operation other = transfer();
  other.fingerprint = Fingerprint::of(6);
  ASSERT_EQ(guard.run_in_transaction(first, move).status(), RunStatus::executed);

  EXPECT_EQ(guard.run_in_transaction(other, move).status(), RunStatus::mismatch);
  EXPECT_EQ(moves(), "1");
}

TEST_F(GuardTransactionTest, RollsBackAndRecordsAPermanentFailureAfterwards) {
  const auto refused = [](SqliteTransaction& transaction) -> int {
    move(transaction);
    throw PermanentFailure("no such account");
  };

  EXPECT_THROW(static_cast<void>(guard.run_in_transaction(transfer(), refused)), PermanentFailure);

  EXPECT_EQ(moves(), "0");
  const auto again = guard.run_in_transaction(transfer(), move);
  EXPECT_EQ(again.status(), RunStatus::failed);
  EXPECT_EQ(again.failure(), "no such account");
}

// TC-09: the last ten are gone, and the debit that took them is repeated: it is a duplicate before it is a debit.
TEST_F(GuardTransactionTest, AnswersADuplicateBeforeAnyRuleOfTheBusiness) {
  const auto take_the_only_one = [](SqliteTransaction& transaction) -> int {
    if (transaction.query("SELECT count(*) FROM moved").at(0).as<int>(0) > 0) {
      throw PermanentFailure("nothing is left");
    }
    return move(transaction);
  };
  ASSERT_EQ(guard.run_in_transaction(transfer(), take_the_only_one).status(), RunStatus::executed);

  const auto again = guard.run_in_transaction(transfer(), take_the_only_one);

  EXPECT_EQ(again.status(), RunStatus::replayed);
  EXPECT_EQ(moves(), "1");
}

TEST_F(GuardTransactionTest, LeavesTheKeyFreeWhenTheFailureCannotBeRecorded) {
  UncertainCommits commits(store);
  commits.failures_cannot_be_recorded = true;
  IdempotencyGuard broken{commits};
  const auto refused = [](SqliteTransaction& transaction) -> int {
    move(transaction);
    throw PermanentFailure("no such account");
  };

  EXPECT_THROW(static_cast<void>(broken.run_in_transaction(
                   transfer({.lease = 1ms, .on_expired_lease = RecordMode::hold}), refused)),
               PermanentFailure);
  std::this_thread::sleep_until(std::chrono::system_clock::now() + 3ms);  // the lease has ended

  EXPECT_EQ(guard.run_in_transaction(transfer(), move).status(), RunStatus::executed);
  EXPECT_EQ(moves(), "1");
}

TEST_F(GuardTransactionTest, LeavesNothingBehindWhenTheHandlerThrows) {
  const auto breaks = [](SqliteTransaction& transaction) -> int {
    move(transaction);
    throw std::runtime_error("out of luck");
  };

  EXPECT_THROW(static_cast<void>(guard.run_in_transaction(transfer(), breaks)), std::runtime_error);

  EXPECT_FALSE(store.find(Key("transfer", "7")).has_value());
  EXPECT_EQ(guard.run_in_transaction(transfer(), move).status(), RunStatus::executed);
  EXPECT_EQ(moves(), "1");
}

TEST_F(GuardTransactionTest, KeepsAnUnknownOutsideOutcomeUncertain) {
  const auto unknown = [](SqliteTransaction& transaction) -> int {
    move(transaction);
    throw OutcomeUnknown("the partner bank did not answer");
  };

  EXPECT_THROW(static_cast<void>(guard.run_in_transaction(transfer(), unknown)), OutcomeUnknown);

  EXPECT_EQ(moves(), "0");
  EXPECT_EQ(guard.run_in_transaction(transfer(), move).status(), RunStatus::uncertain);
}

// The owner of a run under hold died; who meets its record in a transaction leaves it uncertain, for a settler to find.
TEST_F(GuardTransactionTest, LeavesTheRecordOfASilentOwnerUncertain) {
  const BeginRequest died{.key = {"transfer", "7"},
                          .owner = OwnerToken::generate(),
                          .mode = RecordMode::hold,
                          .lease = 1ms};
  ASSERT_EQ(store.begin(died), BeginOutcome(Acquired{}));
  std::this_thread::sleep_until(std::chrono::system_clock::now() + 3ms);  // the lease has ended

  EXPECT_EQ(guard.run_in_transaction(transfer(), move).status(), RunStatus::uncertain);

  EXPECT_EQ(store.list({.state = RecordState::uncertain}, "", 10).records.size(), 1U);
  EXPECT_EQ(moves(), "0");
}

TEST_F(GuardTransactionTest, RefusesATransactionInsideOfAnother) {
  const auto nested = [&](SqliteTransaction& transaction) {
    move(transaction);
    EXPECT_EQ(code_of([&] {
                static_cast<void>(guard.run_in_transaction({.key = {"transfer", "8"}}, move));
              }),
              Errc::nested_transaction);
    EXPECT_EQ(code_of([&] {
                static_cast<void>(guard.run({.key = {"transfer", "9"}}, [] { return 1; }));
              }),
              Errc::nested_transaction);
    return 1;
  };

  EXPECT_EQ(guard.run_in_transaction(transfer(), nested).status(), RunStatus::executed);
  EXPECT_EQ(moves(), "1");
}

TEST_F(GuardTransactionTest, CommitsOnTheCallersOwnConnection) {
  const auto result = guard.run_in_transaction(transfer(), application.handle(), move);

  EXPECT_EQ(result.status(), RunStatus::executed);
  EXPECT_EQ(moves(), "1");
  EXPECT_NE(sqlite3_get_autocommit(application.handle()), 0);
  EXPECT_EQ(guard.run_in_transaction(transfer(), move).status(), RunStatus::replayed);
}

// MY-26's kin: the caller's transaction stays the caller's.
TEST_F(GuardTransactionTest, JoinsTheCallersTransactionAndLeavesTheCommitToIt) {
  application.run("BEGIN IMMEDIATE");
  const auto result = guard.run_in_transaction(transfer(), application.handle(), move);

  EXPECT_EQ(result.status(), RunStatus::executed_pending_commit);
  EXPECT_EQ(result.value(), 5);
  EXPECT_EQ(sqlite3_get_autocommit(application.handle()), 0);
  application.run("COMMIT");
  EXPECT_EQ(moves(), "1");
  EXPECT_EQ(guard.run_in_transaction(transfer(), move).status(), RunStatus::replayed);
}

TEST_F(GuardTransactionTest, VanishesWithTheCallersRollback) {
  application.run("BEGIN IMMEDIATE");
  ASSERT_EQ(guard.run_in_transaction(transfer(), application.handle(), move).status(),
            RunStatus::executed_pending_commit);
  application.run("ROLLBACK");

  EXPECT_FALSE(store.find(Key("transfer", "7")).has_value());
  EXPECT_EQ(guard.run_in_transaction(transfer(), move).status(), RunStatus::executed);
  EXPECT_EQ(moves(), "1");
}

TEST_F(GuardTransactionTest, RepeatsTheWholeWhenTheDatabaseEndsTheTransaction) {
  UncertainCommits commits(store);
  commits.faults = {CommitFault::lost, CommitFault::lost};
  IdempotencyGuard repeated{commits};
  int starts = 0;

  const auto result = repeated.run_in_transaction(transfer(), [&](SqliteTransaction& transaction) {
    ++starts;
    return move(transaction);
  });

  EXPECT_EQ(result.status(), RunStatus::executed);
  EXPECT_EQ(starts, 3);
  EXPECT_EQ(moves(), "1");
}

TEST_F(GuardTransactionTest, GivesUpAfterThreeLostTransactionsWithNothingWritten) {
  UncertainCommits commits(store);
  commits.faults.assign(3, CommitFault::lost);
  IdempotencyGuard repeated{commits};

  EXPECT_EQ(code_of([&] { static_cast<void>(repeated.run_in_transaction(transfer(), move)); }),
            Errc::transaction_lost);

  EXPECT_EQ(moves(), "0");
  EXPECT_FALSE(store.find(Key("transfer", "7")).has_value());
}

TEST_F(GuardTransactionTest, AsksAServerThatCannotBeReachedAsOftenAsARunDoes) {
  UncertainCommits uncertain(store);
  IdempotencyGuard uncertain_guard{uncertain, {.begin_attempts = 3}};
  int runs = 0;
  const auto move = [&](SqliteTransaction&) { return ++runs; };

  uncertain.unreachable = 2;
  EXPECT_EQ(uncertain_guard.run_in_transaction(transfer(), move).status(), RunStatus::executed);
  EXPECT_EQ(uncertain.openings, 3);

  uncertain.unreachable = 3;
  const auto again = [&] {
    static_cast<void>(uncertain_guard.run_in_transaction(transfer(), move));
  };
  EXPECT_EQ(code_of(again), Errc::store_unavailable);
  EXPECT_EQ(runs, 1);
}

TEST_F(GuardTransactionTest, BeginsOnTheCallersConnectionNoMoreThanOnce) {
  UncertainCommits uncertain(store);
  IdempotencyGuard uncertain_guard{uncertain, {.begin_attempts = 3}};
  uncertain.unreachable = 1;

  const auto move = [&] {
    static_cast<void>(uncertain_guard.run_in_transaction(
        transfer(), SqliteConnection{application.handle()}, [](SqliteTransaction&) { return 1; }));
  };

  EXPECT_EQ(code_of(move), Errc::store_unavailable);
  EXPECT_EQ(uncertain.openings, 1);
}

TEST_F(GuardTransactionTest, FindsOutThatAnUnknownCommitTookPlace) {
  UncertainCommits commits(store);
  commits.faults = {CommitFault::unknown_and_committed};
  IdempotencyGuard unsure{commits};

  const auto result = unsure.run_in_transaction(transfer(), move);

  EXPECT_EQ(result.status(), RunStatus::executed);
  EXPECT_EQ(result.value(), 5);
  EXPECT_EQ(moves(), "1");
}

TEST_F(GuardTransactionTest, RepeatsAnUnknownCommitThatDidNotTakePlace) {
  UncertainCommits commits(store);
  commits.faults = {CommitFault::unknown_and_rolled_back};
  IdempotencyGuard unsure{commits};

  const auto result = unsure.run_in_transaction(transfer(), move);

  EXPECT_EQ(result.status(), RunStatus::executed);
  EXPECT_EQ(moves(), "1");
}

// The commit may have taken place, so no error may say that nothing was written.
TEST_F(GuardTransactionTest, SaysThatTheCommitIsUnknownWhenItCannotBeSettled) {
  for (const Errc code : {Errc::store_unavailable, Errc::store_busy, Errc::transaction_lost}) {
    UncertainCommits commits(store);
    commits.faults = {CommitFault::unknown_and_committed};
    commits.openings_fail = code;
    IdempotencyGuard unsure{commits};
    const Operation operation{.key = {"transfer", std::to_string(static_cast<int>(code))}};

    EXPECT_EQ(code_of([&] { static_cast<void>(unsure.run_in_transaction(operation, move)); }),
              Errc::commit_unknown);

    EXPECT_EQ(guard.run_in_transaction(operation, move).status(), RunStatus::replayed);
  }
  EXPECT_EQ(moves(), "3");
}

TEST_F(GuardTransactionTest, LooksBeforeTheTransactionOnlyWhereThatIsCheap) {
  UncertainCommits without_peek(store);
  IdempotencyGuard blind{without_peek};
  ASSERT_EQ(blind.run_in_transaction(transfer(), move).status(), RunStatus::executed);
  ASSERT_EQ(blind.run_in_transaction(transfer(), move).status(), RunStatus::replayed);
  EXPECT_EQ(without_peek.finds, 0);
  application.run("BEGIN IMMEDIATE");  // nobody else can begin a transaction now

  EXPECT_EQ(guard.run_in_transaction(transfer(), move).status(), RunStatus::replayed);

  application.run("ROLLBACK");
}

TEST_F(GuardTransactionTest, RefusesADuplicateOfARunningCallAtOnceOrWaitsForIt) {
  testing_support::Event running;
  testing_support::Event may_end;
  std::jthread owner([&] {
    static_cast<void>(guard.run(transfer(), [&] {
      running.set();
      EXPECT_TRUE(may_end.wait());
      return 5;
    }));
  });
  ASSERT_TRUE(running.wait());

  EXPECT_EQ(guard.run_in_transaction(transfer(), move).status(), RunStatus::in_progress);
  may_end.set();
  const auto waited = guard.run_in_transaction(transfer({.wait = 30s}), move);

  EXPECT_EQ(waited.status(), RunStatus::replayed);
  EXPECT_EQ(waited.value(), 5);
  EXPECT_EQ(moves(), "0");
}

}  // namespace
}  // namespace idempotency
