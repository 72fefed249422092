#include <idempotency/patterns/memory_states.hpp>
#include <idempotency/patterns/state_machine.hpp>

enum class Order { placed, paid };

constexpr idempotency::StateMachine<Order> machine(
    {{Order::placed, "placed", idempotency::StateKind::initial},
     {Order::paid, "paid", idempotency::StateKind::final}},
    {{Order::placed, Order::paid}});

int main() {
  idempotency::MemoryStates<Order> orders{machine};
  const bool placed = orders.create("7", Order::placed).is_there();
  const bool paid = orders.transition("7", Order::placed, Order::paid).is_there();
  return placed && paid && !idempotency::to_graphviz(machine, "order").empty() ? 0 : 1;
}
