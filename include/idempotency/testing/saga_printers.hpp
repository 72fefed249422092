#pragma once

#include <cstddef>
#include <ostream>
#include <string_view>

#include "idempotency/patterns/saga_progress.hpp"
#include "idempotency/patterns/saga_runner.hpp"

namespace idempotency {
inline namespace v0 {

// Found by GoogleTest through the namespace of the types.

inline void PrintTo(SagaState state, std::ostream* out) {
  constexpr std::string_view names[] = {
      "state 0",     "running",        "compensating",       "finished",
      "compensated", "parked_running", "parked_compensating"};
  *out << names[static_cast<std::size_t>(state)];
}

inline void PrintTo(SagaStatus status, std::ostream* out) {
  constexpr std::string_view names[] = {"status 0", "finished", "compensated",
                                        "parked",   "waiting",  "mismatch"};
  *out << names[static_cast<std::size_t>(status)];
}

inline void PrintTo(const SagaProgress& progress, std::ostream* out) {
  PrintTo(progress.state, out);
  *out << " at step " << progress.step << ", " << progress.attempts << " attempts, "
       << progress.known_runs << " known runs";
}

inline void PrintTo(const SagaRow& row, std::ostream* out) {
  *out << row.name.definition << ' ' << row.name.id << ": ";
  PrintTo(row.progress, out);
  *out << " (" << row.note << ')';
}

}  // namespace v0
}  // namespace idempotency
