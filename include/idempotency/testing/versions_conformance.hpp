#pragma once

// The rules of optimistic versions, which every database keeps that can carry them. A fixture has
//
//   store();                       // a TransactionalStore on the database
//   void run(const std::string&);  // a statement, outside of the store

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "idempotency/patterns/optimistic.hpp"
#include "idempotency/sql_transaction.hpp"
#include "idempotency/store.hpp"

namespace idempotency {
inline namespace v0 {

inline void PrintTo(const UpdateResult& result, std::ostream* out) {
  constexpr std::string_view names[] = {"none", "updated", "conflict", "missing"};
  *out << names[static_cast<std::size_t>(result.status)] << " at " << result.version;
}

namespace testing {

template <class FixtureT>
class VersionsConformance : public ::testing::Test {
 protected:
  VersionsConformance() {
    fixture_.run("DROP TABLE IF EXISTS versioned");
    fixture_.run(
        "CREATE TABLE versioned (id VARCHAR(32) PRIMARY KEY, cents BIGINT NOT NULL, version BIGINT "
        "NOT NULL)");
    fixture_.run("INSERT INTO versioned VALUES ('alice', 100, 7)");
  }

  template <class Fn>
  auto in_transaction(Fn fn) {
    auto transaction = fixture_.store().open_transaction(TransactionOptions{});
    const auto result = fn(transaction);
    fixture_.store().commit(transaction);
    return result;
  }
  UpdateResult update(const std::string& id, std::uint64_t seen, int cents) {
    return in_transaction(
        [&](auto& transaction) { return rows_.update(transaction, id, seen, "cents = ?", cents); });
  }
  /// What a service does: reads, decides, updates, in one transaction.
  UpdateResult add_a_cent() {
    return in_transaction([&](auto& transaction) {
      const SqlRows rows =
          transaction.query("SELECT cents, version FROM versioned WHERE id = ?", "alice");
      return rows_.update(transaction, "alice", rows.at(0).template as<std::uint64_t>("version"),
                          "cents = ?", rows.at(0).template as<int>("cents") + 1);
    });
  }
  int cents() {
    return in_transaction([](auto& transaction) {
      return transaction.query("SELECT cents FROM versioned").at(0).template as<int>(0);
    });
  }

  FixtureT fixture_;
  VersionedTable rows_{{.table = "versioned"}};
};

TYPED_TEST_SUITE_P(VersionsConformance);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(VersionsConformance);

TYPED_TEST_P(VersionsConformance, ChangeARowThatIsAtTheVersionThatWasSeen) {
  EXPECT_EQ(this->update("alice", 7, 70), (UpdateResult{UpdateStatus::updated, 8}));
  EXPECT_EQ(this->cents(), 70);
}

TYPED_TEST_P(VersionsConformance, TellAConflictFromARowThatIsMissing) {
  EXPECT_EQ(this->update("alice", 6, 0), (UpdateResult{UpdateStatus::conflict, 7}));
  EXPECT_EQ(this->update("bob", 7, 0), (UpdateResult{UpdateStatus::missing, 0}));
  EXPECT_EQ(this->cents(), 100);
}

TYPED_TEST_P(VersionsConformance, RiseWithAnUpdateThatChangesNothingElse) {
  EXPECT_EQ(this->update("alice", 7, 100), (UpdateResult{UpdateStatus::updated, 8}));
  EXPECT_EQ(this->update("alice", 7, 100), (UpdateResult{UpdateStatus::conflict, 8}));
}

TYPED_TEST_P(VersionsConformance, GoBackWithTheirTransaction) {
  auto transaction = this->fixture_.store().open_transaction(TransactionOptions{});
  EXPECT_EQ(this->rows_.update(transaction, "alice", 7, "cents = 0").status, UpdateStatus::updated);
  EXPECT_EQ(this->rows_.update(transaction, "alice", 8, "cents = 1").version, 9U) << "its own";
  this->fixture_.store().rollback(transaction);

  EXPECT_EQ(this->update("alice", 7, 50), (UpdateResult{UpdateStatus::updated, 8}));
}

TYPED_TEST_P(VersionsConformance, LoseNoUpdateOfMany) {
  constexpr int threads = 4;
  constexpr int each = 10;
  const RetryPolicy patient{.attempts = 10'000,
                            .base = std::chrono::milliseconds{1},
                            .longest = std::chrono::milliseconds{4}};
  RetryBudget plenty(1'000'000);
  std::vector<std::thread> rivals;
  for (int rival = 0; rival < threads; ++rival) {
    rivals.emplace_back([&] {
      for (int time = 0; time < each; ++time) {
        const UpdateResult result =
            retry_on_conflict(patient, [&] { return this->add_a_cent(); }, {.budget = &plenty});
        EXPECT_EQ(result.status, UpdateStatus::updated);
      }
    });
  }
  for (std::thread& rival : rivals)
    rival.join();

  EXPECT_EQ(this->cents(), 100 + threads * each);
}

REGISTER_TYPED_TEST_SUITE_P(VersionsConformance, ChangeARowThatIsAtTheVersionThatWasSeen,
                            TellAConflictFromARowThatIsMissing,
                            RiseWithAnUpdateThatChangesNothingElse, GoBackWithTheirTransaction,
                            LoseNoUpdateOfMany);

}  // namespace testing
}  // namespace v0
}  // namespace idempotency
