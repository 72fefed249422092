// What calls cost, counted at the wire and by the server itself.

#include <gtest/gtest.h>
#include <mysql.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <random>
#include <string>
#include <vector>

#include "idempotency/idempotency.hpp"
#include "idempotency/stores/mysql.hpp"
#include "idempotency/stores/mysql_handle.hpp"
#include "support/fault_proxy.hpp"
#include "support/mariadb_server.hpp"
#include "support/patience.hpp"

namespace idempotency {
namespace {

using namespace std::chrono_literals;
using testing_support::FaultProxy;
using testing_support::MariaDbServer;
using testing_support::NetworkFault;
using testing_support::Patience;
using testing_support::PlainConnection;

/// A store whose connections go through a proxy that counts what they send.
class MySqlCost : public ::testing::Test {
 protected:
  struct Counts {
    std::uint64_t exchanges = 0;   ///< at the wire
    std::uint64_t statements = 0;  ///< at the server
    std::uint64_t prepared = 0;
    std::uint64_t flushes = 0;
    friend bool operator==(const Counts&, const Counts&) = default;
    friend void PrintTo(const Counts& counts, std::ostream* out) {
      *out << counts.exchanges << " exchanges, " << counts.statements << " statements, "
           << counts.prepared << " prepared, " << counts.flushes << " flushes";
    }
  };

  MySqlCost() {
    plain_.run("DELETE FROM idempotency_record");
    plain_.run(
        "CREATE TABLE IF NOT EXISTS business_of_costs (id INT AUTO_INCREMENT PRIMARY KEY) "
        "ENGINE = InnoDB");
    wait_for_the_others_to_go();
  }

  MySqlOptions through_proxy() const {
    MySqlOptions options = server_options_;
    options.port = proxy_.port();
    return options;
  }
  Counts now() {
    // What reaches the disk: a log that is only written, as with innodb_flush_log_at_trx_commit = 2, is not counted. MariaDB
    // of 10.8 and later counts all its fsync() calls in one.
    const std::string flushes =
        MariaDbServer::is_mysql() ? "Innodb_os_log_fsyncs" : "Innodb_data_fsyncs";
    Counts counts{.exchanges = proxy_.requests()};
    for (const auto& row : plain_.run(
             "SHOW GLOBAL STATUS WHERE variable_name IN ('Questions', 'Com_stmt_prepare', '" +
             flushes + "')")) {
      const std::uint64_t value = std::stoull(row[1]);
      if (row[0] == "Questions") counts.statements = value;
      if (row[0] == "Com_stmt_prepare") counts.prepared = value;
      if (row[0] == flushes) counts.flushes = value;
    }
    return counts;
  }
  /// What one `work(value)` costs, each with a value of its own: the same every time, except that the server's
  /// background work can add flushes, of which the least is taken.
  template <class Work>
  Counts cost_of(Work work) {
    Counts cost{.flushes = 1000};
    for (int time = 0; time < times; ++time) {
      const Counts before = now();
      work(std::to_string(time));
      const Counts after = now();
      const Counts of_this{.exchanges = after.exchanges - before.exchanges,
                           .statements = after.statements - before.statements - 1,
                           .prepared = after.prepared - before.prepared,
                           .flushes = std::min(cost.flushes, after.flushes - before.flushes)};
      if (time > 0) {
        EXPECT_EQ(of_this.exchanges, cost.exchanges);
        EXPECT_EQ(of_this.statements, cost.statements);
        EXPECT_EQ(of_this.prepared, cost.prepared);
      }
      cost = of_this;
    }
    return cost;
  }

  static Operation operation(const std::string& value) { return {.key = {"cost", value}}; }
  RunStatus run(const std::string& value) {
    return guard_.run(operation(value), [] { return std::string("result"); }).status();
  }
  RunStatus transact(const std::string& value) {
    const auto business = [](MySqlTransaction& transaction) {
      transaction.execute("INSERT INTO business_of_costs VALUES ()");
      return std::string("result");
    };
    return guard_.run_in_transaction(operation(value), business).status();
  }
  /// Every statement is prepared, and no ROLLBACK is under way.
  static void warm_up(const std::function<void(const std::string&)>& transact) {
    for (const char* value : {"warm-up", "warm-up", "warmed up"})
      transact(value);
  }
  /// By another process, so that this store has never seen the keys.
  void finish_elsewhere() {
    {
      MySqlStore other(server_options_);
      IdempotencyGuard guard{other};
      for (int time = 0; time < times; ++time) {
        ASSERT_EQ(guard.run(operation(std::to_string(time)), [] { return std::string("result"); })
                      .status(),
                  RunStatus::executed);
      }
    }
    wait_for_the_others_to_go();
  }
  /// A connection's end counts as a statement, and comes when the server finds the time.
  void wait_for_the_others_to_go() {
    const std::string own = std::to_string(proxy_.connections() + 1);
    std::string found;
    for (const Patience patience; patience.lasts() && found != own;)
      found = plain_.ask("SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'root'");
    EXPECT_EQ(found, own);
  }

  static constexpr int times = 6;
  /// The record's INSERT; MySQL does not return what it found, and is asked.
  static std::uint64_t exchanges_of_begin() { return MariaDbServer::is_mysql() ? 2 : 1; }

  MySqlOptions server_options_ = MariaDbServer::shared().options();
  FaultProxy proxy_{server_options_.port};
  MySqlStore store_{through_proxy()};
  IdempotencyGuard<MySqlStore> guard_{store_};
  PlainConnection plain_{server_options_};
};

TEST_F(MySqlCost, IsTwoExchangesAndTwoFlushesForAFirstRun) {
  run("warm-up");

  const Counts cost =
      cost_of([&](const std::string& value) { EXPECT_EQ(run(value), RunStatus::executed); });

  EXPECT_EQ(cost, (Counts{.exchanges = 2, .statements = 2, .prepared = 0, .flushes = 2}));
}

// That the flushes are counted, and not what is written without one.
TEST_F(MySqlCost, IsNoFlushForAFirstRunWhereTheServerMakesNone) {
  run("warm-up");
  plain_.run("SET GLOBAL innodb_flush_log_at_trx_commit = 2");  // once a second

  const Counts cost =
      cost_of([&](const std::string& value) { EXPECT_EQ(run(value), RunStatus::executed); });

  plain_.run("SET GLOBAL innodb_flush_log_at_trx_commit = 1");
  EXPECT_EQ(cost, (Counts{.exchanges = 2, .statements = 2, .prepared = 0, .flushes = 0}));
}

TEST_F(MySqlCost, IsOneExchangeAndNoFlushForADuplicateNotSeenBefore) {
  finish_elsewhere();
  run("warm-up");
  run("warm-up");

  const Counts cost =
      cost_of([&](const std::string& value) { EXPECT_EQ(run(value), RunStatus::replayed); });

  EXPECT_EQ(cost, (Counts{.exchanges = exchanges_of_begin(),
                          .statements = exchanges_of_begin(),
                          .prepared = 0,
                          .flushes = 0}));
}

TEST_F(MySqlCost, IsOneExchangeAndNoFlushForADuplicateSeenBefore) {
  for (int time = 0; time < 3; ++time)
    run("k");

  const Counts cost =
      cost_of([&](const std::string&) { EXPECT_EQ(run("k"), RunStatus::replayed); });

  EXPECT_EQ(cost, (Counts{.exchanges = 1, .statements = 1, .prepared = 0, .flushes = 0}));
}

// An UPDATE that decides and a SELECT that tells, in one text.
TEST_F(MySqlCost, IsNoMoreExchangesUnderAOneTimeToken) {
  for (const std::string value : {"warm-up", "0", "1", "2", "3", "4", "5"}) {
    ASSERT_EQ(store_.issue({.key = {"cost", value}, .issuer = OwnerToken::generate()}),
              WriteOutcome::stored);
  }
  const auto submit = [&](const std::string& value) {
    return guard_
        .run({.key = {"cost", value}, .admission = Admission::issued},
             [] { return std::string("result"); })
        .status();
  };
  EXPECT_EQ(submit("warm-up"), RunStatus::executed);

  const Counts first =
      cost_of([&](const std::string& value) { EXPECT_EQ(submit(value), RunStatus::executed); });
  MySqlStore elsewhere(through_proxy());  // which has not seen the keys
  IdempotencyGuard guard{elsewhere};
  const auto repeat = [&](const std::string& value) {
    EXPECT_EQ(guard
                  .run({.key = {"cost", value}, .admission = Admission::issued},
                       [] { return std::string("result"); })
                  .status(),
              RunStatus::replayed);
  };
  repeat("warm-up");
  const Counts duplicate = cost_of(repeat);

  EXPECT_EQ(first, (Counts{.exchanges = 2, .statements = 3, .prepared = 0, .flushes = 2}));
  EXPECT_EQ(duplicate, (Counts{.exchanges = 1, .statements = 2, .prepared = 0, .flushes = 0}));
}

// BEGIN rides with the record's INSERT and COMMIT with its UPDATE.
TEST_F(MySqlCost, IsInATransactionThatOfTheBusinessAlone) {
  PlainConnection business(through_proxy());
  transact("warm-up");

  const Counts alone = cost_of([&](const std::string&) {
    business.run("START TRANSACTION");
    business.run("INSERT INTO business_of_costs VALUES ()");
    business.run("COMMIT");
  });
  const Counts guarded =
      cost_of([&](const std::string& value) { EXPECT_EQ(transact(value), RunStatus::executed); });

  EXPECT_EQ(alone, (Counts{.exchanges = 3, .statements = 3, .prepared = 0, .flushes = 1}));
  EXPECT_EQ(guarded.exchanges, alone.exchanges);
  EXPECT_EQ(guarded.flushes, alone.flushes);
  EXPECT_EQ(guarded.prepared, 0U);
  EXPECT_EQ(guarded.statements, alone.statements + 1);  // UPDATE;COMMIT is one exchange
}

// The record's INSERT and UPDATE. MySQL is asked what the INSERT found: text does not tell that.
TEST_F(MySqlCost, IsTwoExchangesMoreInATransactionOnTheApplicationsConnection) {
  PlainConnection client(through_proxy());
  const auto business = [&](MySqlTransaction&) {
    client.run("INSERT INTO business_of_costs VALUES ()");
    return std::string("result");
  };
  const auto transact = [&](const std::string& value) {
    return guard_
        .run_in_transaction(operation(value),
                            mysql_connection(static_cast<MYSQL*>(client.handle())), business)
        .status();
  };

  const Counts cost =
      cost_of([&](const std::string& value) { EXPECT_EQ(transact(value), RunStatus::executed); });

  const std::uint64_t exchanges = 3 + exchanges_of_begin() + 1;
  EXPECT_EQ(cost,
            (Counts{.exchanges = exchanges, .statements = exchanges, .prepared = 0, .flushes = 1}));
}

/// The savepoint to come back to; MariaDB sets it in the statement of `begin`.
std::uint64_t exchanges_of_savepoint() { return MariaDbServer::is_mysql() ? 1 : 0; }

TEST_F(MySqlCost, IsTwoExchangesMoreInATransactionThatIsJoined) {
  PlainConnection client(through_proxy());
  const auto business = [&](MySqlTransaction&) {
    client.run("INSERT INTO business_of_costs VALUES ()");
    return std::string("result");
  };
  const auto transact = [&](const std::string& value) {
    client.run("START TRANSACTION");
    const RunStatus status =
        guard_
            .run_in_transaction(operation(value),
                                mysql_connection(static_cast<MYSQL*>(client.handle())), business)
            .status();
    client.run("COMMIT");
    return status;
  };

  const Counts cost = cost_of([&](const std::string& value) {
    EXPECT_EQ(transact(value), RunStatus::executed_pending_commit);
  });

  const std::uint64_t exchanges = 3 + exchanges_of_savepoint() + exchanges_of_begin() + 1;
  EXPECT_EQ(cost,
            (Counts{.exchanges = exchanges, .statements = exchanges, .prepared = 0, .flushes = 1}));
}

TEST_F(MySqlCost, IsOneExchangeForADuplicateInATransactionThatIsJoined) {
  finish_elsewhere();
  PlainConnection client(through_proxy());
  client.run("START TRANSACTION");

  const Counts cost = cost_of([&](const std::string& value) {
    const auto nothing = [](MySqlTransaction&) { return std::string("result"); };
    EXPECT_EQ(
        guard_
            .run_in_transaction(operation(value),
                                mysql_connection(static_cast<MYSQL*>(client.handle())), nothing)
            .status(),
        RunStatus::replayed);
  });
  client.run("COMMIT");

  EXPECT_EQ(cost, (Counts{.exchanges = exchanges_of_savepoint() + exchanges_of_begin(),
                          .statements = exchanges_of_savepoint() + exchanges_of_begin(),
                          .prepared = 0,
                          .flushes = 0}));
}

TEST_F(MySqlCost, IsInATransactionOneExchangeAndNoFlushForADuplicateSeenBefore) {
  for (int time = 0; time < 3; ++time)
    transact("k");
  transact("the last rollback has been answered before this");

  const Counts cost =
      cost_of([&](const std::string&) { EXPECT_EQ(transact("k"), RunStatus::replayed); });

  EXPECT_EQ(cost, (Counts{.exchanges = 1, .statements = 1, .prepared = 0, .flushes = 0}));
}

// The ROLLBACK that lets the record's lock go is sent and not waited for.
TEST_F(MySqlCost, IsInATransactionOneExchangeThatIsWaitedForForADuplicateNotSeenBefore) {
  finish_elsewhere();
  warm_up([&](const std::string& value) { transact(value); });
  const Counts before = now();

  for (int time = 0; time < times; ++time)
    EXPECT_EQ(transact(std::to_string(time)), RunStatus::replayed);
  transact("the last rollback has been answered before this");

  const Counts after = now();
  const std::uint64_t of_duplicates = (exchanges_of_begin() + 1) * times;
  EXPECT_EQ(after.exchanges - before.exchanges, of_duplicates + 3);
  EXPECT_EQ(after.statements - before.statements - 1, of_duplicates + 4);
  EXPECT_EQ(after.prepared, before.prepared);
}

TEST_F(MySqlCost, IsNoFlushForADuplicateInATransaction) {
  finish_elsewhere();
  warm_up([&](const std::string& value) { transact(value); });

  std::uint64_t least = 1000;
  for (int time = 0; time < times; ++time) {
    const Counts before = now();
    EXPECT_EQ(transact(std::to_string(time)), RunStatus::replayed);
    least = std::min(least, now().flushes - before.flushes);
  }

  EXPECT_EQ(least, 0U);
}

TEST_F(MySqlCost, IsForADuplicateInATransactionNoWaitForTheAnswerToItsRollback) {
  finish_elsewhere();
  MySqlOptions options = through_proxy();
  options.read_timeout = 90s;
  MySqlStore patient(options);
  IdempotencyGuard guard{patient};
  const auto nothing = [](MySqlTransaction&) { return std::string("result"); };
  warm_up([&](const std::string& value) {
    static_cast<void>(guard.run_in_transaction(operation(value), nothing));
  });
  proxy_.harm(exchanges_of_begin(), NetworkFault::half_open);  // the ROLLBACK: never answered

  auto duplicate = std::async(std::launch::async, [&] {
    return guard.run_in_transaction(operation("0"), nothing).status();
  });
  const bool answered = duplicate.wait_for(30s) == std::future_status::ready;
  proxy_.heal();

  ASSERT_TRUE(answered);
  EXPECT_EQ(duplicate.get(), RunStatus::replayed);
}

// The answer that is owed does not come: the connection is of no use any more, and the next call takes another.
TEST_F(MySqlCost, IsAnotherConnectionWhenTheAnswerToARollbackIsLost) {
  finish_elsewhere();
  int number = 0;
  for (const NetworkFault fault : {NetworkFault::cut_before_request, NetworkFault::cut_before_reply,
                                   NetworkFault::reset_before_reply}) {
    warm_up([&](const std::string& value) { transact(value + ' ' + std::to_string(number)); });
    const std::uint64_t connections = proxy_.connections();
    proxy_.harm(exchanges_of_begin(), fault);

    EXPECT_EQ(transact(std::to_string(number)), RunStatus::replayed);
    EXPECT_EQ(transact(std::to_string(number + 1)), RunStatus::replayed);

    EXPECT_EQ(proxy_.connections(), connections + 1);
    number += 2;
  }
  EXPECT_EQ(number, times);
}

TEST_F(MySqlCost, IsOneStatementAndOneFlushForManyRenewals) {
  std::vector<Renewal> renewals;
  for (int number = 0; number < 100; ++number) {
    const Key key{"cost", std::to_string(number)};
    const OwnerToken owner = OwnerToken::generate();
    static_cast<void>(store_.begin({.key = key, .owner = owner}));
    renewals.push_back({key, {owner, 1}, 1h});
  }

  const Counts cost =
      cost_of([&](const std::string&) { static_cast<void>(store_.renew_many(renewals)); });

  const std::uint64_t statements = MariaDbServer::is_mysql() ? 3 : 1;  // and two settings
  EXPECT_EQ(cost, (Counts{.exchanges = 1, .statements = statements, .prepared = 0, .flushes = 1}));
}

// A page far behind in a large type, as a listing and a purge read it, does not read what is before it.
TEST_F(MySqlCost, IsForAPageFarBehindNoMoreThanForTheFirst) {
  constexpr int records = 4'000;
  std::string rows;
  for (int number = 0; number < records; ++number) {
    rows += (number == 0 ? "" : ",");
    rows += "('cost', '" + std::to_string(10'000 + number) +
            "', 2, 1, 0, 0, 'owner of 16 byte', 1, 1, 0, 0, 9999999999999)";
  }
  plain_.run(
      "INSERT INTO idempotency_record (business_type, value, state, mode, effect_marked, "
      "retryability, owner, fence, attempt, created_at, updated_at, expires_at) VALUES " +
      rows);
  plain_.run("ANALYZE TABLE idempotency_record");
  const auto rows_read_for = [&](const RecordFilter& filter) {
    const auto counted = [&] {
      return std::stoull(plain_.run("SHOW GLOBAL STATUS LIKE 'Handler_read_next'").at(0).at(1));
    };
    const std::uint64_t before = counted();
    EXPECT_EQ(store_.list(filter, "cost:12000", 10).records.size(), 10U);
    return counted() - before;
  };

  EXPECT_LE(rows_read_for({}), 500U);
  EXPECT_LE(rows_read_for({.type = "cost"}), 500U);
}

// A purge goes through the table in stretches of 10 000 rows of a type.
TEST_F(MySqlCost, IsForAPurgeOfALargeTableNoRowTwiceAndNoneLeft) {
  const auto insert = [&](const std::string& type, int records, int kept_of) {
    std::string rows;
    for (int number = 0; number < records; ++number) {
      const bool kept = number % kept_of == 0;
      rows += (number == 0 ? "" : ",");
      rows += "('" + type + "', '" + std::to_string(100'000 + number) +
              "', 2, 1, 0, 0, 'owner of 16 byte', 1, 1, 0, 0, " + (kept ? "9999999999999)" : "1)");
    }
    plain_.run(
        "INSERT INTO idempotency_record (business_type, value, state, mode, effect_marked, "
        "retryability, owner, fence, attempt, created_at, updated_at, expires_at) VALUES " +
        rows);
  };
  insert("cost", 21'000, 1'000);    // more than two stretches, nearly all of it old
  insert("cost-a", 10'000, 1);      // exactly one, all of it kept
  insert("cost.b", 10'001, 5'000);  // one and a row

  std::size_t removed = 0;
  std::size_t calls = 0;
  std::size_t last = 1;
  while (last != 0 && ++calls < 1'000) {
    last = store_.purge(700);
    removed += last;
  }

  EXPECT_EQ(removed, 21'000U - 21U + 10'001U - 3U);
  EXPECT_EQ(plain_.ask("SELECT COUNT(*) FROM idempotency_record"), "10024");
  EXPECT_EQ(plain_.ask("SELECT COUNT(*) FROM idempotency_record WHERE expires_at = 1"), "0");
}

// 41 bytes of key in no order, as services make them, and 16 of result: pages are about two thirds full. A million
// records were measured once, see docs/mysql.md; so many pages are exact for the same keys.
TEST_F(MySqlCost, IsFewBytesForASmallRecord) {
  constexpr int records = 10'000;
  constexpr std::uint64_t page = 16'384;
  plain_.run("SET GLOBAL innodb_flush_log_at_trx_commit = 0");  // for speed
  MySqlOptions options = server_options_;
  options.table_prefix = "bytes_";
  MySqlStore store(options);
  std::mt19937_64 random(1);
  for (int number = 0; number < records; ++number) {
    std::string value;
    while (value.size() < 33)
      value += static_cast<char>('a' + random() % 26);
    const Key key{"payment", value};
    const OwnerToken owner = OwnerToken::generate();
    ASSERT_EQ(key.text().size(), 41U);
    ASSERT_EQ(store.begin({.key = key, .owner = owner}), BeginOutcome(Acquired{1, 1}));
    ASSERT_EQ(store.complete(key, {owner, 1}, {.result = "sixteen bytes..."}),
              WriteOutcome::stored);
  }
  plain_.run("SET GLOBAL innodb_flush_log_at_trx_commit = DEFAULT");

  plain_.run("ANALYZE TABLE bytes_record");
  const std::uint64_t leaves = std::stoull(plain_.ask(
      "SELECT stat_value FROM mysql.innodb_index_stats WHERE database_name = DATABASE() AND "
      "table_name = 'bytes_record' AND stat_name = 'n_leaf_pages'"));

  RecordProperty("bytes_a_record", static_cast<int>(leaves * page / records));
  EXPECT_LE(leaves * page / records, 215U);
}

// The server makes one transaction of the statement: one flush, however many records it makes.
TEST_F(MySqlCost, IsOneExchangeAndOneFlushToBeginABatch) {
  run("warm-up");
  const auto begin = [&](const std::string& value) {
    std::vector<Operation> operations;
    for (int number = 0; number < 50; ++number)
      operations.push_back(operation(value + '-' + std::to_string(number)));
    return guard_.begin_many(std::move(operations));
  };
  std::vector<RunBatch> batches;

  const Counts fresh = cost_of([&](const std::string& value) { batches.push_back(begin(value)); });
  for (RunBatch& batch : batches) {
    for (std::size_t place = 0; place < batch.size(); ++place) {
      ASSERT_EQ(batch.run(place, [] { return std::string("result"); }).status(),
                RunStatus::executed);
    }
  }
  const Counts repeated = cost_of([&](const std::string& value) {
    RunBatch batch = begin(value);
    for (std::size_t place = 0; place < batch.size(); ++place) {
      EXPECT_EQ(batch.run(place, [] { return std::string("result"); }).status(),
                RunStatus::replayed);
    }
  });

  const std::uint64_t statements = MariaDbServer::is_mysql() ? 3 : 1;
  EXPECT_EQ(fresh, (Counts{.exchanges = 1, .statements = statements, .prepared = 0, .flushes = 1}));
  EXPECT_EQ(repeated,
            (Counts{.exchanges = 1, .statements = statements, .prepared = 0, .flushes = 0}));
}

}  // namespace
}  // namespace idempotency
