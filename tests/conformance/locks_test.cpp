#include <chrono>
#include <string>
#include <thread>

#include "idempotency/patterns/memory_locks.hpp"
#include "idempotency/patterns/sql_locks.hpp"
#include "idempotency/stores/sqlite.hpp"
#include "idempotency/testing/locks_conformance.hpp"
#include "idempotency/testing/manual_clock.hpp"
#include "support/sqlite_file.hpp"

namespace idempotency::testing {
namespace {

class MemoryLocksFixture {
 public:
  MemoryLocks& carrier() { return locks_; }
  MemoryLocks& other_carrier() { return locks_; }
  void advance(std::chrono::milliseconds span) { clock_.advance(span); }

 private:
  ManualClock clock_;
  MemoryLocks locks_{clock_};
};

class SqliteLocksFixture {
 public:
  SqliteLocksFixture() { plain_.run(locks_schema("idempotency_lock", SqlDialect::sqlite)); }
  SqlLocks<SqliteStore>& carrier() { return locks_; }
  SqlLocks<SqliteStore>& other_carrier() { return other_locks_; }
  static void advance(std::chrono::milliseconds span) { std::this_thread::sleep_for(span); }

 private:
  testing_support::TemporaryFolder folder_;
  testing_support::PlainConnection plain_{folder_.file("locks.db")};
  SqliteStore store_{{.path = folder_.file("locks.db")}};
  SqliteStore other_store_{{.path = folder_.file("locks.db")}};
  SqlLocks<SqliteStore> locks_{store_};
  SqlLocks<SqliteStore> other_locks_{other_store_};
};

// LK-07, LK-09, LK-13, LK-14, LK-20, LK-22
INSTANTIATE_TYPED_TEST_SUITE_P(MemoryLocks, LocksConformance, MemoryLocksFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(SqliteLocks, LocksConformance, SqliteLocksFixture);

}  // namespace
}  // namespace idempotency::testing
