#include "support/reference_records.hpp"

namespace idempotency::testing_support {

namespace {

bool is_finished(RecordState state) {
  return state == RecordState::success || state == RecordState::failed;
}

Transition granted(FenceStep fence) {
  return {Phase::processing, Answer::acquired, fence, OwnerStep::caller, LeaseStep::start};
}

Transition lost(Phase phase) { return {.to = phase, .answer = Answer::lost}; }
Transition stored(Phase phase) { return {.to = phase, .answer = Answer::stored}; }

void set_phase(detail::RecordFacts& facts, Phase phase) {
  switch (phase) {
    case Phase::processing:
      facts.state = RecordState::processing;
      return;
    case Phase::success:
      facts.state = RecordState::success;
      return;
    case Phase::failed_retryable:
    case Phase::failed_permanent:
      facts.state = RecordState::failed;
      facts.retryability =
          phase == Phase::failed_permanent ? Retryability::permanent : Retryability::retryable;
      return;
    case Phase::uncertain:
      facts.state = RecordState::uncertain;
      return;
    case Phase::absent:
    case Phase::issued:
      return;
  }
}

}  // namespace

std::string ReferenceRecords::identity(const Key& key) const {
  std::string text = key.text();
  if (breaks(Rule::key_case_folded)) {
    std::transform(text.begin(), text.end(), text.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  }
  if (breaks(Rule::key_trailing_space_cut)) text.erase(text.find_last_not_of(' ') + 1);
  if (breaks(Rule::key_truncated) && text.size() > 255) text.resize(255);
  if (breaks(Rule::key_colons_merged)) {
    for (std::size_t at = text.find("%3A"); at != std::string::npos; at = text.find("%3A")) {
      text.replace(at, 3, ":");
    }
  }
  if (breaks(Rule::type_ignored)) text = key.value();
  if (breaks(Rule::keys_collide)) text = text.substr(0, text.size() - 1);
  return text;
}

Timestamp ReferenceRecords::later(Timestamp now, milliseconds span, Rule rounding) const {
  if (breaks(rounding)) span = std::chrono::floor<std::chrono::seconds>(span);
  if (breaks(Rule::long_time_overflows) && span > milliseconds::max() / 2)
    return now - milliseconds{1};
  return detail::add_saturating(now, span);
}

// --- begin ---

std::optional<detail::RecordFacts> ReferenceRecords::seen_by(const BeginRequest& request,
                                                             const Entry& entry,
                                                             Timestamp now) const {
  Facts seen = entry.facts;
  const bool own = seen.ownership.owner == request.owner;
  const bool finished = is_finished(seen.state);
  const bool uncertain = seen.state == RecordState::uncertain;
  const bool run_out = seen.state == RecordState::processing && seen.lease_until <= now;
  const bool stranger_to_scheme =
      seen.fingerprint && request.fingerprint &&
      request.fingerprint->match(*seen.fingerprint) == FingerprintMatch::not_comparable;
  if (breaks(Rule::running_record_expires) && run_out) return std::nullopt;
  if (breaks(Rule::uncertain_record_expires) && uncertain &&
      now - entry.updated_at > std::chrono::hours{24}) {
    return std::nullopt;
  }
  if (breaks(Rule::running_lease_ignored) && seen.state == RecordState::processing) {
    seen.lease_until = now;
  }
  if (breaks(Rule::hold_ignored)) seen.mode = RecordMode::take_over;
  if (breaks(Rule::callers_mode_judges)) seen.mode = request.mode;
  if (breaks(Rule::callers_hold_judges) && request.mode == RecordMode::hold) {
    seen.mode = RecordMode::hold;
  }
  if (breaks(Rule::effect_mark_ignored)) seen.effect_marked = false;
  if (breaks(Rule::own_token_not_recognised)) seen.ownership.owner = OwnerToken();
  if (breaks(Rule::ended_token_starts_again) && finished) seen.ownership.owner = OwnerToken();
  if (breaks(Rule::missing_deadline_stealable) && seen.lease_until == detail::never) {
    seen.lease_until = now;
  }
  if (breaks(Rule::lease_never_ends)) seen.lease_until = detail::never;
  if (breaks(Rule::lease_ends_early) && seen.lease_until != detail::never) {
    seen.lease_until -= milliseconds{1};
  }
  if (breaks(Rule::lease_under_hold_ends_late) && seen.mode == RecordMode::hold) {
    seen.lease_until += milliseconds{1};
  }
  if ((breaks(Rule::fingerprint_not_compared_when_finished) && finished) ||
      (breaks(Rule::fingerprint_not_compared_when_unfinished) && !finished) ||
      (breaks(Rule::owners_fingerprint_not_compared) && own) ||
      (breaks(Rule::unknown_scheme_accepted) && stranger_to_scheme)) {
    seen.fingerprint.reset();
  }
  return seen;
}

ReferenceRecords::Judged ReferenceRecords::judge(const BeginRequest& request, Timestamp now) const {
  const Entry* entry = lookup(request.key);
  std::optional<Facts> seen;
  if (entry != nullptr) seen = seen_by(request, *entry, now);
  BeginRequest asked = request;
  if (breaks(Rule::earlier_scheme_not_compared) && asked.fingerprint) {
    const Fingerprint::Part current = asked.fingerprint->current();
    asked.fingerprint = Fingerprint::from_stored(current.scheme, current.digest);
  }
  const detail::BeginVerdict verdict = detail::judge_begin(seen ? &*seen : nullptr, asked, now);
  Judged judged{seen ? entry : nullptr, verdict.mismatch, verdict.transition};
  if (seen && breaks(Rule::fingerprint_judged_before_retention) && seen->fingerprint &&
      request.fingerprint &&
      request.fingerprint->match(*seen->fingerprint) != FingerprintMatch::same) {
    judged.mismatch = Mismatch{request.fingerprint->match(*seen->fingerprint), 1};
  }
  if (seen && breaks(Rule::absent_fingerprint_is_a_mismatch) && !is_absent(*entry, now) &&
      seen->fingerprint.has_value() != request.fingerprint.has_value()) {
    judged.mismatch = Mismatch{};
  }
  judged.step = bent(judged.step, request, judged.entry);
  return judged;
}

Transition ReferenceRecords::bent(Transition step, const BeginRequest& request,
                                  const Entry* entry) const {
  if (entry == nullptr) return step;
  const bool own = entry->facts.ownership.owner == request.owner;
  if (breaks(Rule::owner_runs_again_after_success) && own && step.answer == Answer::completed) {
    return granted(FenceStep::next);
  }
  if (breaks(Rule::late_copy_takes_the_turn) && entry->replaced.owner == request.owner &&
      step.answer == Answer::in_progress) {
    return granted(FenceStep::next);
  }
  if (breaks(Rule::uncertain_taken_over) && entry->facts.state == RecordState::uncertain) {
    return granted(FenceStep::next);
  }
  if (breaks(Rule::takeover_keeps_fence) && step.fence == FenceStep::next) {
    step.fence = FenceStep::keep;
  }
  if (breaks(Rule::old_life_goes_on) && step.fence == FenceStep::first)
    step.fence = FenceStep::next;
  return step;
}

ReferenceRecords::Entry& ReferenceRecords::let_in(const BeginRequest& request,
                                                  const Transition& step, Timestamp now) {
  Entry next{.key = request.key};
  Entry* before = lookup(request.key);
  const bool goes_on = before != nullptr && step.fence != FenceStep::first;
  if (goes_on) next = *before;
  if (!goes_on || breaks(Rule::created_anew_at_takeover)) next.facts.created_at = now;
  if (!goes_on || breaks(Rule::trace_of_last_caller)) next.trace = request.trace;
  if (goes_on && breaks(Rule::fingerprint_dropped_at_takeover)) next.facts.fingerprint.reset();
  if (request.fingerprint && !next.facts.fingerprint &&
      !(goes_on && breaks(Rule::fingerprint_dropped_at_takeover))) {
    const std::optional<Fingerprint::Part>& earlier = request.fingerprint->earlier();
    next.facts.fingerprint = breaks(Rule::fingerprint_of_earliest_scheme_stored) && earlier
                                 ? *earlier
                                 : request.fingerprint->current();
  }
  if (!breaks(Rule::attempt_not_counted) || !goes_on) ++next.attempt;
  if (!breaks(Rule::first_owners_mode_kept) || !goes_on) next.facts.mode = request.mode;
  if (!breaks(Rule::effect_mark_inherited)) next.facts.effect_marked = false;
  if (!breaks(Rule::failure_survives_the_next_turn)) {
    next.result.reset();
    next.reason.clear();
  }
  const Timestamp old_lease = next.facts.lease_until;
  next.replaced = goes_on ? next.facts.ownership : Ownership{};
  next.facts.ownership = detail::ownership_after(step, next.facts.ownership, request.owner);
  if (breaks(Rule::first_fence_is_two) && !goes_on) next.facts.ownership.fence = 2;
  next.facts.state = RecordState::processing;
  next.facts.lease_until = later(now, request.lease, Rule::lease_rounded_to_seconds);
  if (breaks(Rule::takeover_keeps_lease) && goes_on) next.facts.lease_until = old_lease;
  next.noted_lease = next.facts.lease_until;
  next.facts.expires_at = detail::never;
  next.updated_at = now;
  return entries_.insert_or_assign(identity(request.key), std::move(next)).first->second;
}

BeginOutcome ReferenceRecords::apply(const BeginRequest& request, const Judged& judged,
                                     Timestamp now) {
  Entry* entry = lookup(request.key);
  if (judged.mismatch) {
    if (breaks(Rule::mismatch_changes_the_owner) && entry != nullptr &&
        entry->facts.lease_until <= now) {
      entry->facts.ownership.owner = request.owner;
    }
    return *judged.mismatch;
  }
  const Transition& step = judged.step;
  if (step.owner == OwnerStep::caller) {
    return answer(step.answer, let_in(request, step, now), now);
  }
  if (step.lease == LeaseStep::start) {  // a repeated call
    if (!breaks(Rule::repeated_begin_keeps_lease)) {
      entry->facts.lease_until = later(now, request.lease, Rule::lease_rounded_to_seconds);
    }
    if (breaks(Rule::repeated_begin_counts_an_attempt)) ++entry->attempt;
  } else if (step.lease == LeaseStep::clear) {
    set_phase(entry->facts, step.to);
    entry->facts.lease_until = detail::never;
    entry->updated_at = now;
  }
  return answer(step.answer, *entry, now);
}

BeginOutcome ReferenceRecords::answer(Answer answer, Entry& entry, Timestamp now) {
  const Facts& facts = entry.facts;
  std::optional<Fingerprint::Part> fingerprint = facts.fingerprint;
  if (breaks(Rule::answer_without_fingerprint)) fingerprint.reset();
  if (breaks(Rule::retention_restarts_at_replay) && is_finished(facts.state)) {
    entry.facts.expires_at = detail::add_saturating(now, facts.expires_at - entry.updated_at);
  }
  switch (answer) {
    case Answer::acquired:
      return Acquired{facts.ownership.fence, entry.attempt};
    case Answer::in_progress: {
      const Timestamp from =
          breaks(Rule::remaining_lease_is_the_whole_lease) ? entry.updated_at : now;
      return InProgress{std::max(milliseconds{1}, facts.lease_until - from)};
    }
    case Answer::completed:
      return Completed{entry.result, facts.expires_at - now, facts.ownership.fence, fingerprint};
    case Answer::failed:
      return Failed{{facts.retryability, entry.reason, entry.result},
                    facts.expires_at - now,
                    facts.ownership.fence,
                    fingerprint};
    case Answer::uncertain:
      return Uncertain{facts.ownership.fence,
                       breaks(Rule::uncertain_since_now) ? now : entry.updated_at};
    case Answer::stored:
    case Answer::lost:
      break;
  }
  throw Error(Errc::store_refused, "reference store: the key was issued");
}

// --- the owner's writes ---

Ownership ReferenceRecords::bent(Ownership by, const Entry& entry, Event event,
                                 Timestamp now) const {
  const Ownership& current = entry.facts.ownership;
  const bool doubt_is_settled =
      entry.facts.state == RecordState::uncertain && event != Event::release;
  if (breaks(Rule::replaced_owner_accepted) && by == entry.replaced) return current;
  if (breaks(Rule::token_not_checked)) by.owner = current.owner;
  if (breaks(Rule::fence_not_checked)) by.fence = current.fence;
  if ((breaks(Rule::renewal_steals_back) && event == Event::renew) ||
      (breaks(Rule::anyone_releases) && event == Event::release) ||
      (breaks(Rule::anyone_settles_a_doubt) && doubt_is_settled)) {
    return current;
  }
  static_cast<void>(now);
  return by;
}

bool ReferenceRecords::refuses(const Entry* entry, Event event, Timestamp now) const {
  if (entry == nullptr) return false;
  const Facts& facts = entry->facts;
  const bool failing = event == Event::fail_retryable || event == Event::fail_permanent;
  if (breaks(Rule::late_owner_refused) && facts.state == RecordState::uncertain) return true;
  if (breaks(Rule::failure_after_doubt_refused) && facts.state == RecordState::uncertain) {
    return failing;
  }
  if (breaks(Rule::silent_owner_refused) && facts.state == RecordState::processing &&
      facts.lease_until <= now) {
    return true;
  }
  if (breaks(Rule::repeated_completion_lost) && event == Event::complete) {
    return facts.state == RecordState::success;
  }
  if (breaks(Rule::repeated_failure_lost) && failing) return facts.state == RecordState::failed;
  if (breaks(Rule::repeated_release_lost) && event == Event::release) {
    return facts.state == RecordState::failed;
  }
  return false;
}

Transition ReferenceRecords::judge_write(Entry* entry, Event event, Ownership by,
                                         Timestamp now) const {
  if (entry == nullptr) return lost(Phase::absent);
  by = bent(by, *entry, event, now);
  const Phase phase = detail::phase_of(entry->facts, now);
  const bool own = entry->facts.ownership == by;
  if (refuses(entry, event, now)) return lost(phase);
  if (breaks(Rule::renewal_of_uncertain_stored) && own && phase == Phase::uncertain &&
      event == Event::renew) {
    return stored(phase);
  }
  const bool reopened = breaks(Rule::released_record_reopened) && own &&
                        phase == Phase::failed_retryable && event == Event::complete;
  const bool downgraded = breaks(Rule::success_downgraded) && own && phase == Phase::success &&
                          event == Event::fail_permanent;
  const bool revived = breaks(Rule::earlier_life_written) && own && phase == Phase::absent &&
                       event == Event::complete;
  Facts facts = entry->facts;
  if (reopened || downgraded || revived) set_phase(facts, Phase::processing);
  return detail::judge_write(&facts, event, by, now);
}

void ReferenceRecords::end(Entry& entry, const Transition& step, const Ownership& by,
                           milliseconds retention, Timestamp now) const {
  if (breaks(Rule::lease_used_as_retention)) retention = entry.facts.lease_until - entry.updated_at;
  set_phase(entry.facts, step.to);
  entry.facts.ownership = detail::ownership_after(step, entry.facts.ownership, by.owner);
  entry.facts.lease_until = detail::never;
  entry.facts.expires_at =
      later(breaks(Rule::retention_counted_from_begin) ? entry.facts.created_at : now, retention,
            Rule::retention_rounded_to_seconds);
  if (!breaks(Rule::completion_is_no_change)) entry.updated_at = now;
}

std::optional<std::string> ReferenceRecords::bent(std::optional<std::string> result) const {
  if (!result) return result;
  if (breaks(Rule::result_cut_at_nul)) result->erase(std::min(result->find('\0'), result->size()));
  if (breaks(Rule::result_trimmed_to_text)) result->erase(result->find_last_not_of(" \r\n") + 1);
  if (breaks(Rule::result_cut_at_64_kibibytes) && result->size() > 65'535) result->resize(65'535);
  if (breaks(Rule::empty_result_is_absent) && result->empty()) return std::nullopt;
  return result;
}

WriteOutcome ReferenceRecords::complete(const Key& key, const Ownership& by,
                                        const Completion& completion, Timestamp now) {
  Entry* entry = lookup(key);
  if (entry == nullptr && breaks(Rule::write_creates_a_record)) {
    entry = &entries_.insert_or_assign(identity(key), Entry{.key = key}).first->second;
    entry->facts.ownership = by;
    entry->facts.created_at = now;
  }
  const Transition step = judge_write(entry, Event::complete, by, now);
  if (step.answer != Answer::stored) return WriteOutcome::lost;
  if (step.lease == LeaseStep::clear) {
    end(*entry, step, by, completion.retention, now);
    const bool earlier_kept = breaks(Rule::failure_survives_the_next_turn) && !completion.result;
    if (!earlier_kept) entry->result = bent(completion.result);
    entry->reason.clear();
  }
  if (breaks(Rule::result_overwritten)) entry->result = completion.result;
  if (breaks(Rule::retention_restarts_at_repeated_completion)) {
    entry->facts.expires_at = detail::add_saturating(now, completion.retention);
  }
  return WriteOutcome::stored;
}

WriteOutcome ReferenceRecords::fail(const Key& key, const Ownership& by, const Failure& failure,
                                    milliseconds retention, Timestamp now) {
  Entry* entry = lookup(key);
  Retryability retryability = failure.retryability;
  if (breaks(Rule::permanent_failure_tried_again)) retryability = Retryability::retryable;
  if (breaks(Rule::retryable_failure_is_for_good)) retryability = Retryability::permanent;
  const Transition step = judge_write(entry, detail::event_of(retryability), by, now);
  if (step.answer != Answer::stored) return WriteOutcome::lost;
  const bool first_time = step.lease == LeaseStep::clear;
  if (first_time) end(*entry, step, by, retention, now);
  if (first_time || breaks(Rule::failure_overwritten)) {
    entry->reason = breaks(Rule::reason_lost) ? "" : failure.reason;
    entry->result = breaks(Rule::failed_result_lost) ? std::nullopt : failure.result;
  }
  return WriteOutcome::stored;
}

WriteOutcome ReferenceRecords::doubt(const Key& key, const Ownership& by, Timestamp now) {
  Entry* entry = lookup(key);
  const Transition step = judge_write(entry, Event::doubt, by, now);
  if (step.answer != Answer::stored) return WriteOutcome::lost;
  if (step.lease == LeaseStep::clear && !breaks(Rule::doubt_ignored)) {
    entry->facts.state = RecordState::uncertain;
    entry->facts.lease_until = detail::never;
    entry->updated_at = now;
  }
  return WriteOutcome::stored;
}

WriteOutcome ReferenceRecords::mark_effect(const Key& key, const Ownership& by, Timestamp now) {
  Entry* entry = lookup(key);
  if (judge_write(entry, Event::mark_effect, by, now).answer != Answer::stored) {
    return WriteOutcome::lost;
  }
  if (!breaks(Rule::mark_ignored)) entry->facts.effect_marked = true;
  return WriteOutcome::stored;
}

WriteOutcome ReferenceRecords::renew(const Key& key, const Ownership& by, milliseconds lease,
                                     Timestamp now) {
  Entry* entry = lookup(key);
  if (judge_write(entry, Event::renew, by, now).answer != Answer::stored) return WriteOutcome::lost;
  if (!breaks(Rule::renewal_ignored)) {
    entry->facts.lease_until = later(now, lease, Rule::lease_rounded_to_seconds);
    entry->noted_lease = entry->facts.lease_until;
  }
  if (breaks(Rule::renewal_steals_back)) entry->facts.ownership.owner = by.owner;
  if (breaks(Rule::mark_lost_with_renewal)) entry->facts.effect_marked = false;
  return WriteOutcome::stored;
}

WriteOutcome ReferenceRecords::release(const Key& key, const Ownership& by, milliseconds retention,
                                       Timestamp now) {
  Entry* entry = lookup(key);
  const Transition step = judge_write(entry, Event::release, by, now);
  if (breaks(Rule::every_release_called_released) && step.answer != Answer::stored) {
    return WriteOutcome::stored;
  }
  if (step.answer != Answer::stored) return WriteOutcome::lost;
  if (step.lease == LeaseStep::clear) end(*entry, step, by, retention, now);
  if (breaks(Rule::release_forgets_the_record)) entries_.erase(identity(key));
  return WriteOutcome::stored;
}

// --- operators ---

Record ReferenceRecords::bent(Record seen, const Entry& entry) const {
  const Facts& facts = entry.facts;
  if (breaks(Rule::settled_at_any_fence)) seen.ownership.fence = facts.ownership.fence;
  if (breaks(Rule::settled_though_renewed) ||
      (breaks(Rule::settled_though_begun_again) && seen.lease_until == entry.noted_lease)) {
    seen.lease_until = facts.lease_until;
  }
  if (breaks(Rule::settled_though_marked)) seen.effect_marked = facts.effect_marked;
  if (breaks(Rule::settled_though_doubted)) seen.state = facts.state;
  if (breaks(Rule::settled_in_another_life)) seen.created_at = facts.created_at;
  return seen;
}

Transition ReferenceRecords::bent_resolution(const Transition& step, const Entry& entry,
                                             const Record& seen, const Resolution& resolution,
                                             Timestamp now) const {
  const Phase phase = detail::phase_of(entry.facts, now);
  Facts open = entry.facts;
  Record at = bent(seen, entry);
  const bool made_silent =
      phase == Phase::processing &&
      (breaks(Rule::live_record_settled) ||
       (breaks(Rule::missing_deadline_settled) && open.lease_until == detail::never));
  if (made_silent) at.lease_until = open.lease_until = now;
  if (breaks(Rule::finished_record_settled)) at.state = open.state = RecordState::uncertain;
  Transition bent = detail::judge_resolve(&open, at, resolution, now);
  if (breaks(Rule::run_out_record_not_settled) && phase == Phase::processing) return lost(phase);
  if (breaks(Rule::late_settlement_lost) && now - entry.updated_at > std::chrono::hours{24}) {
    return lost(phase);
  }
  if (breaks(Rule::resolver_leaves_owner) || breaks(Rule::settlement_keeps_fence)) {
    if (bent.owner == OwnerStep::caller) bent.fence = FenceStep::keep;
    if (breaks(Rule::resolver_leaves_owner)) bent.owner = OwnerStep::keep;
  }
  const bool repeated = step.answer == Answer::stored && step.lease == LeaseStep::keep;
  if (breaks(Rule::repeated_settlement_lost) && repeated) return lost(phase);
  if (breaks(Rule::anyones_settlement_repeated) && is_finished(entry.facts.state) &&
      entry.facts.ownership.fence == seen.ownership.fence + 1) {
    return stored(phase);
  }
  return bent;
}

WriteOutcome ReferenceRecords::resolve(const Record& seen, const Resolution& resolution,
                                       Timestamp now) {
  Entry* entry = lookup(seen.key);
  if (entry == nullptr) return WriteOutcome::lost;
  Transition step = detail::judge_resolve(&entry->facts, seen, resolution, now);
  step = bent_resolution(step, *entry, seen, resolution, now);
  if (step.answer != Answer::stored) return WriteOutcome::lost;
  if (step.lease != LeaseStep::clear) return WriteOutcome::stored;  // a repeated call
  const milliseconds retention =
      breaks(Rule::settlement_for_ever) ? milliseconds::max() : resolution.retention;
  end(*entry, step, {resolution.resolver, 0}, retention, now);
  const bool succeeded = step.to == Phase::success;
  entry->result = succeeded ? resolution.result : std::nullopt;
  if (breaks(Rule::settlement_without_a_result_has_an_empty_one) && !entry->result) {
    entry->result.emplace();
  }
  if (breaks(Rule::settlement_for_retry_is_for_good)) {
    entry->facts.retryability = Retryability::permanent;
  }
  entry->reason = succeeded || breaks(Rule::settlement_loses_reason) ? "" : resolution.reason;
  return WriteOutcome::stored;
}

std::optional<Record> ReferenceRecords::find(const Key& key, Timestamp now) const {
  const Entry* entry = lookup(key);
  if (entry == nullptr && breaks(Rule::unknown_key_found) && !entries_.empty()) {
    entry = &entries_.begin()->second;
  }
  if (entry == nullptr) return std::nullopt;
  if (is_absent(*entry, now) && !breaks(Rule::expired_record_found)) return std::nullopt;
  return to_record(*entry);
}

Record ReferenceRecords::to_record(const Entry& entry) const {
  const Facts& facts = entry.facts;
  Record record{.key = entry.key,
                .state = facts.state,
                .mode = facts.mode,
                .effect_marked = facts.effect_marked,
                .ownership = facts.ownership,
                .attempt = entry.attempt,
                .fingerprint = facts.fingerprint,
                .created_at = entry.facts.created_at,
                .updated_at = entry.updated_at,
                .lease_until = std::nullopt,
                .expires_at = std::nullopt,
                .result = std::nullopt,
                .failure = std::nullopt,
                .trace = entry.trace};
  if (facts.lease_until != detail::never && !breaks(Rule::lease_not_shown))
    record.lease_until = facts.lease_until;
  if (facts.expires_at != detail::never) record.expires_at = facts.expires_at;
  if (facts.state == RecordState::success) record.result = entry.result;
  if (facts.state == RecordState::failed) {
    record.failure = Failure{facts.retryability, entry.reason, entry.result};
  }
  return record;
}

bool ReferenceRecords::fits(const RecordFilter& filter, const Entry& entry, Timestamp now) const {
  if (is_absent(entry, now)) return false;
  const bool type = !filter.type || entry.key.type() == *filter.type;
  const bool state = !filter.state || entry.facts.state == *filter.state;
  const bool age = !filter.unchanged_for || now - entry.updated_at >= *filter.unchanged_for;
  return (type || breaks(Rule::list_ignores_type)) && (state || breaks(Rule::list_ignores_state)) &&
         (age || breaks(Rule::list_ignores_age));
}

RecordPage ReferenceRecords::list(const RecordFilter& filter, const std::string& cursor,
                                  std::size_t limit, Timestamp now) const {
  detail::check_cursor(cursor);
  RecordPage page;
  auto at = cursor.empty() ? entries_.begin() : entries_.upper_bound(cursor);
  if (breaks(Rule::list_repeats_the_cursor)) at = entries_.lower_bound(cursor);
  if (breaks(Rule::list_skips_after_the_cursor) && !cursor.empty() && at != entries_.end()) ++at;
  for (; at != entries_.end(); ++at) {
    if (!fits(filter, at->second, now)) continue;
    if (page.records.size() == limit) {
      page.cursor = page.records.back().key.text();
      return page;
    }
    page.records.push_back(to_record(at->second));
    if (breaks(Rule::list_loses_the_trace)) page.records.back().trace.clear();
    if (breaks(Rule::list_loses_the_lease)) page.records.back().lease_until.reset();
  }
  if (breaks(Rule::list_ordered_by_text)) {
    std::sort(page.records.begin(), page.records.end(),
              [](const Record& a, const Record& b) { return a.key.text() < b.key.text(); });
  }
  if (breaks(Rule::list_never_ends)) page.cursor = cursor.empty() ? "-:-" : cursor;
  return page;
}

std::size_t ReferenceRecords::purge(std::size_t limit, Timestamp now) {
  std::size_t removed = 0;
  const auto goes = [&](const Entry& entry) {
    if (breaks(Rule::purge_takes_run_out_leases) && entry.facts.lease_until <= now) return true;
    if (breaks(Rule::purge_takes_what_is_kept) && is_finished(entry.facts.state)) return true;
    return is_absent(entry, now);
  };
  for (auto at = entries_.begin(); at != entries_.end();) {
    if (removed >= limit && !breaks(Rule::purge_takes_more_than_its_limit)) break;
    if (goes(at->second)) {
      at = entries_.erase(at);
      ++removed;
    } else {
      ++at;
    }
  }
  return removed;
}

StoreStatistics ReferenceRecords::statistics(Timestamp now) const {
  StoreStatistics statistics;
  for (const auto& [text, entry] : entries_) {
    if (is_absent(entry, now)) continue;
    statistics.bytes += sizeof(Entry) + text.size();
    const bool is_miscounted =
        breaks(Rule::uncertain_counted_as_running) && entry.facts.state == RecordState::uncertain;
    statistics.add(is_miscounted ? RecordState::processing : entry.facts.state);
  }
  return statistics;
}

}  // namespace idempotency::testing_support
