#include "plan.hpp"

#include <algorithm>
#include <string_view>

namespace idempotency::simulation {

namespace {

using namespace std::chrono_literals;
using Ending = HandlerPlan::Ending;

std::uint32_t rate(SeededRandom& random, std::uint32_t low, std::uint32_t high) {
  const std::array<std::uint32_t, 4> rates{0, 0, low, high};
  return random.one_of(rates);
}

Faults draw_faults(SeededRandom& random, ClockManner clock) {
  if (random.chance(60)) return {};
  Faults faults;
  faults.refused = rate(random, 30, 150);
  faults.busy = rate(random, 20, 60);
  faults.request_lost = rate(random, 30, 150);
  faults.reply_lost = rate(random, 50, 250);
  faults.late = rate(random, 50, 200);
  faults.duplicated = rate(random, 50, 200);
  faults.slow = rate(random, 50, 300);
  faults.crash = rate(random, 3, 15);
  faults.freeze = rate(random, 3, 15);
  faults.jump = clock == ClockManner::jumping ? 20 : 0;
  return faults;
}

HandlerPlan draw_handler(const SchedulePlan& plan, milliseconds lease, SeededRandom& random) {
  constexpr std::array<Ending, 12> endings{
      Ending::returns,          Ending::returns,           Ending::returns,
      Ending::returns,          Ending::returns,           Ending::returns,
      Ending::throws_retryable, Ending::throws_something,  Ending::throws_outcome_unknown,
      Ending::throws_permanent, Ending::returns_permanent, Ending::returns_retryable};
  HandlerPlan handler;
  handler.takes_execution = plan.careful || random.chance(700);
  handler.marks_no_return = plan.careful || (handler.takes_execution && random.chance(600));
  handler.obeys_stop = random.chance(500);
  handler.ending = random.one_of(endings);
  handler.before = random.between(0ms, random.chance(250) ? lease * 2 : lease / 3);
  handler.after = random.between(0ms, random.chance(250) ? lease * 2 : lease / 3);
  const bool throws_retry =
      handler.ending == Ending::throws_retryable || handler.ending == Ending::throws_permanent;
  const bool returns_failure =
      handler.ending == Ending::returns_retryable || handler.ending == Ending::returns_permanent;
  // After its effect a handler does not claim that there was none.
  if (handler.marks_no_return && returns_failure) handler.ending = Ending::returns;
  handler.fails_before_that =
      handler.marks_no_return &&
      (throws_retry || (handler.ending == Ending::throws_something && random.chance(400)));
  return handler;
}

std::string_view name(Meaning meaning) noexcept {
  constexpr std::array<std::string_view, 4> names{"no fingerprint", "fingerprint A",
                                                  "fingerprint B", "fingerprint A under scheme 2"};
  return names[static_cast<std::size_t>(meaning)];
}

std::string_view name(Ending ending) noexcept {
  constexpr std::array<std::string_view, 7> names{"returns",
                                                  "returns a retryable failure",
                                                  "returns a permanent failure",
                                                  "throws retryable",
                                                  "throws permanent",
                                                  "throws outcome unknown",
                                                  "throws something"};
  return names[static_cast<std::size_t>(ending)];
}

std::string text(milliseconds span) { return std::to_string(span.count()) + " ms"; }

std::string text(const Faults& faults) {
  const std::array<std::pair<std::string_view, std::uint32_t>, 10> all{{
      {"refused", faults.refused},
      {"busy", faults.busy},
      {"request lost", faults.request_lost},
      {"reply lost", faults.reply_lost},
      {"late", faults.late},
      {"duplicated", faults.duplicated},
      {"slow", faults.slow},
      {"crash", faults.crash},
      {"freeze", faults.freeze},
      {"clock jump", faults.jump},
  }};
  std::string line;
  for (const auto& [what, permille] : all) {
    if (permille == 0) continue;
    line += (line.empty() ? "" : ", ") + std::string(what) + ' ' + std::to_string(permille);
  }
  return line.empty() ? "none" : line;
}

}  // namespace

const std::optional<Fingerprint>& fingerprint_of(Meaning meaning) {
  static const std::array<std::optional<Fingerprint>, 4> fingerprints{
      std::nullopt, Fingerprint::of_bytes("A"), Fingerprint::of_bytes("B"),
      Fingerprint::of_bytes("A with more").as_scheme(2).or_earlier(Fingerprint::of_bytes("A"))};
  return fingerprints[static_cast<std::size_t>(meaning)];
}

SchedulePlan draw_schedule(SeededRandom& random) {
  constexpr std::array<milliseconds, 4> leases{16ms, 40ms, 40ms, 100ms};
  constexpr std::array<milliseconds, 3> retentions{60ms, 200ms, 60'000ms};
  constexpr std::array<ClockManner, 4> clocks{ClockManner::steady, ClockManner::steady,
                                              ClockManner::drifting, ClockManner::jumping};
  constexpr std::array<ModeChoice, 3> modes{ModeChoice::hold, ModeChoice::take_over,
                                            ModeChoice::mixed};
  SchedulePlan plan;
  plan.cached = random.chance(330);
  plan.careful = random.chance(400);
  plan.operator_works = random.chance(600);
  plan.purges = random.chance(400);
  plan.far_away = random.chance(50);
  plan.unprotected_allowed = !plan.careful && random.chance(150);
  plan.varied_meanings = random.chance(350);
  plan.clock = random.one_of(clocks);
  if (plan.clock == ClockManner::drifting) plan.drift_per_thousand = random.chance(500) ? 10 : -10;
  plan.modes = random.one_of(modes);
  plan.faults = draw_faults(random, plan.clock);
  plan.keys = random.chance(250) ? 2 : 1;
  plan.processes = 1 + random.below(3);
  plan.calls = 2 + random.below(random.chance(100) ? 25 : 9);
  for (milliseconds& lease : plan.leases)
    lease = random.one_of(leases);
  for (milliseconds& retention : plan.retentions) {
    retention = random.chance(500) ? 60'000ms : random.one_of(retentions);
  }
  plan.window = random.one_of(std::array{60ms, 250ms, 250ms, 600ms});
  return plan;
}

CallPlan draw_call(const SchedulePlan& plan, SeededRandom& random) {
  constexpr std::array<Meaning, 6> meanings{Meaning::unsaid, Meaning::first,
                                            Meaning::first,  Meaning::first,
                                            Meaning::second, Meaning::first_renumbered};
  CallPlan call;
  call.key = random.below(plan.keys);
  call.meaning = plan.varied_meanings ? random.one_of(meanings) : Meaning::first;
  Policy& policy = call.policy;
  policy.lease = random.one_of(plan.leases);
  policy.success_retention = random.one_of(plan.retentions);
  policy.failure_retention = random.one_of(plan.retentions);
  policy.wait = random.chance(350) ? 0ms : random.between(1ms, policy.lease * 3);
  const bool holds =
      plan.modes == ModeChoice::hold || (plan.modes == ModeChoice::mixed && random.chance(500));
  policy.on_expired_lease = holds ? RecordMode::hold : RecordMode::take_over;
  if (plan.unprotected_allowed && !holds && random.chance(300)) {
    policy.on_store_failure = OnStoreFailure::run_unprotected;
  }
  policy.max_total_hold = random.chance(200) ? policy.lease : policy.lease * 12;
  call.write_budget = random.between(5ms, policy.lease * 2);
  call.begin_attempts = 1 + static_cast<std::uint32_t>(random.below(4));
  call.keeps_result = random.chance(900);
  call.handler = draw_handler(plan, policy.lease, random);
  return call;
}

CallPlan closing_call(std::size_t key) {
  CallPlan call;
  call.key = key;
  call.policy.lease = 100ms;
  call.policy.wait = 1'000ms;
  call.policy.on_expired_lease = RecordMode::hold;
  call.handler.marks_no_return = true;
  return call;
}

std::string describe(const SchedulePlan& plan) {
  constexpr std::array<std::string_view, 3> clocks{"steady", "drifting", "jumping"};
  constexpr std::array<std::string_view, 3> modes{"hold", "take_over", "hold and take_over"};
  std::string line = plan.cached ? "CachingStore over MemoryStore" : "MemoryStore";
  line += "; " + std::to_string(plan.keys) + " keys, " + std::to_string(plan.processes) +
          " processes, " + std::to_string(plan.calls) + " calls in " + text(plan.window);
  line += "; " + std::string(modes[static_cast<std::size_t>(plan.modes)]);
  line += "; leases " + text(plan.leases[0]) + " and " + text(plan.leases[1]);
  line += "; retentions " + text(plan.retentions[0]) + " and " + text(plan.retentions[1]);
  line += "; store's clock " + std::string(clocks[static_cast<std::size_t>(plan.clock)]);
  if (plan.careful) line += "; careful handlers";
  if (plan.operator_works) line += "; operator";
  if (plan.far_away) line += "; the store is far away";
  if (plan.purges) line += "; purges";
  return line + "; faults in permille: " + text(plan.faults);
}

std::string describe(const CallPlan& plan) {
  const HandlerPlan& handler = plan.handler;
  const Policy& policy = plan.policy;
  std::string line = "key " + std::to_string(plan.key) + ", " + std::string(name(plan.meaning));
  line += policy.on_expired_lease == RecordMode::hold ? ", hold" : ", take_over";
  line += ", lease " + text(policy.lease) + ", wait " + text(policy.wait) + ", retention " +
          text(policy.success_retention) + " and " + text(policy.failure_retention);
  if (policy.on_store_failure == OnStoreFailure::run_unprotected) line += ", may run unprotected";
  line += "; handler " + std::string(handler.takes_execution ? "" : "without Execution ");
  line += std::string(name(handler.ending)) + (handler.fails_before_that ? " before" : "");
  if (handler.marks_no_return) line += " its point of no return";
  line += ", takes " + text(handler.before) + " and " + text(handler.after);
  return line;
}

}  // namespace idempotency::simulation
