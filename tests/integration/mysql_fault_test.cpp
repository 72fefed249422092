#include <gtest/gtest.h>
#include <mysql.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "idempotency/idempotency.hpp"
#include "idempotency/stores/mysql_handle.hpp"
#include "idempotency/testing/printers.hpp"
#include "mysql/mysql_schema.hpp"
#include "support/error_of.hpp"
#include "support/fault_proxy.hpp"
#include "support/loopback.hpp"
#include "support/mariadb_server.hpp"

namespace idempotency {
namespace {

using namespace std::chrono_literals;
using testing_support::BlackHole;
using testing_support::code_of;
using testing_support::error_of;
using testing_support::FaultProxy;
using testing_support::MariaDbServer;
using testing_support::NetworkFault;
using testing_support::PlainConnection;

class Hazards : public Observer {
 public:
  void on_hazard(std::string_view what) noexcept override { text += std::string(what) + '\n'; }
  std::string text;
};

class MySqlFaults : public ::testing::Test {
 protected:
  MySqlFaults() { plain_.run("DELETE FROM idempotency_record"); }

  static BeginRequest request(const std::string& value = "k") {
    return {.key = {"fault", value}, .owner = OwnerToken::generate()};
  }
  void kill_all_others() {
    for (const auto& row : plain_.run("SELECT id FROM information_schema.processlist WHERE id <> "
                                      "CONNECTION_ID() AND user = 'root'")) {
      static_cast<void>(plain_.error_of("KILL CONNECTION " + row[0]));
    }
  }

  MySqlOptions options_ = MariaDbServer::shared().options();
  MySqlStore store_{options_};
  PlainConnection plain_{options_};
};

// MY-15
TEST_F(MySqlFaults, GoOnAfterIdleConnectionsWereClosed) {
  const BeginRequest wanted = request();
  ASSERT_TRUE(std::holds_alternative<Acquired>(store_.begin(wanted)));
  kill_all_others();
  EXPECT_EQ(store_.complete(wanted.key, {wanted.owner, 1}, {.result = "r"}), WriteOutcome::stored);
  kill_all_others();
  EXPECT_TRUE(std::holds_alternative<Completed>(store_.begin(request())));
  kill_all_others();
  EXPECT_TRUE(store_.find(wanted.key));
  kill_all_others();
  EXPECT_EQ(store_.release(wanted.key, {wanted.owner, 1}, 1h), ReleaseOutcome::unknown)
      << "the first may have been done, and the record begun anew since";
}

// Between the lost answer and the store's own repetition another takes the record that was freed.
TEST_F(MySqlFaults, SayOfARetryWhoseAnswerWasLostThatNobodyKnows) {
  FaultProxy proxy{options_.port};
  MySqlOptions options = options_;
  options.port = proxy.port();
  MySqlStore desk(options);
  const auto doubtful = [&](const char* value) {
    const BeginRequest wanted = request(value);
    EXPECT_TRUE(std::holds_alternative<Acquired>(store_.begin(wanted)));
    EXPECT_EQ(store_.doubt(wanted.key, {wanted.owner, 1}), WriteOutcome::stored);
    return *desk.find(wanted.key);
  };
  ASSERT_EQ(desk.resolve(doubtful("prepared"), {}), WriteOutcome::stored);  // now it is
  const Record seen = doubtful("k");
  std::optional<BeginOutcome> taken;
  proxy.cut_next_and_then([&] { taken = store_.begin(request("k")); });

  EXPECT_EQ(code_of([&] { static_cast<void>(desk.resolve(seen, {})); }), Errc::store_reply_lost);
  proxy.heal();

  ASSERT_TRUE(taken);
  EXPECT_TRUE(std::holds_alternative<Acquired>(*taken)) << "the retry had happened";
}

TEST_F(MySqlFaults, SayOfAReleaseWhoseAnswerWasLostThatNobodyKnows) {
  FaultProxy proxy{options_.port};
  MySqlOptions options = options_;
  options.port = proxy.port();
  MySqlStore store(options);
  const BeginRequest earlier = request("prepared");
  ASSERT_TRUE(std::holds_alternative<Acquired>(store.begin(earlier)));
  ASSERT_EQ(store.release(earlier.key, {earlier.owner, 1}, 1h), ReleaseOutcome::released);
  const BeginRequest wanted = request("k");
  ASSERT_TRUE(std::holds_alternative<Acquired>(store.begin(wanted)));
  std::optional<BeginOutcome> taken;
  proxy.cut_next_and_then([&] { taken = store_.begin(request("k")); });

  EXPECT_EQ(store.release(wanted.key, {wanted.owner, 1}, 1h), ReleaseOutcome::unknown);
  proxy.heal();

  ASSERT_TRUE(taken);
  EXPECT_TRUE(std::holds_alternative<Acquired>(*taken)) << "it had been released";
}

// MY-02, MY-04, MY-22: the server's defaults do not matter.
TEST_F(MySqlFaults, WorkUnderALaxServerInAnotherTimeZone) {
  MariaDbServer lax({"--sql-mode=", "--default-time-zone=-11:00", "--character-set-server=latin1",
                     "--autocommit=0", "--transaction-isolation=SERIALIZABLE",
                     "--innodb-flush-log-at-trx-commit=2"});
  Hazards hazards;
  MySqlOptions options = lax.options();
  options.observer = &hazards;
  MySqlStore store(options);
  PlainConnection plain(lax.options());

  const BeginRequest wanted{.key = {"fault", "K "}, .owner = OwnerToken::generate(), .lease = 10s};
  ASSERT_TRUE(std::holds_alternative<Acquired>(store.begin(wanted)));
  for (const char* other : {"k ", "K", "K\xC2\xA0", "\xC3\x9F", "ss"}) {
    EXPECT_TRUE(std::holds_alternative<Acquired>(
        store.begin({.key = {"fault", other}, .owner = OwnerToken::generate()})))
        << other;
  }
  const std::string large(70'000, '\0');
  ASSERT_EQ(store.complete(wanted.key, {wanted.owner, 1}, {.result = large}), WriteOutcome::stored);

  const std::optional<Record> record = store.find(wanted.key);
  ASSERT_TRUE(record);
  EXPECT_EQ(record->result, large);
  const auto age = std::chrono::system_clock::now() - record->created_at;
  EXPECT_LT(std::chrono::abs(age), 60s);
  EXPECT_NE(hazards.text.find("strict"), std::string::npos);
  EXPECT_NE(hazards.text.find("innodb_flush_log_at_trx_commit"), std::string::npos);
}

TEST_F(MySqlFaults, ReadOnlyWhatIsCommittedOnAServerThatAllowsDirtyReads) {
  MariaDbServer dirty({"--transaction-isolation=READ-UNCOMMITTED"});
  MySqlStore store(dirty.options());
  PlainConnection client(dirty.options());
  const BeginRequest wanted{.key = {"fault", "k"}, .owner = OwnerToken::generate(), .lease = 10s};
  client.run("START TRANSACTION");
  MySqlTransaction joined =
      store.open_transaction(mysql_connection(static_cast<MYSQL*>(client.handle())));
  ASSERT_EQ(store.begin(joined, wanted), BeginOutcome(Acquired{1, 1}));
  ASSERT_EQ(store.complete(joined, wanted.key, {wanted.owner, 1}, {.result = "not yet"}),
            WriteOutcome::stored);
  store.commit(joined);

  const std::optional<Record> before = store.find(wanted.key);
  client.run("ROLLBACK");

  EXPECT_FALSE(before);
  EXPECT_FALSE(store.find(wanted.key));
  MySqlTransaction own = store.open_transaction();
  const SqlRows level = own.query(MariaDbServer::is_mysql() ? "SELECT @@transaction_isolation"
                                                            : "SELECT @@tx_isolation");
  EXPECT_EQ(level.at(0).at(0).as<std::string>(), "READ-COMMITTED");
  store.rollback(own);
}

// Assignments all at once, '' for NULL and another grammar: the modes of MariaDB that change what the store's statements mean.
TEST_F(MySqlFaults, MeanTheSameUnderEverySqlModeOfTheServer) {
  std::vector<std::string> modes{
      "ANSI_QUOTES,PIPES_AS_CONCAT,NO_BACKSLASH_ESCAPES,HIGH_NOT_PRECEDENCE"};
  if (!MariaDbServer::is_mysql()) {
    for (const char* mode : {"SIMULTANEOUS_ASSIGNMENT", "EMPTY_STRING_IS_NULL", "ORACLE",
                             "ORACLE,EMPTY_STRING_IS_NULL,SIMULTANEOUS_ASSIGNMENT"})
      modes.emplace_back(mode);
  }
  const std::string usual = plain_.ask("SELECT @@GLOBAL.sql_mode");
  for (const std::string& mode : modes) {
    SCOPED_TRACE(mode);
    plain_.run("SET GLOBAL sql_mode = '" + mode + "'");
    PlainConnection lent(options_);
    std::unique_ptr<MySqlStore> store;
    EXPECT_NO_THROW(store = std::make_unique<MySqlStore>(options_));
    plain_.run("SET GLOBAL sql_mode = '" + usual + "'");
    plain_.run("DELETE FROM idempotency_record");
    ASSERT_TRUE(store);
    BeginRequest first = request();
    first.lease = 1ms;
    ASSERT_EQ(store->begin(first), BeginOutcome(Acquired{1, 1}));
    std::this_thread::sleep_for(5ms);

    const BeginRequest second = request();
    EXPECT_EQ(store->begin(second), BeginOutcome(Acquired{2, 2}));
    EXPECT_EQ(store->complete(second.key, {second.owner, 2}, {.result = ""}), WriteOutcome::stored);
    EXPECT_EQ(store->find(second.key)->result, "");
    const auto finish = [&](MySqlTransaction transaction, const std::string& value) {
      const BeginRequest wanted = request(value);
      EXPECT_EQ(store->begin(transaction, wanted), BeginOutcome(Acquired{1, 1})) << value;
      EXPECT_EQ(store->complete(transaction, wanted.key, {wanted.owner, 1}, {.result = ""}),
                WriteOutcome::stored);
      store->commit(transaction);
    };
    MYSQL* handle = static_cast<MYSQL*>(lent.handle());
    finish(store->open_transaction(), "own");
    finish(store->open_transaction(mysql_connection(handle)), "adopted");
    lent.run("START TRANSACTION");
    finish(store->open_transaction(mysql_connection(handle)), "joined");
    lent.run("COMMIT");
    for (const char* value : {"own", "adopted", "joined"})
      EXPECT_EQ(store->find({"fault", value})->result, "") << value;
    IdempotencyGuard guard{*store};
    const auto nothing = [](MySqlTransaction&) { return std::string(); };
    first.key = {"fault", "taken over"};
    ASSERT_EQ(store->begin(first), BeginOutcome(Acquired{1, 1}));
    std::this_thread::sleep_for(5ms);
    EXPECT_EQ(
        guard.run_in_transaction({.key = first.key}, mysql_connection(handle), nothing).status(),
        RunStatus::executed);
    EXPECT_EQ(store->find(first.key)->state, RecordState::success);
  }
}

// MY-19: typed, and before anything is written.
TEST_F(MySqlFaults, RefuseAResultThatTheServerDoesNotTake) {
  const BeginRequest wanted = request("too large");
  ASSERT_TRUE(std::holds_alternative<Acquired>(store_.begin(wanted)));
  EXPECT_EQ(code_of([&] {
              static_cast<void>(store_.complete(wanted.key, {wanted.owner, 1},
                                                {.result = std::string(17'000'000, 'x')}));
            }),
            Errc::too_large);
  EXPECT_EQ(store_.find(wanted.key)->state, RecordState::processing);
  EXPECT_EQ(store_.complete(wanted.key, {wanted.owner, 1}, {}), WriteOutcome::stored);
}

TEST_F(MySqlFaults, RefuseATraceOrReasonThatDoesNotFit) {
  BeginRequest wanted = request();
  wanted.trace = std::string(65'536, 't');
  EXPECT_EQ(code_of([&] { static_cast<void>(store_.begin(wanted)); }), Errc::too_large);
  wanted.trace = std::string(65'535, 't');
  ASSERT_TRUE(std::holds_alternative<Acquired>(store_.begin(wanted)));
  EXPECT_EQ(
      code_of([&] {
        static_cast<void>(store_.fail(wanted.key, {wanted.owner, 1},
                                      {Retryability::permanent, std::string(65'536, 'r'), {}}, 1h));
      }),
      Errc::too_large);
}

// MY-13: a plain call behind somebody's open transaction.
TEST_F(MySqlFaults, AreBusyAndNotHangingBehindALockedRecord) {
  ASSERT_TRUE(std::holds_alternative<Acquired>(store_.begin(request())));
  MySqlOptions options = options_;
  options.lock_wait = 1s;
  MySqlStore impatient(options);
  plain_.run("START TRANSACTION");
  plain_.run("SELECT * FROM idempotency_record FOR UPDATE");

  const auto before = std::chrono::steady_clock::now();
  EXPECT_EQ(code_of([&] { static_cast<void>(impatient.begin(request())); }), Errc::store_busy);
  EXPECT_LT(std::chrono::steady_clock::now() - before, 3s);
  EXPECT_TRUE(impatient.find({"fault", "k"}));  // reading waits for nobody
  plain_.run("ROLLBACK");
}

// What the client waits for an answer and what the server waits for a lock would be the same number of seconds.
TEST_F(MySqlFaults, AreBusyAndNotWithoutAnAnswerWhenBothTimeOutsAreTheSame) {
  ASSERT_TRUE(std::holds_alternative<Acquired>(store_.begin(request())));
  plain_.run("START TRANSACTION");
  plain_.run("SELECT * FROM idempotency_record FOR UPDATE");
  for (const auto& [read_timeout, lock_wait] :
       {std::pair{1'000ms, 1'000ms}, std::pair{1'500ms, 5'000ms}, std::pair{2'000ms, 2'000ms}}) {
    MySqlOptions options = options_;
    options.read_timeout = read_timeout;
    options.lock_wait = lock_wait;
    MySqlStore impatient(options);

    const Error plain = error_of([&] { static_cast<void>(impatient.begin(request())); });
    const Error in_transaction = error_of([&] {
      auto transaction = impatient.open_transaction({.wait = 5s});
      static_cast<void>(impatient.begin(transaction, request()));
    });

    EXPECT_EQ(plain.code(), Errc::store_busy) << plain.detail();
    EXPECT_EQ(in_transaction.code(), Errc::store_busy) << in_transaction.detail();
  }
  plain_.run("ROLLBACK");
}

TEST_F(MySqlFaults, RenewAllOtherLeasesWhenOneRecordIsLocked) {
  MySqlOptions options = options_;
  options.lock_wait = 2s;
  MySqlStore store(options);
  std::vector<Renewal> renewals;
  for (int number = 0; number < 501; ++number) {
    const BeginRequest wanted = request(std::to_string(number));
    ASSERT_EQ(store.begin(wanted), BeginOutcome(Acquired{1, 1}));
    renewals.push_back({wanted.key, {wanted.owner, 1}, 10h});
  }
  const std::string renewed =
      "SELECT COUNT(*) FROM idempotency_record WHERE lease_until > updated_at + 5 * 3600 * 1000";
  PlainConnection other(options_);
  other.run("START TRANSACTION");
  other.run(
      "SELECT * FROM idempotency_record WHERE business_type = 'fault' AND value IN ('500', '77') "
      "FOR UPDATE");

  const Error error = error_of([&] { static_cast<void>(store.renew_many(renewals)); });
  const std::string at_first = plain_.ask(renewed);
  other.run("ROLLBACK");
  const std::vector<WriteOutcome> outcomes = store.renew_many(renewals);

  EXPECT_EQ(error.code(), Errc::store_reply_lost) << error.what();
  EXPECT_TRUE(error.effect_possible());
  EXPECT_EQ(at_first, "499");
  EXPECT_EQ(outcomes, std::vector(501, WriteOutcome::stored));
  EXPECT_EQ(plain_.ask(renewed), "501");
}

TEST_F(MySqlFaults, AreBusyWithNothingWrittenWhenTheOnlyLeaseToRenewIsLocked) {
  MySqlOptions options = options_;
  options.lock_wait = 1s;
  MySqlStore store(options);
  const BeginRequest wanted = request();
  ASSERT_EQ(store.begin(wanted), BeginOutcome(Acquired{1, 1}));
  plain_.run("START TRANSACTION");
  plain_.run("SELECT * FROM idempotency_record FOR UPDATE");

  EXPECT_EQ(code_of([&] {
              static_cast<void>(store.renew_many({Renewal{wanted.key, {wanted.owner, 1}, 10h}}));
            }),
            Errc::store_busy);
  plain_.run("ROLLBACK");
}

// Each row fits, all of them do not.
TEST_F(MySqlFaults, CutBatchesByWhatTheServerTakes) {
  const std::string usual = plain_.ask("SELECT @@GLOBAL.max_allowed_packet");
  plain_.run("SET GLOBAL max_allowed_packet = 16384");
  MySqlOptions options = options_;
  options.connections = 1;
  MySqlStore store(options);
  plain_.run("SET GLOBAL max_allowed_packet = " + usual);
  std::vector<Renewal> renewals;
  for (int number = 0; number < 150; ++number) {
    const BeginRequest wanted = request(std::string(250, 'k') + std::to_string(number));
    ASSERT_EQ(store.begin(wanted), BeginOutcome(Acquired{1, 1}));
    renewals.push_back({wanted.key, {wanted.owner, 1}, 10h});
  }

  EXPECT_EQ(store.renew_many(renewals), std::vector(150, WriteOutcome::stored));
  for (const Renewal& renewal : renewals)
    ASSERT_EQ(store.complete(renewal.key, renewal.ownership, {.retention = 1ms}),
              WriteOutcome::stored);
  std::this_thread::sleep_for(5ms);

  EXPECT_EQ(store.purge(1000), 150U);
}

TEST_F(MySqlFaults, AreUnavailableWhenNobodyListens) {
  MySqlOptions options = options_;
  options.port = 1;

  EXPECT_EQ(code_of([&] { MySqlStore store(options); }), Errc::store_unavailable);
}

TEST_F(MySqlFaults, AreUnavailableSoonWhereNobodyAnswersAtAll) {
  const BlackHole hole;
  MySqlOptions options = options_;
  options.port = hole.port();
  options.connect_timeout = 1s;

  const auto before = std::chrono::steady_clock::now();
  EXPECT_EQ(code_of([&] { static_cast<void>(MySqlStore(options)); }), Errc::store_unavailable);
  const auto took = std::chrono::steady_clock::now() - before;

  EXPECT_GT(took, 500ms);
  EXPECT_LT(took, 20s);
}

// Every byte comes in time and all of them take long: no time-out ends that, and what is told is right.
TEST_F(MySqlFaults, TellTheTruthWhenALargeAnswerTrickles) {
  FaultProxy proxy(options_.port);
  MySqlOptions options = options_;
  options.port = proxy.port();
  options.read_timeout = 1s;
  MySqlStore store(options);
  const BeginRequest wanted = request();
  ASSERT_EQ(store.begin(wanted), BeginOutcome(Acquired{1, 1}));
  const std::string result(4'000, 'r');
  ASSERT_EQ(store.complete(wanted.key, {wanted.owner, 1}, {.result = result}),
            WriteOutcome::stored);
  for (int time = 0; time < 2; ++time)  // until all is prepared
    static_cast<void>(store.begin(request()));
  proxy.harm_next(NetworkFault::trickle);

  const auto before = std::chrono::steady_clock::now();
  const BeginOutcome outcome = store.begin(request());

  EXPECT_GT(std::chrono::steady_clock::now() - before, 3s);
  ASSERT_TRUE(std::holds_alternative<Completed>(outcome));
  EXPECT_EQ(std::get<Completed>(outcome).result, result);
  EXPECT_EQ(proxy.harmed(), 1U);
}

TEST_F(MySqlFaults, RefuseAWrongPasswordWithoutShowingIt) {
  plain_.run("CREATE USER IF NOT EXISTS 'app'@'127.0.0.1' IDENTIFIED BY 'right'");
  MySqlOptions options = options_;
  options.user = "app";
  options.password = "wr0ng";

  const Error error = error_of([&] { MySqlStore store(options); });

  EXPECT_EQ(error.code(), Errc::store_refused);
  EXPECT_EQ((error.what() + error.detail()).find("wr0ng"), std::string::npos);
}

// MySQL's default is caching_sha2_password, which without TLS needs the server's key the first time.
TEST_F(MySqlFaults, AcceptAPasswordOfTheServersUsualKindWithoutTls) {
  plain_.run("DROP USER IF EXISTS 'usual'@'127.0.0.1'");
  plain_.run("CREATE USER 'usual'@'127.0.0.1' IDENTIFIED BY 'right'");
  plain_.run("GRANT ALL ON " + options_.database + ".* TO 'usual'@'127.0.0.1'");
  MySqlOptions options = options_;
  options.user = "usual";
  options.password = "right";

  MySqlStore store(options);

  EXPECT_TRUE(std::holds_alternative<Acquired>(store.begin(request())));
}

TEST_F(MySqlFaults, AreBusyWhenAllConnectionsAreInUse) {
  MySqlOptions options = options_;
  options.connections = 1;
  options.pool_wait = 100ms;
  MySqlStore store(options);
  auto transaction = store.open_transaction();

  EXPECT_EQ(code_of([&] { static_cast<void>(store.find({"fault", "k"})); }), Errc::store_busy);
  store.rollback(transaction);
  EXPECT_FALSE(store.find({"fault", "k"}));
}

TEST_F(MySqlFaults, ShareFewConnectionsAmongManyThreads) {
  MySqlOptions options = options_;
  options.connections = 3;
  options.pool_wait = 20s;
  MySqlStore store(options);
  std::atomic<int> acquired{0};
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < 32; ++thread) {  // MY-17: short-lived threads
    threads.emplace_back([&, thread] {
      for (int round = 0; round < 5; ++round) {
        const auto outcome = store.begin(request(std::to_string(thread * 100 + round)));
        if (std::holds_alternative<Acquired>(outcome)) ++acquired;
      }
    });
  }
  threads.clear();

  EXPECT_EQ(acquired, 160);
  // Not information_schema.processlist: MySQL refuses to show it beside a statement with bytes that are no text.
  const auto sessions = plain_.run("SHOW PROCESSLIST");
  EXPECT_LE(std::count_if(sessions.begin(), sessions.end(),
                          [](const auto& row) { return row[1] == "root"; }),
            3 + 2);
}

TEST_F(MySqlFaults, AreRefusedInTheChildOfAForkAndLeaveTheParentAlone) {
  const BeginRequest wanted = request();
  ASSERT_TRUE(std::holds_alternative<Acquired>(store_.begin(wanted)));
  auto transaction = std::make_optional(store_.open_transaction());
  ASSERT_TRUE(std::holds_alternative<Acquired>(store_.begin(*transaction, request("in"))));

  auto child = testing_support::ChildProcess::fork([&](const auto&) {
    const bool refused =
        code_of([&] { static_cast<void>(store_.find(wanted.key)); }) == Errc::used_after_fork &&
        code_of([&] { static_cast<void>(store_.open_transaction()); }) == Errc::used_after_fork &&
        store_.release(wanted.key, {wanted.owner, 1}, 1h) == ReleaseOutcome::unknown;
    transaction.reset();
    return refused ? 0 : 1;
  });

  EXPECT_EQ(child.wait(), (testing_support::ProcessEnd{0, 0}));
  store_.commit(*transaction);
  EXPECT_TRUE(store_.find({"fault", "in"}));
  EXPECT_EQ(store_.complete(wanted.key, {wanted.owner, 1}, {}), WriteOutcome::stored);
}

// MY-09: 1213 among plain calls never reaches the caller.
TEST_F(MySqlFaults, SurviveManyThreadsOnFewKeys) {
  std::vector<std::jthread> threads;
  std::atomic<int> errors{0};
  for (int thread = 0; thread < 12; ++thread) {
    threads.emplace_back([&] {
      for (int round = 0; round < 60; ++round) {
        const std::string value = std::to_string(round % 5);
        try {
          const BeginRequest wanted = request(value);
          auto transaction = store_.open_transaction();
          const BeginOutcome outcome = store_.begin(transaction, wanted);
          if (round % 3 != 0) {
            store_.rollback(transaction);
          } else {
            store_.commit(transaction);
          }
        } catch (const Error& error) {
          if (error.code() != Errc::transaction_lost) ++errors;
        }
      }
    });
  }
  threads.clear();

  EXPECT_EQ(errors, 0);
}

TEST_F(MySqlFaults, RefuseATableThatDiffersAndNameTheDifference) {
  struct Difference {
    const char* change;
    const char* named;
  };
  for (const Difference& difference :
       {Difference{"MODIFY value VARBINARY(100) NOT NULL", "value"},
        Difference{"MODIFY value VARCHAR(255) NOT NULL", "value"},
        Difference{"MODIFY result BLOB NULL", "result"},
        Difference{"MODIFY trace BLOB NOT NULL", "trace"},
        Difference{"DROP COLUMN attempt", "attempt"},
        Difference{"ADD COLUMN extra_one INT NOT NULL", "extra_one"},
        Difference{"ADD UNIQUE (value)", "unique"},
        Difference{"DROP PRIMARY KEY, ADD PRIMARY KEY (value, business_type)", "primary key"},
        Difference{"ENGINE = MyISAM", "InnoDB"},
        Difference{"COMMENT = 'idempotency records, version 9'", "version 9"}}) {
    plain_.run("DROP TABLE IF EXISTS other_record");
    plain_.run("CREATE TABLE other_record LIKE idempotency_record");
    plain_.run(std::string("ALTER TABLE other_record ") + difference.change);
    MySqlOptions options = options_;
    options.table_prefix = "other_";

    const Error error = error_of([&] { MySqlStore store(options); });

    EXPECT_EQ(error.code(), Errc::store_refused) << difference.change;
    EXPECT_NE(std::string(error.what()).find(difference.named), std::string::npos)
        << difference.change << ": " << error.what();
  }
  plain_.run("DROP TABLE other_record");
}

TEST_F(MySqlFaults, AcceptATableWithAColumnAndAnIndexOfTheOperators) {
  plain_.run("DROP TABLE IF EXISTS other_record");
  plain_.run("CREATE TABLE other_record LIKE idempotency_record");
  plain_.run("ALTER TABLE other_record ADD COLUMN note VARCHAR(9) NULL, ADD INDEX (expires_at)");
  MySqlOptions options = options_;
  options.table_prefix = "other_";
  options.schema = MySqlSchema::expect;

  MySqlStore store(options);
  EXPECT_TRUE(std::holds_alternative<Acquired>(store.begin(request())));
  plain_.run("DROP TABLE other_record");
  EXPECT_EQ(code_of([&] { static_cast<void>(store.begin(request())); }), Errc::store_refused);
  EXPECT_EQ(code_of([&] { MySqlStore again(options); }), Errc::store_refused);
  store.create_schema();
  EXPECT_TRUE(std::holds_alternative<Acquired>(store.begin(request())));
  plain_.run("DROP TABLE other_record");
}

// One could keep results from being recorded, without a word.
TEST_F(MySqlFaults, RefuseATableWithATriggerAndNameIt) {
  plain_.run("DROP TABLE IF EXISTS other_record");
  MySqlOptions options = options_;
  options.table_prefix = "other_";
  MySqlStore store(options);
  for (const char* event : {"BEFORE UPDATE", "BEFORE INSERT", "AFTER DELETE"}) {
    const std::string change = std::string_view(event).starts_with("BEFORE")
                                   ? "SET NEW.result = NULL"
                                   : "SET @seen = OLD.fence";
    plain_.run(std::string("CREATE TRIGGER keeps_nothing ") + event +
               " ON other_record FOR EACH ROW " + change);

    const Error refused = error_of([&] { MySqlStore another(options); });
    const Errc when_made_anew = code_of([&] { store.create_schema(); });
    plain_.run("DROP TRIGGER keeps_nothing");

    EXPECT_EQ(refused.code(), Errc::store_refused) << event;
    EXPECT_NE(std::string_view(refused.what()).find("'keeps_nothing' (" + std::string(event) + ')'),
              std::string_view::npos)
        << refused.what();
    EXPECT_EQ(when_made_anew, Errc::store_refused) << event;
  }
  EXPECT_NO_THROW(MySqlStore another(options));
  plain_.run("DROP TABLE other_record");
}

TEST_F(MySqlFaults, RefuseAViewInThePlaceOfTheTable) {
  MySqlOptions options = options_;
  options.table_prefix = "view_";
  plain_.run("CREATE OR REPLACE VIEW view_record AS SELECT * FROM idempotency_record");

  const Error refused = error_of([&] { static_cast<void>(MySqlStore(options)); });
  plain_.run("DROP VIEW view_record");

  EXPECT_EQ(refused.code(), Errc::store_refused);
  EXPECT_NE(std::string_view(refused.what()).find("view"), std::string_view::npos);
}

// In what is sent as text as well: on an application's connection, with a COMMIT, in batches.
TEST_F(MySqlFaults, TakeADatabaseWhoseNameHoldsWhatStandsForSomethingElse) {
  for (const char* name : {"a?b", "?`?", "NOW_MS", "TABLE_NAME"}) {
    SCOPED_TRACE(name);
    std::string quoted(name);
    if (const auto at = quoted.find('`'); at != std::string::npos) quoted.insert(at, 1, '`');
    plain_.run("CREATE DATABASE `" + quoted + '`');
    MySqlOptions options = options_;
    options.database = name;
    {
      MySqlStore store(options);
      IdempotencyGuard guard{store};
      PlainConnection client(options_);
      const auto nothing = [](MySqlTransaction& transaction) {
        transaction.execute("DO 1");
        return std::string("r");
      };
      const BeginRequest wanted = request();
      EXPECT_EQ(store.begin(wanted), BeginOutcome(Acquired{1, 1}));
      EXPECT_EQ(store.renew_many({{wanted.key, {wanted.owner, 1}, 1h}}),
                std::vector{WriteOutcome::stored});
      EXPECT_EQ(store.complete(wanted.key, {wanted.owner, 1}, {}), WriteOutcome::stored);
      EXPECT_EQ(guard.run_in_transaction({.key = {"fault", "own"}}, nothing).status(),
                RunStatus::executed);
      EXPECT_EQ(
          guard
              .run_in_transaction({.key = {"fault", "adopted"}},
                                  mysql_connection(static_cast<MYSQL*>(client.handle())), nothing)
              .status(),
          RunStatus::executed);
      EXPECT_EQ(store.find({"fault", "adopted"})->state, RecordState::success);
      EXPECT_EQ(store.purge(10), 0U);
    }
    plain_.run("DROP DATABASE `" + quoted + '`');
  }
}

TEST(MySqlSchemaFile, IsWhatTheStoreCreates) {
  const std::string made = detail::mysql::create_table_statement("`idempotency_record`");
  std::FILE* file = std::fopen(IDEMPOTENCY_MYSQL_SCHEMA, "r");
  ASSERT_NE(file, nullptr);
  std::string text(20'000, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);

  EXPECT_NE(text.find(made), std::string::npos);
}

TEST(MySqlBatch, BeginsTheOthersBesideARecordThatAnotherTransactionHolds) {
  MySqlStore store(MariaDbServer::shared().options());
  const Key held("batch_token", "t");
  ASSERT_EQ(store.issue({.key = held, .issuer = OwnerToken::generate()}), WriteOutcome::stored);
  PlainConnection other(MariaDbServer::shared().options());
  other.run("START TRANSACTION");
  other.run(
      "SELECT * FROM idempotency_record WHERE business_type = 'batch_token' AND value = 't' FOR "
      "UPDATE");
  const auto begin = [&](Admission admission) {
    return store.begin_many(std::vector<BeginRequest>{
        {.key = {"batch_order", "1"}, .owner = OwnerToken::generate()},
        {.key = held, .owner = OwnerToken::generate(), .admission = admission}});
  };

  const auto issued = begin(Admission::issued);
  ASSERT_EQ(issued.size(), 2U);
  EXPECT_EQ(issued[0], std::optional<BeginOutcome>(Acquired{1, 1}));
  EXPECT_FALSE(issued[1]) << "it has to be asked for by itself";

  const auto one_statement = begin(Admission::any);
  ASSERT_EQ(one_statement.size(), 2U);
  EXPECT_FALSE(one_statement[1]);
  other.run("ROLLBACK");
}

TEST(MySqlBatch, BeginsTheOthersBesideARecordThatCannotBeRead) {
  MySqlStore store(MariaDbServer::shared().options());
  const auto request = [](const char* value) {
    return BeginRequest{.key = {"batch_bad", value}, .owner = OwnerToken::generate()};
  };
  static_cast<void>(store.begin(request("1")));
  PlainConnection plain(MariaDbServer::shared().options());
  plain.run(
      "UPDATE idempotency_record SET state = 9 WHERE business_type = 'batch_bad' AND value = "
      "'1'");

  const auto answers = store.begin_many(std::vector<BeginRequest>{request("1"), request("2")});
  plain.run("DELETE FROM idempotency_record WHERE business_type = 'batch_bad'");

  ASSERT_EQ(answers.size(), 2U);
  EXPECT_FALSE(answers[0]);
  EXPECT_EQ(answers[1], std::optional<BeginOutcome>(Acquired{1, 1}));
}

}  // namespace
}  // namespace idempotency
