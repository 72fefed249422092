// Runs schedules until a promise is broken.
//
//   idempotency_simulation [--schedules N] [--from SEED]   many; 20000 by default, or IDEMPOTENCY_SIMULATION_SCHEDULES
//   idempotency_simulation --seed SEED                     one, with its whole history
//   idempotency_simulation --check-determinism             some, twice each: the same seed has the same history
//
// Exit code: 0 all promises held, 1 one did not, 2 wrong use.

#include <charconv>
#include <chrono>
#include <cstdlib>
#include <iomanip>
#include <iostream>
#include <optional>
#include <string_view>
#include <vector>

#include "simulator.hpp"

namespace {

using idempotency::RunStatus;
using namespace idempotency::simulation;

constexpr std::uint64_t default_schedules = 20'000;
constexpr std::uint64_t enough_to_reach_everything = 2'000;

std::optional<std::uint64_t> number_in(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

struct Arguments {
  std::optional<std::uint64_t> seed;
  std::uint64_t schedules = default_schedules;
  std::uint64_t from = 1;
  bool determinism = false;
};

std::optional<Arguments> parse(const std::vector<std::string_view>& words) {
  Arguments arguments;
  if (const char* wanted = std::getenv("IDEMPOTENCY_SIMULATION_SCHEDULES")) {
    const std::optional<std::uint64_t> number = number_in(wanted);
    if (!number) return std::nullopt;
    arguments.schedules = *number;
  }
  for (std::size_t at = 0; at < words.size(); ++at) {
    if (words[at] == "--check-determinism") {
      arguments.determinism = true;
      continue;
    }
    const std::string_view option = words[at];
    const std::optional<std::uint64_t> number =
        ++at < words.size() ? number_in(words[at]) : std::nullopt;
    if (!number) return std::nullopt;
    if (option == "--seed") {
      arguments.seed = number;
    } else if (option == "--schedules") {
      arguments.schedules = *number;
    } else if (option == "--from") {
      arguments.from = *number;
    } else {
      return std::nullopt;
    }
  }
  return arguments;
}

int show(std::uint64_t seed) {
  const ScheduleResult result = run_schedule(seed, Recording::on);
  print(std::cout, result);
  return result.violation ? EXIT_FAILURE : EXIT_SUCCESS;
}

int check_determinism(std::uint64_t from) {
  constexpr std::uint64_t seeds = 500;
  for (std::uint64_t seed = from; seed < from + seeds; ++seed) {
    const ScheduleResult first = run_schedule(seed, Recording::on);
    const ScheduleResult second = run_schedule(seed, Recording::on);
    const ScheduleResult unrecorded = run_schedule(seed, Recording::off);
    const bool same = hash_of(first.history) == hash_of(second.history) &&
                      first.coverage.steps == unrecorded.coverage.steps &&
                      first.violation == unrecorded.violation;
    if (same && !first.history.empty()) continue;
    std::cout << "seed " << seed << " has not always the same history\n";
    return EXIT_FAILURE;
  }
  std::cout << seeds << " seeds, each with one history only\n";
  return EXIT_SUCCESS;
}

void print_coverage(const Coverage& coverage) {
  for (std::size_t at = 0; at < reached_count; ++at) {
    std::cout << std::setw(12) << coverage.reached[at] << ' ' << to_string(static_cast<Reached>(at))
              << '\n';
  }
  for (std::size_t at = 0; at < status_count; ++at) {
    std::cout << std::setw(12) << coverage.endings[at] << " calls ended "
              << idempotency::to_string(static_cast<RunStatus>(at)) << '\n';
  }
  std::cout << std::setw(12) << coverage.exceptions << " calls ended by an exception\n";
}

/// Schedules that do not reach everything prove less than they seem to.
bool reached_everything(const Coverage& coverage) {
  bool all = true;
  for (std::size_t at = 0; at < reached_count; ++at) {
    if (coverage.reached[at] > 0) continue;
    std::cout << "not reached: " << to_string(static_cast<Reached>(at)) << '\n';
    all = false;
  }
  for (std::size_t at = 0; at < status_count; ++at) {
    const auto status = static_cast<RunStatus>(at);
    // These need a transaction or a fallback store.
    if (status == RunStatus::executed_pending_commit || status == RunStatus::undecidable) continue;
    if (coverage.endings[at] > 0) continue;
    std::cout << "not reached: a call that ends " << idempotency::to_string(status) << '\n';
    all = false;
  }
  return all;
}

int run_many(const Arguments& arguments) {
  const auto started = std::chrono::steady_clock::now();
  Coverage total;
  for (std::uint64_t seed = arguments.from; seed < arguments.from + arguments.schedules; ++seed) {
    const ScheduleResult result = run_schedule(seed, Recording::off);
    total += result.coverage;
    if (result.violation) return show(seed);
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - started;
  std::cout << arguments.schedules << " schedules, " << total.steps << " steps in " << std::fixed
            << std::setprecision(1) << took.count() << " s: every promise held\n";
  print_coverage(total);
  if (arguments.schedules >= enough_to_reach_everything && !reached_everything(total)) {
    return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}

}  // namespace

int main(int count, char** values) {
  const std::optional<Arguments> arguments = parse({values + 1, values + count});
  if (!arguments) {
    std::cerr << "usage: " << values[0]
              << " [--schedules N] [--from SEED] | --seed SEED | --check-determinism\n";
    return 2;
  }
  if (arguments->seed) return show(*arguments->seed);
  if (arguments->determinism) return check_determinism(arguments->from);
  return run_many(*arguments);
}
