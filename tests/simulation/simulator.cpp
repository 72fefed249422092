#include "simulator.hpp"

#include <array>
#include <iomanip>
#include <ostream>
#include <string_view>

#include "process.hpp"
#include "world.hpp"

namespace idempotency::simulation {

std::string_view to_string(Reached reached) noexcept {
  constexpr std::array<std::string_view, reached_count> names{"handlers started",
                                                              "leases renewed",
                                                              "leases lost",
                                                              "records taken over",
                                                              "records that became uncertain",
                                                              "records settled by the operator",
                                                              "silent records settled by it",
                                                              "late resolutions refused",
                                                              "effects marked",
                                                              "late writes refused",
                                                              "late copies executed",
                                                              "late copies granted",
                                                              "requests lost",
                                                              "replies lost",
                                                              "processes crashed",
                                                              "processes frozen",
                                                              "jumps of the store's clock",
                                                              "waiters delivered to",
                                                              "waiters promoted",
                                                              "waiters that gave up",
                                                              "answers from a cache",
                                                              "lives ended by retention",
                                                              "records released",
                                                              "writes settled behind"};
  return names[static_cast<std::size_t>(reached)];
}

ScheduleResult run_schedule(std::uint64_t seed, Recording recording) {
  ScheduleResult result;
  result.seed = seed;
  World world(seed, recording);
  try {
    world.run();
  } catch (const Violation& violation) {
    result.violation = violation.what();
  }
  result.coverage = world.coverage();
  result.history = world.history().lines();
  return result;
}

void print(std::ostream& out, const ScheduleResult& result) {
  out << "seed " << result.seed << '\n';
  for (std::size_t line = 0; line < result.history.size(); ++line) {
    out << std::setw(4) << line << "  " << result.history[line] << '\n';
  }
  if (result.violation) {
    out << "      BROKEN: " << *result.violation << '\n';
  } else {
    out << "      every promise held\n";
  }
}

}  // namespace idempotency::simulation
