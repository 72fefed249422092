#include <algorithm>

#include "idempotency/protocol.hpp"
#include "oracle.hpp"

namespace idempotency::simulation {

Oracle::CallHistory& Oracle::call(std::uint32_t number) {
  if (calls_.size() <= number) calls_.resize(number + 1);
  return calls_[number];
}

void Oracle::handler_started(std::uint32_t number, std::size_t key_number, std::uint64_t fence,
                             milliseconds lease) {
  KeyHistory& key = keys_[key_number];
  end_life_if_expired(key);
  CallHistory& by = call(number);
  require(!by.started, "one call must start its handler once");
  by.started = true;
  const auto granted = std::find_if(
      key.grants.rbegin(), key.grants.rend(),
      [&](const Grant& grant) { return grant.call == number && grant.fence == fence; });
  require(granted != key.grants.rend(), "a handler must not start without a grant");
  require(!granted->started, "one grant must start one handler");
  granted->started = true;
  coverage_.count(Reached::handler_started);
  check_lease_of_start(key, *granted, lease);
  const Grant* mine = &*granted;
  for (const Grant& other : key.grants) {
    if (&other == mine || !other.started || other.epoch != mine->epoch) continue;
    const Grant& earlier = std::min(&other, mine) == mine ? *mine : other;
    require(earlier.mode == RecordMode::take_over && !earlier.marked,
            "under hold, a handler must not start again before the outcome of the last start is "
            "known or settled");
  }
}

void Oracle::check_lease_of_start(const KeyHistory& key, const Grant& grant,
                                  milliseconds lease) const {
  const milliseconds margin = Protocol::margin(lease);
  require(time_.now() <= grant.lease_from + lease - margin,
          "a handler must not start with less than the margin of its lease left");
  if (time_.last_forward_jump() >= grant.lease_from) return;  // the store's lease is shorter now
  require(
      key.state == State::running && key.call == grant.call && key.ownership.fence == grant.fence,
      "a handler must not start when the record is no longer its own");
  const milliseconds tolerance =
      plan_.clock == ClockManner::drifting ? lease / 64 + milliseconds{1} : milliseconds{0};
  require(key.lease_until - time_.store_now() >= margin - tolerance,
          "a handler must not start with less than the margin of its lease left at the store");
}

void Oracle::handler_started_unprotected(std::uint32_t number) {
  CallHistory& by = call(number);
  require(plan_.unprotected_allowed, "only a policy that allows it may run without a record");
  require(!by.started && !by.unprotected, "one call must start its handler once");
  by.unprotected = true;
}

void Oracle::effect(std::uint32_t number, std::size_t key_number, Effect kind) {
  KeyHistory& key = keys_[key_number];
  end_life_if_expired(key);
  if (call(number).unprotected) return;
  const auto grant = std::find_if(key.grants.begin(), key.grants.end(), [&](const Grant& each) {
    return each.call == number && each.started;
  });
  require(grant != key.grants.end(), "an effect needs a handler that was started");
  key.effects.push_back({grant->life, number});
  if (plan_.clock != ClockManner::steady || kind == Effect::unmarked) return;
  require(key.state == State::running && key.call == number && key.ownership.fence == grant->fence,
          "the point of no return must not be passed without owning the record");
  require(!lease_has_run_out(key),
          "the point of no return must not be passed after the lease's end");
  require(key.mode == RecordMode::hold || key.marked,
          "the record must be held before the point of no return is passed");
  if (!plan_.careful) return;
  const auto same_life =
      std::count_if(key.effects.begin(), key.effects.end(),
                    [&](const EffectSeen& each) { return each.life == grant->life; });
  require(same_life == 1, "careful handlers must have one effect in a record's life");
}

std::optional<std::uint32_t> Oracle::effect_by(std::size_t key, std::uint64_t life) const {
  for (const EffectSeen& each : keys_[key].effects) {
    if (each.life == life) return each.call;
  }
  return std::nullopt;
}

void Oracle::ended(const CallEnding& ending) {
  const KeyHistory& key = keys_[ending.key];
  const CallHistory& by = call(ending.call);
  const auto was_recorded = [&](State state, const std::optional<std::string>& result,
                                const std::string& reason) {
    return std::any_of(key.finished.begin(), key.finished.end(), [&](const Finished& past) {
      const bool comparable = past.meaning == Meaning::unsaid || ending.meaning == Meaning::unsaid;
      const bool other =
          !comparable && (past.meaning == Meaning::second) != (ending.meaning == Meaning::second);
      return past.state == state && !other && past.result == result && past.reason == reason;
    });
  };
  coverage_.count(ending.status);
  switch (ending.status) {
    case RunStatus::executed:
      require(by.started && by.completion_stored &&
                  was_recorded(State::succeeded, ending.own_result, {}),
              "`executed` must mean that the record held this call's own bytes");
      return;
    case RunStatus::executed_failed:
      require(by.started && by.failure_stored, "`executed_failed` must mean a recorded failure");
      return;
    case RunStatus::executed_unrecorded:
      require(by.started, "`executed_unrecorded` must mean that the handler ran");
      return;
    case RunStatus::executed_unprotected:
      require(by.unprotected, "`executed_unprotected` must mean a run without a record");
      return;
    case RunStatus::replayed:
      require(ending.recorded.has_value() && was_recorded(State::succeeded, ending.recorded, {}),
              "`replayed` must hand out bytes that were recorded for this meaning");
      return;
    case RunStatus::replayed_without_result:
      require(was_recorded(State::succeeded, std::nullopt, {}),
              "`replayed_without_result` must mean a success that was recorded without it");
      return;
    case RunStatus::failed:
      require(was_recorded(State::failed_permanent, ending.recorded, ending.failure),
              "`failed` must hand out a failure that was recorded for this meaning");
      return;
    case RunStatus::superseded:
      require(by.started && by.write_lost, "`superseded` must mean a write that was refused");
      require(!ending.recorded || was_recorded(State::succeeded, ending.recorded, {}),
              "`superseded` must hand out bytes that were recorded for this meaning");
      return;
    case RunStatus::uncertain:
      require(!by.started || by.doubt_stored, "a doubt that is reported must be recorded");
      return;
    case RunStatus::executed_pending_commit:
    case RunStatus::undecidable:
    case RunStatus::not_issued:
      throw Violation("a call without a transaction or a fallback must not end like this");
    case RunStatus::in_progress:
    case RunStatus::mismatch:
      require(!by.started, "a call that ran must not be told to come again");
      return;
  }
}

}  // namespace idempotency::simulation
