#include "idempotency/stores/sqlite_transaction.hpp"

#include <gtest/gtest.h>
#include <sqlite3.h>

#include <chrono>
#include <latch>
#include <limits>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "idempotency/stores/sqlite.hpp"
#include "support/error_of.hpp"
#include "support/sqlite_faults.hpp"
#include "support/sqlite_file.hpp"

namespace idempotency {
namespace {

using namespace std::chrono_literals;
using testing_support::code_of;
using testing_support::error_of;
using testing_support::PlainConnection;
using testing_support::request;
using testing_support::SqliteFaults;
using testing_support::StandingClock;
using testing_support::TemporaryFolder;
using testing_support::time_of;
using testing_support::token;

const Key key("payment", "a");
const Ownership first_owner{token(1), 1};

class SqliteTransactionTest : public testing::Test {
 protected:
  SqliteTransactionTest() {
    plain.run("CREATE TABLE ledger (account TEXT PRIMARY KEY, cents INTEGER NOT NULL)");
    plain.run("INSERT INTO ledger VALUES ('alice', 100), ('bob', 0)");
  }

  SqliteOptions options() {
    return {.path = path, .busy_timeout = 2s, .vfs = SqliteFaults::name, .clock = &clock};
  }
  static void begin(SqliteStore& store, SqliteTransaction& transaction) {
    ASSERT_EQ(store.begin(transaction, request("a", 1)), BeginOutcome(Acquired{}));
  }
  static void complete(SqliteStore& store, SqliteTransaction& transaction) {
    ASSERT_EQ(store.complete(transaction, key, first_owner, {"moved", 1h}), WriteOutcome::stored);
  }
  static void move_money(SqliteTransaction& transaction) {
    transaction.execute("UPDATE ledger SET cents = cents - ? WHERE account = ?", 30, "alice");
    transaction.execute("UPDATE ledger SET cents = cents + ? WHERE account = ?", 30, "bob");
  }
  std::string bob() { return plain.ask("SELECT cents FROM ledger WHERE account = 'bob'"); }
  std::string records() { return plain.ask("SELECT count(*) FROM idempotency_record"); }

  SqliteFaults& faults = SqliteFaults::fresh();
  TemporaryFolder folder;
  std::string path = folder.file("store.db");
  StandingClock clock;
  PlainConnection plain{path};
  SqliteStore store{options()};
};

TEST_F(SqliteTransactionTest, CommitsRecordAndEffectTogetherWithOneFlush) {
  faults.log_flushes = 0;
  SqliteTransaction transaction = store.open_transaction();
  begin(store, transaction);
  move_money(transaction);
  complete(store, transaction);

  const auto seen_before = store.find(key);
  const std::string bob_before = bob();
  store.commit(transaction);

  EXPECT_FALSE(seen_before);
  EXPECT_EQ(bob_before, "0");
  EXPECT_EQ(bob(), "30");
  EXPECT_EQ(store.begin(request("a", 2)),
            BeginOutcome(Completed{.result = "moved", .retention_remaining = 1h, .fence = 1}));
  EXPECT_EQ(faults.log_flushes, 1);
}

TEST_F(SqliteTransactionTest, RollsBackRecordAndEffectTogether) {
  {
    SqliteTransaction transaction = store.open_transaction();
    begin(store, transaction);
    move_money(transaction);
    complete(store, transaction);
    store.rollback(transaction);
    EXPECT_EQ(code_of([&] { store.commit(transaction); }), Errc::invalid_argument);
  }

  EXPECT_EQ(bob(), "0");
  EXPECT_EQ(records(), "0");
}

TEST_F(SqliteTransactionTest, RollsBackWhenItIsDestroyedUnended) {
  {
    SqliteTransaction transaction = store.open_transaction();
    begin(store, transaction);
    move_money(transaction);
    SqliteTransaction moved = std::move(transaction);
    complete(store, moved);
  }

  EXPECT_EQ(bob(), "0");
  EXPECT_EQ(records(), "0");
  EXPECT_EQ(store.begin(request("a", 2)), BeginOutcome(Acquired{}));
}

TEST_F(SqliteTransactionTest, KeepsABegunRecordWhenItIsCommittedWithoutAResult) {
  SqliteTransaction transaction = store.open_transaction();
  begin(store, transaction);
  const auto within = store.find(transaction, key);
  const BeginOutcome other = store.begin(transaction, request("a", 2));
  store.commit(transaction);

  ASSERT_TRUE(within);
  EXPECT_EQ(within->state, RecordState::processing);
  EXPECT_EQ(other, BeginOutcome(InProgress{30s}));
  EXPECT_EQ(store.find(key)->ownership, first_owner);
}

TEST_F(SqliteTransactionTest, HoldsSeveralRecordsInOneTransaction) {
  SqliteTransaction transaction = store.open_transaction();
  ASSERT_EQ(store.begin(transaction, request("a", 1)), BeginOutcome(Acquired{}));
  ASSERT_EQ(store.begin(transaction, request("b", 1)), BeginOutcome(Acquired{}));
  ASSERT_EQ(store.complete(transaction, key, first_owner, {"ra", 1h}), WriteOutcome::stored);
  ASSERT_EQ(store.complete(transaction, Key("payment", "b"), first_owner, {"rb", 1h}),
            WriteOutcome::stored);
  store.commit(transaction);

  EXPECT_EQ(store.find(key)->result, "ra");
  EXPECT_EQ(store.find(Key("payment", "b"))->result, "rb");
}

TEST_F(SqliteTransactionTest, JudgesWhatStandsInTheFile) {
  ASSERT_EQ(store.begin(request("a", 7)), BeginOutcome(Acquired{}));
  const Ownership outside{token(7), 1};

  SqliteTransaction transaction = store.open_transaction();
  const BeginOutcome running = store.begin(transaction, request("a", 1));
  clock.advance(30s);
  const BeginOutcome taken_over = store.begin(transaction, request("a", 1));
  const WriteOutcome late = store.complete(transaction, key, outside, {"late", 1h});
  const WriteOutcome own = store.complete(transaction, key, {token(1), 2}, {"own", 1h});
  const WriteOutcome repeated = store.complete(transaction, key, {token(1), 2}, {"own", 1h});
  store.commit(transaction);

  EXPECT_EQ(running, BeginOutcome(InProgress{30s}));
  EXPECT_EQ(taken_over, BeginOutcome(Acquired{2, 2}));
  EXPECT_EQ(late, WriteOutcome::lost);
  EXPECT_EQ(own, WriteOutcome::stored);
  EXPECT_EQ(repeated, WriteOutcome::stored);
  EXPECT_EQ(store.find(key)->result, "own");
}

// --- nesting and waiting ---

TEST_F(SqliteTransactionTest, RefusesAtOnceWhatWouldWaitForItself) {
  SqliteTransaction transaction = store.open_transaction();
  begin(store, transaction);

  const auto spent = time_of([&] {
    EXPECT_EQ(code_of([&] { static_cast<void>(store.open_transaction()); }),
              Errc::nested_transaction);
    EXPECT_EQ(code_of([&] {
                static_cast<void>(store.open_transaction(SqliteConnection{plain.handle()}));
              }),
              Errc::nested_transaction);
    EXPECT_EQ(code_of([&] { static_cast<void>(store.begin(request("b", 1))); }),
              Errc::nested_transaction);
    EXPECT_EQ(code_of([&] { static_cast<void>(store.complete(key, first_owner, {})); }),
              Errc::nested_transaction);
    EXPECT_EQ(code_of([&] { static_cast<void>(store.renew(key, first_owner, 1s)); }),
              Errc::nested_transaction);
    EXPECT_EQ(store.release(key, first_owner, 1s), ReleaseOutcome::unknown);
    EXPECT_FALSE(store.find(key));
  });
  complete(store, transaction);
  store.commit(transaction);

  EXPECT_LT(spent, 1s);
  EXPECT_EQ(store.begin(request("b", 1)), BeginOutcome(Acquired{}));
}

TEST_F(SqliteTransactionTest, WaitsForItsTurnNoLongerThanAllowed) {
  SqliteTransaction transaction = store.open_transaction();
  Errc code{};
  std::chrono::milliseconds waited{};

  std::jthread([&] {
    waited = time_of([&] {
      code = code_of([&] { static_cast<void>(store.open_transaction({.wait = 60ms})); });
    });
  }).join();
  store.rollback(transaction);
  std::optional<Errc> after;
  std::jthread([&] {
    SqliteTransaction next = store.open_transaction({.wait = 60ms});
    store.commit(next);
    after.emplace();
  }).join();

  EXPECT_EQ(code, Errc::store_busy);
  EXPECT_GE(waited, 55ms);
  EXPECT_LT(waited, 1s);
  EXPECT_TRUE(after);
}

TEST_F(SqliteTransactionTest, WaitsForAnotherProcessNoLongerThanAllowed) {
  plain.run("BEGIN IMMEDIATE");

  Errc code{};
  const auto waited = time_of(
      [&] { code = code_of([&] { static_cast<void>(store.open_transaction({.wait = 60ms})); }); });
  plain.run("COMMIT");

  EXPECT_EQ(code, Errc::store_busy);
  EXPECT_LT(waited, 1s);
  SqliteTransaction transaction = store.open_transaction({.wait = 60ms});
  EXPECT_EQ(store.begin(transaction, request("a", 1)), BeginOutcome(Acquired{}));
}

TEST_F(SqliteTransactionTest, OtherThreadsWritesWaitForTheTransactionAndThenHappen) {
  SqliteTransaction transaction = store.open_transaction();
  begin(store, transaction);
  std::latch started(1);
  BeginOutcome outcome = InProgress{};

  std::jthread other([&] {
    started.count_down();
    outcome = store.begin(request("b", 2));
  });
  started.wait();
  complete(store, transaction);
  store.commit(transaction);
  other.join();

  EXPECT_EQ(outcome, BeginOutcome(Acquired{}));
  EXPECT_EQ(store.find(key)->result, "moved");
}

// --- adopted connections ---

TEST_F(SqliteTransactionTest, BeginsAndCommitsOnAnIdleConnectionOfTheApplication) {
  plain.run("PRAGMA busy_timeout = 123; PRAGMA synchronous = OFF; PRAGMA foreign_keys = ON");
  SqliteTransaction transaction = store.open_transaction(SqliteConnection{plain.handle()});
  begin(store, transaction);
  move_money(transaction);
  complete(store, transaction);
  const bool joined = store.is_joined(transaction);
  store.commit(transaction);

  EXPECT_FALSE(joined);
  EXPECT_NE(sqlite3_get_autocommit(plain.handle()), 0);
  EXPECT_EQ(PlainConnection(path).ask("SELECT cents FROM ledger WHERE account = 'bob'"), "30");
  EXPECT_EQ(store.find(key)->result, "moved");
  EXPECT_EQ(plain.ask("PRAGMA busy_timeout"), "123");
  EXPECT_EQ(plain.ask("PRAGMA synchronous"), "0");
  EXPECT_EQ(plain.ask("PRAGMA foreign_keys"), "1");
}

TEST_F(SqliteTransactionTest, JoinsAnOpenTransactionWhoseOwnerCommits) {
  plain.run("BEGIN");
  plain.run("UPDATE ledger SET cents = 1 WHERE account = 'alice'");
  SqliteTransaction transaction = store.open_transaction(SqliteConnection{plain.handle()});
  begin(store, transaction);
  move_money(transaction);
  complete(store, transaction);
  const bool joined = store.is_joined(transaction);
  store.commit(transaction);
  const auto before = store.find(key);
  plain.run("COMMIT");

  EXPECT_TRUE(joined);
  EXPECT_FALSE(before);
  EXPECT_EQ(store.find(key)->result, "moved");
  EXPECT_EQ(bob(), "30");
}

TEST_F(SqliteTransactionTest, ARolledBackJoinReachesBackToTheJoinOnly) {
  plain.run("BEGIN");
  plain.run("UPDATE ledger SET cents = 1 WHERE account = 'alice'");
  SqliteTransaction transaction = store.open_transaction(SqliteConnection{plain.handle()});
  begin(store, transaction);
  transaction.execute("UPDATE ledger SET cents = 30 WHERE account = 'bob'");
  complete(store, transaction);
  store.rollback(transaction);
  plain.run("COMMIT");

  EXPECT_EQ(plain.ask("SELECT cents FROM ledger WHERE account = 'alice'"), "1");
  EXPECT_EQ(bob(), "0");
  EXPECT_EQ(records(), "0");
}

TEST_F(SqliteTransactionTest, TheOwnersRollbackTakesTheRecordWithIt) {
  plain.run("BEGIN");
  SqliteTransaction transaction = store.open_transaction(SqliteConnection{plain.handle()});
  begin(store, transaction);
  move_money(transaction);
  complete(store, transaction);
  store.commit(transaction);
  plain.run("ROLLBACK");

  EXPECT_EQ(bob(), "0");
  EXPECT_EQ(store.begin(request("a", 2)), BeginOutcome(Acquired{}));
}

// SL-03, MY-11: a transaction that has read before others wrote cannot be joined, which is said at
// once; the repeated transaction finds the other's record.
TEST_F(SqliteTransactionTest, SaysAtOnceThatAStaleTransactionMustStartAnew) {
  plain.run("BEGIN");
  ASSERT_EQ(plain.ask("SELECT count(*) FROM ledger"), "2");
  ASSERT_EQ(store.begin(request("a", 7)), BeginOutcome(Acquired{}));
  ASSERT_EQ(store.complete(key, {token(7), 1}, {"rival", 1h}), WriteOutcome::stored);

  Errc code{};
  const auto spent = time_of([&] {
    code = code_of([&] {
      static_cast<void>(store.open_transaction(SqliteConnection{plain.handle()},
                                               {.wait = std::chrono::minutes(1)}));
    });
  });
  plain.run("ROLLBACK");
  plain.run("BEGIN");
  SqliteTransaction again = store.open_transaction(SqliteConnection{plain.handle()});
  const BeginOutcome outcome = store.begin(again, request("a", 1));
  store.rollback(again);
  plain.run("ROLLBACK");

  EXPECT_EQ(code, Errc::transaction_lost);
  EXPECT_LT(spent, 10s);
  ASSERT_TRUE(std::holds_alternative<Completed>(outcome));
  EXPECT_EQ(std::get<Completed>(outcome).result, "rival");
}

TEST_F(SqliteTransactionTest, RefusesAConnectionToAnotherDatabase) {
  PlainConnection elsewhere(folder.file("other.db"));
  PlainConnection memory(":memory:");

  const auto adopt = [&](sqlite3* handle) {
    return code_of([&] { static_cast<void>(store.open_transaction(SqliteConnection{handle})); });
  };

  EXPECT_EQ(adopt(elsewhere.handle()), Errc::invalid_argument);
  EXPECT_EQ(adopt(memory.handle()), Errc::invalid_argument);
  EXPECT_EQ(adopt(nullptr), Errc::invalid_argument);
}

TEST_F(SqliteTransactionTest, IsNotMisledByATemporaryTableOfTheSameName) {
  plain.run("CREATE TEMP TABLE idempotency_record (type, value)");

  SqliteTransaction transaction = store.open_transaction(SqliteConnection{plain.handle()});
  begin(store, transaction);
  complete(store, transaction);
  store.commit(transaction);

  EXPECT_EQ(store.find(key)->result, "moved");
}

// --- the handler's statements ---

TEST_F(SqliteTransactionTest, RefusesStatementsThatWouldEndTheTransaction) {
  SqliteTransaction transaction = store.open_transaction();
  begin(store, transaction);

  for (const char* sql :
       {"COMMIT", "commit transaction", "END", "ROLLBACK", "BEGIN", "BEGIN IMMEDIATE",
        "SAVEPOINT x", "RELEASE x", "  \n; -- a note\n /* another */ CoMMiT",
        "\xEF\xBB\xBF"
        "COMMIT"}) {
    EXPECT_EQ(code_of([&] { transaction.execute(sql); }), Errc::invalid_argument) << sql;
    EXPECT_EQ(code_of([&] { static_cast<void>(transaction.query(sql)); }), Errc::invalid_argument)
        << sql;
  }
  move_money(transaction);
  complete(store, transaction);
  store.commit(transaction);

  EXPECT_EQ(bob(), "30");
}

TEST_F(SqliteTransactionTest, RefusesWhatIsNotOneStatementWithItsParameters) {
  SqliteTransaction transaction = store.open_transaction();
  const auto code = [&](const char* sql) { return code_of([&] { transaction.execute(sql); }); };

  EXPECT_EQ(code("DELETE FROM ledger; DELETE FROM ledger"), Errc::invalid_argument);
  EXPECT_EQ(code("DELETE FROM ledger; COMMIT"), Errc::invalid_argument);
  EXPECT_EQ(code(""), Errc::invalid_argument);
  EXPECT_EQ(code("DELETE FROM ledger WHERE account = ?"), Errc::invalid_argument);
  EXPECT_EQ(code("DELETE FROM"), Errc::statement_failed);
  EXPECT_EQ(code("INSERT INTO ledger VALUES ('bob', 1)"), Errc::statement_failed);
  EXPECT_EQ(transaction.execute("DELETE FROM ledger ; -- all of it").changed, 2U);
  EXPECT_EQ(transaction.query("SELECT 1 FROM ledger").size(), 0U);
}

TEST_F(SqliteTransactionTest, ErrorsKeepStatementAndValuesOutOfTheMessage) {
  SqliteTransaction transaction = store.open_transaction();

  const Error error =
      error_of([&] { transaction.execute("INSERT INTO ledger VALUES (?, 1)", "bob"); });

  EXPECT_EQ(std::string(error.what()).find("ledger"), std::string::npos);
  EXPECT_NE(error.detail().find("ledger"), std::string::npos);
}

TEST_F(SqliteTransactionTest, SaysThatAStatementEndedTheTransaction) {
  SqliteTransaction transaction = store.open_transaction();
  begin(store, transaction);
  move_money(transaction);

  const Errc statement =
      code_of([&] { transaction.execute("INSERT OR ROLLBACK INTO ledger VALUES ('bob', 1)"); });
  const Errc next = code_of([&] { transaction.execute("DELETE FROM ledger"); });
  const Errc completion = code_of([&] {
    static_cast<void>(store.complete(transaction, key, first_owner, {"moved", 1h}));
  });
  const Errc commit = code_of([&] { store.commit(transaction); });
  store.rollback(transaction);

  EXPECT_EQ(statement, Errc::transaction_lost);
  EXPECT_EQ(next, Errc::transaction_lost);
  EXPECT_EQ(completion, Errc::transaction_lost);
  EXPECT_EQ(commit, Errc::transaction_lost);
  EXPECT_EQ(bob(), "0");
  EXPECT_EQ(store.begin(request("a", 2)), BeginOutcome(Acquired{}));
}

TEST_F(SqliteTransactionTest, DoesNotClaimToKnowWhatAHandlerCommittedBehindItsBack) {
  SqliteTransaction transaction = store.open_transaction();
  begin(store, transaction);
  sqlite3_exec(transaction.native_handle(), "COMMIT", nullptr, nullptr, nullptr);

  EXPECT_EQ(code_of([&] { store.commit(transaction); }), Errc::commit_unknown);
  EXPECT_EQ(store.begin(request("b", 2)), BeginOutcome(Acquired{}));
}

TEST_F(SqliteTransactionTest, CountsRowsOfTheStatementAlone) {
  SqliteTransaction transaction = store.open_transaction();

  const SqlChanges both = transaction.execute("UPDATE ledger SET cents = cents + 1");
  const SqlChanges none = transaction.execute("UPDATE ledger SET cents = 0 WHERE account = 'eve'");
  const SqlChanges definition = transaction.execute("CREATE TABLE other (x)");
  const SqlChanges reading = transaction.execute("SELECT * FROM ledger");

  EXPECT_EQ(both, (SqlChanges{2, 2}));
  EXPECT_EQ(none, SqlChanges{});
  EXPECT_EQ(definition, SqlChanges{});
  EXPECT_EQ(reading, SqlChanges{});
}

TEST_F(SqliteTransactionTest, CarriesTypedValuesBothWays) {
  SqliteTransaction transaction = store.open_transaction();
  transaction.execute("CREATE TABLE things (a, b, c, d, e, f, g)");
  const std::string bytes{"\0\xFF\0", 3};
  const std::optional<std::string> nothing;
  constexpr auto smallest = std::numeric_limits<std::int64_t>::min();

  transaction.execute("INSERT INTO things VALUES (?, ?, ?, ?, ?, ?, ?)", smallest, 2.5, "text",
                      SqlBlob{bytes}, nothing, true, std::uint8_t{200});
  const SqlRows rows = transaction.query("SELECT *, 'x' AS last FROM things WHERE c = ?", "text");

  ASSERT_EQ(rows.size(), 1U);
  const SqlRow& row = rows.at(0);
  EXPECT_EQ(row.as<std::int64_t>(0), smallest);
  EXPECT_EQ(row.as<double>(1), 2.5);
  EXPECT_EQ(row.as<std::string>("c"), "text");
  EXPECT_EQ(row.as<SqlBlob>("d").bytes, bytes);
  EXPECT_EQ(row.as<std::optional<std::string>>("e"), std::nullopt);
  EXPECT_TRUE(row.as<bool>("f"));
  EXPECT_EQ(row.as<std::uint8_t>("g"), 200);
  EXPECT_EQ(row.as<std::optional<std::string>>("last"), "x");
  EXPECT_EQ(transaction.dialect(), SqlDialect::sqlite);
}

TEST_F(SqliteTransactionTest, RefusesToReadAValueAsWhatItIsNot) {
  SqliteTransaction transaction = store.open_transaction();
  const SqlRows rows = transaction.query("SELECT 300, -1, 'text', NULL, 2");
  const SqlRow& row = rows.at(0);

  EXPECT_EQ(code_of([&] { static_cast<void>(row.as<std::uint8_t>(0)); }), Errc::invalid_argument);
  EXPECT_EQ(code_of([&] { static_cast<void>(row.as<std::uint64_t>(1)); }), Errc::invalid_argument);
  EXPECT_EQ(code_of([&] { static_cast<void>(row.as<int>(2)); }), Errc::invalid_argument);
  EXPECT_EQ(code_of([&] { static_cast<void>(row.as<int>(3)); }), Errc::invalid_argument);
  EXPECT_EQ(code_of([&] { static_cast<void>(row.as<bool>(4)); }), Errc::invalid_argument);
  EXPECT_EQ(code_of([&] { static_cast<void>(row.as<int>("none")); }), Errc::invalid_argument);
  EXPECT_EQ(code_of([&] { static_cast<void>(row.as<int>(9)); }), Errc::invalid_argument);
  EXPECT_EQ(code_of([&] { static_cast<void>(rows.at(1)); }), Errc::invalid_argument);
  EXPECT_EQ(code_of([&] {
              transaction.execute("INSERT INTO ledger VALUES ('eve', ?)",
                                  std::numeric_limits<std::uint64_t>::max());
            }),
            Errc::invalid_argument);
}

TEST_F(SqliteTransactionTest, FindsItsStatementsAgainAmongManyOthers) {
  SqliteTransaction transaction = store.open_transaction();
  std::int64_t sum = 0;

  for (int round = 0; round < 2; ++round) {
    for (int index = 0; index < 100; ++index) {
      const std::string sql = "SELECT ? + " + std::to_string(index);
      sum += transaction.query(sql, 1).at(0).as<std::int64_t>(0);
    }
  }

  EXPECT_EQ(sum, 2 * (100 + 4950));
}

// --- failing commits ---

TEST_F(SqliteTransactionTest, SettlesAnUnknownCommitByRunningAgain) {
  SqliteTransaction transaction = store.open_transaction();
  begin(store, transaction);
  move_money(transaction);
  complete(store, transaction);
  faults.failing_log_flushes = 1;

  const Error error = error_of([&] { store.commit(transaction); });
  SqliteTransaction again = store.open_transaction();
  const BeginOutcome outcome = store.begin(again, request("a", 1));
  move_money(again);
  complete(store, again);
  store.commit(again);

  EXPECT_EQ(error.code(), Errc::commit_unknown);
  EXPECT_TRUE(error.effect_possible());
  EXPECT_EQ(outcome, BeginOutcome(Acquired{}));
  EXPECT_EQ(bob(), "30");
  EXPECT_EQ(store.find(key)->result, "moved");
}

TEST_F(SqliteTransactionTest, RefusesACommitThatBreaksADeferredForeignKey) {
  plain.run("CREATE TABLE child (account TEXT REFERENCES ledger DEFERRABLE INITIALLY DEFERRED)");
  SqliteOptions checking = options();
  checking.foreign_keys = SqliteForeignKeys::enforced;
  SqliteStore strict{checking};
  SqliteTransaction transaction = strict.open_transaction();
  begin(strict, transaction);
  transaction.execute("INSERT INTO child VALUES ('nobody')");
  complete(strict, transaction);

  EXPECT_EQ(code_of([&] { strict.commit(transaction); }), Errc::statement_failed);
  EXPECT_EQ(records(), "0");
  EXPECT_EQ(plain.ask("SELECT count(*) FROM child"), "0");
}

TEST_F(SqliteTransactionTest, DoesNotEnforceForeignKeysUnlessAsked) {
  plain.run("CREATE TABLE child (account TEXT REFERENCES ledger)");
  SqliteTransaction transaction = store.open_transaction();
  transaction.execute("INSERT INTO child VALUES ('nobody')");
  store.commit(transaction);

  EXPECT_EQ(plain.ask("SELECT count(*) FROM child"), "1");
}

}  // namespace
}  // namespace idempotency
