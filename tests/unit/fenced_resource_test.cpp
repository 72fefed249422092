#include "idempotency/patterns/fenced_resource.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "idempotency/patterns/distributed_lock.hpp"
#include "idempotency/patterns/sql_locks.hpp"
#include "idempotency/stores/sqlite.hpp"
#include "support/error_of.hpp"
#include "support/sqlite_file.hpp"

namespace idempotency {
namespace {

using namespace std::chrono_literals;
using testing_support::code_of;
using testing_support::PlainConnection;
using testing_support::TemporaryFolder;

class FencedSqlTest : public ::testing::Test {
 protected:
  FencedSqlTest() {
    plain.run("CREATE TABLE stock (id TEXT PRIMARY KEY, pieces INTEGER, fence INTEGER NOT NULL)");
    plain.run("INSERT INTO stock VALUES ('sku-7', 10, 0)");
    plain.run(locks_schema("idempotency_lock", SqlDialect::sqlite));
  }
  FencedWrite write(const std::string& id, std::uint64_t fence, int pieces) {
    return detail::in_own_transaction(store, [&](SqliteTransaction& transaction) {
      return stock.update(transaction, id, fence, "pieces = ?", pieces);
    });
  }
  int pieces() {
    return detail::in_own_transaction(store, [](SqliteTransaction& transaction) {
      return transaction.query("SELECT pieces FROM stock").at(0).as<int>(0);
    });
  }

  TemporaryFolder folder;
  PlainConnection plain{folder.file("shop.db")};
  SqliteStore store{{.path = folder.file("shop.db")}};
  FencedSqlResource stock{{.table = "stock"}};
};

TEST_F(FencedSqlTest, RefusesAFenceThatIsOlderThanTheLast) {
  EXPECT_EQ(write("sku-7", 5, 9), FencedWrite::written);
  EXPECT_EQ(write("sku-7", 5, 8), FencedWrite::written);
  EXPECT_EQ(write("sku-7", 7, 7), FencedWrite::written);

  EXPECT_EQ(write("sku-7", 5, 99), FencedWrite::refused);
  EXPECT_EQ(write("sku-7", 6, 99), FencedWrite::refused);
  EXPECT_EQ(write("sku-8", 9, 99), FencedWrite::missing);

  EXPECT_EQ(pieces(), 7);
}

// LK-11, LK-18: two hold the lock, one of them without knowing that it is lost. One writes.
TEST_F(FencedSqlTest, AcceptsOneOfTwoHolders) {
  SqlLocks<SqliteStore> locks{store};
  DistributedLock<SqlLocks<SqliteStore>> lock{locks, {.lease = 1h}};
  const auto held = lock.try_acquire({"stock", "sku-7"});
  plain.run(
      "UPDATE idempotency_lock SET held_until = 1");  // its host sleeps for longer than its lease
  const auto next = lock.try_acquire({"stock", "sku-7"});
  ASSERT_TRUE(held && next);

  EXPECT_EQ(write("sku-7", next->fence(), 8), FencedWrite::written);
  EXPECT_EQ(write("sku-7", held->fence(), 99), FencedWrite::refused);

  EXPECT_EQ(pieces(), 8);
}

TEST_F(FencedSqlTest, RefusesWhatIsNoFenceAndNamesThatAreNone) {
  for (const std::uint64_t none : {std::uint64_t{0}, std::uint64_t{1} << 53U, UINT64_MAX}) {
    EXPECT_EQ(code_of([&] { static_cast<void>(write("sku-7", none, 99)); }),
              Errc::invalid_argument);
  }
  EXPECT_EQ(code_of([&] { const FencedSqlResource refused({.table = "a b"}); }),
            Errc::invalid_argument);

  EXPECT_EQ(pieces(), 10);
}

/// Rows of locks that are out of use go, those that are held or were just used stay.
TEST_F(FencedSqlTest, CleansTheLocksThatNobodyHasHeldForLong) {
  SqlLocks<SqliteStore> locks{store};
  const OwnerToken owner = OwnerToken::generate();
  for (const char* name : {"released", "ended", "held"}) {
    ASSERT_TRUE(std::holds_alternative<LockAcquired>(
        locks.acquire({"stock", name}, owner, std::string(name) == "ended" ? 1ms : 1h)));
  }
  ASSERT_EQ(locks.release({"stock", "released"}, owner), WriteOutcome::stored);

  EXPECT_EQ(locks.clean(10), 0U);
  plain.run("UPDATE idempotency_lock SET changed_at = changed_at - 86400000");
  plain.run("UPDATE idempotency_lock SET held_until = 1 WHERE name = CAST('stock:ended' AS BLOB)");
  EXPECT_EQ(locks.clean(1), 1U);
  EXPECT_EQ(locks.clean(10), 1U);

  EXPECT_FALSE(locks.look({"stock", "released"}));
  EXPECT_FALSE(locks.look({"stock", "ended"}));
  EXPECT_TRUE(locks.look({"stock", "held"}));
}

}  // namespace
}  // namespace idempotency
