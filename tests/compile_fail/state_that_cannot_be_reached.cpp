// EXPECT g++: state_machine_has_a_state_that_cannot_be_reached
// EXPECT clang++: must be initialized by a constant expression
// SAYS: state_machine_has_a_state_that_cannot_be_reached
#include "idempotency/patterns/state_machine.hpp"

enum class O { a, b, c };
using K = idempotency::StateKind;

constexpr idempotency::StateMachine<O> machine(
    {{O::a, "a", K::initial}, {O::b, "b", K::final}, {O::c, "c", K::final}}, {{O::a, O::b}});

int main() { return machine.moves().empty() ? 1 : 0; }
