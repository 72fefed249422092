#include <gtest/gtest.h>

#include <string>

#include "idempotency/patterns/sql_locks.hpp"
#include "idempotency/stores/mysql.hpp"
#include "idempotency/testing/locks_conformance.hpp"
#include "support/lock_clock.hpp"
#include "support/lock_holder.hpp"
#include "support/mariadb_server.hpp"

namespace idempotency::testing_support {
namespace {

struct MySqlLocksBackend {
  using Store = MySqlStore;
  using Locks = SqlLocks<MySqlStore>;

  static MySqlOptions options() { return MariaDbServer::shared().options(); }
  static std::string address() { return MariaDbServer::shared().address(); }
  static void clear() {
    PlainConnection plain(options());
    plain.run(locks_schema("idempotency_lock", SqlDialect::mariadb));
    plain.run("DELETE FROM idempotency_lock");
  }
  static void remove(const Key& key) {
    PlainConnection(options()).run("DELETE FROM idempotency_lock WHERE name = '" + key.text() +
                                   "'");
  }
};

// LK-03, LK-13, LK-14, LK-20
INSTANTIATE_TYPED_TEST_SUITE_P(MySqlLocks, LockClock, MySqlLocksBackend);
INSTANTIATE_TYPED_TEST_SUITE_P(MySqlLocks, LockHolder, MySqlLocksBackend);

}  // namespace
}  // namespace idempotency::testing_support
