// Plants one bug after the other and shows that the simulator finds it.
//
//   idempotency_simulation_planted [--quiet]
//
// For each bug the shortest of the first few histories that break a promise is printed. Exit code: 0 when every bug is
// found and the library without one passes the same schedules, 1 otherwise.

#include <array>
#include <chrono>
#include <cstdlib>
#include <iomanip>
#include <iostream>
#include <optional>
#include <string_view>

#include "idempotency/detail/planted.hpp"
#include "simulator.hpp"

namespace {

using idempotency::detail::active_planted_bug;
using idempotency::detail::PlantedBug;
using namespace idempotency::simulation;

struct Named {
  PlantedBug bug;
  std::string_view name;
};

constexpr std::array bugs{
    Named{PlantedBug::complete_without_owner_check, "complete_without_owner_check"},
    Named{PlantedBug::takeover_by_read_then_write, "takeover_by_read_then_write"},
    Named{PlantedBug::fingerprint_dropped_on_completion, "fingerprint_dropped_on_completion"},
    Named{PlantedBug::waiter_never_woken, "waiter_never_woken"},
    Named{PlantedBug::unfinished_record_expires, "unfinished_record_expires"},
    Named{PlantedBug::callers_policy_judges, "callers_policy_judges"},
    Named{PlantedBug::cache_filled_before_write, "cache_filled_before_write"},
    Named{PlantedBug::lease_counted_from_reply, "lease_counted_from_reply"},
    Named{PlantedBug::fence_kept_on_takeover, "fence_kept_on_takeover"},
    Named{PlantedBug::ended_token_acquires_again, "ended_token_acquires_again"},
    Named{PlantedBug::resolver_leaves_owner, "resolver_leaves_owner"},
    Named{PlantedBug::new_token_on_repeated_begin, "new_token_on_repeated_begin"},
    Named{PlantedBug::effect_mark_ignored, "effect_mark_ignored"},
    Named{PlantedBug::stored_result_overwritten, "stored_result_overwritten"},
    Named{PlantedBug::uncertain_taken_over, "uncertain_taken_over"},
    Named{PlantedBug::state_judged_before_fingerprint, "state_judged_before_fingerprint"},
};

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
  std::size_t missed = 0;
  for (const Named& planted : bugs) {
    const Finding finding = look_for(planted.bug);
    if (!finding.shortest) {
      std::cout << planted.name << ": NOT FOUND in " << finding.schedules << " schedules\n";
      ++missed;
      continue;
    }
    std::cout << planted.name << ": first found by seed " << finding.first_seed << ", "
              << finding.found << " times in " << finding.schedules
              << " schedules: " << *finding.shortest->violation << '\n';
    if (!quiet) print(std::cout, *finding.shortest);
  }
  std::cout << bugs.size() - missed << " of " << bugs.size() << " planted bugs found\n";
  return missed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
