// TC-01, TC-02, TC-04 and TC-07 are cases of the suite that is instantiated here.

#include <string>
#include <vector>

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

// Written out by hand: the suites above take the table's own word for what is right.
TEST(TccBarrier, HasATableOfWhichEveryArrowIsMeant) {
  using enum TccState;
  using enum TccStatus;
  struct Row {
    TccCall call;
    TccStep from_absent, from_init, from_trying, from_confirmed, from_cancelled;
  };
  const std::vector<Row> rows{
      {TccCall::announce,
       {done, init},
       {repeated, init},
       {repeated, trying},
       {repeated, confirmed},
       {refused_cancelled, cancelled}},
      {TccCall::tried,
       {refused_not_tried, absent},
       {done, trying},
       {repeated, trying},
       {repeated, confirmed},
       {refused_cancelled, cancelled}},
      {TccCall::try_branch,
       {done, trying},
       {refused_not_tried, init},
       {repeated, trying},
       {repeated, confirmed},
       {refused_cancelled, cancelled}},
      {TccCall::confirm,
       {refused_not_tried, absent},
       {refused_not_tried, init},
       {done, confirmed},
       {repeated, confirmed},
       {refused_cancelled, cancelled}},
      {TccCall::cancel,
       {empty, cancelled},
       {done, cancelled},
       {done, cancelled},
       {refused_confirmed, confirmed},
       {repeated, cancelled}},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(static_cast<int>(row.call));
    EXPECT_EQ(tcc_step(absent, row.call), row.from_absent);
    EXPECT_EQ(tcc_step(init, row.call), row.from_init);
    EXPECT_EQ(tcc_step(trying, row.call), row.from_trying);
    EXPECT_EQ(tcc_step(confirmed, row.call), row.from_confirmed);
    EXPECT_EQ(tcc_step(cancelled, row.call), row.from_cancelled);
  }
}

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
