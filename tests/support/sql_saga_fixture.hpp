#pragma once

#include <chrono>
#include <string>

namespace idempotency::testing_support {

/// Time goes by for the rows of a journal of sagas in `saga`: what is seen from a clock that moves on is seen from rows that move
/// back. `plain` runs SQL beside the journal.
template <class Connection>
void let_time_pass(Connection& plain, std::chrono::milliseconds span) {
  const std::string back = " - " + std::to_string(span.count());
  plain.run("UPDATE saga SET created_at = created_at" + back + ", updated_at = updated_at" + back +
            ", due_at = due_at" + back);
}

}  // namespace idempotency::testing_support
