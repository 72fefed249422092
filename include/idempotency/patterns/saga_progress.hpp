#pragma once

#include <cstdint>

namespace idempotency {
inline namespace v0 {

/// How far a saga has come. The numbers are stored: never renumber.
enum class SagaState : std::uint8_t {
  running = 1,              ///< its actions are run, one after the other
  compensating = 2,         ///< an action was given up: what was done is undone, last first
  finished = 3,             ///< every action took effect
  compensated = 4,          ///< what had taken effect is undone
  parked_running = 5,       ///< what became of an action cannot be found out: people decide
  parked_compensating = 6,  ///< a compensation does not succeed: people decide
};

[[nodiscard]] constexpr bool is_ended(SagaState state) noexcept {
  return state == SagaState::finished || state == SagaState::compensated;
}
[[nodiscard]] constexpr bool is_parked(SagaState state) noexcept {
  return state == SagaState::parked_running || state == SagaState::parked_compensating;
}

/// Where a saga stands.
struct SagaProgress {
  /// In the place of `known_runs` for an action that was passed as done: only its record can tell what there is to undo.
  static constexpr std::uint32_t record_must_tell = 0xffff'ffffU;
  /// The same for an action of which a person says that it has no effect.
  static constexpr std::uint32_t vouched_for = 0xffff'fffeU;

  SagaState state = SagaState::running;
  /// The step whose action, or compensation, is next; all of them when finished, 0 when compensated.
  std::uint32_t step = 0;
  /// How often the step was tried in this direction without being settled.
  std::uint32_t attempts = 0;
  /// Which run of the step's action was the last one that is known to have ended without effect, all before it being known as
  /// well. A later run than the next one means that one between them fell silent.
  std::uint32_t known_runs = 0;
  friend constexpr bool operator==(const SagaProgress&, const SagaProgress&) = default;
};

/// What became of a try of the current step.
enum class SagaOutcome : std::uint8_t {
  done = 1,  ///< it took effect, now or before; or there is nothing to undo
  failed,  ///< an action that has no effect and never will; a compensation that will never succeed
  retryable,   ///< this run had no effect; another one may
  unsettled,   ///< whether it took effect is not known
  busy,        ///< another worker is running it
  unworkable,  ///< nothing was asked: the saga is too old, or its workers keep dying
};

/// The same with the number of the run, as the guard counts them; 0 when no handler was started.
struct SagaTry {
  SagaOutcome outcome = SagaOutcome::done;
  std::uint32_t run = 0;
};

struct SagaLimits {
  std::uint32_t steps = 1;
  std::uint32_t max_attempts = 10;
};

namespace detail {

constexpr SagaProgress tried_again_or(SagaState at_last, const SagaProgress& from,
                                      const SagaLimits& limits) noexcept {
  SagaProgress to = from;
  ++to.attempts;
  if (to.attempts < limits.max_attempts) return to;
  to.state = at_last;
  if (!is_parked(at_last)) to.attempts = 0;
  return to;
}

constexpr SagaProgress after_action(SagaProgress from, SagaTry what,
                                    const SagaLimits& limits) noexcept {
  const bool accounted_for = what.run == from.known_runs + 1;
  switch (what.outcome) {
    case SagaOutcome::done: {
      const std::uint32_t next = from.step + 1;
      return {next >= limits.steps ? SagaState::finished : SagaState::running, next, 0, 0};
    }
    case SagaOutcome::failed:
      return {SagaState::compensating, from.step, 0,
              what.run > from.known_runs ? what.run : from.known_runs};
    case SagaOutcome::retryable:
      if (accounted_for) {
        from.known_runs = what.run;
        return tried_again_or(SagaState::compensating, from, limits);
      }
      return tried_again_or(SagaState::parked_running, from, limits);
    case SagaOutcome::unsettled:
      return tried_again_or(SagaState::parked_running, from, limits);
    case SagaOutcome::busy:
      break;
    case SagaOutcome::unworkable:
      from.state = SagaState::parked_running;
      break;
  }
  return from;
}

constexpr SagaProgress after_compensation(SagaProgress from, SagaTry what,
                                          const SagaLimits& limits) noexcept {
  switch (what.outcome) {
    case SagaOutcome::done:
      if (from.step == 0) return {SagaState::compensated, 0, 0, 0};
      return {SagaState::compensating, from.step - 1, 0, SagaProgress::record_must_tell};
    case SagaOutcome::retryable:
    case SagaOutcome::unsettled:
      return tried_again_or(SagaState::parked_compensating, from, limits);
    case SagaOutcome::busy:
      break;
    case SagaOutcome::failed:
    case SagaOutcome::unworkable:
      from.state = SagaState::parked_compensating;
      break;
  }
  return from;
}

}  // namespace detail

/// The whole behaviour of a saga, without I/O.
///
/// - An action that took effect leads to the next one, one that failed for good to its own step's compensation: whoever undoes looks
///   first at what the action's record says, and seals that of an action that was given up, so that no late worker can start it.
/// - A retryable failure is tried `max_attempts` times. Then the action is given up, like one that failed for good; but when
///   one of its runs fell silent, so that its effect may stand, the saga is parked instead.
/// - What is not settled lets the saga go nowhere: it is asked again `max_attempts` times, and then parked. Waiting for another worker
///   is not counted.
/// - A compensation is tried `max_attempts` times, and then parked; one that says it will never succeed, at once. So is a saga that
///   is not to be tried at all.
[[nodiscard]] constexpr SagaProgress saga_transition(const SagaProgress& from, SagaTry what,
                                                     const SagaLimits& limits) noexcept {
  switch (from.state) {
    case SagaState::running:
      return detail::after_action(from, what, limits);
    case SagaState::compensating:
      return detail::after_compensation(from, what, limits);
    case SagaState::finished:
    case SagaState::compensated:
    case SagaState::parked_running:
    case SagaState::parked_compensating:
      break;
  }
  return from;
}

/// What people decide about a parked saga. The numbers are stored: never renumber.
enum class SagaDecision : std::uint8_t {
  resume = 1,   ///< try the step again, as often as at first
  skip = 2,     ///< go on behind it: somebody has seen to it, or it is not needed
  give_up = 3,  ///< the step's action has no effect: undo what was done before it
};

/// Where a decision leads; only a parked saga moves.
[[nodiscard]] constexpr SagaProgress saga_decided(const SagaProgress& from, SagaDecision decision,
                                                  std::uint32_t steps) noexcept {
  if (!is_parked(from.state)) return from;
  const bool forward = from.state == SagaState::parked_running;
  const SagaState state = forward ? SagaState::running : SagaState::compensating;
  if (decision == SagaDecision::resume) return {state, from.step, 0, from.known_runs};
  if (decision == SagaDecision::give_up) {
    return {SagaState::compensating, from.step, 0, SagaProgress::vouched_for};
  }
  const SagaProgress there{state, from.step, 0, 0};
  return saga_transition(there, {SagaOutcome::done}, {.steps = steps});
}

}  // namespace v0
}  // namespace idempotency
