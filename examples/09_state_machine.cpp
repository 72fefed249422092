// An order's own states beside the guard's record: a callback that comes late, or twice under two keys, moves nothing.

#include <idempotency/idempotency.hpp>
#include <idempotency/patterns/sql_states.hpp>
#include <idempotency/stores/sqlite.hpp>
#include <iostream>

#include "expect.hpp"

namespace idem = idempotency;

enum class Order { placed, paid, shipped, cancelled };

// A dead end, a way out of a final state, or a circle that nobody allowed would not compile.
constexpr idem::StateMachine<Order> order_machine(
    {{Order::placed, "placed", idem::StateKind::initial},
     {Order::paid, "paid"},
     {Order::shipped, "shipped", idem::StateKind::final},
     {Order::cancelled, "cancelled", idem::StateKind::final}},
    {{Order::placed, Order::paid},
     {Order::placed, Order::cancelled},
     {Order::paid, Order::shipped}});

int main() {
  idem::SqliteStore store{{.path = new_database("09_state_machine.db")}};
  idem::IdempotencyGuard guard{store};
  const idem::SqlStates<Order> orders{order_machine, {.table = "orders", .history_table = "moves"}};
  static_cast<void>(
      guard.run_in_transaction({.key = {"setup", "1"}}, [](idem::SqliteTransaction& tx) {
        tx.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, state TEXT NOT NULL)");
        tx.execute("INSERT INTO orders VALUES (7, 'placed'), (8, 'cancelled')");
        tx.execute(idem::history_schema("moves", idem::SqlDialect::sqlite));
      }));

  const auto paid = [&](const std::string& callback, int order) {
    return guard.run_in_transaction({.key = {"callback", callback}}, [&](auto& tx) {
      const auto moved =
          orders.transition(tx, order, Order::placed, Order::paid,
                            {.who = "payment provider", .why = "card charged", .key = callback});
      return static_cast<int>(moved.status());
    });
  };
  const auto is = [](const auto& result, idem::TransitionStatus status) {
    return result.value() == static_cast<int>(status);
  };

  expect(is(paid("c-1", 7), idem::TransitionStatus::moved), "the order is paid");
  expect(paid("c-1", 7).status() == idem::RunStatus::replayed, "a repetition is answered");
  expect(is(paid("c-2", 7), idem::TransitionStatus::already_there),
         "the same news under another key moves nothing");
  expect(is(paid("c-3", 8), idem::TransitionStatus::not_from_here),
         "a cancelled order is not paid: this money has to go back");
  expect(orders.transition(store, 7, Order::placed, Order::shipped).status() ==
             idem::TransitionStatus::forbidden,
         "nothing is shipped that is not paid");

  auto tx = store.open_transaction({});
  expect(tx.query("SELECT who, why FROM moves").size() == 1, "one move was made, and is explained");
  std::cout << idem::to_graphviz(order_machine, "order");
}
