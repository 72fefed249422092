#pragma once

#include "core/measure.hpp"
#include "support/crowd.hpp"

namespace benchmark_patterns {

void measure_locks(const benchmark_support::Selection& selection);
void measure_states(const benchmark_support::Selection& selection);

}  // namespace benchmark_patterns
