#include "sqlite/sqlite_row.hpp"

#include <algorithm>
#include <utility>

namespace idempotency {
inline namespace v0 {
namespace detail::sqlite {

namespace {

using std::chrono::milliseconds;

const RecordFacts* facts_of(const std::optional<Row>& row) noexcept {
  return row ? &row->facts : nullptr;
}

bool changes(const Transition& step, Phase from) noexcept {
  return step.to != from || step.fence != FenceStep::keep || step.owner != OwnerStep::keep ||
         step.lease != LeaseStep::keep;
}

/// The state and retryability that a phase stands for.
void set_phase(RecordFacts& facts, Phase phase) noexcept {
  switch (phase) {
    case Phase::processing:
      facts.state = RecordState::processing;
      return;
    case Phase::success:
      facts.state = RecordState::success;
      return;
    case Phase::failed_retryable:
      facts.state = RecordState::failed;
      facts.retryability = Retryability::retryable;
      return;
    case Phase::failed_permanent:
      facts.state = RecordState::failed;
      facts.retryability = Retryability::permanent;
      return;
    case Phase::uncertain:
      facts.state = RecordState::uncertain;
      return;
    case Phase::issued:
      facts.state = RecordState::issued;
      return;
    case Phase::absent:
      return;
  }
}

/// Applies what the table says of state, fence, owner and lease.
void apply(Row& row, const Transition& step, Phase from, const OwnerToken& caller,
           milliseconds lease, Timestamp now) {
  row.facts.ownership = ownership_after(step, row.facts.ownership, caller);
  if (step.lease == LeaseStep::start) row.facts.lease_until = add_saturating(now, lease);
  if (step.lease == LeaseStep::clear) row.facts.lease_until = never;
  if (step.to != from || step.owner == OwnerStep::caller) row.updated_at = now;
  set_phase(row.facts, step.to);
}

Row first_row(const BeginRequest& request, Timestamp now) {
  Row row;
  row.facts.created_at = now;
  row.trace = request.trace;
  return row;
}

/// What a new owner brings into a record, besides itself.
void let_in(Row& row, const BeginRequest& request) {
  ++row.attempt;
  row.facts.mode = request.mode;
  row.facts.effect_marked = false;
  row.facts.expires_at = never;
  if (!row.facts.fingerprint && request.fingerprint) {
    row.facts.fingerprint = request.fingerprint->current();
  }
  row.reason.clear();
  row.result.reset();
}

BeginOutcome to_outcome(Answer answer, Row& row, const BeginRequest& request, Timestamp now) {
  const RecordFacts& facts = row.facts;
  switch (answer) {
    case Answer::acquired:
      return Acquired{facts.ownership.fence, row.attempt};
    case Answer::in_progress:
      return InProgress{std::max(milliseconds{1}, facts.lease_until - now)};
    case Answer::completed:
      return Completed{std::move(row.result), facts.expires_at - now, facts.ownership.fence,
                       facts.fingerprint};
    case Answer::failed:
      return Failed{Failure{facts.retryability, std::move(row.reason), std::move(row.result)},
                    facts.expires_at - now, facts.ownership.fence, facts.fingerprint};
    case Answer::uncertain:
      return Uncertain{facts.ownership.fence, row.updated_at};
    case Answer::stored:
    case Answer::lost:
      break;
  }
  return not_admitted(request);
}

/// A judged write: applies the table's step, then `and_then` to what it does not know of.
template <class AndThen>
WriteDecision decide(std::optional<Row>& row, Event event, const Ownership& by, milliseconds lease,
                     Timestamp now, AndThen and_then) {
  const Transition step = judge_write(facts_of(row), event, by, now);
  if (step.answer != Answer::stored) return {WriteOutcome::lost, RowChange::none};
  const Phase from = phase_of(row->facts, now);
  if (!changes(step, from)) return {WriteOutcome::stored, RowChange::none};
  apply(*row, step, from, by.owner, lease, now);
  and_then(*row);
  return {WriteOutcome::stored, RowChange::changed};
}

}  // namespace

BeginDecision decide_begin(std::optional<Row>& row, const BeginRequest& request, Timestamp now) {
  const BeginVerdict verdict = judge_begin(facts_of(row), request, now);
  if (verdict.mismatch) return {*verdict.mismatch, RowChange::none};
  const Transition& step = verdict.transition;
  const Phase from = row ? phase_of(row->facts, now) : Phase::absent;
  if (!changes(step, from)) {
    if (!row) row.emplace();
    return {to_outcome(step.answer, *row, request, now), RowChange::none};
  }
  if (step.fence == FenceStep::first) row = first_row(request, now);
  if (step.owner == OwnerStep::caller) let_in(*row, request);
  apply(*row, step, from, request.owner, request.lease, now);
  return {to_outcome(step.answer, *row, request, now), RowChange::changed};
}

WriteDecision decide_issue(std::optional<Row>& row, const IssueRequest& request, Timestamp now) {
  const Transition step = judge_issue(facts_of(row), request.issuer, now);
  if (step.answer != Answer::stored) return {WriteOutcome::lost, RowChange::none};
  if (step.owner == OwnerStep::keep) return {WriteOutcome::stored, RowChange::none};
  row.emplace();
  row->facts.state = RecordState::issued;
  row->facts.ownership = {request.issuer, 0};
  row->facts.created_at = now;
  row->facts.expires_at = add_saturating(now, request.lifetime);
  row->updated_at = now;
  return {WriteOutcome::stored, RowChange::changed};
}

WriteDecision decide_complete(std::optional<Row>& row, const Ownership& by,
                              const Completion& completion, Timestamp now) {
  return decide(row, Event::complete, by, {}, now, [&](Row& changed) {
    changed.facts.expires_at = add_saturating(now, completion.retention);
    changed.result = completion.result;
  });
}

WriteDecision decide_fail(std::optional<Row>& row, const Ownership& by, const Failure& failure,
                          milliseconds retention, Timestamp now) {
  return decide(row, event_of(failure.retryability), by, {}, now, [&](Row& changed) {
    changed.facts.expires_at = add_saturating(now, retention);
    changed.reason = failure.reason;
    changed.result = failure.result;
  });
}

WriteDecision decide_doubt(std::optional<Row>& row, const Ownership& by, Timestamp now) {
  return decide(row, Event::doubt, by, {}, now, [](Row&) {});
}

WriteDecision decide_mark_effect(std::optional<Row>& row, const Ownership& by, Timestamp now) {
  const Transition step = judge_write(facts_of(row), Event::mark_effect, by, now);
  if (step.answer != Answer::stored) return {WriteOutcome::lost, RowChange::none};
  if (row->facts.effect_marked) return {WriteOutcome::stored, RowChange::none};
  row->facts.effect_marked = true;
  return {WriteOutcome::stored, RowChange::changed};
}

WriteDecision decide_renew(std::optional<Row>& row, const Ownership& by, milliseconds lease,
                           Timestamp now) {
  return decide(row, Event::renew, by, lease, now, [](Row&) {});
}

WriteDecision decide_release(std::optional<Row>& row, const Ownership& by, milliseconds retention,
                             Timestamp now) {
  return decide(row, Event::release, by, {}, now,
                [&](Row& changed) { changed.facts.expires_at = add_saturating(now, retention); });
}

WriteDecision decide_resolve(std::optional<Row>& row, const Record& seen,
                             const Resolution& resolution, Timestamp now) {
  const Transition step = judge_resolve(facts_of(row), seen, resolution, now);
  if (step.answer != Answer::stored) return {WriteOutcome::lost, RowChange::none};
  const Phase from = phase_of(row->facts, now);
  if (!changes(step, from)) return {WriteOutcome::stored, RowChange::none};
  apply(*row, step, from, resolution.resolver, {}, now);
  row->facts.expires_at = add_saturating(now, resolution.retention);
  if (step.to == Phase::success) {
    row->result = resolution.result;
  } else {
    row->reason = resolution.reason;
  }
  return {WriteOutcome::stored, RowChange::changed};
}

std::optional<Record> to_record(const Key& key, std::optional<Row> row, Timestamp now) {
  if (!row || phase_of(row->facts, now) == Phase::absent) return std::nullopt;
  const RecordFacts& facts = row->facts;
  Record record{.key = key,
                .state = facts.state,
                .mode = facts.mode,
                .effect_marked = facts.effect_marked,
                .ownership = facts.ownership,
                .attempt = row->attempt,
                .fingerprint = facts.fingerprint,
                .created_at = row->facts.created_at,
                .updated_at = row->updated_at,
                .lease_until = std::nullopt,
                .expires_at = std::nullopt,
                .result = std::nullopt,
                .failure = std::nullopt,
                .trace = std::move(row->trace)};
  if (facts.state == RecordState::processing && facts.lease_until != never) {
    record.lease_until = facts.lease_until;
  }
  if (facts.expires_at != never) record.expires_at = facts.expires_at;
  if (facts.state == RecordState::success) record.result = std::move(row->result);
  if (facts.state == RecordState::failed) {
    record.failure = Failure{facts.retryability, std::move(row->reason), std::move(row->result)};
  }
  return record;
}

}  // namespace detail::sqlite
}  // namespace v0
}  // namespace idempotency
