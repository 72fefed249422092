#pragma once

#include <cstdint>
#include <type_traits>

#include "idempotency/detail/planted.hpp"
#include "idempotency/record.hpp"

namespace idempotency {
inline namespace v0 {

/// A record as the table sees it: its state, with failures told apart and absence made a state.
/// A finished record that is past its retention is `absent`.
enum class Phase : std::uint8_t {
  absent,
  processing,
  success,
  failed_retryable,
  failed_permanent,
  uncertain,
  issued,
};

/// What a caller asks of a record.
enum class Event : std::uint8_t {
  begin,         ///< by somebody who wants to run the operation
  begin_issued,  ///< the same, by the holder of a one-time token: admits issued records only
  renew,
  mark_effect,  ///< from now on as under `hold`
  complete,
  fail_retryable,
  fail_permanent,
  doubt,
  release,
  resolve_success,  ///< by an operator or reconciler, of the record as it saw it
  resolve_failed,
  resolve_retry,
  issue,  ///< makes a record that a `begin_issued` may take
};

/// How the caller relates to the record. For `begin` only the token counts; for the owner's writes token and
/// fence; for resolutions that the record is as it was seen.
enum class Standing : std::uint8_t { other, current };

/// Whether the owner has been silent for longer than it may. No readable deadline: `running`.
enum class LeaseStatus : std::uint8_t { running, run_out };

/// What the caller is told.
enum class Answer : std::uint8_t {
  acquired,     ///< the caller is the owner
  in_progress,  ///< another owner's lease is running
  completed,    ///< the recorded result is the answer
  failed,       ///< the recorded failure is the answer
  uncertain,    ///< blocked until settled
  stored,       ///< the write took effect now or had already
  lost,  ///< the write changed nothing: the caller is not, or no longer, in the position to make it
};

/// What happens to the fence and the owner.
enum class FenceStep : std::uint8_t { keep, first, next };
enum class OwnerStep : std::uint8_t { keep, caller };
/// What happens to the lease: `start` counts it anew from the store's now.
enum class LeaseStep : std::uint8_t { keep, start, clear };

/// One row of the table.
struct Transition {
  Phase to = Phase::absent;
  Answer answer = Answer::lost;
  FenceStep fence = FenceStep::keep;
  OwnerStep owner = OwnerStep::keep;
  LeaseStep lease = LeaseStep::keep;
  friend constexpr bool operator==(const Transition&, const Transition&) noexcept = default;
};

namespace detail {

/// Whether a test has planted `bug`; never while compiling.
constexpr bool planted_now(PlantedBug bug) noexcept {
  return !std::is_constant_evaluated() && planted(bug);
}

constexpr Transition unchanged(Phase phase, Answer answer) noexcept { return {phase, answer}; }

constexpr Transition acquire(FenceStep fence) noexcept {
  return {Phase::processing, Answer::acquired, fence, OwnerStep::caller, LeaseStep::start};
}

constexpr Transition after_begin(Phase phase, Standing standing, LeaseStatus lease,
                                 RecordMode mode) noexcept {
  const bool own = standing == Standing::current;
  switch (phase) {
    case Phase::absent:
      return acquire(FenceStep::first);
    case Phase::processing:
      if (own) {  // a repeated call: its own lease starts anew
        return {phase, Answer::acquired, FenceStep::keep, OwnerStep::keep, LeaseStep::start};
      }
      if (lease == LeaseStatus::running) return unchanged(phase, Answer::in_progress);
      if (mode == RecordMode::take_over) {
        return acquire(planted_now(PlantedBug::fence_kept_on_takeover) ? FenceStep::keep
                                                                       : FenceStep::next);
      }
      return {Phase::uncertain, Answer::uncertain, FenceStep::keep, OwnerStep::keep,
              LeaseStep::clear};
    case Phase::success:
      return unchanged(phase, Answer::completed);
    case Phase::failed_retryable:  // a late copy of the call that failed starts nothing
      if (own && !planted_now(PlantedBug::ended_token_acquires_again)) {
        return unchanged(phase, Answer::failed);
      }
      return acquire(FenceStep::next);
    case Phase::failed_permanent:
      return unchanged(phase, Answer::failed);
    case Phase::uncertain:
      if (planted_now(PlantedBug::uncertain_taken_over)) return acquire(FenceStep::next);
      return unchanged(phase, Answer::uncertain);
    case Phase::issued:
      return unchanged(phase, Answer::lost);
  }
  return unchanged(phase, Answer::lost);
}

constexpr Transition after_begin_issued(Phase phase, Standing standing, LeaseStatus lease,
                                        RecordMode mode) noexcept {
  if (phase == Phase::absent) return unchanged(phase, Answer::lost);  // nobody issued this token
  if (phase == Phase::issued) return acquire(FenceStep::first);
  return after_begin(phase, standing, lease, mode);
}

/// A write that ends the owner's turn, from processing or (it knows best, however late) uncertain.
constexpr Transition after_end(Phase phase, Phase to, Standing standing) noexcept {
  if (standing != Standing::current && !planted_now(PlantedBug::complete_without_owner_check)) {
    return unchanged(phase, Answer::lost);
  }
  if (phase == to) {  // a repeated call
    return unchanged(phase, Answer::stored);
  }
  if (phase != Phase::processing && phase != Phase::uncertain) {
    return unchanged(phase, Answer::lost);
  }
  return {to, Answer::stored, FenceStep::keep, OwnerStep::keep, LeaseStep::clear};
}

constexpr Transition after_owner_event(Phase phase, Event event, Standing standing) noexcept {
  if (standing != Standing::current) return unchanged(phase, Answer::lost);
  const bool processing = phase == Phase::processing;
  switch (event) {
    case Event::renew:
      if (!processing) return unchanged(phase, Answer::lost);
      return {phase, Answer::stored, FenceStep::keep, OwnerStep::keep, LeaseStep::start};
    case Event::mark_effect:
      return unchanged(phase, processing ? Answer::stored : Answer::lost);
    case Event::doubt:
      if (phase == Phase::uncertain) return unchanged(phase, Answer::stored);
      if (!processing) return unchanged(phase, Answer::lost);
      return {Phase::uncertain, Answer::stored, FenceStep::keep, OwnerStep::keep, LeaseStep::clear};
    case Event::release:
      if (phase == Phase::failed_retryable) return unchanged(phase, Answer::stored);
      if (!processing) return unchanged(phase, Answer::lost);
      return {Phase::failed_retryable, Answer::stored, FenceStep::keep, OwnerStep::keep,
              LeaseStep::clear};
    default:
      return unchanged(phase, Answer::lost);
  }
}

/// A record that was issued has the fence 0 and its issuer as the owner; it ends like a finished one.
constexpr Transition after_issue(Phase phase, Standing standing) noexcept {
  if (phase == Phase::absent) {
    return {Phase::issued, Answer::stored, FenceStep::keep, OwnerStep::caller, LeaseStep::clear};
  }
  const bool is_repeated = phase == Phase::issued && standing == Standing::current;
  return unchanged(phase, is_repeated ? Answer::stored : Answer::lost);
}

constexpr Transition after_resolve(Phase phase, Phase to, Standing standing,
                                   LeaseStatus lease) noexcept {
  const bool open =
      phase == Phase::uncertain || (phase == Phase::processing && lease == LeaseStatus::run_out);
  if (!open || standing != Standing::current) return unchanged(phase, Answer::lost);
  if (planted_now(PlantedBug::resolver_leaves_owner)) {
    return {to, Answer::stored, FenceStep::keep, OwnerStep::keep, LeaseStep::clear};
  }
  return {to, Answer::stored, FenceStep::next, OwnerStep::caller, LeaseStep::clear};
}

}  // namespace detail

/// The whole life of a record: what `event` does to a record in `phase`.
///
/// Total over its arguments, without clock or I/O. `mode` is the record's, `hold` also when the effect is
/// marked. What the table does not name changes nothing and answers `lost`. Retention and fingerprint are judged
/// before it (`detail/judge.hpp` does so for the embedded stores).
[[nodiscard]] constexpr Transition transition(Phase phase, Event event, Standing standing,
                                              LeaseStatus lease, RecordMode mode) noexcept {
  switch (event) {
    case Event::begin:
      return detail::after_begin(phase, standing, lease, mode);
    case Event::begin_issued:
      return detail::after_begin_issued(phase, standing, lease, mode);
    case Event::complete:
      return detail::after_end(phase, Phase::success, standing);
    case Event::fail_retryable:
      return detail::after_end(phase, Phase::failed_retryable, standing);
    case Event::fail_permanent:
      return detail::after_end(phase, Phase::failed_permanent, standing);
    case Event::renew:
    case Event::mark_effect:
    case Event::doubt:
    case Event::release:
      return detail::after_owner_event(phase, event, standing);
    case Event::resolve_success:
      return detail::after_resolve(phase, Phase::success, standing, lease);
    case Event::resolve_failed:
      return detail::after_resolve(phase, Phase::failed_permanent, standing, lease);
    case Event::resolve_retry:
      return detail::after_resolve(phase, Phase::failed_retryable, standing, lease);
    case Event::issue:
      return detail::after_issue(phase, standing);
  }
  return detail::unchanged(phase, Answer::lost);
}

static_assert(transition(Phase::success, Event::complete, Standing::other, LeaseStatus::run_out,
                         RecordMode::take_over)
                      .answer == Answer::lost,
              "a result, once stored, does not change");

}  // namespace v0
}  // namespace idempotency
