// Plants one bug after the other and shows that the simulator finds it.
//
//   idempotency_simulation_planted [--quiet]
//
// For each bug the shortest of the first few histories that break a promise is printed. Exit code: 0 when every bug is
// found and the library without one passes the same schedules, 1 otherwise.

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <string_view>

#include "idempotency/detail/planted.hpp"
#include "simulator.hpp"

namespace {

using idempotency::detail::active_planted_bug;
using idempotency::detail::PlantedBug;
using namespace idempotency::simulation;

/// Empty behind the last one. Without a default, so that a compiler names a bug that is missing here.
constexpr std::string_view name_of(PlantedBug bug) noexcept {
  switch (bug) {
    case PlantedBug::none:
      return "none";
    case PlantedBug::complete_without_owner_check:
      return "complete_without_owner_check";
    case PlantedBug::takeover_by_read_then_write:
      return "takeover_by_read_then_write";
    case PlantedBug::fingerprint_dropped_on_completion:
      return "fingerprint_dropped_on_completion";
    case PlantedBug::waiter_never_woken:
      return "waiter_never_woken";
    case PlantedBug::unfinished_record_expires:
      return "unfinished_record_expires";
    case PlantedBug::callers_policy_judges:
      return "callers_policy_judges";
    case PlantedBug::cache_filled_before_write:
      return "cache_filled_before_write";
    case PlantedBug::lease_counted_from_reply:
      return "lease_counted_from_reply";
    case PlantedBug::fence_kept_on_takeover:
      return "fence_kept_on_takeover";
    case PlantedBug::ended_token_acquires_again:
      return "ended_token_acquires_again";
    case PlantedBug::resolver_leaves_owner:
      return "resolver_leaves_owner";
    case PlantedBug::new_token_on_repeated_begin:
      return "new_token_on_repeated_begin";
    case PlantedBug::effect_mark_ignored:
      return "effect_mark_ignored";
    case PlantedBug::stored_result_overwritten:
      return "stored_result_overwritten";
    case PlantedBug::uncertain_taken_over:
      return "uncertain_taken_over";
    case PlantedBug::state_judged_before_fingerprint:
      return "state_judged_before_fingerprint";
    case PlantedBug::resolution_compares_fence_only:
      return "resolution_compares_fence_only";
  }
  return {};
}

constexpr std::uint64_t most_schedules = 20'000;
constexpr std::uint64_t clean_schedules = 500;
constexpr int enough_found = 20;

struct Finding {
  std::optional<ScheduleResult> shortest;
  std::uint64_t first_seed = 0;
  std::uint64_t schedules = 0;
  int found = 0;
};

Finding look_for(PlantedBug bug) {
  active_planted_bug = bug;
  Finding finding;
  for (std::uint64_t seed = 1; seed <= most_schedules && finding.found < enough_found; ++seed) {
    ++finding.schedules;
    if (!run_schedule(seed, Recording::off).violation) continue;
    ScheduleResult result = run_schedule(seed, Recording::on);
    if (finding.found++ == 0) finding.first_seed = seed;
    if (!finding.shortest || result.history.size() < finding.shortest->history.size()) {
      finding.shortest = std::move(result);
    }
  }
  active_planted_bug = PlantedBug::none;
  return finding;
}

bool passes_without_bug() {
  for (std::uint64_t seed = 1; seed <= clean_schedules; ++seed) {
    if (!run_schedule(seed, Recording::off).violation) continue;
    print(std::cout, run_schedule(seed, Recording::on));
    return false;
  }
  return true;
}

}  // namespace

int main(int count, char** values) {
  const bool quiet = count > 1 && std::string_view(values[1]) == "--quiet";
  if (!passes_without_bug()) return EXIT_FAILURE;
  std::size_t planted = 0;
  std::size_t missed = 0;
  for (std::uint8_t number = 1; !name_of(static_cast<PlantedBug>(number)).empty(); ++number) {
    const auto bug = static_cast<PlantedBug>(number);
    ++planted;
    const Finding finding = look_for(bug);
    if (!finding.shortest) {
      std::cout << name_of(bug) << ": NOT FOUND in " << finding.schedules << " schedules\n";
      ++missed;
      continue;
    }
    std::cout << name_of(bug) << ": first found by seed " << finding.first_seed << ", "
              << finding.found << " times in " << finding.schedules
              << " schedules: " << *finding.shortest->violation << '\n';
    if (!quiet) print(std::cout, *finding.shortest);
  }
  std::cout << planted - missed << " of " << planted << " planted bugs found\n";
  return missed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
