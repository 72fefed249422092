// EXPECT g++: state_machine_has_a_cycle_that_no_move_allows_by_name
// EXPECT clang++: must be initialized by a constant expression
// SAYS: state_machine_has_a_cycle_that_no_move_allows_by_name
#include "idempotency/patterns/state_machine.hpp"

enum class O { a, b, c };
using K = idempotency::StateKind;

constexpr idempotency::StateMachine<O> machine({{O::a, "a", K::initial},
                                                {O::b, "b"},
                                                {O::c, "c", K::final}},
                                               {{O::a, O::b}, {O::b, O::a}, {O::b, O::c}});

int main() { return machine.moves().empty() ? 1 : 0; }
