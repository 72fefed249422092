#include <gtest/gtest.h>

#include <string>

#include "idempotency/patterns/sql_locks.hpp"
#include "idempotency/stores/mysql.hpp"
#include "idempotency/testing/locks_conformance.hpp"
#include "support/lock_holder.hpp"
#include "support/mariadb_server.hpp"

namespace idempotency::testing_support {
namespace {

struct MySqlLocksBackend {
  using Store = MySqlStore;
  using Locks = SqlLocks<MySqlStore>;

  static MySqlOptions options() { return MariaDbServer::shared().options(); }
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

INSTANTIATE_TYPED_TEST_SUITE_P(MySqlLocks, LockHolder, MySqlLocksBackend);

}  // namespace
}  // namespace idempotency::testing_support
