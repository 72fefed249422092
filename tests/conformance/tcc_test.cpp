// TC-01, TC-02, TC-04 and TC-07 are cases of the suite that is instantiated here.

#include <string>

#include "idempotency/stores/sqlite.hpp"
#include "idempotency/testing/tcc_conformance.hpp"
#include "idempotency/testing/versions_conformance.hpp"
#include "support/sqlite_file.hpp"

namespace idempotency::testing {
namespace {

class SqliteFixture {
 public:
  static constexpr SqlDialect dialect = SqlDialect::sqlite;

  SqliteStore& store() { return store_; }
  void run(const std::string& sql) { plain_.run(sql); }

 private:
  testing_support::TemporaryFolder folder_;
  testing_support::PlainConnection plain_{folder_.file("bank.db")};
  SqliteStore store_{{.path = folder_.file("bank.db"), .durability = SqliteDurability::normal}};
};

INSTANTIATE_TYPED_TEST_SUITE_P(SqliteTcc, TccConformance, SqliteFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(SqliteVersions, VersionsConformance, SqliteFixture);

TEST(TccBarrier, RefusesToForgetBeforeTheLastLateTry) {
  const auto make = [](std::chrono::milliseconds late, std::chrono::milliseconds retention) {
    TccBarrier barrier({.longest_late_try = late, .retention = retention});
  };
  using std::chrono::milliseconds;

  EXPECT_NO_THROW(make(milliseconds{5}, milliseconds{6}));
  EXPECT_THROW(make(milliseconds{5}, milliseconds{5}), Error);
  EXPECT_THROW(make(milliseconds{-1}, milliseconds{5}), Error);
}

}  // namespace
}  // namespace idempotency::testing
