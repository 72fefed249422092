#include <mysql.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <future>
#include <latch>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "idempotency/guard.hpp"
#include "idempotency/patterns/sql_locks.hpp"
#include "idempotency/patterns/sql_states.hpp"
#include "idempotency/stores/mysql.hpp"
#include "idempotency/stores/mysql_handle.hpp"
#include "idempotency/testing/locks_conformance.hpp"
#include "idempotency/testing/states_conformance.hpp"
#include "idempotency/testing/tcc_conformance.hpp"
#include "idempotency/testing/tokens_conformance.hpp"
#include "idempotency/testing/versions_conformance.hpp"
#include "support/child_process.hpp"
#include "support/mariadb_server.hpp"

namespace idempotency::testing {
namespace {

using testing_support::MariaDbServer;
using testing_support::PlainConnection;

/// Each move in a transaction of its own, under REPEATABLE READ.
class MySqlStatesFixture {
 public:
  MySqlStatesFixture() {
    plain_.run("DROP TABLE IF EXISTS orders");
    plain_.run(
        "CREATE TABLE orders (id VARBINARY(32) PRIMARY KEY, state VARBINARY(32) NOT NULL) "
        "ENGINE = InnoDB");
  }
  void create(const std::string& id, OrderState state) {
    plain_.run("INSERT INTO orders VALUES ('" + id + "', '" +
               std::string(order_machine.name_of(state)) + "')");
  }
  TransitionResult<OrderState> transition(const std::string& id, OrderState from, OrderState to) {
    return states_.transition(store_, id, from, to);
  }
  std::optional<OrderState> look(const std::string& id) {
    return idempotency::detail::in_own_transaction(
        store_, [&](MySqlTransaction& transaction) { return states_.look(transaction, id); });
  }

 private:
  MySqlStore store_{MariaDbServer::shared().options()};
  PlainConnection plain_{MariaDbServer::shared().options()};
  SqlStates<OrderState> states_{order_machine, {.table = "idempotency_test.orders"}};
};

class MySqlTccFixture {
 public:
  static constexpr SqlDialect dialect = SqlDialect::mariadb;

  MySqlTccFixture() {
    run("DROP TABLE IF EXISTS tcc_barrier");
    run("DROP TABLE IF EXISTS effect");
  }
  MySqlStore& store() { return store_; }
  void run(const std::string& sql) { plain_.run(sql); }

 private:
  MySqlStore store_{MariaDbServer::shared().options()};
  PlainConnection plain_{MariaDbServer::shared().options()};
};

class MySqlLocksFixture {
 public:
  MySqlLocksFixture() {
    plain_.run("DROP TABLE IF EXISTS idempotency_lock");
    plain_.run(locks_schema("idempotency_lock", SqlDialect::mariadb));
  }
  SqlLocks<MySqlStore>& carrier() { return locks_; }
  SqlLocks<MySqlStore>& other_carrier() { return other_locks_; }
  static void advance(std::chrono::milliseconds span) { std::this_thread::sleep_for(span); }

 private:
  PlainConnection plain_{MariaDbServer::shared().options()};
  MySqlStore store_{MariaDbServer::shared().options()};
  MySqlStore other_store_{MariaDbServer::shared().options()};
  SqlLocks<MySqlStore> locks_{store_};
  SqlLocks<MySqlStore> other_locks_{other_store_};
};

// LK-07, LK-09, LK-13, LK-14, LK-20, LK-22
INSTANTIATE_TYPED_TEST_SUITE_P(MySqlLocks, LocksConformance, MySqlLocksFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(MySqlStates, StatesConformance, MySqlStatesFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(MySqlTcc, TccConformance, MySqlTccFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(MySqlVersions, VersionsConformance, MySqlTccFixture);

/// What a test of one branch needs of the server.
class MySqlBranch : public ::testing::Test {
 protected:
  MySqlBranch() {
    plain_.run("DROP TABLE IF EXISTS tcc_barrier, effect");
    plain_.run(tcc_barrier_schema("tcc_barrier", SqlDialect::mariadb));
    plain_.run("CREATE TABLE effect (branch VARCHAR(64)) ENGINE = InnoDB");
  }
  static TccStatus call(TccCall what, const std::string& branch) {
    MySqlStore store{MariaDbServer::shared().options()};
    return TccBarrier().call(store, {"transfer-7", branch}, what, [&](auto& transaction) {
      transaction.execute("INSERT INTO effect VALUES (?)", branch);
    });
  }
  std::string deadlocks() {
    return plain_.run("SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'").at(0).at(1);
  }

  PlainConnection plain_{MariaDbServer::shared().options()};
};

// The barrier would repeat a call that a deadlock ended, so the server is asked whether there was one.
TEST_F(MySqlBranch, IsCancelledTwiceAtOnceWithoutADeadlock) {
  const std::string before = deadlocks();
  for (int round = 0; round < 50; ++round) {
    const std::string branch = std::to_string(round);
    const bool is_tried = round % 2 == 1;
    if (is_tried) {
      ASSERT_EQ(call(TccCall::try_branch, branch), TccStatus::done);
    }
    std::latch both(2);
    const auto cancel = [&] {
      both.arrive_and_wait();
      return call(TccCall::cancel, branch);
    };
    auto other = std::async(std::launch::async, cancel);
    const TccStatus mine = cancel();
    const std::set<TccStatus> told{mine, other.get()};
    const TccStatus first = is_tried ? TccStatus::done : TccStatus::empty;
    EXPECT_EQ(told, (std::set<TccStatus>{first, TccStatus::repeated})) << branch;
  }

  EXPECT_EQ(deadlocks(), before);
}

// TC-02, when nothing is left of the process: neither the marker nor the effect stands without the other.
TEST_F(MySqlBranch, IsTriedAgainAfterAProcessDiedInIt) {
  for (const TccCall what : {TccCall::try_branch, TccCall::confirm}) {
    plain_.run("DELETE FROM effect");
    testing_support::ChildProcess dies =
        testing_support::ChildProcess::fork([&](const testing_support::ChildProcess::ToParent&) {
          MySqlStore store{MariaDbServer::shared().options()};
          static_cast<void>(
              TccBarrier().call(store, {"transfer-7", "b"}, what, [&](auto& transaction) {
                transaction.execute("INSERT INTO effect VALUES ('b')");
                std::raise(SIGKILL);
              }));
          return 0;
        });
    ASSERT_EQ(dies.wait(), (testing_support::ProcessEnd{-1, SIGKILL}));

    EXPECT_EQ(call(what, "b"), TccStatus::done);
    EXPECT_EQ(call(what, "b"), TccStatus::repeated);

    EXPECT_EQ(plain_.ask("SELECT COUNT(*) FROM effect"), "1");
  }
}

/// An order's states beside its record, on a connection that counts found rows or changed ones.
class MySqlOrders : public ::testing::TestWithParam<unsigned long> {
 protected:
  MySqlOrders() {
    plain_.run("DROP TABLE IF EXISTS orders, order_history");
    plain_.run("CREATE TABLE orders (id BIGINT PRIMARY KEY, state VARBINARY(32) NOT NULL)");
    plain_.run("INSERT INTO orders VALUES (7, 'created'), (8, 'paid'), (9, 'cancelled')");
    plain_.run(history_schema("order_history", SqlDialect::mariadb));
  }
  auto pay(const std::string& value, int order, const std::function<void()>& business) {
    return guard_.run_in_transaction(
        {.key = {"payment", value}}, mysql_connection(static_cast<MYSQL*>(client_.handle())),
        [&, order](MySqlTransaction& transaction) {
          const auto answer = states_.transition(transaction, order, OrderState::created,
                                                 OrderState::paid, {.who = "callback"});
          business();
          return static_cast<int>(answer.status());
        });
  }

  PlainConnection plain_{MariaDbServer::shared().options()};
  PlainConnection client_{MariaDbServer::shared().options(), GetParam()};
  MySqlStore store_{MariaDbServer::shared().options()};
  IdempotencyGuard<MySqlStore> guard_{store_};
  SqlStates<OrderState> states_{order_machine,
                                {.table = "orders", .history_table = "order_history"}};
};

TEST_P(MySqlOrders, MoveWithTheRecordAndTheBusinessOrNotAtAll) {
  const std::string key = "order-" + std::to_string(GetParam()) + "-7";
  EXPECT_THROW(static_cast<void>(pay(key, 7, [] { throw RetryableFailure("the shelf is empty"); })),
               RetryableFailure);
  EXPECT_EQ(plain_.ask("SELECT state FROM orders WHERE id = 7"), "created");
  EXPECT_EQ(plain_.ask("SELECT COUNT(*) FROM order_history"), "0");

  const auto first = pay(key, 7, [] {});
  const auto again = pay(key, 7, [] {});

  EXPECT_EQ(first.value(), static_cast<int>(TransitionStatus::moved));
  EXPECT_EQ(again.status(), RunStatus::replayed);
  EXPECT_EQ(plain_.ask("SELECT state FROM orders WHERE id = 7"), "paid");
  EXPECT_EQ(plain_.ask("SELECT CONCAT(object, ' ', from_state, ' ', to_state, ' ', who) FROM "
                       "order_history"),
            "7 created paid callback");
}

TEST_P(MySqlOrders, TellApartWhyTheyDidNotMove) {
  const std::string key = "order-" + std::to_string(GetParam()) + "-x";

  EXPECT_EQ(pay(key + "8", 8, [] {}).value(), static_cast<int>(TransitionStatus::already_there));
  EXPECT_EQ(pay(key + "9", 9, [] {}).value(), static_cast<int>(TransitionStatus::not_from_here));
  EXPECT_EQ(pay(key + "1", 1, [] {}).value(), static_cast<int>(TransitionStatus::missing));
  EXPECT_EQ(plain_.ask("SELECT COUNT(*) FROM order_history"), "0");
}

TEST_P(MySqlOrders, MoveByOneStatement) {
  const SqlStates<OrderState> states(order_machine, {.table = "orders"});
  client_.run("START TRANSACTION");
  MySqlTransaction transaction =
      store_.open_transaction(mysql_connection(static_cast<MYSQL*>(client_.handle())));
  transaction.execute("DO 1");  // sets the savepoint
  const auto statements = [&] {
    return std::stoll(client_.run("SHOW SESSION STATUS LIKE 'Questions'").at(0).at(1));
  };

  const long long before = statements();
  EXPECT_EQ(states.transition(transaction, 7, OrderState::created, OrderState::paid).status(),
            TransitionStatus::moved);
  const long long after = statements();
  store_.rollback(transaction);

  EXPECT_EQ(after - before, 2) << "the move, and the question itself";
}

INSTANTIATE_TEST_SUITE_P(OnAnyConnection, MySqlOrders,
                         ::testing::Values(0UL, static_cast<unsigned long>(CLIENT_FOUND_ROWS)));

class MySqlTokensFixture {
 public:
  static constexpr std::chrono::milliseconds clock_tolerance{150};

  MySqlStore& store() { return store_; }
  static void advance(std::chrono::milliseconds span) { std::this_thread::sleep_for(span); }

 private:
  MySqlStore store_{MariaDbServer::shared().options()};
};

INSTANTIATE_TYPED_TEST_SUITE_P(MySqlTokens, TokenServiceConformance, MySqlTokensFixture);

}  // namespace
}  // namespace idempotency::testing
