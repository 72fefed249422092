// Faults that others' stores on MySQL were seen to have, tried on this one; see each case's id.

#include <gtest/gtest.h>
#include <mysql.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <future>
#include <latch>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "idempotency/idempotency.hpp"
#include "idempotency/stores/mysql.hpp"
#include "idempotency/stores/mysql_handle.hpp"
#include "idempotency/testing/printers.hpp"
#include "mysql/mysql_statements.hpp"
#include "support/error_of.hpp"
#include "support/mariadb_server.hpp"

namespace idempotency {
namespace {

using namespace std::chrono_literals;
using testing_support::ChildProcess;
using testing_support::code_of;
using testing_support::MariaDbServer;
using testing_support::PlainConnection;
using testing_support::ProcessEnd;

class MySqlKnownFaults : public ::testing::Test {
 protected:
  MySqlKnownFaults() {
    plain_.run(
        "CREATE TABLE IF NOT EXISTS effect (id INT AUTO_INCREMENT PRIMARY KEY, "
        "value VARBINARY(99)) ENGINE = InnoDB");
    plain_.run("DELETE FROM effect");
    plain_.run("DELETE FROM idempotency_record");
  }

  static BeginRequest request(const std::string& value = "k",
                              const OwnerToken& owner = OwnerToken::generate()) {
    return {.key = {"known", value}, .owner = owner};
  }
  static Operation operation(const std::string& value = "k") { return {.key = {"known", value}}; }
  static MYSQL* handle(PlainConnection& connection) {
    return static_cast<MYSQL*>(connection.handle());
  }
  std::string effects() { return plain_.ask("SELECT COUNT(*) FROM effect"); }
  /// Waits until the last column of what the server answers is `wanted`.
  void wait_for(const std::string& sql, const std::string& wanted) {
    const auto end = std::chrono::steady_clock::now() + 30s;
    while (plain_.run(sql).at(0).back() != wanted) {
      if (std::chrono::steady_clock::now() > end) throw std::runtime_error("not " + sql);
    }
  }

  MySqlOptions options_ = MariaDbServer::shared().options();
  MySqlStore store_{options_};
  PlainConnection plain_{options_};
};

// MY-01, MY-02: whatever collates texts in the database, and whatever pads them.
TEST_F(MySqlKnownFaults, TellKeysApartInDatabasesOfAnyCollation) {
  const std::vector<std::string> values{
      "abc", "ABC", "Abc", "\xc3\x9f", "ss", "\xc3\xa9", "e", "e\xcc\x81", "\xc4\xb0",
      "i",   "I",   "k",   "k ",       " k", "k  ",      "K", "k\xc2\xa0", "k\xe3\x80\x80"};
  std::vector<std::string> collations{
      "utf8mb4_general_ci", "utf8mb4_unicode_ci", "utf8mb4_unicode_520_ci", "utf8mb4_bin",
      "latin1_swedish_ci",  "latin1_bin",         "ucs2_general_ci"};
  const std::vector<std::string> others =
      MariaDbServer::is_mysql()
          ? std::vector<std::string>{"utf8mb4_0900_ai_ci", "utf8mb4_0900_bin"}
          : std::vector<std::string>{"utf8mb4_uca1400_ai_ci", "utf8mb4_nopad_bin"};
  collations.insert(collations.end(), others.begin(), others.end());
  for (const std::string& collation : collations) {
    plain_.run("DROP DATABASE IF EXISTS collated");
    const std::string set = collation.substr(0, collation.find('_'));
    plain_.run("CREATE DATABASE collated CHARACTER SET " + set + " COLLATE " + collation);
    MySqlOptions options = options_;
    options.database = "collated";
    MySqlStore store(options);

    for (const std::string& value : values) {
      const BeginRequest wanted = request(value);
      ASSERT_EQ(store.begin(wanted), BeginOutcome(Acquired{1, 1})) << collation << ": " << value;
      ASSERT_EQ(store.complete(wanted.key, {wanted.owner, 1}, {.result = "of " + value}),
                WriteOutcome::stored);
    }
    for (const std::string& value : values) {
      EXPECT_EQ(store.find({"known", value})->result, "of " + value) << collation;
    }
  }
  plain_.run("DROP DATABASE collated");
}

// MY-02, MY-04: what cannot be kept as it is, is refused before anything is sent.
TEST_F(MySqlKnownFaults, RefuseKeysThatTheTableCouldNotHold) {
  for (const std::string& value :
       {std::string("k\0", 2), std::string("k\t"), std::string(256, 'a'), std::string(1024, 'a')}) {
    EXPECT_EQ(code_of([&] { static_cast<void>(Key("known", value)); }), Errc::invalid_key);
  }
}

// MY-04
TEST_F(MySqlKnownFaults, NeverMergeLongKeysOnALaxServer) {
  MariaDbServer lax({"--sql-mode="});
  MySqlStore store(lax.options());
  std::vector<Key> keys;
  for (const std::size_t size : {127U, 128U, 129U, 254U, 255U}) {
    for (const char* end : {"1", "2"})
      keys.emplace_back("known", std::string(size - 1, 'a') + end);
  }
  keys.emplace_back("known", std::string(253, 'b') + "\xc3\xa9");  // characters at the very end
  keys.emplace_back("known", std::string(253, 'b') + "\xc3\xa8");
  keys.emplace_back("known", std::string(251, 'b') + "\xf0\x9f\x98\x80");
  keys.emplace_back("known", std::string(251, 'b') + "\xf0\x9f\x98\x81");
  for (const std::size_t size : {256U, 1024U}) {
    for (const char* end : {"1", "2"})
      keys.push_back(Key::digested("known", std::string(size - 1, 'a') + end));
  }

  for (const Key& key : keys) {
    EXPECT_EQ(store.begin({.key = key, .owner = OwnerToken::generate()}),
              BeginOutcome(Acquired{1, 1}))
        << key.text();
    EXPECT_EQ(store.find(key)->key, key);
  }
}

// MY-06
TEST_F(MySqlKnownFaults, HaveNoCounterThatDuplicatesUseUp) {
  const BeginRequest wanted = request();
  ASSERT_TRUE(std::holds_alternative<Acquired>(store_.begin(wanted)));
  ASSERT_EQ(store_.complete(wanted.key, {wanted.owner, 1}, {.result = "r"}), WriteOutcome::stored);
  MySqlStore fresh(options_);

  int replayed = 0;
  for (int duplicate = 0; duplicate < 2'000; ++duplicate) {
    if (std::holds_alternative<Completed>(store_.begin(request()))) ++replayed;
    auto transaction = fresh.open_transaction();
    if (std::holds_alternative<Completed>(fresh.begin(transaction, request()))) ++replayed;
    fresh.rollback(transaction);
  }

  EXPECT_EQ(replayed, 4'000);
  EXPECT_EQ(plain_.ask("SELECT auto_increment FROM information_schema.tables WHERE table_schema = "
                       "DATABASE() AND table_name = 'idempotency_record'"),
            "NULL");
}

// MY-07: the same answers whatever the client's flag says of rows that an UPDATE leaves as they are.
TEST_F(MySqlKnownFaults, AnswerTheSameWithFoundRowsAndWithout) {
  for (const unsigned long flags : {0UL, static_cast<unsigned long>(CLIENT_FOUND_ROWS)}) {
    PlainConnection client(options_, flags);
    client.run("SET timestamp = 1700000000.5");  // time stands still: updates to identical values
    const std::string value = std::to_string(flags);
    const BeginRequest wanted = request(value);
    auto transaction = store_.open_transaction(mysql_connection(handle(client)));

    EXPECT_EQ(store_.begin(transaction, wanted), BeginOutcome(Acquired{1, 1}));
    EXPECT_EQ(store_.begin(transaction, wanted), BeginOutcome(Acquired{1, 1}));
    EXPECT_TRUE(std::holds_alternative<InProgress>(store_.begin(transaction, request(value))));
    const Ownership by{wanted.owner, 1};
    const Ownership stranger{OwnerToken::generate(), 1};
    EXPECT_EQ(store_.complete(transaction, wanted.key, stranger, {.result = "r"}),
              WriteOutcome::lost);
    EXPECT_EQ(store_.complete(transaction, wanted.key, {wanted.owner, 2}, {.result = "r"}),
              WriteOutcome::lost);
    EXPECT_EQ(store_.complete(transaction, wanted.key, by, {.result = "r"}), WriteOutcome::stored);
    EXPECT_EQ(store_.complete(transaction, wanted.key, by, {.result = "r"}), WriteOutcome::stored);
    EXPECT_TRUE(std::holds_alternative<Completed>(store_.begin(transaction, request(value))));
    transaction.execute("INSERT INTO effect (value) VALUES (?)", value);
    const SqlChanges same =
        transaction.execute("UPDATE effect SET value = value WHERE value = ?", value);
    EXPECT_EQ(same, (SqlChanges{1, 0}));
    store_.commit(transaction);
  }
}

// MY-07: renewed, marked and completed again within one millisecond.
TEST_F(MySqlKnownFaults, TakeAnUpdateToIdenticalValuesForStored) {
  const BeginRequest wanted = request();
  ASSERT_TRUE(std::holds_alternative<Acquired>(store_.begin(wanted)));
  const Ownership by{wanted.owner, 1};

  for (int round = 0; round < 200; ++round) {  // several a millisecond
    ASSERT_EQ(store_.renew(wanted.key, by, 10s), WriteOutcome::stored);
    ASSERT_EQ(store_.renew_many({{wanted.key, by, 10s}}),
              std::vector<WriteOutcome>{WriteOutcome::stored});
    ASSERT_EQ(store_.mark_effect(wanted.key, by), WriteOutcome::stored);
  }
}

// MY-09: InnoDB gives waiting inserters shared locks where a row is inserted and rolled back, and then they deadlock.
TEST_F(MySqlKnownFaults, LetExactlyOneInWhenTheFirstOfManyInsertersRollsBack) {
  MySqlOptions options = options_;
  options.connections = 8;
  MySqlStore store(options);
  IdempotencyGuard guard{store};
  auto first = store.open_transaction();
  ASSERT_TRUE(std::holds_alternative<Acquired>(store.begin(first, request())));
  std::atomic<int> starts{0};
  std::vector<std::future<RunStatus>> others;
  for (int other = 0; other < 4; ++other) {
    others.push_back(std::async(std::launch::async, [&] {
      return guard
          .run_in_transaction({.key = {"known", "k"}, .policy = {.wait = 20s}},
                              [&](MySqlTransaction& transaction) {
                                ++starts;
                                transaction.execute("INSERT INTO effect (value) VALUES ('x')");
                                return 1;
                              })
          .status();
    }));
  }
  wait_for("SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'", "4");
  store.rollback(first);

  std::map<RunStatus, int> statuses;
  for (auto& other : others)
    ++statuses[other.get()];

  EXPECT_EQ(statuses,
            (std::map<RunStatus, int>{{RunStatus::executed, 1}, {RunStatus::replayed, 3}}));
  EXPECT_EQ(starts, 1);
  EXPECT_EQ(effects(), "1");
}

// MY-09, MY-10
TEST_F(MySqlKnownFaults, HaveOneEffectAKeyHoweverManyThreadsAskForRandomKeys) {
  constexpr int threads = 64;
  constexpr int keys = 40;
  MySqlOptions options = options_;
  options.connections = 24;
  options.pool_wait = 60s;
  MySqlStore store(options);
  IdempotencyGuard guard{store};
  std::atomic<int> gave_up{0};
  std::atomic<int> executed{0};
  std::vector<std::jthread> running;
  for (int thread = 0; thread < threads; ++thread) {
    running.emplace_back([&, thread] {
      std::minstd_rand random(static_cast<unsigned>(thread));
      for (int round = 0; round < 10; ++round) {
        const std::string value = std::to_string(random() % keys);
        const bool fails = random() % 4 == 0;
        try {
          const auto result = guard.run_in_transaction(
              {.key = {"known", value}, .policy = {.wait = 60s}},
              [&](MySqlTransaction& transaction) {
                transaction.execute("INSERT INTO effect (value) VALUES (?)", value);
                if (fails) throw RetryableFailure("not now");
                return 1;
              });
          if (result.status() == RunStatus::executed) ++executed;
        } catch (const RetryableFailure&) {  // rolled back
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), Errc::transaction_lost) << error.detail();
          ++gave_up;
        }
      }
    });
  }
  running.clear();

  EXPECT_EQ(plain_.ask("SELECT COUNT(*) - COUNT(DISTINCT value) FROM effect"), "0");
  EXPECT_EQ(effects(), std::to_string(executed));
  EXPECT_EQ(plain_.ask("SELECT COUNT(*) FROM idempotency_record WHERE state = 2"), effects());
  EXPECT_LT(gave_up, 5);
}

// MY-10: no locking read of a row that may not be there, so nobody waits for a gap.
TEST_F(MySqlKnownFaults, LetTwoBeginAMissingRecordUnderAnyIsolationLevel) {
  for (const char* level : {"READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"}) {
    for (int round = 0; round < 20; ++round) {
      const std::string value = std::string(level).substr(0, 3) + std::to_string(round);
      std::latch both(2);
      std::array<BeginOutcome, 2> outcomes;
      const auto attempt = [&](std::size_t index) {
        PlainConnection client(options_);
        client.run(std::string("SET SESSION TRANSACTION ISOLATION LEVEL ") + level);
        client.run("START TRANSACTION");
        const BeginRequest wanted = request(value);
        both.arrive_and_wait();
        auto transaction = store_.open_transaction(mysql_connection(handle(client)));
        outcomes[index] = store_.begin(transaction, wanted);
        if (std::holds_alternative<Acquired>(outcomes[index])) {
          EXPECT_EQ(store_.complete(transaction, wanted.key, {wanted.owner, 1}, {.result = "r"}),
                    WriteOutcome::stored);
        }
        store_.commit(transaction);
        client.run("COMMIT");
      };
      auto other = std::async(std::launch::async, attempt, 1);
      ASSERT_NO_THROW(attempt(0)) << level;
      ASSERT_NO_THROW(other.get()) << level;

      const bool first_won = std::holds_alternative<Acquired>(outcomes[0]);
      EXPECT_TRUE(std::holds_alternative<Acquired>(outcomes[first_won ? 0 : 1]));
      EXPECT_TRUE(std::holds_alternative<Completed>(outcomes[first_won ? 1 : 0])) << level;
    }
  }
}

// MY-11
TEST_F(MySqlKnownFaults, ReplayInACallersTransactionWhoseSnapshotIsOlder) {
  IdempotencyGuard guard{store_};
  for (const char* level : {"REPEATABLE READ", "SERIALIZABLE", "READ COMMITTED"}) {
    const std::string value(level, 4);
    PlainConnection client(options_);
    client.allow_old_snapshots();
    client.run(std::string("SET SESSION TRANSACTION ISOLATION LEVEL ") + level);
    client.run("START TRANSACTION");
    client.run("SELECT * FROM effect");
    MySqlStore rival(options_);
    IdempotencyGuard winner{rival};
    ASSERT_EQ(winner.run(operation(value), [] { return std::string("won"); }).status(),
              RunStatus::executed);

    const auto result =
        guard.run_in_transaction(operation(value), mysql_connection(handle(client)),
                                 [](MySqlTransaction&) { return std::string("again"); });

    EXPECT_EQ(result.status(), RunStatus::replayed) << level;
    EXPECT_EQ(result.value(), "won");
    EXPECT_TRUE(client.in_transaction());
  }
}

// MY-11: where the server refuses to write over what the snapshot does not show, the caller hears that its transaction is lost.
TEST_F(MySqlKnownFaults, TellACallerWhoseServerInsistsOnItsSnapshot) {
  if (MariaDbServer::is_mysql()) GTEST_SKIP() << "MySQL never does";
  PlainConnection client(options_);
  client.run("SET innodb_snapshot_isolation = ON");
  client.run("START TRANSACTION");
  client.run("SELECT * FROM idempotency_record");
  client.run("SELECT * FROM effect");
  MySqlStore rival(options_);
  IdempotencyGuard winner{rival};
  ASSERT_EQ(winner.run(operation(), [] { return std::string("won"); }).status(),
            RunStatus::executed);
  IdempotencyGuard guard{store_};
  const auto again = [](MySqlTransaction&) { return std::string("again"); };

  const Errc told = code_of([&] {
    static_cast<void>(
        guard.run_in_transaction(operation(), mysql_connection(handle(client)), again));
  });
  client.run("ROLLBACK");
  const auto repeated =
      guard.run_in_transaction(operation(), mysql_connection(handle(client)), again);

  EXPECT_EQ(told, Errc::transaction_lost);
  EXPECT_EQ(repeated.status(), RunStatus::replayed);
}

// MY-15
TEST_F(MySqlKnownFaults, GoOnAfterTheServerClosedWhatWasIdle) {
  plain_.run("SET GLOBAL wait_timeout = 1");
  MySqlStore store(options_);
  IdempotencyGuard guard{store};
  plain_.run("SET GLOBAL wait_timeout = DEFAULT");
  const BeginRequest wanted = request("plain");
  ASSERT_TRUE(std::holds_alternative<Acquired>(store.begin(wanted)));
  const auto ours = plain_.run(
      "SELECT GROUP_CONCAT(id) FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND "
      "time < 5 AND command = 'Sleep'");
  wait_for("SELECT COUNT(*) FROM information_schema.processlist WHERE id IN (" + ours[0][0] + ")",
           "1");  // the fixture's own store stays

  EXPECT_EQ(store.complete(wanted.key, {wanted.owner, 1}, {.result = "r"}), WriteOutcome::stored);
  EXPECT_EQ(guard.run_in_transaction(operation("in"), [](MySqlTransaction&) { return 1; }).status(),
            RunStatus::executed);
}

// MY-17: stores come and go while short-lived threads use another.
TEST_F(MySqlKnownFaults, DoNotDependOnOneAnothersThreadsOrLives) {
  std::atomic<bool> stop{false};
  std::jthread others([&] {
    while (!stop) {
      MySqlStore passing(options_);
      static_cast<void>(passing.find({"known", "k"}));
    }
  });
  std::atomic<int> acquired{0};
  for (int batch = 0; batch < 3; ++batch) {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < 32; ++thread) {
      threads.emplace_back([&, number = batch * 100 + thread] {
        const BeginRequest wanted = request(std::to_string(number));
        if (std::holds_alternative<Acquired>(store_.begin(wanted))) ++acquired;
        EXPECT_EQ(store_.complete(wanted.key, {wanted.owner, 1}, {}), WriteOutcome::stored);
      });
    }
  }
  stop = true;

  EXPECT_EQ(acquired, 96);
}

std::string pattern_of(std::size_t size) {
  std::string bytes(size, '\0');
  for (std::size_t at = 0; at < size; at += 251)
    bytes[at] = static_cast<char>(at / 251);
  return bytes;
}

// MY-19
TEST_F(MySqlKnownFaults, GiveResultsOfEverySizeBackAsTheyWere) {
  plain_.run("SET GLOBAL max_allowed_packet = 64 * 1024 * 1024");
  MySqlStore store(options_);
  plain_.run("SET GLOBAL max_allowed_packet = 16 * 1024 * 1024");
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{255}, std::size_t{256}, std::size_t{65'535},
        std::size_t{65'536}, std::size_t{1} << 20U, std::size_t{17} << 20U}) {
    const std::string result = pattern_of(size);
    const BeginRequest wanted = request(std::to_string(size));
    ASSERT_TRUE(std::holds_alternative<Acquired>(store.begin(wanted)));
    ASSERT_EQ(store.complete(wanted.key, {wanted.owner, 1}, {.result = result}),
              WriteOutcome::stored);

    const BeginOutcome replayed = store.begin(request(std::to_string(size)));
    ASSERT_TRUE(std::holds_alternative<Completed>(replayed));
    EXPECT_TRUE(std::get<Completed>(replayed).result == result) << size;
    EXPECT_TRUE(store.find(wanted.key)->result == result) << size;  // through the other statement
  }
}

// MY-19: larger than the server takes: success without the result, and the handler never runs again for it.
TEST_F(MySqlKnownFaults, RecordASuccessWithoutAResultThatTheServerDoesNotTake) {
  IdempotencyGuard guard{store_};
  int starts = 0;
  const PolicyOverride large{.max_result_bytes = std::size_t{64} << 20U};
  const auto handler = [&] {
    ++starts;
    return std::string(std::size_t{17} << 20U, 'x');
  };
  const auto in_transaction = [&](MySqlTransaction& transaction) {
    transaction.execute("INSERT INTO effect (value) VALUES ('large')");
    return handler();
  };

  const auto plain = guard.run({.key = {"known", "plain"}, .policy = large}, handler);
  const auto plain_again = guard.run({.key = {"known", "plain"}, .policy = large}, handler);
  const Operation inside{.key = {"known", "inside"}, .policy = large};
  const auto transacted = guard.run_in_transaction(inside, in_transaction);
  const auto transacted_again = guard.run_in_transaction(inside, in_transaction);

  EXPECT_EQ(plain.status(), RunStatus::executed);
  EXPECT_EQ(plain_again.status(), RunStatus::replayed_without_result);
  EXPECT_EQ(transacted.status(), RunStatus::executed);
  EXPECT_EQ(transacted.value().size(), std::size_t{17} << 20U);
  EXPECT_EQ(transacted_again.status(), RunStatus::replayed_without_result);
  EXPECT_EQ(starts, 2);
  EXPECT_EQ(effects(), "1");
}

// MY-19: a completion that travels with the COMMIT is doubled as text; where that is too much it goes before.
TEST_F(MySqlKnownFaults, KeepAResultThatFitsOnlyWithoutTheCommit) {
  plain_.run("SET GLOBAL max_allowed_packet = 65536");
  MySqlStore store(options_);
  IdempotencyGuard guard{store};
  const std::string result = pattern_of(40'000);
  const auto handler = [&](MySqlTransaction&) { return result; };
  const auto first = guard.run_in_transaction(operation(), handler);
  const auto second = guard.run_in_transaction(operation(), handler);
  plain_.run("SET GLOBAL max_allowed_packet = 16 * 1024 * 1024");

  EXPECT_EQ(first.status(), RunStatus::executed);
  ASSERT_EQ(second.status(), RunStatus::replayed);
  EXPECT_TRUE(second.value() == result);
}

// MY-21
TEST_F(MySqlKnownFaults, NeverCutAResultOnALaxServer) {
  MariaDbServer lax({"--sql-mode="});
  MySqlStore store(lax.options());
  IdempotencyGuard guard{store};
  const std::string result = pattern_of(70'000);

  ASSERT_EQ(guard.run(operation(), [&] { return result; }).status(), RunStatus::executed);
  const auto again = guard.run(operation(), [&] { return std::string("again"); });
  ASSERT_EQ(again.status(), RunStatus::replayed);
  EXPECT_TRUE(again.value() == result);
}

// MY-22: clients in different zones, on a server whose own zone changes its clocks.
TEST_F(MySqlKnownFaults, CountTimeInUtcAcrossAChangeOfTheClocks) {
  MariaDbServer eastern({}, {"TZ=EST5EDT,M3.2.0,M11.1.0"});
  const MySqlOptions options = eastern.options();
  MySqlStore store(options);
  const std::string now = "SELECT " + std::string(detail::mysql::now_expression);
  for (const std::int64_t change : {1'710'054'000, 1'730'613'600}) {  // forward and back in 2024
    std::vector<std::string> written;
    for (const char* zone : {"+00:00", "SYSTEM", "-11:00", "+13:00"}) {
      PlainConnection client(options);
      client.run(std::string("SET time_zone = '") + zone + "'");
      for (const std::int64_t seconds : {-7'200, -3'601, -3'600, -1, 0, 1, 3'599, 3'600, 7'200}) {
        client.run("SET timestamp = " + std::to_string(change + seconds) + ".25");
        EXPECT_EQ(client.ask(now), std::to_string((change + seconds) * 1000 + 250)) << zone;
      }
      client.run("SET timestamp = " + std::to_string(change - 60));
      const BeginRequest wanted{.key = {"known", zone + std::to_string(change)},
                                .owner = OwnerToken::generate(),
                                .lease = 2min};
      auto before = store.open_transaction(mysql_connection(handle(client)));
      ASSERT_TRUE(std::holds_alternative<Acquired>(store.begin(before, wanted)));
      store.commit(before);
      written.push_back(
          client.run("SELECT CONCAT(created_at, '-', lease_until) FROM idempotency_record WHERE "
                     "value LIKE '" +
                     std::string(zone) + "%' ORDER BY created_at DESC")[0][0]);

      client.run("SET timestamp = " + std::to_string(change + 30));
      auto after = store.open_transaction(mysql_connection(handle(client)));
      const BeginOutcome running =
          store.begin(after, {.key = wanted.key, .owner = OwnerToken::generate()});
      store.rollback(after);
      EXPECT_EQ(running, BeginOutcome(InProgress{30s})) << zone;
    }
    EXPECT_EQ(std::set<std::string>(written.begin(), written.end()),
              std::set<std::string>{std::to_string((change - 60) * 1000) + "-" +
                                    std::to_string((change + 60) * 1000)});
  }
}

// MY-25: the table is made when the store is opened, on a connection of its own; never in a caller's transaction.
TEST_F(MySqlKnownFaults, NeverCommitACallersTransactionByMakingTheTable) {
  MySqlOptions options = options_;
  options.table_prefix = "lazy_";
  plain_.run("DROP TABLE IF EXISTS lazy_record");
  PlainConnection client(options_);
  client.run("START TRANSACTION");
  client.run("INSERT INTO effect (value) VALUES ('callers')");

  MySqlStore store(options);
  auto joined = store.open_transaction(mysql_connection(handle(client)));
  ASSERT_TRUE(std::holds_alternative<Acquired>(store.begin(joined, request())));
  store.commit(joined);
  EXPECT_EQ(effects(), "0");
  EXPECT_TRUE(client.in_transaction());
  client.run("ROLLBACK");
  EXPECT_EQ(plain_.ask("SELECT COUNT(*) FROM lazy_record"), "0");

  plain_.run("DROP TABLE lazy_record");  // and it is not made anew there either
  client.run("START TRANSACTION");
  client.run("INSERT INTO effect (value) VALUES ('callers')");
  auto again = store.open_transaction(mysql_connection(handle(client)));
  EXPECT_EQ(code_of([&] { static_cast<void>(store.begin(again, request())); }),
            Errc::store_refused);
  store.rollback(again);
  EXPECT_TRUE(client.in_transaction());
  EXPECT_EQ(effects(), "0");
  client.run("COMMIT");
  EXPECT_EQ(effects(), "1");
}

// MY-26: a connection with autocommit=0 that is in a transaction already is joined, one that is not is committed.
TEST_F(MySqlKnownFaults, JoinOrCommitWithoutAutocommitAndLeaveItSo) {
  IdempotencyGuard guard{store_};
  PlainConnection client(options_);
  client.run("SET autocommit = 0");
  const auto effect = [](MySqlTransaction& transaction) {
    transaction.execute("INSERT INTO effect (value) VALUES ('x')");
    return 1;
  };

  const auto begun =
      guard.run_in_transaction(operation("begun"), mysql_connection(handle(client)), effect);
  EXPECT_EQ(effects(), "1");
  client.run("INSERT INTO effect (value) VALUES ('callers')");
  const auto joined =
      guard.run_in_transaction(operation("joined"), mysql_connection(handle(client)), effect);
  EXPECT_EQ(effects(), "1");
  client.run("COMMIT");

  EXPECT_EQ(begun.status(), RunStatus::executed);
  EXPECT_EQ(joined.status(), RunStatus::executed_pending_commit);
  EXPECT_EQ(effects(), "3");
  EXPECT_EQ(client.ask("SELECT @@autocommit"), "0");
}

// MY-26: plain calls commit although the connection served a transaction before, and the other way round.
TEST_F(MySqlKnownFaults, CommitWhatTheySayOnAConnectionThatServesBothWays) {
  MySqlOptions options = options_;
  options.connections = 1;
  MySqlStore store(options);
  IdempotencyGuard guard{store};
  const auto effect = [](MySqlTransaction& transaction) {
    transaction.execute("INSERT INTO effect (value) VALUES ('x')");
    return 1;
  };
  const auto recorded = [&](const std::string& value) {
    return plain_.ask("SELECT COUNT(*) FROM idempotency_record WHERE state = 2 AND value = '" +
                      value + "'");
  };

  for (int round = 0; round < 3; ++round) {
    const std::string number = std::to_string(round);
    ASSERT_EQ(guard.run_in_transaction(operation("t" + number), effect).status(),
              RunStatus::executed);
    EXPECT_EQ(recorded("t" + number), "1");
    ASSERT_EQ(guard.run(operation("p" + number), [] { return 1; }).status(), RunStatus::executed);
    EXPECT_EQ(recorded("p" + number), "1");
    EXPECT_THROW(
        static_cast<void>(guard.run_in_transaction(operation("f" + number),
                                                   [&](MySqlTransaction& transaction) -> int {
                                                     effect(transaction);
                                                     throw std::runtime_error("no");
                                                   })),
        std::runtime_error);
    EXPECT_EQ(effects(), std::to_string(round + 1));
  }
}

// MY-26: a handler that changes it behind the library's back ends its transaction, which is told, and harms nobody else.
TEST_F(MySqlKnownFaults, NoticeAHandlerThatTurnsAutocommitOn) {
  MySqlOptions options = options_;
  options.connections = 1;
  MySqlStore store(options);
  IdempotencyGuard guard{store};

  const Errc told = code_of([&] {
    static_cast<void>(guard.run_in_transaction(operation("bad"), [](MySqlTransaction& transaction) {
      mysql_query(mysql_handle<MYSQL>(transaction.native_handle()), "SET autocommit = 1");
      return 1;
    }));
  });
  EXPECT_THROW(static_cast<void>(guard.run_in_transaction(
                   operation("good"),
                   [](MySqlTransaction& transaction) -> int {
                     transaction.execute("INSERT INTO effect (value) VALUES ('x')");
                     throw std::runtime_error("no");
                   })),
               std::runtime_error);

  EXPECT_EQ(told, Errc::commit_unknown);
  EXPECT_EQ(effects(), "0");
  EXPECT_FALSE(store.find({"known", "good"}));
}

// The usual action of SIGPIPE ends the process: the server goes away while connections are idle, and then much is written to them.
TEST_F(MySqlKnownFaults, SurviveAServerThatDiesWithIdleConnections) {
  MariaDbServer server;
  int go[2] = {-1, -1};
  ASSERT_EQ(::pipe(go), 0);
  auto child = ChildProcess::fork([&](const ChildProcess::ToParent& parent) {
    ::signal(SIGPIPE, SIG_DFL);
    auto store = std::make_unique<MySqlStore>(server.options());
    IdempotencyGuard guard{*store};
    static_cast<void>(guard.run(operation("a"), [] { return 1; }));
    static_cast<void>(guard.run_in_transaction(operation("b"), [](MySqlTransaction& transaction) {
      transaction.execute("DO 1");
      return 1;
    }));
    parent.say("ready");
    char byte = 0;
    if (::read(go[0], &byte, 1) != 1) return 2;
    for (int round = 0; round < 3; ++round) {
      if (code_of([&] {
            static_cast<void>(store->find({"known", "a"}));
          }) != Errc::store_unavailable) {
        return 3;
      }
    }
    store.reset();
    return 0;
  });
  ASSERT_EQ(child.next_line(), "ready");

  server.kill();
  ASSERT_EQ(::write(go[1], "x", 1), 1);

  EXPECT_EQ(child.wait(), (ProcessEnd{0, 0}));
  ::close(go[0]);
  ::close(go[1]);
}

}  // namespace
}  // namespace idempotency
