#include "idempotency/patterns/sql_states.hpp"

#include <gtest/gtest.h>

#include <string>

#include "idempotency/idempotency.hpp"
#include "idempotency/stores/sqlite.hpp"
#include "idempotency/testing/states_conformance.hpp"
#include "support/error_of.hpp"
#include "support/sqlite_file.hpp"

namespace idempotency {
namespace {

using testing::order_machine;
using testing::OrderState;
using testing_support::code_of;
using testing_support::PlainConnection;
using testing_support::TemporaryFolder;

class SqlStatesInSqlite : public ::testing::Test {
 protected:
  SqlStatesInSqlite() {
    plain.run("CREATE TABLE orders (number INTEGER PRIMARY KEY, phase BLOB NOT NULL)");
    plain.run("INSERT INTO orders VALUES (7, 'created'), (8, X'70616964'), (9, 'lost')");
    plain.run(history_schema("order_history", SqlDialect::sqlite));
  }
  std::string history() {
    auto transaction = store.open_transaction(TransactionOptions{});
    std::string all;
    for (const SqlRow& row :
         transaction.query("SELECT object || ' ' || from_state || ' ' || to_state || ' ' || who || "
                           "' ' || why || ' ' || "
                           "idempotency_key, at > 1700000000000 FROM order_history ORDER BY id")) {
      EXPECT_TRUE(row.as<bool>(1));
      all += row.as<std::string>(0) + '\n';
    }
    store.rollback(transaction);
    return all;
  }

  TemporaryFolder folder;
  PlainConnection plain{folder.file("shop.db")};
  SqliteStore store{{.path = folder.file("shop.db")}};
  SqlStates<OrderState> states{order_machine,
                               {.table = "orders",
                                .id_column = "number",
                                .state_column = "phase",
                                .history_table = "order_history"}};
};

TEST_F(SqlStatesInSqlite, MovesTogetherWithTheRecordAndTheBusiness) {
  IdempotencyGuard guard{store};
  const auto pay = [&](SqliteTransaction& transaction) {
    return states
        .transition(transaction, 7, OrderState::created, OrderState::paid,
                    {.who = "callback", .why = "card", .key = "payment:7"})
        .is_there();
  };

  const auto first = guard.run_in_transaction({.key = {"payment", "7"}}, pay);
  const auto again = guard.run_in_transaction({.key = {"payment", "7"}}, pay);
  const auto other_key = guard.run_in_transaction({.key = {"payment", "7-again"}}, pay);

  EXPECT_EQ(first.status(), RunStatus::executed);
  EXPECT_EQ(again.status(), RunStatus::replayed);
  EXPECT_TRUE(other_key.value()) << "already there";
  EXPECT_EQ(history(), "7 created paid callback card payment:7\n");
}

TEST_F(SqlStatesInSqlite, IsRolledBackWithTheBusiness) {
  IdempotencyGuard guard{store};

  EXPECT_THROW(static_cast<void>(guard.run_in_transaction(
                   {.key = {"payment", "7"}},
                   [&](SqliteTransaction& transaction) -> int {
                     static_cast<void>(
                         states.transition(transaction, 7, OrderState::created, OrderState::paid));
                     throw RetryableFailure("the shelf is empty");
                   })),
               RetryableFailure);

  EXPECT_EQ(states.transition(store, 7, OrderState::created, OrderState::cancelled).status(),
            TransitionStatus::moved);
  EXPECT_EQ(history(), "7 created cancelled   \n");
}

TEST_F(SqlStatesInSqlite, ReadsStatesThatAreKeptAsBytesAndRefusesUnknownOnes) {
  EXPECT_EQ(states.transition(store, 8, OrderState::created, OrderState::paid).status(),
            TransitionStatus::already_there);
  EXPECT_EQ(code_of([&] {
              static_cast<void>(states.transition(store, 9, OrderState::created, OrderState::paid));
            }),
            Errc::store_corrupt);
}

TEST_F(SqlStatesInSqlite, RefusesNamesThatAreNone) {
  EXPECT_EQ(code_of([] {
              SqlStates<OrderState> none{order_machine, {.table = ""}};
            }),
            Errc::invalid_argument);
  EXPECT_EQ(code_of([] {
              SqlStates<OrderState> none{order_machine, {.table = "a", .state_column = "b;"}};
            }),
            Errc::invalid_argument);
}

}  // namespace
}  // namespace idempotency
