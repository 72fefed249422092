#include "idempotency/stores/sqlite.hpp"

#include <chrono>
#include <cstddef>

#include "conformance/sqlite_fixture.hpp"
#include "idempotency/testing/store_conformance.hpp"

namespace idempotency::testing {
namespace {

class SqliteFixture : public testing_support::SqliteFileFixture {
 public:
  SqliteStore& store() { return file_.first(); }
  SqliteStore& other_store() { return file_.second(); }
};

INSTANTIATE_TYPED_TEST_SUITE_P(SqliteStore, StoreConformance, SqliteFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(SqliteStore, AdminStoreConformance, SqliteFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(SqliteStore, SettlementConformance, SqliteFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(SqliteStore, BatchStoreConformance, SqliteFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(SqliteStore, BatchBeginStoreConformance, SqliteFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(SqliteStore, IssuingStoreConformance, SqliteFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(SqliteStore, TransactionalStoreConformance, SqliteFixture);

}  // namespace
}  // namespace idempotency::testing
