#include <algorithm>

#include "idempotency/protocol.hpp"
#include "oracle.hpp"

namespace idempotency::simulation {

namespace {

/// How the meaning of a request relates to the one that a record was begun with.
FingerprintMatch match(Meaning recorded, Meaning asked) noexcept {
  if (recorded == Meaning::unsaid || asked == Meaning::unsaid) return FingerprintMatch::same;
  if (recorded == asked) return FingerprintMatch::same;
  if (recorded == Meaning::first_renumbered) return FingerprintMatch::not_comparable;
  const bool knows_it = asked == Meaning::first_renumbered && recorded == Meaning::first;
  return knows_it ? FingerprintMatch::same : FingerprintMatch::different;
}

std::optional<Fingerprint::Part> part_of(Meaning meaning) {
  const std::optional<Fingerprint>& fingerprint = fingerprint_of(meaning);
  if (!fingerprint) return std::nullopt;
  return fingerprint->current();
}

}  // namespace

void Oracle::executed(const Request& request, const Reply& reply) {
  KeyHistory& key = keys_[request.key];
  end_life_if_expired(key);
  switch (request.step) {
    case StoreStep::begin:
      return begun(key, request, std::get<BeginOutcome>(reply.content));
    case StoreStep::complete:
      return completed(key, request, reply.is_stored());
    case StoreStep::fail:
      return failed(key, request, reply.is_stored());
    case StoreStep::doubt:
    case StoreStep::mark_effect:
    case StoreStep::renew:
      return written(key, request, std::get<WriteOutcome>(reply.content));
    case StoreStep::release: {
      const auto outcome = std::get<ReleaseOutcome>(reply.content);
      return written(
          key, request,
          outcome == ReleaseOutcome::released ? WriteOutcome::stored : WriteOutcome::lost);
    }
    case StoreStep::resolve:
      return resolved(key, request, reply.is_stored());
    case StoreStep::find:
      return compare(key, std::get<std::optional<Record>>(reply.content));
  }
}

void Oracle::holds(std::size_t key, const std::optional<Record>& actual) {
  end_life_if_expired(keys_[key]);
  compare(keys_[key], actual);
}

void Oracle::purged() {
  for (KeyHistory& key : keys_)
    end_life_if_expired(key);
}

void Oracle::end_life_if_expired(KeyHistory& key) {
  if (!is_finished(key) || key.expires_at > time_.store_now()) return;
  key.state = State::absent;
  ++key.epoch;
  coverage_.count(Reached::life_ended);
}

void Oracle::begun(KeyHistory& key, const Request& request, const BeginOutcome& outcome) {
  const auto* acquired = std::get_if<Acquired>(&outcome);
  if (key.state == State::absent) {
    require(acquired != nullptr && *acquired == Acquired{1, 1},
            "the first begin of a free key must be granted at fence 1");
    ++key.life;
    key.attempt = 0;
    key.meaning = Meaning::unsaid;
    key.trace = std::to_string(request.call);
    return acquire(key, request, 1);
  }
  const FingerprintMatch expected = match(key.meaning, request.meaning);
  const auto* mismatch = std::get_if<Mismatch>(&outcome);
  if (mismatch == nullptr) {
    require(expected == FingerprintMatch::same,
            "a request of another meaning must be told so, whatever the record's state");
  } else {
    require(mismatch->match == expected,
            "a request of the same meaning must not be called another");
    return;
  }
  if (acquired != nullptr) return granted(key, request, *acquired);
  if (const auto* uncertain = std::get_if<Uncertain>(&outcome)) {
    return told_uncertain(key, request, *uncertain);
  }
  if (const auto* in_progress = std::get_if<InProgress>(&outcome)) {
    require(key.call != request.call || key.state != State::running,
            "a call must not be told to wait for itself");
    require(key.state == State::running && !lease_has_run_out(key),
            "`in progress` is the answer while another's lease runs, and only then");
    require(in_progress->lease_remaining == key.lease_until - time_.store_now(),
            "`in progress` must say what is left of the lease");
    return;
  }
  told_finished(key, request, outcome, key.expires_at - time_.store_now());
}

void Oracle::granted(KeyHistory& key, const Request& request, const Acquired& acquired) {
  const bool own = key.ownership.owner == request.by.owner;
  if (own && key.state == State::running) {
    require(acquired == Acquired{key.ownership.fence, key.attempt},
            "a repeated begin must be granted what the first one was");
    key.lease_until = time_.store_now() + request.lease;
    key.grants.back().lease_from = time_.now();
    return;
  }
  require(key.state != State::succeeded && key.state != State::failed_permanent,
          "a finished record must not be started again within its retention");
  require(key.state != State::uncertain,
          "an uncertain record must not be started again before it is settled");
  if (key.state == State::failed_retryable) {
    require(!own, "a late copy of an ended call must not start it again");
  } else {
    require(lease_has_run_out(key), "a running lease must not be taken over: two owners at a time");
    require(key.mode == RecordMode::take_over && !key.marked,
            "a record under hold, or with its effect marked, must not be taken over");
    coverage_.count(Reached::taken_over);
  }
  require(acquired.fence > key.ownership.fence, "the fence must rise with every new owner");
  require(acquired.attempt == key.attempt + 1, "the attempts must be counted");
  acquire(key, request, acquired.fence);
}

void Oracle::acquire(KeyHistory& key, const Request& request, std::uint64_t fence) {
  key.state = State::running;
  key.ownership = {request.by.owner, fence};
  key.call = request.call;
  ++key.attempt;
  key.mode = request.mode;
  key.marked = false;
  if (key.meaning == Meaning::unsaid) key.meaning = request.meaning;
  key.lease_until = time_.store_now() + request.lease;
  key.result.reset();
  key.reason.clear();
  key.grants.push_back({.call = request.call,
                        .life = key.life,
                        .fence = fence,
                        .epoch = key.epoch,
                        .mode = request.mode,
                        .lease_from = time_.now()});
}

void Oracle::told_uncertain(KeyHistory& key, const Request& request, const Uncertain& outcome) {
  require(outcome.fence == key.ownership.fence, "`uncertain` must say at which fence");
  if (key.state == State::uncertain) return;
  require(key.state == State::running && lease_has_run_out(key) &&
              key.ownership.owner != request.by.owner,
          "only another's lease that has run out may make a record uncertain");
  require(key.mode == RecordMode::hold || key.marked,
          "a record under take_over must be taken over, whatever the later caller's policy is");
  key.state = State::uncertain;
  coverage_.count(Reached::became_uncertain);
}

void Oracle::told_finished(const KeyHistory& key, const Request& request,
                           const BeginOutcome& outcome, milliseconds retention_allowed) const {
  if (const auto* completed = std::get_if<Completed>(&outcome)) {
    require(key.state == State::succeeded, "a replay needs a recorded success");
    require(completed->result == key.result, "a replay must be the recorded bytes");
    require(completed->fence == key.ownership.fence, "a replay must carry the record's fence");
    require(completed->fingerprint == part_of(key.meaning),
            "a replay must carry the record's fingerprint");
    require(completed->retention_remaining <= retention_allowed,
            "an answer must not claim more retention than is left");
    return;
  }
  const auto& failed = std::get<Failed>(outcome);
  const bool own_end =
      key.state == State::failed_retryable && key.ownership.owner == request.by.owner;
  require(key.state == State::failed_permanent || own_end,
          "`failed` needs a recorded permanent failure, or the token that failed");
  require(failed.failure.reason == key.reason && failed.failure.result == key.result,
          "a replayed failure must be the recorded one");
  require(failed.fence == key.ownership.fence, "a replayed failure must carry the record's fence");
  require(failed.retention_remaining <= retention_allowed,
          "an answer must not claim more retention than is left");
}

void Oracle::answered_from_cache(const Request& request, const BeginOutcome& outcome) {
  KeyHistory& key = keys_[request.key];
  end_life_if_expired(key);
  coverage_.count(Reached::answered_from_cache);
  const auto* mismatch = std::get_if<Mismatch>(&outcome);
  if (plan_.clock == ClockManner::steady) {
    require(is_finished(key), "a cache must not answer for a record that is not finished");
    const FingerprintMatch expected = match(key.meaning, request.meaning);
    require((mismatch != nullptr ? mismatch->match : FingerprintMatch::same) == expected,
            "a cache must compare fingerprints like the store");
    if (mismatch != nullptr) return;
    return told_finished(key, request, outcome, key.expires_at - time_.store_now());
  }
  // The cache counts by its process' steady clock, so its entries may outlive a record that a clock's jump has ended.
  const bool was_recorded =
      std::any_of(key.finished.begin(), key.finished.end(), [&](const Finished& past) {
        const FingerprintMatch expected = match(past.meaning, request.meaning);
        if (mismatch != nullptr) return mismatch->match == expected;
        if (expected != FingerprintMatch::same) return false;
        if (const auto* completed = std::get_if<Completed>(&outcome)) {
          return past.state == State::succeeded && past.result == completed->result &&
                 past.fence == completed->fence;
        }
        const auto* failed = std::get_if<Failed>(&outcome);
        return failed != nullptr && past.state == State::failed_permanent &&
               past.result == failed->failure.result && past.reason == failed->failure.reason &&
               past.fence == failed->fence;
      });
  require(was_recorded, "a cache must answer with what was recorded");
}

void Oracle::written(KeyHistory& key, const Request& request, WriteOutcome outcome) {
  const bool current = is_current(key, request);
  if (outcome == WriteOutcome::lost) {
    const bool due = request.step == StoreStep::doubt
                         ? key.state == State::running || key.state == State::uncertain
                         : key.state == State::running;
    require(!current || !due, "the owner's write must be stored");
    if (request.step == StoreStep::doubt) call(request.call).write_lost = true;
    coverage_.count(Reached::late_write_refused);
    return;
  }
  require(current, "a write of one that is not the owner must change nothing");
  switch (request.step) {
    case StoreStep::doubt:
      require(key.state == State::running || key.state == State::uncertain,
              "doubt must not change a finished record");
      key.state = State::uncertain;
      call(request.call).doubt_stored = true;
      return;
    case StoreStep::mark_effect:
      require(key.state == State::running, "an effect can be marked while the lease is held only");
      key.marked = true;
      key.grants.back().marked = true;
      coverage_.count(Reached::effect_marked);
      return;
    case StoreStep::renew:
      require(key.state == State::running, "nothing but a held lease can be renewed");
      key.lease_until = time_.store_now() + request.lease;
      coverage_.count(Reached::lease_renewed);
      return;
    default:  // release
      if (key.state == State::failed_retryable) return;
      require(key.state == State::running, "a release must not change a finished record");
      coverage_.count(Reached::released);
      return finish(key, State::failed_retryable, request);
  }
}

void Oracle::completed(KeyHistory& key, const Request& request, bool stored) {
  const bool current = is_current(key, request);
  const bool open = key.state == State::running || key.state == State::uncertain;
  CallHistory& by = call(request.call);
  if (!stored) {
    require(!current || !(open || key.state == State::succeeded),
            "the owner's completion must be stored, however late");
    by.write_lost = true;
    coverage_.count(Reached::late_write_refused);
    return;
  }
  require(current, "a late owner's completion must not be stored");
  by.completion_stored = true;
  if (open) return finish(key, State::succeeded, request);
  require(key.state == State::succeeded && key.result == request.bytes,
          "`stored` must mean that the record holds exactly these bytes");
}

void Oracle::failed(KeyHistory& key, const Request& request, bool stored) {
  const bool current = is_current(key, request);
  const bool open = key.state == State::running || key.state == State::uncertain;
  const State to = request.retryability == Retryability::permanent ? State::failed_permanent
                                                                   : State::failed_retryable;
  CallHistory& by = call(request.call);
  if (!stored) {
    require(!current || !(open || key.state == to), "the owner's failure must be stored");
    by.write_lost = true;
    coverage_.count(Reached::late_write_refused);
    return;
  }
  require(current, "a late owner's failure must not be stored");
  by.failure_stored = true;
  if (open) return finish(key, to, request);
  require(key.state == to, "a failure must not change a finished record");
}

void Oracle::resolved(KeyHistory& key, const Request& request, bool stored) {
  const Record& seen = *request.seen;
  const bool open =
      key.state == State::uncertain || (key.state == State::running && lease_has_run_out(key));
  const bool repeated = is_finished(key) && key.ownership.owner == request.by.owner &&
                        key.ownership.fence == seen.ownership.fence + 1;
  const bool same_turn = key.life == request.seen_life && key.ownership == seen.ownership;
  if (stored && !repeated) {
    require(open, "a resolution must settle nothing that is finished or whose lease is running");
    require(same_turn,
            "a resolution must settle no other life and no other turn than the one that was seen");
    require(has_not_moved_since(key, seen),
            "a resolution must not settle a record that has moved since it was seen");
  }
  const bool due = open && same_turn && has_not_moved_since(key, seen);
  require(stored == (repeated || due),
          "a resolution of what is open and has not moved must be stored");
  if (!stored) coverage_.count(Reached::late_resolution_refused);
  if (!stored || repeated) return;
  State to = State::failed_retryable;
  if (request.verdict == Resolution::Verdict::succeeded) to = State::succeeded;
  if (request.verdict == Resolution::Verdict::failed) to = State::failed_permanent;
  key.ownership = {request.by.owner, seen.ownership.fence + 1};
  key.call = request.call;
  if (seen.state == RecordState::processing) coverage_.count(Reached::silent_record_resolved);
  finish(key, to, request);
  coverage_.count(Reached::resolved);
}

/// Within one turn: another turn has another owner and fence.
bool Oracle::has_not_moved_since(const KeyHistory& key, const Record& seen) {
  if (key.marked != seen.effect_marked) return false;
  if (seen.state == RecordState::uncertain) return key.state == State::uncertain;
  return key.state == State::running && seen.lease_until == key.lease_until;
}

void Oracle::finish(KeyHistory& key, State state, const Request& request) {
  key.state = state;
  key.result = request.bytes;
  key.reason = state == State::succeeded ? std::string() : request.reason;
  key.expires_at = time_.store_now() + request.retention;
  ++key.epoch;
  key.finished.push_back(
      {state, key.meaning, key.result, key.reason, key.ownership.fence, request.call});
}

void Oracle::compare(KeyHistory& key, const std::optional<Record>& actual) {
  if (key.state == State::absent) {
    require(!actual, "a record past its retention must not be found");
    return;
  }
  if (!is_finished(key)) require(actual.has_value(), "an unfinished record must not vanish");
  require(actual.has_value(), "a finished record must answer until its retention ends");
  require(actual->ownership.fence >= key.ownership.fence,
          "the fence must not fall within a record's life");
  require(actual->ownership == key.ownership, "owner and fence must be those of the last grant");
  require(actual->attempt == key.attempt, "the attempts must be counted");
  require(actual->fingerprint == part_of(key.meaning), "a record must keep its fingerprint");
  require(actual->trace == key.trace, "a record must keep its first caller's trace");
  if (is_finished(key)) return compare_finished(key, *actual);
  const bool running = key.state == State::running;
  require(actual->state == (running ? RecordState::processing : RecordState::uncertain),
          "an unfinished record must be in the state that its history says");
  require(actual->mode == key.mode, "a record must keep the mode of the one that began");
  require(actual->effect_marked == key.marked, "a record must know whether its effect is marked");
  if (running) require(actual->lease_until == key.lease_until, "a lease must end when it was said");
  require(!actual->expires_at, "an unfinished record must not expire");
}

void Oracle::compare_finished(const KeyHistory& key, const Record& actual) const {
  if (key.state == State::succeeded) {
    require(actual.state == RecordState::success && actual.result == key.result,
            "a stored result must not change");
  } else {
    const bool permanent = key.state == State::failed_permanent;
    const Failure expected{permanent ? Retryability::permanent : Retryability::retryable,
                           key.reason, key.result};
    require(actual.state == RecordState::failed && actual.failure == expected,
            "a stored failure must not change");
  }
  require(actual.expires_at == key.expires_at, "a retention must end when it was said");
}

bool Oracle::is_current(const KeyHistory& key, const Request& request) const {
  return key.state != State::absent && key.ownership == request.by;
}

bool Oracle::is_finished(const KeyHistory& key) const {
  return key.state == State::succeeded || key.state == State::failed_retryable ||
         key.state == State::failed_permanent;
}

bool Oracle::lease_has_run_out(const KeyHistory& key) const {
  return key.lease_until <= time_.store_now();
}

bool Oracle::needs_operator(std::size_t key) {
  KeyHistory& history = keys_[key];
  end_life_if_expired(history);
  if (history.state == State::uncertain) return true;
  return history.state == State::running && lease_has_run_out(history) &&
         (history.mode == RecordMode::hold || history.marked);
}

void Oracle::compare(const StoreStatistics& statistics) {
  StoreStatistics expected;
  for (KeyHistory& key : keys_) {
    end_life_if_expired(key);
    if (key.state == State::running) ++expected.processing;
    if (key.state == State::uncertain) ++expected.uncertain;
    if (key.state == State::succeeded) ++expected.success;
    if (key.state == State::failed_retryable || key.state == State::failed_permanent) {
      ++expected.failed;
    }
  }
  require(statistics.processing == expected.processing &&
              statistics.uncertain == expected.uncertain &&
              statistics.success == expected.success && statistics.failed == expected.failed,
          "the statistics must count the records that there are");
}

}  // namespace idempotency::simulation
