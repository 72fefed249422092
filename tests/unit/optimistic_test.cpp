#include "idempotency/patterns/optimistic.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>

#include "support/error_of.hpp"

namespace idempotency {
namespace {

using testing_support::code_of;

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
