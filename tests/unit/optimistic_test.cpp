#include "idempotency/patterns/optimistic.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "idempotency/stores/sqlite.hpp"
#include "support/error_of.hpp"
#include "support/sqlite_file.hpp"

namespace idempotency {
namespace {

using testing_support::code_of;
using testing_support::PlainConnection;
using testing_support::TemporaryFolder;

class Optimistic : public ::testing::Test {
 protected:
  Optimistic() {
    plain.run(
        "CREATE TABLE account (id TEXT PRIMARY KEY, cents INTEGER NOT NULL, version INTEGER NOT "
        "NULL)");
    plain.run("INSERT INTO account VALUES ('alice', 100, 7)");
  }

  /// What a service does: reads, decides, updates, in one transaction.
  UpdateResult add_a_cent() {
    auto transaction = store.open_transaction(TransactionOptions{});
    const SqlRows rows =
        transaction.query("SELECT cents, version FROM account WHERE id = ?", "alice");
    const UpdateResult result =
        accounts.update(transaction, "alice", rows.at(0).as<std::uint64_t>("version"), "cents = ?",
                        rows.at(0).as<int>("cents") + 1);
    store.commit(transaction);
    return result;
  }
  template <class Fn>
  auto in_transaction(Fn fn) {
    auto transaction = store.open_transaction(TransactionOptions{});
    const auto result = fn(transaction);
    store.commit(transaction);
    return result;
  }
  int cents() {
    return in_transaction([](SqliteTransaction& transaction) {
      return transaction.query("SELECT cents FROM account").at(0).as<int>(0);
    });
  }

  TemporaryFolder folder;
  PlainConnection plain{folder.file("shop.db")};
  SqliteStore store{{.path = folder.file("shop.db")}};
  VersionedTable accounts{{.table = "account"}};
};

TEST_F(Optimistic, ChangesARowThatIsAtTheVersionThatWasSeen) {
  const auto result = in_transaction([&](SqliteTransaction& transaction) {
    return accounts.update(transaction, "alice", 7, "cents = cents - ?", 30);
  });

  EXPECT_EQ(result, (UpdateResult{UpdateStatus::updated, 8}));
  EXPECT_EQ(cents(), 70);
}

TEST_F(Optimistic, TellsAConflictFromARowThatIsMissing) {
  const auto conflict = in_transaction([&](SqliteTransaction& transaction) {
    return accounts.update(transaction, "alice", 6, "cents = 0");
  });
  const auto missing = in_transaction([&](SqliteTransaction& transaction) {
    return accounts.update(transaction, "bob", 7, "cents = 0");
  });

  EXPECT_EQ(conflict, (UpdateResult{UpdateStatus::conflict, 7}));
  EXPECT_EQ(missing, (UpdateResult{UpdateStatus::missing, 0}));
  EXPECT_EQ(cents(), 100);
}

TEST_F(Optimistic, LosesNoUpdateOfMany) {
  constexpr int threads = 4;
  constexpr int each = 25;
  std::vector<std::thread> rivals;
  for (int rival = 0; rival < threads; ++rival) {
    rivals.emplace_back([&] {
      for (int time = 0; time < each; ++time) {
        const UpdateResult result = retry_on_conflict({.attempts = 1'000,
                                                       .base = std::chrono::milliseconds{1},
                                                       .longest = std::chrono::milliseconds{4}},
                                                      [&] { return add_a_cent(); });
        EXPECT_EQ(result.status, UpdateStatus::updated);
      }
    });
  }
  for (std::thread& rival : rivals)
    rival.join();

  EXPECT_EQ(cents(), 100 + threads * each);
}

TEST(RetryOnConflict, ReadsAgainAfterEachConflictAndPaysNothing) {
  RetryBudget budget(1, 0);
  ASSERT_TRUE(budget.spend());
  int calls = 0;

  const UpdateResult result = retry_on_conflict(
      {.attempts = 5,
       .base = std::chrono::milliseconds{0},
       .longest = std::chrono::milliseconds{0}},
      [&] {
        ++calls;
        return UpdateResult{calls < 4 ? UpdateStatus::conflict : UpdateStatus::updated, 1};
      },
      {.budget = &budget});

  EXPECT_EQ(result.status, UpdateStatus::updated);
  EXPECT_EQ(calls, 4);
}

TEST(RetryOnConflict, GivesTheLastConflictWhenThePolicyEnds) {
  int calls = 0;

  const UpdateResult result = retry_on_conflict(
      {.attempts = 3,
       .base = std::chrono::milliseconds{0},
       .longest = std::chrono::milliseconds{0}},
      [&] {
        return UpdateResult{UpdateStatus::conflict, static_cast<std::uint64_t>(++calls)};
      });

  EXPECT_EQ(result, (UpdateResult{UpdateStatus::conflict, 3}));
}

TEST(VersionedTable, RefusesNamesThatAreNone) {
  for (const char* name : {"", "a b", "a;DROP TABLE b", "a.b.c", "`a`", "?"}) {
    EXPECT_EQ(code_of([&] { VersionedTable table{{.table = name}}; }), Errc::invalid_argument)
        << name;
  }
  EXPECT_EQ(code_of([] { VersionedTable table{{.table = "a", .id_column = "b.c"}}; }),
            Errc::invalid_argument);
}

}  // namespace
}  // namespace idempotency
