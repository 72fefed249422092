// EXPECT g++: state_machine_leaves_a_final_state
// EXPECT clang++: must be initialized by a constant expression
// SAYS: state_machine_leaves_a_final_state
#include "idempotency/patterns/state_machine.hpp"

enum class O { a, b, c };
using K = idempotency::StateKind;

constexpr idempotency::StateMachine<O> machine({{O::a, "a", K::initial}, {O::b, "b", K::final}},
                                               {{O::a, O::b}, {O::b, O::a}});

int main() { return machine.moves().empty() ? 1 : 0; }
