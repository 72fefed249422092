#include "idempotency/patterns/state_machine.hpp"

#include <gtest/gtest.h>

#include <string>

#include "idempotency/patterns/memory_states.hpp"
#include "idempotency/testing/states_conformance.hpp"

namespace idempotency {
namespace {

using testing::order_machine;
using testing::OrderState;

static_assert(order_machine.allows(OrderState::created, OrderState::paid));
static_assert(!order_machine.allows(OrderState::paid, OrderState::created));
static_assert(order_machine.is_initial(OrderState::created));
static_assert(order_machine.is_final(OrderState::returned));
static_assert(!order_machine.is_final(OrderState::unlisted));
static_assert(order_machine.name_of(OrderState::shipped) == "shipped");
static_assert(order_machine.name_of(OrderState::unlisted).empty());
static_assert(order_machine.find("paid") == OrderState::paid);
static_assert(order_machine.find("Paid") == std::nullopt);

TEST(StateMachine, IsDrawnAsAGraph) {
  constexpr StateMachine<OrderState> machine(
      {{OrderState::created, "created", StateKind::initial},
       {OrderState::paid, "\"paid\""},
       {OrderState::cancelled, "cancelled", StateKind::final}},
      {{OrderState::created, OrderState::paid},
       {OrderState::paid, OrderState::created, "reopened"},
       {OrderState::created, OrderState::cancelled}});

  EXPECT_EQ(to_graphviz(machine, "order"), R"(digraph "order" {
  rankdir = LR;
  node [shape = box];
  "created" [style = bold];
  "\"paid\"";
  "cancelled" [peripheries = 2];
  "created" -> "\"paid\"";
  "\"paid\"" -> "created" [style = dashed, label = "reopened"];
  "created" -> "cancelled";
}
)");
}

TEST(MemoryStates, BeginObjectsWhereTheyMayBegin) {
  MemoryStates<OrderState> states{order_machine};

  EXPECT_EQ(states.create("a", OrderState::paid).status(), TransitionStatus::forbidden);
  EXPECT_EQ(states.create("a", OrderState::created).status(), TransitionStatus::moved);
  EXPECT_EQ(states.create("a", OrderState::created).status(), TransitionStatus::already_there);
  ASSERT_TRUE(states.transition("a", OrderState::created, OrderState::paid).is_there());
  EXPECT_EQ(states.create("a", OrderState::created).status(), TransitionStatus::not_from_here);
}

TEST(MemoryStates, KeepAHistoryOfMovesAndOfNothingElse) {
  MemoryStates<OrderState> states{order_machine};
  static_cast<void>(states.create("a", OrderState::created));

  for (int time = 0; time < 2; ++time) {
    static_cast<void>(
        states.transition("a", OrderState::created, OrderState::paid,
                          {.who = "callback", .why = "paid by card", .key = "payment:7"}));
  }

  EXPECT_EQ(
      states.history(),
      (std::vector<MemoryStates<OrderState>::Moved>{
          {"a", OrderState::created, OrderState::paid, "callback", "paid by card", "payment:7"}}));
}

}  // namespace
}  // namespace idempotency
