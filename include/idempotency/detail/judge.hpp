#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>

#include "idempotency/error.hpp"
#include "idempotency/store.hpp"
#include "idempotency/transition.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail {

/// A point in time that never comes: a lease without a readable deadline, a record that does not expire.
inline constexpr Timestamp never = Timestamp::max();

/// `now + span` without overflow.
[[nodiscard]] constexpr Timestamp add_saturating(Timestamp now,
                                                 std::chrono::milliseconds span) noexcept {
  return span > never - now ? never : now + span;
}

/// What the judgement of a record needs, however a store keeps it.
struct RecordFacts {
  RecordState state = RecordState::processing;
  Retryability retryability = Retryability::retryable;
  RecordMode mode = RecordMode::take_over;
  bool effect_marked = false;
  Ownership ownership = {};
  std::optional<Fingerprint::Part> fingerprint = std::nullopt;
  Timestamp lease_until = never;  ///< processing only
  Timestamp expires_at = never;   ///< finished only
  Timestamp created_at{};         ///< first begin of this life
};

[[nodiscard]] constexpr Phase phase_of(const RecordFacts& facts, Timestamp now) noexcept {
  switch (facts.state) {
    case RecordState::processing:
      if (planted_now(PlantedBug::unfinished_record_expires) && facts.lease_until <= now) {
        return Phase::absent;
      }
      return Phase::processing;
    case RecordState::uncertain:
      return Phase::uncertain;
    case RecordState::issued:
      return facts.expires_at <= now ? Phase::absent : Phase::issued;
    case RecordState::success:
      return facts.expires_at <= now ? Phase::absent : Phase::success;
    case RecordState::failed:
      if (facts.expires_at <= now) return Phase::absent;
      return facts.retryability == Retryability::retryable ? Phase::failed_retryable
                                                           : Phase::failed_permanent;
  }
  return Phase::absent;
}

[[nodiscard]] constexpr LeaseStatus lease_of(const RecordFacts& facts, Timestamp now) noexcept {
  return facts.lease_until <= now ? LeaseStatus::run_out : LeaseStatus::running;
}

[[nodiscard]] constexpr RecordMode mode_of(const RecordFacts& facts) noexcept {
  if (planted_now(PlantedBug::effect_mark_ignored)) return facts.mode;
  return facts.effect_marked ? RecordMode::hold : facts.mode;
}

/// The judgement of one `begin`: a mismatch, or a row of the table.
struct BeginVerdict {
  std::optional<Mismatch> mismatch;
  Transition transition;
};

/// What `lost` means as the answer to a `begin`.
///
/// Errors: `Errc::store_refused` for a one-time token that was issued and not used, where any key is admitted.
[[nodiscard]] inline NotIssued not_admitted(const BeginRequest& request) {
  if (request.admission == Admission::issued) return {};
  throw Error(
      Errc::store_refused,
      "the key belongs to a one-time token that was issued; use it through its token service");
}

[[nodiscard]] constexpr Event event_of(Admission admission) noexcept {
  return admission == Admission::issued ? Event::begin_issued : Event::begin;
}

/// Retention, then fingerprint, then state. `facts` is null for a record that is not there.
///
/// Errors: `Errc::store_refused` for a one-time token that was issued and not used.
[[nodiscard]] inline BeginVerdict judge_begin(const RecordFacts* facts, const BeginRequest& request,
                                              Timestamp now) {
  const Phase phase = facts == nullptr ? Phase::absent : phase_of(*facts, now);
  const Event event = event_of(request.admission);
  if (phase == Phase::absent) {
    return {std::nullopt,
            v0::transition(phase, event, Standing::other, LeaseStatus::running, request.mode)};
  }
  const bool unfinished = phase == Phase::processing || phase == Phase::uncertain;
  const bool judge_fingerprint =
      !(unfinished && planted_now(PlantedBug::state_judged_before_fingerprint));
  if (facts->fingerprint && request.fingerprint && judge_fingerprint) {
    const FingerprintMatch match = request.fingerprint->match(*facts->fingerprint);
    if (match != FingerprintMatch::same) return {Mismatch{match, facts->fingerprint->scheme}, {}};
  }
  const Standing standing =
      facts->ownership.owner == request.owner ? Standing::current : Standing::other;
  const RecordMode mode =
      planted_now(PlantedBug::callers_policy_judges) ? request.mode : mode_of(*facts);
  const Transition transition = v0::transition(phase, event, standing, lease_of(*facts, now), mode);
  if (transition.answer == Answer::lost) static_cast<void>(not_admitted(request));
  return {std::nullopt, transition};
}

/// Errors: `Errc::invalid_argument` for a key that would never be there.
inline void check_issue(const IssueRequest& request) {
  if (request.lifetime >= std::chrono::milliseconds{1}) return;
  throw Error(Errc::invalid_argument, "a key that is issued lives for 1 ms or more");
}

/// A key that is to be issued. `facts` is null for a record that is not there.
[[nodiscard]] constexpr Transition judge_issue(const RecordFacts* facts, const OwnerToken& issuer,
                                               Timestamp now) noexcept {
  const Phase phase = facts == nullptr ? Phase::absent : phase_of(*facts, now);
  const bool own = facts != nullptr && facts->ownership.owner == issuer;
  return v0::transition(phase, Event::issue, own ? Standing::current : Standing::other,
                        LeaseStatus::running, RecordMode::take_over);
}

/// A write by the owner. `facts` is null for a record that is not there.
[[nodiscard]] constexpr Transition judge_write(const RecordFacts* facts, Event event,
                                               const Ownership& by, Timestamp now) noexcept {
  if (facts == nullptr) return unchanged(Phase::absent, Answer::lost);
  const Standing standing = facts->ownership == by ? Standing::current : Standing::other;
  return v0::transition(phase_of(*facts, now), event, standing, lease_of(*facts, now),
                        mode_of(*facts));
}

[[nodiscard]] constexpr Event event_of(Resolution::Verdict verdict) noexcept {
  switch (verdict) {
    case Resolution::Verdict::succeeded:
      return Event::resolve_success;
    case Resolution::Verdict::failed:
      return Event::resolve_failed;
    case Resolution::Verdict::retry:
      return Event::resolve_retry;
  }
  return Event::resolve_retry;
}

[[nodiscard]] constexpr Event event_of(Retryability retryability) noexcept {
  return retryability == Retryability::permanent ? Event::fail_permanent : Event::fail_retryable;
}

/// Whether a record has not moved since an operator saw it: nobody acquired, renewed, marked or doubted it, and it is not
/// in a later life. The fence alone does not tell, nor does `updated_at`, which renewals and marks leave.
[[nodiscard]] constexpr bool is_as_seen(const RecordFacts& facts, const Record& seen) noexcept {
  if (planted_now(PlantedBug::resolution_compares_fence_only)) {
    return facts.ownership.fence == seen.ownership.fence;
  }
  const bool has_lease = facts.state == RecordState::processing;
  return facts.ownership == seen.ownership && facts.created_at == seen.created_at &&
         facts.state == seen.state && facts.mode == seen.mode &&
         facts.effect_marked == seen.effect_marked &&
         (!has_lease || facts.lease_until == seen.lease_until.value_or(never));
}

/// A resolution of the record that was seen; a repeated one is recognised by the resolver's token.
[[nodiscard]] inline Transition judge_resolve(const RecordFacts* facts, const Record& seen,
                                              const Resolution& resolution,
                                              Timestamp now) noexcept {
  if (facts == nullptr) return unchanged(Phase::absent, Answer::lost);
  const Phase phase = phase_of(*facts, now);
  if (facts->ownership == Ownership{resolution.resolver, seen.ownership.fence + 1} &&
      phase != Phase::absent && phase != Phase::processing && phase != Phase::uncertain) {
    return unchanged(phase, Answer::stored);
  }
  const Standing standing = is_as_seen(*facts, seen) ? Standing::current : Standing::other;
  return v0::transition(phase, event_of(resolution.verdict), standing, lease_of(*facts, now),
                        mode_of(*facts));
}

/// Applies the fence and owner steps of a transition.
[[nodiscard]] constexpr Ownership ownership_after(const Transition& transition,
                                                  const Ownership& before,
                                                  const OwnerToken& caller) noexcept {
  Ownership after = before;
  if (transition.owner == OwnerStep::caller) after.owner = caller;
  if (transition.fence == FenceStep::first) after.fence = 1;
  if (transition.fence == FenceStep::next) after.fence = before.fence + 1;
  return after;
}

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
