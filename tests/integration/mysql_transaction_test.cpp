#include <gtest/gtest.h>
#include <mysql.h>

#include <atomic>
#include <chrono>
#include <future>
#include <optional>
#include <string>
#include <thread>

#include "idempotency/guard.hpp"
#include "idempotency/idempotency.hpp"
#include "idempotency/stores/mysql_handle.hpp"
#include "idempotency/testing/printers.hpp"
#include "support/error_of.hpp"
#include "support/mariadb_server.hpp"

namespace idempotency {
namespace {

using namespace std::chrono_literals;
using testing_support::code_of;
using testing_support::MariaDbServer;
using testing_support::PlainConnection;

class MySqlTransactions : public ::testing::Test {
 protected:
  MySqlTransactions() {
    plain_.run(
        "CREATE TABLE IF NOT EXISTS account (id INT PRIMARY KEY, cents BIGINT NOT NULL, "
        "note VARCHAR(50) NULL) ENGINE = InnoDB");
    plain_.run("DELETE FROM account");
    plain_.run("INSERT INTO account VALUES (1, 100, NULL), (2, 0, NULL)");
    plain_.run("DELETE FROM idempotency_record");
  }

  BeginRequest request(const std::string& value = "k",
                       const OwnerToken& owner = OwnerToken::generate()) {
    return {.key = {"transfer", value}, .owner = owner};
  }
  static void move(MySqlTransaction& transaction) {
    transaction.execute("UPDATE account SET cents = cents - ? WHERE id = ?", 10, 1);
    transaction.execute("UPDATE account SET cents = cents + ? WHERE id = ?", 10, 2);
  }
  std::string moved() { return plain_.ask("SELECT cents FROM account WHERE id = 2"); }
  MYSQL* handle(PlainConnection& connection) { return static_cast<MYSQL*>(connection.handle()); }

  MySqlOptions options_ = MariaDbServer::shared().options();
  MySqlStore store_{options_};
  PlainConnection plain_{options_};
};

TEST_F(MySqlTransactions, RunOnceHoweverOftenAsked) {
  IdempotencyGuard guard{store_};
  int runs = 0;
  const auto transfer = [&](MySqlTransaction& transaction) {
    ++runs;
    move(transaction);
    return std::string("moved");
  };

  const auto first = guard.run_in_transaction({.key = {"transfer", "t-1"}}, transfer);
  const auto second = guard.run_in_transaction({.key = {"transfer", "t-1"}}, transfer);

  EXPECT_EQ(first.status(), RunStatus::executed);
  EXPECT_EQ(second.status(), RunStatus::replayed);
  EXPECT_EQ(second.value(), "moved");
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(moved(), "10");
}

TEST_F(MySqlTransactions, GiveTypedRowsAndTellMatchedFromChanged) {
  auto transaction = store_.open_transaction();
  static_cast<void>(store_.begin(transaction, request()));

  const SqlChanges changed = transaction.execute("UPDATE account SET note = ? WHERE id < 3", "n");
  const SqlChanges same = transaction.execute("UPDATE account SET note = ? WHERE id < 3", "n");
  const SqlRows rows = transaction.query(
      "SELECT id, CAST(? AS UNSIGNED) AS large, ? AS real_, note, X'00FF' AS bytes, NULL AS "
      "nothing, "
      "cents FROM account WHERE id = ?",
      ~std::uint64_t{0}, 1.5, 1);
  store_.rollback(transaction);

  EXPECT_EQ(changed, (SqlChanges{2, 2}));
  EXPECT_EQ(same, (SqlChanges{2, 0}));
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows.at(0).as<int>("id"), 1);
  EXPECT_EQ(rows.at(0).as<std::uint64_t>("large"), ~std::uint64_t{0});
  EXPECT_EQ(rows.at(0).as<double>("real_"), 1.5);
  EXPECT_EQ(rows.at(0).as<std::string>("note"), "n");
  EXPECT_EQ(rows.at(0).as<SqlBlob>("bytes").bytes, std::string("\0\xff", 2));
  EXPECT_EQ(rows.at(0).as<std::optional<int>>("nothing"), std::nullopt);
  EXPECT_EQ(transaction.dialect(),
            MariaDbServer::is_mysql() ? SqlDialect::mysql : SqlDialect::mariadb);
}

// MY-25
TEST_F(MySqlTransactions, RefuseStatementsThatWouldEndThem) {
  auto transaction = store_.open_transaction();
  static_cast<void>(store_.begin(transaction, request()));
  move(transaction);

  for (const char* sql :
       {"COMMIT", "rollback", " /* x */ begin", "START TRANSACTION", "SAVEPOINT s",
        "CREATE TABLE x (a INT)", "DROP TABLE account", "ALTER TABLE account ADD b INT",
        "TRUNCATE account", "SET autocommit = 1", "SET @@autocommit=1", "LOCK TABLES account WRITE",
        "-- c\nCOMMIT", "/*!50000 COMMIT */", "SET SESSION TRANSACTION READ ONLY",
        "RENAME TABLE account TO b", "SET @@session.autocommit = 1", "SET @x = 1, autocommit = 1",
        "SET `autocommit` = 1"}) {
    EXPECT_EQ(code_of([&] { transaction.execute(sql); }), Errc::invalid_argument) << sql;
  }
  store_.rollback(transaction);

  EXPECT_EQ(moved(), "0");
}

TEST_F(MySqlTransactions, NoticeAProcedureThatCommits) {
  plain_.run("DROP PROCEDURE IF EXISTS commits");
  plain_.run("CREATE PROCEDURE commits() COMMIT");
  auto transaction = store_.open_transaction();
  static_cast<void>(store_.begin(transaction, request()));

  EXPECT_EQ(code_of([&] { transaction.execute("CALL commits()"); }), Errc::commit_unknown);
  EXPECT_EQ(code_of([&] { store_.commit(transaction); }), Errc::commit_unknown);
}

// MY-11: also when the caller's snapshot is older than the winner's commit.
TEST_F(MySqlTransactions, SeeTheCommittedWinnerUnderRepeatableRead) {
  PlainConnection client(options_);
  client.allow_old_snapshots();
  client.run("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ");
  client.run("START TRANSACTION");
  client.run("SELECT * FROM account");  // the snapshot
  const BeginRequest winner = request();
  ASSERT_TRUE(std::holds_alternative<Acquired>(store_.begin(winner)));
  ASSERT_EQ(store_.complete(winner.key, {winner.owner, 1}, {.result = "won"}),
            WriteOutcome::stored);
  ASSERT_EQ(client.ask("SELECT COUNT(*) FROM idempotency_record"), "0");

  auto transaction = store_.open_transaction(mysql_connection(handle(client)));
  const BeginOutcome outcome = store_.begin(transaction, request());
  store_.rollback(transaction);

  ASSERT_TRUE(std::holds_alternative<Completed>(outcome));
  EXPECT_EQ(std::get<Completed>(outcome).result, "won");
}

TEST_F(MySqlTransactions, WaitForTheWinnerAndThenReplayIt) {
  auto winner = store_.open_transaction();
  const BeginRequest first = request();
  ASSERT_TRUE(std::holds_alternative<Acquired>(store_.begin(winner, first)));
  auto waiting = std::async(std::launch::async, [&] {
    auto transaction = store_.open_transaction();
    BeginOutcome outcome = store_.begin(transaction, request());
    store_.rollback(transaction);
    return outcome;
  });
  ASSERT_EQ(waiting.wait_for(200ms), std::future_status::timeout);
  ASSERT_EQ(store_.complete(winner, first.key, {first.owner, 1}, {.result = "won"}),
            WriteOutcome::stored);
  store_.commit(winner);

  const BeginOutcome outcome = waiting.get();

  ASSERT_TRUE(std::holds_alternative<Completed>(outcome));
  EXPECT_EQ(std::get<Completed>(outcome).result, "won");
}

// MY-13
TEST_F(MySqlTransactions, WaitNoLongerThanAllowed) {
  auto winner = store_.open_transaction();
  ASSERT_TRUE(std::holds_alternative<Acquired>(store_.begin(winner, request())));
  const auto code =
      std::async(std::launch::async, [&] {
        const auto before = std::chrono::steady_clock::now();
        auto transaction = store_.open_transaction({.wait = 300ms});
        const Errc told = code_of([&] { static_cast<void>(store_.begin(transaction, request())); });
        const auto waited = std::chrono::steady_clock::now() - before;
        EXPECT_LT(waited, 2s);
        EXPECT_GE(waited, 290ms);
        EXPECT_EQ(code_of([&] { store_.commit(transaction); }), Errc::transaction_lost);
        return told;
      }).get();
  store_.rollback(winner);

  EXPECT_EQ(code, Errc::store_busy);
}

// MY-13: after a lock wait time-out of the handler's nothing of the transaction may be committed.
TEST_F(MySqlTransactions, CommitNothingAfterALockWaitTimeOut) {
  plain_.run("START TRANSACTION");
  plain_.run("UPDATE account SET cents = 1 WHERE id = 2");
  PlainConnection client(options_);
  client.run("SET innodb_lock_wait_timeout = 1");
  auto transaction = store_.open_transaction(mysql_connection(handle(client)));
  static_cast<void>(store_.begin(transaction, request()));

  EXPECT_EQ(code_of([&] { move(transaction); }), Errc::store_busy);
  EXPECT_EQ(code_of([&] { transaction.execute("DO 1"); }), Errc::transaction_lost);
  EXPECT_EQ(code_of([&] { store_.commit(transaction); }), Errc::transaction_lost);
  plain_.run("ROLLBACK");
  store_.rollback(transaction);

  EXPECT_EQ(plain_.ask("SELECT cents FROM account WHERE id = 1"), "100");
  EXPECT_FALSE(store_.find({"transfer", "k"}));
  EXPECT_FALSE(client.in_transaction());
}

// MY-09
TEST_F(MySqlTransactions, TellADeadlockAndAreRepeatedWholeByTheGuard) {
  IdempotencyGuard guard{store_};
  std::atomic<int> inside{0};
  std::atomic<int> runs{0};
  const auto transfer = [&](int from, int to) {
    return [&, from, to](MySqlTransaction& transaction) {
      ++runs;
      transaction.execute("UPDATE account SET cents = cents - 1 WHERE id = ?", from);
      if (++inside <= 2) {
        while (inside < 2)
          std::this_thread::sleep_for(1ms);
      }
      transaction.execute("UPDATE account SET cents = cents + 1 WHERE id = ?", to);
      return 1;
    };
  };

  auto other = std::async(std::launch::async, [&] {
    return guard.run_in_transaction({.key = {"transfer", "there"}}, transfer(1, 2)).status();
  });
  const RunStatus back =
      guard.run_in_transaction({.key = {"transfer", "back"}}, transfer(2, 1)).status();

  EXPECT_EQ(back, RunStatus::executed);
  EXPECT_EQ(other.get(), RunStatus::executed);
  EXPECT_EQ(runs, 3);
  EXPECT_EQ(plain_.ask("SELECT cents FROM account WHERE id = 1"), "100");
}

TEST_F(MySqlTransactions, AreLostWithTheirConnection) {
  auto transaction = store_.open_transaction();
  static_cast<void>(store_.begin(transaction, request()));
  move(transaction);
  const auto id = transaction.query("SELECT CONNECTION_ID() AS id").at(0).as<std::uint64_t>("id");
  plain_.run("KILL CONNECTION " + std::to_string(id));

  EXPECT_EQ(code_of([&] { transaction.execute("DO 1"); }), Errc::transaction_lost);
  EXPECT_EQ(code_of([&] { store_.commit(transaction); }), Errc::transaction_lost);

  EXPECT_EQ(moved(), "0");
  EXPECT_TRUE(std::holds_alternative<Acquired>(store_.begin(request())));
}

TEST_F(MySqlTransactions, OnAClosedIdleConnectionBeginOnANewOne) {
  {
    auto transaction = store_.open_transaction();
    static_cast<void>(store_.begin(transaction, request("before")));
    store_.rollback(transaction);
  }
  for (const auto& row :
       plain_.run("SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID() "
                  "AND command = 'Sleep'")) {
    static_cast<void>(plain_.error_of("KILL CONNECTION " + row[0]));
  }

  auto transaction = store_.open_transaction();
  EXPECT_TRUE(std::holds_alternative<Acquired>(store_.begin(transaction, request())));
  move(transaction);
  store_.commit(transaction);

  EXPECT_EQ(moved(), "10");
}

// MY-26
TEST_F(MySqlTransactions, LeaveAnAdoptedConnectionsAutocommitAsItIs) {
  for (const char* autocommit : {"0", "1"}) {
    PlainConnection client(options_);
    client.run(std::string("SET autocommit = ") + autocommit);
    const BeginRequest wanted = request(std::string("k") + autocommit);
    auto transaction = store_.open_transaction(mysql_connection(handle(client)));
    EXPECT_FALSE(store_.is_joined(transaction));
    ASSERT_TRUE(std::holds_alternative<Acquired>(store_.begin(transaction, wanted)));
    ASSERT_EQ(store_.complete(transaction, wanted.key, {wanted.owner, 1}, {.result = "r"}),
              WriteOutcome::stored);
    store_.commit(transaction);

    EXPECT_EQ(client.ask("SELECT @@autocommit"), autocommit);
    EXPECT_FALSE(client.in_transaction());
    EXPECT_TRUE(store_.find(wanted.key));
  }
}

TEST_F(MySqlTransactions, JoinOneThatIsOpenAndLeaveItsEndToTheCaller) {
  PlainConnection client(options_);
  client.run("START TRANSACTION");
  client.run("UPDATE account SET note = 'callers' WHERE id = 1");
  const BeginRequest kept = request("kept");
  const BeginRequest undone = request("undone");
  {
    auto transaction = store_.open_transaction(mysql_connection(handle(client)));
    EXPECT_TRUE(store_.is_joined(transaction));
    ASSERT_TRUE(std::holds_alternative<Acquired>(store_.begin(transaction, kept)));
    ASSERT_EQ(store_.complete(transaction, kept.key, {kept.owner, 1}, {.result = "r"}),
              WriteOutcome::stored);
    store_.commit(transaction);
  }
  {
    auto transaction = store_.open_transaction(mysql_connection(handle(client)));
    ASSERT_TRUE(std::holds_alternative<Acquired>(store_.begin(transaction, undone)));
    move(transaction);
    store_.rollback(transaction);
  }
  EXPECT_TRUE(client.in_transaction());
  EXPECT_FALSE(store_.find(kept.key));
  client.run("COMMIT");

  EXPECT_TRUE(store_.find(kept.key));
  EXPECT_FALSE(store_.find(undone.key));
  EXPECT_EQ(moved(), "0");
  EXPECT_EQ(plain_.ask("SELECT note FROM account WHERE id = 1"), "callers");
}

TEST_F(MySqlTransactions, JoinedBeforeTheirRecordAreUndoneFromThereOn) {
  PlainConnection client(options_);
  client.run("START TRANSACTION");
  client.run("UPDATE account SET note = 'callers' WHERE id = 1");
  {
    auto transaction = store_.open_transaction(mysql_connection(handle(client)));
    move(transaction);
    ASSERT_TRUE(std::holds_alternative<Acquired>(store_.begin(transaction, request("k"))));
    store_.rollback(transaction);
  }
  {
    auto transaction = store_.open_transaction(mysql_connection(handle(client)));
    static_cast<void>(transaction.native_handle());
    client.run("UPDATE account SET cents = 7 WHERE id = 2");
    store_.rollback(transaction);
  }
  client.run("COMMIT");

  EXPECT_EQ(moved(), "0");
  EXPECT_EQ(plain_.ask("SELECT note FROM account WHERE id = 1"), "callers");
  EXPECT_NE(plain_.ask("SELECT cents FROM account WHERE id = 2"), "7");
}

// The client does not learn from the error that the server has ended the transaction, and takes it for open.
TEST_F(MySqlTransactions, AreNotJoinedAfterADeadlockThatHasEndedThem) {
  PlainConnection victim(options_);
  PlainConnection winner(options_);
  victim.run("START TRANSACTION");
  victim.run("SELECT * FROM account WHERE id = 1 FOR UPDATE");
  winner.run("START TRANSACTION");
  winner.run("UPDATE account SET note = 'winners' WHERE id = 2");
  auto waiting = std::async(std::launch::async, [&] {
    return winner.error_of("UPDATE account SET note = 'winners' WHERE id = 1");
  });

  // Whoever asks second, the one that has written less is given up.
  ASSERT_EQ(victim.error_of("SELECT * FROM account WHERE id = 2 FOR UPDATE"), 1213U);
  ASSERT_EQ(waiting.get(), 0U);
  winner.run("ROLLBACK");
  const Errc told = code_of([&] {
    auto transaction = store_.open_transaction(mysql_connection(handle(victim)));
    ASSERT_TRUE(store_.is_joined(transaction));
    static_cast<void>(store_.begin(transaction, request("k")));
  });

  EXPECT_EQ(told, Errc::transaction_lost);
  EXPECT_FALSE(store_.find({"transfer", "k"}));
  // Nor is the whole repeated on a transaction of its own: what the caller did before would be missing from it.
  IdempotencyGuard guard{store_};
  int runs = 0;
  EXPECT_EQ(code_of([&] {
              static_cast<void>(guard.run_in_transaction(
                  {.key = {"transfer", "k"}}, mysql_connection(handle(victim)),
                  [&](MySqlTransaction&) { return ++runs; }));
            }),
            Errc::transaction_lost);
  EXPECT_EQ(runs, 0);
  EXPECT_FALSE(store_.find({"transfer", "k"}));
}

// MY-10, with keys that must have been issued: the caller's transaction stays open behind the refusal.
TEST_F(MySqlTransactions, LockNoGapForAKeyThatNobodyIssued) {
  PlainConnection client(options_);
  client.run("START TRANSACTION");
  auto transaction = store_.open_transaction(mysql_connection(handle(client)));
  BeginRequest never = request("never issued");
  never.admission = Admission::issued;

  EXPECT_TRUE(std::holds_alternative<NotIssued>(store_.begin(transaction, never)));

  MySqlOptions hasty = options_;
  hasty.lock_wait = std::chrono::seconds{1};
  MySqlStore other{hasty};
  EXPECT_TRUE(std::holds_alternative<Acquired>(other.begin(request("neighbour"))));
  store_.rollback(transaction);
  client.run("ROLLBACK");
}

TEST_F(MySqlTransactions, GiveTheNativeHandle) {
  PlainConnection client(options_);
  auto transaction = store_.open_transaction(mysql_connection(handle(client)));

  EXPECT_EQ(mysql_handle<MYSQL>(transaction.native_handle()), handle(client));
}

TEST_F(MySqlTransactions, RefuseASecondOneOnTheSameThread) {
  auto transaction = store_.open_transaction();

  EXPECT_EQ(code_of([&] { static_cast<void>(store_.open_transaction()); }),
            Errc::nested_transaction);
}

TEST_F(MySqlTransactions, CarryALargeResultBeforeTheCommit) {
  const BeginRequest wanted = request();
  const std::string large(300'000, 'x');
  auto transaction = store_.open_transaction();
  ASSERT_TRUE(std::holds_alternative<Acquired>(store_.begin(transaction, wanted)));
  ASSERT_EQ(store_.complete(transaction, wanted.key, {wanted.owner, 1}, {.result = large}),
            WriteOutcome::stored);
  store_.commit(transaction);

  EXPECT_EQ(store_.find(wanted.key)->result, large);
}

// A COMMIT whose answer is lost: here the server kills the connection while it waits to commit, and the old session may still be at
// it when the guard asks again.
TEST_F(MySqlTransactions, SettleAnUnknownCommitByTheBlockingInsert) {
  const BeginRequest lost_one = request();
  auto old_session = store_.open_transaction();
  ASSERT_TRUE(std::holds_alternative<Acquired>(store_.begin(old_session, lost_one)));
  auto settling = std::async(std::launch::async, [&] {
    auto transaction = store_.open_transaction();
    BeginOutcome outcome = store_.begin(transaction, lost_one);
    store_.rollback(transaction);
    return outcome;
  });
  ASSERT_EQ(settling.wait_for(200ms),
            std::future_status::timeout);  // a plain read would have said: not there
  ASSERT_FALSE(store_.find(lost_one.key));
  ASSERT_EQ(store_.complete(old_session, lost_one.key, {lost_one.owner, 1}, {.result = "late"}),
            WriteOutcome::stored);
  store_.commit(old_session);

  const BeginOutcome outcome = settling.get();

  ASSERT_TRUE(std::holds_alternative<Completed>(outcome));
  EXPECT_EQ(std::get<Completed>(outcome).result, "late");
}

}  // namespace
}  // namespace idempotency
