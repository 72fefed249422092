// EXPECT g++: state_machine_has_a_state_without_an_exit_that_is_not_final
// EXPECT clang++: must be initialized by a constant expression
// SAYS: state_machine_has_a_state_without_an_exit_that_is_not_final
#include "idempotency/patterns/state_machine.hpp"

enum class O { a, b, c };
using K = idempotency::StateKind;

constexpr idempotency::StateMachine<O> machine(
    {{O::a, "a", K::initial}, {O::b, "b"}, {O::c, "c", K::final}}, {{O::a, O::b}, {O::a, O::c}});

int main() { return machine.moves().empty() ? 1 : 0; }
