#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "idempotency/fingerprint.hpp"
#include "idempotency/policy.hpp"
#include "seeded_random.hpp"

namespace idempotency::simulation {

/// What a request means. `first_renumbered` is `first` under a newer scheme that still knows the older.
enum class Meaning : std::uint8_t { unsaid, first, second, first_renumbered };

[[nodiscard]] const std::optional<Fingerprint>& fingerprint_of(Meaning meaning);

/// How the store's clock runs, seen from the callers' steady clocks.
enum class ClockManner : std::uint8_t { steady, drifting, jumping };

/// Chances in permille: of the first ones for each store call, of the last three after each step.
struct Faults {
  std::uint32_t refused = 0;
  std::uint32_t busy = 0;
  std::uint32_t request_lost = 0;
  std::uint32_t reply_lost = 0;
  std::uint32_t late = 0;  ///< the caller gives up; the request is executed all the same, later
  std::uint32_t duplicated = 0;  ///< executed in time and once more later
  std::uint32_t slow = 0;
  std::uint32_t crash = 0;
  std::uint32_t freeze = 0;
  std::uint32_t jump = 0;
};

struct HandlerPlan {
  enum class Ending : std::uint8_t {
    returns,
    returns_retryable,  ///< a returned value that a classifier calls a failure
    returns_permanent,
    throws_retryable,
    throws_permanent,
    throws_outcome_unknown,
    throws_something,
  };
  bool takes_execution = true;
  bool marks_no_return = false;  ///< calls `point_of_no_return()` and has its effect right after it
  bool fails_before_that = false;  ///< ends by an exception before it
  bool obeys_stop = true;
  Ending ending = Ending::returns;
  milliseconds before{1};  ///< the point of no return
  milliseconds after{1};
};

struct CallPlan {
  std::size_t key = 0;
  Meaning meaning = Meaning::unsaid;
  Policy policy;
  milliseconds write_budget{100};
  std::uint32_t begin_attempts = 3;
  bool keeps_result = true;
  HandlerPlan handler;
};

enum class ModeChoice : std::uint8_t { hold, take_over, mixed };

/// One schedule's circumstances. Drawn anew for each seed, so that every combination of faults is tried with
/// the others away.
struct SchedulePlan {
  bool cached = false;
  /// Every handler has its effect right after its point of no return and at no other time: then there is at most one
  /// effect in a record's life.
  bool careful = false;
  bool operator_works = false;
  bool purges = false;
  bool far_away = false;  ///< the store's answers take a good part of a lease
  bool unprotected_allowed = false;
  bool varied_meanings = false;
  ClockManner clock = ClockManner::steady;
  int drift_per_thousand = 0;
  ModeChoice modes = ModeChoice::mixed;
  Faults faults;
  std::size_t keys = 1;
  std::size_t processes = 1;
  std::size_t calls = 4;
  std::array<milliseconds, 2> leases{milliseconds{40}, milliseconds{40}};
  std::array<milliseconds, 2> retentions{milliseconds{60'000}, milliseconds{60'000}};
  milliseconds window{200};  ///< calls begin and faults happen within it
};

[[nodiscard]] SchedulePlan draw_schedule(SeededRandom& random);
[[nodiscard]] CallPlan draw_call(const SchedulePlan& plan, SeededRandom& random);
/// A call without faults, for any meaning, that waits long enough to become the owner.
[[nodiscard]] CallPlan closing_call(std::size_t key);

[[nodiscard]] std::string describe(const SchedulePlan& plan);
[[nodiscard]] std::string describe(const CallPlan& plan);

}  // namespace idempotency::simulation
