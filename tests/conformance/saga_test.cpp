#include <chrono>
#include <string>

#include "idempotency/patterns/memory_sagas.hpp"
#include "idempotency/patterns/sql_sagas.hpp"
#include "idempotency/stores/sqlite.hpp"
#include "idempotency/testing/manual_clock.hpp"
#include "idempotency/testing/saga_conformance.hpp"
#include "idempotency/testing/saga_death_conformance.hpp"
#include "idempotency/testing/saga_desk_conformance.hpp"
#include "support/sql_saga_fixture.hpp"
#include "support/sqlite_file.hpp"

namespace idempotency::testing {
namespace {

class MemoryFixture {
 public:
  MemorySagas& journal() { return journal_; }
  void pass(std::chrono::milliseconds span) { clock_.advance(span); }

 private:
  ManualClock clock_;
  MemorySagas journal_{clock_};
};

class SqliteFixture {
 public:
  SqliteFixture() {
    for (const std::string& statement : saga_schema({}, SqlDialect::sqlite))
      plain_.run(statement);
  }
  SqlSagas<SqliteStore>& journal() { return journal_; }
  void pass(std::chrono::milliseconds span) { testing_support::let_time_pass(plain_, span); }

 private:
  testing_support::TemporaryFolder folder_;
  testing_support::PlainConnection plain_{folder_.file("saga.db")};
  SqliteStore store_{{.path = folder_.file("saga.db"), .durability = SqliteDurability::normal}};
  SqlSagas<SqliteStore> journal_{store_};
};

INSTANTIATE_TYPED_TEST_SUITE_P(MemorySagas, SagaConformance, MemoryFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(MemorySagas, SagaDeskConformance, MemoryFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(MemorySagas, SagaDeathConformance, MemoryFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(SqliteSagas, SagaConformance, SqliteFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(SqliteSagas, SagaDeskConformance, SqliteFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(SqliteSagas, SagaDeathConformance, SqliteFixture);

}  // namespace
}  // namespace idempotency::testing
