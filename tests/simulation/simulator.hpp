#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "history.hpp"

namespace idempotency::simulation {

struct ScheduleResult {
  std::uint64_t seed = 0;
  std::optional<std::string> violation;  ///< the promise that did not hold
  Coverage coverage;
  std::vector<std::string> history;  ///< when recorded; the first line is the configuration
};

/// Runs the schedule that follows from `seed`, and from nothing else.
[[nodiscard]] ScheduleResult run_schedule(std::uint64_t seed, Recording recording);

/// Seed, configuration, numbered history and what was broken.
void print(std::ostream& out, const ScheduleResult& result);

}  // namespace idempotency::simulation
