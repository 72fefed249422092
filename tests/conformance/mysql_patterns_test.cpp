#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include "idempotency/patterns/sql_locks.hpp"
#include "idempotency/patterns/sql_states.hpp"
#include "idempotency/stores/mysql.hpp"
#include "idempotency/testing/locks_conformance.hpp"
#include "idempotency/testing/states_conformance.hpp"
#include "idempotency/testing/tcc_conformance.hpp"
#include "idempotency/testing/tokens_conformance.hpp"
#include "idempotency/testing/versions_conformance.hpp"
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
