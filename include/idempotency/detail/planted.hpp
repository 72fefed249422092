#pragma once

#include <cstdint>

namespace idempotency {
inline namespace v0 {
namespace detail {

/// Bugs that the tests of the tests plant, one at a time, to prove that the simulator finds them. Only a build with
/// IDEMPOTENCY_PLANTED_BUGS (never installed) contains them.
enum class PlantedBug : std::uint8_t {
  none,
  complete_without_owner_check,
  takeover_by_read_then_write,
  fingerprint_dropped_on_completion,
  waiter_never_woken,
  unfinished_record_expires,
  callers_policy_judges,
  cache_filled_before_write,
  lease_counted_from_reply,
  fence_kept_on_takeover,
  ended_token_acquires_again,
  resolver_leaves_owner,
  new_token_on_repeated_begin,
  effect_mark_ignored,
  stored_result_overwritten,
  uncertain_taken_over,
  state_judged_before_fingerprint,
  resolution_compares_fence_only,
};

#ifdef IDEMPOTENCY_PLANTED_BUGS
/// Set by the test that plants; not for concurrent use.
inline PlantedBug active_planted_bug = PlantedBug::none;
[[nodiscard]] inline bool planted(PlantedBug bug) noexcept { return active_planted_bug == bug; }
#else
[[nodiscard]] constexpr bool planted(PlantedBug /*bug*/) noexcept { return false; }
#endif

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
