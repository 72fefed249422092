// What a lock on Redis and a move of a state machine cost, against the scripts and the statement that one would write by hand.
//
//   idempotency_benchmark_patterns [ROUNDS] [ROW]
//
// Starts servers of its own. By hand, by hand once more (the control) and ours take turns, slice by slice; a row shows the
// median of the rounds.

#include "patterns/patterns_benchmark.hpp"

int main(int count, char** values) {
  const benchmark_support::Selection selection(count, values);
  benchmark_support::print_crowd_heading("Patterns, against the bare client libraries");
  benchmark_patterns::measure_locks(selection);
  benchmark_patterns::measure_states(selection);
  return 0;
}
