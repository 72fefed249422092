// Transactions that the server or the network ends: each ending told apart, and the effect there exactly once.

#include <gtest/gtest.h>
#include <mysql.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "idempotency/idempotency.hpp"
#include "idempotency/stores/mysql.hpp"
#include "idempotency/stores/mysql_handle.hpp"
#include "support/error_of.hpp"
#include "support/fault_proxy.hpp"
#include "support/mariadb_middleman.hpp"
#include "support/mariadb_server.hpp"

namespace idempotency {
namespace {

using namespace std::chrono_literals;
using testing_support::code_of;
using testing_support::FaultProxy;
using testing_support::MariaDbMiddleman;
using testing_support::MariaDbServer;
using testing_support::NetworkFault;
using testing_support::PlainConnection;
using Command = MariaDbMiddleman::Command;
using Interference = MariaDbMiddleman::Interference;

class MySqlCommits : public ::testing::Test {
 protected:
  MySqlCommits() {
    plain_.run(
        "CREATE TABLE IF NOT EXISTS moved (id INT AUTO_INCREMENT PRIMARY KEY, value VARCHAR(99)) "
        "ENGINE = InnoDB");
    plain_.run("DELETE FROM moved");
    static_cast<void>(MySqlStore(options_));  // the table
    plain_.run("DELETE FROM idempotency_record");
  }

  MySqlOptions at(std::uint16_t port) const {
    MySqlOptions options = options_;
    options.port = port;
    options.read_timeout = 2s;
    options.lock_wait = 1s;
    return options;
  }
  /// Moves once for each start of the handler; `also` is done at each, with the number of the start from 1.
  std::function<std::string(MySqlTransaction&)> moving(std::function<void(int)> also = {}) {
    return [this, also](MySqlTransaction& transaction) {
      const int start = ++starts_;
      transaction.execute("INSERT INTO moved (value) VALUES (?)", "one");
      if (also) also(start);
      return "start " + std::to_string(start);
    };
  }
  static Operation transfer(const std::string& value = "k") { return {.key = {"transfer", value}}; }
  std::string moves() { return plain_.ask("SELECT COUNT(*) FROM moved"); }
  bool is_recorded(const std::string& value = "k") {
    return plain_.ask("SELECT COUNT(*) FROM idempotency_record WHERE state = 2 AND value = '" +
                      value + "'") == "1";
  }
  /// Waits until a session is seen in a state like `state`, which is when the server says so.
  void wait_for_session(const std::string& state) {
    PlainConnection looking(options_);
    const auto end = std::chrono::steady_clock::now() + 30s;
    while (true) {
      // Not information_schema.processlist: MySQL refuses to show it beside a statement with bytes that are no text.
      for (const auto& row : looking.run("SHOW PROCESSLIST")) {
        if (row[6] == state) return;
      }
      if (std::chrono::steady_clock::now() > end) throw std::runtime_error("no session " + state);
    }
  }
  /// From now on every COMMIT waits, until `let_commits_go`; on MySQL so does every other write, the UPDATE with the COMMIT too.
  void hold_up_commits() {
    if (MariaDbServer::is_mysql()) {
      blocker_.run("FLUSH TABLES WITH READ LOCK");
      return;
    }
    for (const char* stage : {"START", "FLUSH", "BLOCK_DDL", "BLOCK_COMMIT"})
      blocker_.run(std::string("BACKUP STAGE ") + stage);
  }
  void let_commits_go() {
    blocker_.run(MariaDbServer::is_mysql() ? "UNLOCK TABLES" : "BACKUP STAGE END");
  }
  void wait_for_held_up_commit() {
    wait_for_session(MariaDbServer::is_mysql() ? "Waiting for global read lock"
                                               : "Waiting for backup lock");
  }

  MySqlOptions options_ = MariaDbServer::shared().options();
  PlainConnection plain_{options_};
  PlainConnection blocker_{options_};
  std::atomic<int> starts_{0};
};

struct CommitCase {
  NetworkFault fault;
  int starts;
};

// The answer to COMMIT is lost, or COMMIT itself: whether it took place is found out, and there is one effect.
TEST_F(MySqlCommits, HaveOneEffectWhateverTheNetworkDoesToThem) {
  int number = 0;
  for (const CommitCase& known :
       {CommitCase{NetworkFault::cut_before_reply, 1},
        CommitCase{NetworkFault::reset_before_reply, 1},
        CommitCase{NetworkFault::reply_swallowed, 1}, CommitCase{NetworkFault::trickle, 1},
        CommitCase{NetworkFault::delayed, 1}, CommitCase{NetworkFault::cut_before_request, 2},
        CommitCase{NetworkFault::half_open, 2}}) {
    FaultProxy proxy(options_.port);
    MySqlStore store(at(proxy.port()));
    IdempotencyGuard guard{store};
    starts_ = 0;
    const Operation warm_up = transfer("warm-up " + std::to_string(number));
    const Operation wanted = transfer(std::to_string(number));
    ASSERT_EQ(guard.run_in_transaction(warm_up, moving()).status(), RunStatus::executed);
    proxy.harm(2, known.fault);  // behind the INSERTs of the record and of the business

    const auto first = guard.run_in_transaction(wanted, moving());
    const auto second = guard.run_in_transaction(wanted, moving());

    EXPECT_EQ(proxy.harmed(), 1U);
    EXPECT_EQ(first.status(), RunStatus::executed) << number;
    EXPECT_EQ(second.status(), RunStatus::replayed) << number;
    EXPECT_EQ(first.value(), second.value()) << number;
    EXPECT_EQ(starts_ - 1, known.starts) << number;
    ++number;
    EXPECT_EQ(moves(), std::to_string(2 * number));
  }
}

// The old session is still at its COMMIT when the client has lost it: a plain read sees nothing, and whoever trusted it would have the
// effect a second time.
TEST_F(MySqlCommits, AreSettledByTheWriteThatBlocksBehindTheOldSession) {
  MariaDbMiddleman middleman(options_.port);
  MySqlOptions options = at(middleman.port());
  options.read_timeout = 30s;
  MySqlStore store(options);
  IdempotencyGuard guard{store};
  std::atomic<int> commits{0};
  middleman.plan([&](const Command& command) {
    const bool first = command.commits() && ++commits == 1;
    return Interference{first ? Interference::Kind::hung_up : Interference::Kind::none};
  });

  auto running = std::async(std::launch::async, [&] {
    return guard.run_in_transaction({.key = {"transfer", "k"}, .policy = {.wait = 20s}},
                                    moving([&](int) { hold_up_commits(); }));
  });
  wait_for_held_up_commit();  // of the old session
  wait_for_session(MariaDbServer::is_mysql() ? "Waiting for global read lock"
                                             : "Update");  // of the new one
  MySqlStore reader(options_);
  const bool plain_read_sees_it = reader.find({"transfer", "k"}).has_value();
  const bool still_waiting = running.wait_for(200ms) == std::future_status::timeout;
  let_commits_go();
  const auto result = running.get();

  EXPECT_FALSE(plain_read_sees_it);
  EXPECT_TRUE(still_waiting);
  EXPECT_EQ(result.status(), RunStatus::executed);
  EXPECT_EQ(result.value(), "start 1");
  EXPECT_EQ(starts_, 1);
  EXPECT_EQ(moves(), "1");
  EXPECT_TRUE(is_recorded());
}

// The same, for longer than anybody wants to wait: the error says that the commit is unknown, and the next call finds out.
TEST_F(MySqlCommits, StayUnknownWhileTheOldSessionIsAtThem) {
  MariaDbMiddleman middleman(options_.port);
  MySqlStore store(at(middleman.port()));
  IdempotencyGuard guard{store};
  std::atomic<int> commits{0};
  middleman.plan([&](const Command& command) {
    const bool first = command.commits() && ++commits == 1;
    return Interference{first ? Interference::Kind::hung_up : Interference::Kind::none};
  });
  const Operation wanted{.key = {"transfer", "k"}, .policy = {.wait = 300ms}};

  const Error told = testing_support::error_of([&] {
    static_cast<void>(guard.run_in_transaction(wanted, moving([&](int) { hold_up_commits(); })));
  });
  let_commits_go();
  const auto later = guard.run_in_transaction(wanted, moving());

  EXPECT_EQ(told.code(), Errc::commit_unknown);
  EXPECT_TRUE(told.effect_possible());
  EXPECT_TRUE(told.safe_to_retry());
  EXPECT_EQ(later.status(), RunStatus::replayed);
  EXPECT_EQ(starts_, 1);
  EXPECT_EQ(moves(), "1");
}

TEST_F(MySqlCommits, ThatTakeTooLongAreSettledAsWell) {
  MySqlStore store(at(options_.port));
  IdempotencyGuard guard{store};
  const Operation wanted = transfer();
  RunStatus status = RunStatus::undecidable;

  // What is found out depends on when the server sees that its client has gone; nothing is guessed.
  try {
    status = guard
                 .run_in_transaction(wanted, moving([&](int start) {
                                       if (start == 1) hold_up_commits();
                                     }))
                 .status();
  } catch (const Error& error) {
    if (error.code() != Errc::commit_unknown) {
      EXPECT_EQ(error.code(), Errc::transaction_lost) << error.detail();
      EXPECT_EQ(moves(), "0");
    }
  }
  let_commits_go();
  if (status != RunStatus::executed) {
    status = guard.run_in_transaction(wanted, moving()).status();
  }

  EXPECT_TRUE(status == RunStatus::executed || status == RunStatus::replayed);
  EXPECT_EQ(moves(), "1");
  EXPECT_TRUE(is_recorded());
}

TEST_F(MySqlCommits, KilledBeforeTheyWereSentAreRepeatedWhole) {
  MySqlStore store(at(options_.port));
  IdempotencyGuard guard{store};

  const auto result =
      guard.run_in_transaction(transfer(), [&](MySqlTransaction& transaction) -> std::string {
        const auto id =
            transaction.query("SELECT CONNECTION_ID() AS id").at(0).as<std::uint64_t>("id");
        return moving([&](int start) {
          if (start == 1) plain_.run("KILL CONNECTION " + std::to_string(id));
        })(transaction);
      });

  EXPECT_EQ(result.status(), RunStatus::executed);
  EXPECT_EQ(starts_, 2);
  EXPECT_EQ(moves(), "1");
}

TEST_F(MySqlCommits, KilledWhileTheyWaitAreRepeatedWhole) {
  if (MariaDbServer::is_mysql()) GTEST_SKIP() << "MySQL holds up no COMMIT alone";
  MySqlOptions options = at(options_.port);
  options.read_timeout = 30s;
  MySqlStore store(options);
  IdempotencyGuard guard{store};
  std::atomic<std::uint64_t> id{0};

  auto running = std::async(std::launch::async, [&] {
    return guard.run_in_transaction(transfer(), [&](MySqlTransaction& transaction) {
      id = transaction.query("SELECT CONNECTION_ID() AS id").at(0).as<std::uint64_t>("id");
      return moving([&](int start) { start == 1 ? hold_up_commits() : let_commits_go(); })(
          transaction);
    });
  });
  wait_for_held_up_commit();
  plain_.run("KILL CONNECTION " + std::to_string(id));
  const auto result = running.get();

  EXPECT_EQ(result.status(), RunStatus::executed);
  EXPECT_EQ(starts_, 2);
  EXPECT_EQ(moves(), "1");
}

// 1205 from COMMIT itself: the server has rolled back.
TEST_F(MySqlCommits, ThatWaitForALockInVainAreRepeatedWhole) {
  if (MariaDbServer::is_mysql()) GTEST_SKIP() << "MySQL holds up no COMMIT alone";
  plain_.run("SET GLOBAL lock_wait_timeout = 1");
  MySqlOptions options = at(options_.port);
  options.read_timeout = 30s;
  MySqlStore store(options);
  IdempotencyGuard guard{store};
  ASSERT_EQ(guard
                .run_in_transaction(transfer("opens its connection"),
                                    [](MySqlTransaction&) { return std::string(); })
                .status(),
            RunStatus::executed);
  plain_.run("SET GLOBAL lock_wait_timeout = DEFAULT");

  const auto result = guard.run_in_transaction(
      transfer(), moving([&](int start) { start == 1 ? hold_up_commits() : let_commits_go(); }));

  EXPECT_EQ(result.status(), RunStatus::executed);
  EXPECT_EQ(starts_, 2);
  EXPECT_EQ(moves(), "1");
}

// A row that the handler read has changed since, under MariaDB's innodb_snapshot_isolation: 1020.
TEST_F(MySqlCommits, FollowAnewAfterAStaleSnapshot) {
  if (MariaDbServer::is_mysql()) GTEST_SKIP() << "MySQL has no such setting";
  plain_.run("SET GLOBAL innodb_snapshot_isolation = ON");
  MySqlStore store(at(options_.port));
  IdempotencyGuard guard{store};
  plain_.run("INSERT INTO moved (value) VALUES ('before')");
  int starts = 0;
  Errc told{};
  const auto handler = [&](MySqlTransaction& transaction) {
    static_cast<void>(transaction.query("SELECT * FROM moved"));
    if (++starts == 1) plain_.run("UPDATE moved SET value = 'between'");
    try {
      transaction.execute("UPDATE moved SET value = ?", "after");
    } catch (const Error& error) {
      told = error.code();
      EXPECT_NE(error.detail().find("1020"), std::string::npos) << error.detail();
      throw;
    }
    return starts;
  };

  const auto result = guard.run_in_transaction(transfer(), handler);
  plain_.run("SET GLOBAL innodb_snapshot_isolation = DEFAULT");

  EXPECT_EQ(told, Errc::transaction_lost);
  EXPECT_EQ(result.status(), RunStatus::executed);
  EXPECT_EQ(starts, 2);
  EXPECT_EQ(plain_.ask("SELECT value FROM moved"), "after");
}

struct ErrorCase {
  const char* name;
  unsigned error;
  Interference::Kind kind;
  std::uint64_t command;  ///< 0 the record's INSERT, 1 the handler's, 2 the UPDATE with the COMMIT
  int starts;
  Errc told;  ///< `Errc{}` when the call succeeds
};

constexpr auto rolled_back = Interference::Kind::rolled_back;
constexpr auto refused = Interference::Kind::refused;

// The server's error numbers at every statement of a run, as the server gives them: what can be repeated whole is, the rest is
// told, and nothing is half written. 1213 at COMMIT is what a Galera node says whose certification failed (MY-28).
TEST_F(MySqlCommits, TellEveryErrorApartAtEveryStatement) {
  for (const ErrorCase& known : {
           ErrorCase{"deadlock at the record", 1213, rolled_back, 0, 1, Errc{}},
           ErrorCase{"deadlock at the business", 1213, rolled_back, 1, 2, Errc{}},
           ErrorCase{"deadlock at the commit", 1213, rolled_back, 2, 2, Errc{}},
           ErrorCase{"stale snapshot at the record", 1020, rolled_back, 0, 1, Errc{}},
           ErrorCase{"stale snapshot at the business", 1020, rolled_back, 1, 2, Errc{}},
           ErrorCase{"stale snapshot at the commit", 1020, rolled_back, 2, 2, Errc{}},
           ErrorCase{"lock wait at the record", 1205, refused, 0, 0, Errc::store_busy},
           ErrorCase{"lock wait at the business", 1205, refused, 1, 1, Errc::store_busy},
           ErrorCase{"lock wait at the commit", 1205, rolled_back, 2, 2, Errc{}},
           ErrorCase{"connection killed at the record", 1927, refused, 0, 1, Errc{}},
           ErrorCase{"connection killed at the business", 1927, refused, 1, 2, Errc{}},
           ErrorCase{"connection killed at the commit", 1927, refused, 2, 2, Errc{}},
           ErrorCase{"failure while committing", 1180, rolled_back, 2, 2, Errc{}},
           ErrorCase{"statement killed at the commit", 1317, rolled_back, 2, 2, Errc{}},
           ErrorCase{"read-only at the record", 1290, refused, 0, 1, Errc{}},
           ErrorCase{"read-only at the business", 1290, refused, 1, 1, Errc::statement_failed},
           ErrorCase{"read-only at the commit", 1290, refused, 2, 2, Errc{}},
           ErrorCase{"no such table at the business", 1146, refused, 1, 1, Errc::statement_failed},
       }) {
    plain_.run("DELETE FROM moved");
    plain_.run("DELETE FROM idempotency_record");
    MariaDbMiddleman middleman(options_.port);
    MySqlStore store(at(middleman.port()));
    IdempotencyGuard guard{store};
    ASSERT_EQ(guard.run_in_transaction(transfer("warm-up"), moving()).status(),
              RunStatus::executed);
    starts_ = 0;
    middleman.plan([at = middleman.commands() + known.command, &known](const Command& command) {
      return command.number == at ? Interference{known.kind, known.error} : Interference{};
    });

    Errc told{};
    RunStatus status = RunStatus::undecidable;
    try {
      status = guard.run_in_transaction(transfer(), moving()).status();
    } catch (const Error& error) {
      told = error.code();
      EXPECT_FALSE(error.effect_possible()) << known.name;
    }

    EXPECT_EQ(told, known.told) << known.name;
    EXPECT_EQ(starts_, known.starts) << known.name;
    const bool succeeds = known.told == Errc{};
    EXPECT_EQ(status == RunStatus::executed, succeeds) << known.name;
    EXPECT_EQ(moves(), succeeds ? "2" : "1") << known.name;
    EXPECT_EQ(is_recorded(), succeeds) << known.name;
    EXPECT_EQ(guard.run_in_transaction(transfer(), moving()).status(),
              succeeds ? RunStatus::replayed : RunStatus::executed)
        << known.name;
  }
}

// MY-28, MY-09: bounded, and told to the observer.
TEST_F(MySqlCommits, ThatConflictForEverAreGivenUpWithNothingWritten) {
  class Conflicts : public Observer {
   public:
    void on_store_error(const Key&, StoreCall, const Error& error,
                        std::uint32_t) noexcept override {
      if (error.code() == Errc::transaction_lost) ++seen;
    }
    int seen = 0;
  };
  MariaDbMiddleman middleman(options_.port);
  MySqlStore store(at(middleman.port()));
  Conflicts conflicts;
  IdempotencyGuard guard{store, {.observer = &conflicts}};
  middleman.plan([](const Command& command) {
    return command.commits() ? Interference{rolled_back, 1213} : Interference{};
  });

  const Errc told =
      code_of([&] { static_cast<void>(guard.run_in_transaction(transfer(), moving())); });
  middleman.plan({});

  EXPECT_EQ(told, Errc::transaction_lost);
  EXPECT_EQ(starts_, 3);
  EXPECT_EQ(conflicts.seen, 2);
  EXPECT_EQ(moves(), "0");
  EXPECT_FALSE(store.find({"transfer", "k"}));
  EXPECT_EQ(guard.run_in_transaction(transfer(), moving()).status(), RunStatus::executed);
}

// A plain `begin` is acquired only after its own commit: 1213 there is tried again, and then decided anew.
TEST_F(MySqlCommits, OfPlainCallsAreDecidedAnewAfterAConflict) {
  MariaDbMiddleman middleman(options_.port);
  MySqlStore store(at(middleman.port()));
  static_cast<void>(store.begin({.key = {"transfer", "warm-up"}, .owner = OwnerToken::generate()}));
  MySqlStore rival(options_);
  const OwnerToken winner = OwnerToken::generate();
  middleman.plan([&](const Command& command) {
    if (command.number != 0 && !rival.find({"transfer", "k"})) {
      static_cast<void>(rival.begin({.key = {"transfer", "k"}, .owner = winner}));
      return Interference{rolled_back, 1213};
    }
    return Interference{};
  });

  const BeginOutcome outcome =
      store.begin({.key = {"transfer", "k"}, .owner = OwnerToken::generate()});

  EXPECT_TRUE(std::holds_alternative<InProgress>(outcome));
  EXPECT_EQ(store.find({"transfer", "k"})->ownership.owner, winner);
}

// MY-13: what a lock wait time-out leaves open is not carried into the next call on the same connection.
TEST_F(MySqlCommits, AreCleanAfterALockWaitTimeOut) {
  MySqlOptions options = at(options_.port);
  options.connections = 1;
  MySqlStore store(options);
  IdempotencyGuard guard{store};
  plain_.run("INSERT INTO moved (value) VALUES ('held')");
  plain_.run("START TRANSACTION");
  plain_.run("UPDATE moved SET value = 'locked'");

  const Errc told = code_of([&] {
    static_cast<void>(
        guard.run_in_transaction(transfer("first"), [](MySqlTransaction& transaction) {
          transaction.execute("INSERT INTO moved (value) VALUES ('must not stay')");
          transaction.execute("UPDATE moved SET value = 'never'");
          return 1;
        }));
  });
  plain_.run("ROLLBACK");
  const auto next = guard.run_in_transaction(transfer("second"), moving());

  EXPECT_EQ(told, Errc::store_busy);
  EXPECT_EQ(next.status(), RunStatus::executed);
  EXPECT_EQ(moves(), "2");
  EXPECT_EQ(plain_.ask("SELECT COUNT(*) FROM moved WHERE value = 'must not stay'"), "0");
  EXPECT_FALSE(store.find({"transfer", "first"}));
}

TEST_F(MySqlCommits, ByTheHandlerItselfAreNotRepeated) {
  MySqlStore store(at(options_.port));
  IdempotencyGuard guard{store};
  const auto handler = [&](MySqlTransaction& transaction) {
    const std::string value = moving()(transaction);
    EXPECT_EQ(mysql_query(mysql_handle<MYSQL>(transaction.native_handle()), "COMMIT"), 0);
    return value;
  };

  const Errc told =
      code_of([&] { static_cast<void>(guard.run_in_transaction(transfer(), handler)); });
  const auto again = guard.run_in_transaction(transfer(), handler);

  EXPECT_EQ(told, Errc::commit_unknown);
  EXPECT_EQ(again.status(), RunStatus::uncertain);
  EXPECT_EQ(starts_, 1);
  EXPECT_EQ(moves(), "1");
}

TEST_F(MySqlCommits, ByTheHandlerItselfOnTheApplicationsConnectionAreNotRepeatedEither) {
  MySqlStore store(options_);
  IdempotencyGuard guard{store};
  PlainConnection client(options_);
  auto* const handle = static_cast<MYSQL*>(client.handle());
  const auto handler = [&](MySqlTransaction& transaction) {
    const std::string value = moving()(transaction);
    client.run("COMMIT");
    return value;
  };
  const auto run = [&](const std::string& value) {
    return guard.run_in_transaction(transfer(value), mysql_connection(handle), handler);
  };

  EXPECT_EQ(code_of([&] { static_cast<void>(run("adopted")); }), Errc::commit_unknown);
  client.run("START TRANSACTION");
  EXPECT_EQ(code_of([&] { static_cast<void>(run("joined")); }), Errc::commit_unknown);

  for (const char* value : {"adopted", "joined"})
    EXPECT_EQ(run(value).status(), RunStatus::uncertain) << value;
  EXPECT_EQ(moves(), "2");
}

// Its lease has run out, so that nothing but the record's owner tells it from one that was never written.
TEST_F(MySqlCommits, ByTheHandlerItselfAreNotRepeatedBehindTheirLeaseEither) {
  MySqlStore store(at(options_.port));
  IdempotencyGuard guard{store};
  Operation operation = transfer();
  operation.policy.lease = 1ms;
  const auto handler = [&](MySqlTransaction& transaction) {
    const std::string value = moving()(transaction);
    EXPECT_EQ(mysql_query(mysql_handle<MYSQL>(transaction.native_handle()), "COMMIT"), 0);
    std::this_thread::sleep_for(10ms);
    return value;
  };

  const Errc told =
      code_of([&] { static_cast<void>(guard.run_in_transaction(operation, handler)); });
  const auto again = guard.run_in_transaction(operation, handler);

  EXPECT_EQ(told, Errc::commit_unknown);
  EXPECT_EQ(again.status(), RunStatus::uncertain);
  EXPECT_EQ(moves(), "1");
}

TEST_F(MySqlCommits, ByAProcedureMakeTheRecordUncertain) {
  plain_.run("DROP PROCEDURE IF EXISTS commits");
  plain_.run("CREATE PROCEDURE commits() COMMIT");
  MySqlStore store(at(options_.port));
  IdempotencyGuard guard{store};
  PlainConnection client(options_);
  const auto handler = [&](MySqlTransaction& transaction) {
    const std::string value = moving()(transaction);
    transaction.execute("CALL commits()");
    return value;
  };
  const auto run = [&](const std::string& value) {
    return guard.run_in_transaction(transfer(value), handler);
  };
  const auto run_on_client = [&](const std::string& value) {
    return guard.run_in_transaction(
        transfer(value), mysql_connection(static_cast<MYSQL*>(client.handle())), handler);
  };

  EXPECT_EQ(code_of([&] { static_cast<void>(run("own")); }), Errc::commit_unknown);
  EXPECT_EQ(code_of([&] { static_cast<void>(run_on_client("adopted")); }), Errc::commit_unknown);
  client.run("START TRANSACTION");
  EXPECT_EQ(code_of([&] { static_cast<void>(run_on_client("joined")); }), Errc::commit_unknown);

  for (const char* value : {"own", "adopted", "joined"}) {
    EXPECT_EQ(store.find({"transfer", value})->state, RecordState::uncertain) << value;
    EXPECT_EQ(run(value).status(), RunStatus::uncertain) << value;
  }
  EXPECT_EQ(moves(), "3");
}

// The caller's whole transaction is gone; only the caller can repeat it.
TEST_F(MySqlCommits, OfAJoinedTransactionAreNotRepeatedAfterAConflict) {
  for (const std::uint64_t command : {0U, 1U, 2U}) {  // INSERT, business, UPDATE
    MariaDbMiddleman middleman(options_.port);
    MySqlStore store(options_);
    IdempotencyGuard guard{store};
    PlainConnection client(at(middleman.port()));
    client.run("START TRANSACTION");
    client.run("INSERT INTO moved (value) VALUES ('callers')");
    starts_ = 0;
    middleman.plan([at = middleman.commands() + command](const Command& asked) {
      return asked.number == at ? Interference{rolled_back, 1213} : Interference{};
    });

    const Errc told = code_of([&] {
      static_cast<void>(guard.run_in_transaction(
          transfer(), mysql_connection(static_cast<MYSQL*>(client.handle())), moving()));
    });
    client.run("COMMIT");

    EXPECT_EQ(told, Errc::transaction_lost) << command;
    EXPECT_LE(starts_, 1) << command;
    EXPECT_EQ(moves(), "0") << command;
    EXPECT_FALSE(is_recorded()) << command;
  }
}

}  // namespace
}  // namespace idempotency
