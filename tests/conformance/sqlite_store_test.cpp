#include "idempotency/stores/sqlite.hpp"

#include <chrono>
#include <cstddef>

#include "conformance/sqlite_fixture.hpp"
#include "idempotency/testing/store_conformance.hpp"

namespace idempotency::testing {
namespace {

class SqliteFixture {
 public:
  SqliteStore& store() { return file_.first(); }
  SqliteStore& other_store() { return file_.second(); }
  void advance(std::chrono::milliseconds span) { file_.clock().advance(span); }
  void remove_deadline(const Key& /*key*/) { file_.remove_all_deadlines(); }
  static void add_business_row(SqliteTransaction& transaction) {
    testing_support::SqliteFile::add_business_row(transaction);
  }
  std::size_t business_rows() { return file_.business_rows(); }
  testing_support::SqliteApplication& application() { return file_.application(); }

 private:
  testing_support::SqliteFile file_;
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
