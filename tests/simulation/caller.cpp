#include "caller.hpp"

#include <algorithm>
#include <utility>

#include "idempotency/detail/planted.hpp"

namespace idempotency::simulation {

using detail::WaitingRoom;
using Do = ProtocolAction::Kind;
using Seen = ProtocolEvent::Kind;

namespace {

ProtocolSettings settings_of(const CallPlan& plan, std::uint64_t seed) {
  return {.lease = plan.policy.lease,
          .wait = plan.policy.wait,
          .on_store_failure = plan.policy.on_store_failure,
          .write_budget = plan.write_budget,
          .begin_attempts = plan.begin_attempts,
          .jitter_seed = seed};
}

bool holds_answer_for(Meaning meaning, const Record& record) {
  const std::optional<Fingerprint>& asked = fingerprint_of(meaning);
  if (record.state != RecordState::success) return false;
  return !record.fingerprint || !asked ||
         asked->match(*record.fingerprint) == FingerprintMatch::same;
}

}  // namespace

Caller::Caller(World& world, Process& process, std::uint32_t number, const CallPlan& plan)
    : world_(world),
      process_(process),
      number_(number),
      plan_(plan),
      owner_(world.new_token()),
      started_(world.now()),
      deadline_(started_ + plan.policy.wait),
      protocol_(settings_of(plan, world.random().next()), started_) {}

void Caller::start() {
  world_.note([&] { return name() + " begins: " + describe(plan_); });
  drive(protocol_.start(world_.now()));
}

void Caller::vanish() noexcept {
  vanished_ = true;
  awaiting_ = false;
  if (lease_) lease_->disarm();
}

bool Caller::follows() const {
  return awaiting_ && ticket_->place() == WaitingRoom::Place::follows;
}

bool Caller::leads() const {
  if (!ticket_ || ended_) return false;
  const WaitingRoom::Place place = ticket_->place();
  return place == WaitingRoom::Place::leads || place == WaitingRoom::Place::promoted;
}

void Caller::drive(ProtocolAction action) {
  while (action.kind != Do::finish) {
    if (action.kind == Do::refuse || action.kind == Do::too_slow) return end_by_exception();
    const Step event = perform(action);
    if (!event || vanished_) return;
    action = protocol_.next(*event, world_.now());
    expect_no_wait_beyond_deadline(*event, action);
  }
  finish(action);
}

void Caller::report(const ProtocolEvent& event) {
  if (vanished_) return;
  const ProtocolAction action = protocol_.next(event, world_.now());
  expect_no_wait_beyond_deadline(event, action);
  drive(action);
}

void Caller::expect_no_wait_beyond_deadline(const ProtocolEvent& event,
                                            const ProtocolAction& action) const {
  if (action.kind == Do::await_leader) {
    require(action.at == deadline_, "a waiting caller must stop at its own deadline");
  }
  const bool in_progress =
      event.kind == Seen::begin_answered && event.answer == Answer::in_progress;
  if (!in_progress) return;
  require(action.kind == Do::finish || (action.at <= deadline_ && action.at > world_.now()),
          "a polling caller must stop at its own deadline");
  require(action.kind != Do::finish || action.retry_after > milliseconds{0},
          "a caller that is told to come again must be told when");
}

Caller::Step Caller::perform(const ProtocolAction& action) {
  switch (action.kind) {
    case Do::join:
      return join();
    case Do::await_leader:
      return await_leader(action.at);
    case Do::begin:
      return begin();
    case Do::wait_until:
      return wait_until(action.at);
    case Do::run_handler:
      return run_handler(action.at);
    case Do::run_unprotected:
      return run_unprotected();
    case Do::complete:
    case Do::fail:
    case Do::doubt:
      return write();
    case Do::release:
      return release();
    case Do::find:
      return find();
    case Do::finish:
    case Do::refuse:
    case Do::too_slow:
      break;
  }
  return std::nullopt;
}

Caller::Step Caller::join() {
  ticket_.emplace(process_.room(), world_.key(plan_.key), fingerprint_of(plan_.meaning));
  const bool leads = process_.room().enter(*ticket_) == WaitingRoom::Place::leads;
  world_.note([&] { return name() + (leads ? " leads" : " follows"); });
  return ProtocolEvent{.kind = leads ? Seen::leads : Seen::follows};
}

Caller::Step Caller::await_leader(SteadyTime deadline) {
  awaiting_ = true;
  process_.at(deadline, [this, wait = ++wait_] {
    if (awaiting_ && wait_ == wait) wake();
  });
  look_at_place();
  return std::nullopt;
}

void Caller::look_at_place() {
  if (!awaiting_ || waking_ || ticket_->place() == WaitingRoom::Place::follows) return;
  waking_ = true;
  const milliseconds pause = world_.random().between(milliseconds{0}, milliseconds{2});
  process_.at(world_.now() + pause, [this, wait = wait_] {
    if (awaiting_ && wait_ == wait) wake();
  });
}

void Caller::wake() {
  awaiting_ = false;
  waking_ = false;
  switch (ticket_->place()) {
    case WaitingRoom::Place::delivered: {
      const detail::Delivery& delivery = *ticket_->delivery();
      recorded_ = delivery.result;
      failure_ = delivery.failure;
      world_.coverage().count(Reached::waiter_delivered);
      world_.note(
          [&] { return name() + " is delivered " + std::string(to_string(delivery.status)); });
      return report({.kind = Seen::delivered, .status = delivery.status});
    }
    case WaitingRoom::Place::leads:
    case WaitingRoom::Place::promoted:
      world_.coverage().count(Reached::waiter_promoted);
      world_.note([&] { return name() + " leads now"; });
      return report({.kind = Seen::promoted});
    case WaitingRoom::Place::follows:
    case WaitingRoom::Place::outside:
      return leave_the_line();
  }
}

void Caller::leave_the_line() {
  process_.room().abandon(*ticket_);
  world_.coverage().count(Reached::waiter_gave_up);
  world_.note([&] { return name() + " has waited long enough"; });
  const SteadyTime lease_end = process_.room().lease_end(*ticket_);
  const milliseconds left = std::chrono::duration_cast<milliseconds>(lease_end - world_.now());
  report({.kind = Seen::begin_answered,
          .answer = Answer::in_progress,
          .remaining =
              lease_end == SteadyTime{} ? plan_.policy.lease : std::max(left, milliseconds{1})});
}

Caller::Step Caller::begin() {
  if (begins_++ > 0 && detail::planted(detail::PlantedBug::new_token_on_repeated_begin)) {
    owner_ = world_.new_token();
  }
  process_.send(request(StoreStep::begin), [this](const Reply& reply) {
    if (!vanished_) report(began(reply));
  });
  return std::nullopt;
}

ProtocolEvent Caller::began(const Reply& reply) {
  if (const Errc* error = reply.error()) return {.kind = Seen::begin_failed, .error = *error};
  return answered(std::get<BeginOutcome>(reply.content));
}

ProtocolEvent Caller::answered(const BeginOutcome& outcome) {
  if (const auto* completed = std::get_if<Completed>(&outcome)) {
    recorded_ = completed->result;
    return {.kind = Seen::begin_answered,
            .answer = Answer::completed,
            .status = recorded_ ? RunStatus::replayed : RunStatus::replayed_without_result};
  }
  if (const auto* acquired = std::get_if<Acquired>(&outcome)) {
    acquired_ = *acquired;
    return {.kind = Seen::begin_answered, .answer = Answer::acquired};
  }
  if (const auto* in_progress = std::get_if<InProgress>(&outcome)) {
    if (ticket_) {
      process_.room().note_lease(*ticket_, world_.now() + in_progress->lease_remaining);
    }
    return {.kind = Seen::begin_answered,
            .answer = Answer::in_progress,
            .remaining = in_progress->lease_remaining};
  }
  if (const auto* failed = std::get_if<Failed>(&outcome)) {
    failure_ = failed->failure.reason;
    recorded_ = failed->failure.result;
    return {.kind = Seen::begin_answered, .answer = Answer::failed};
  }
  if (std::holds_alternative<Uncertain>(outcome)) {
    return {.kind = Seen::begin_answered, .answer = Answer::uncertain};
  }
  if (std::get<Mismatch>(outcome).match == FingerprintMatch::not_comparable) {
    return {.kind = Seen::begin_failed, .error = Errc::unknown_fingerprint_scheme};
  }
  return {.kind = Seen::mismatched};
}

Caller::Step Caller::wait_until(SteadyTime at) {
  process_.at(at, [this] { report({.kind = Seen::timer}); });
  return std::nullopt;
}

Caller::Step Caller::run_handler(SteadyTime lease_end) {
  const Policy& policy = plan_.policy;
  world_.note(
      [&] { return name() + " starts its handler at fence " + std::to_string(acquired_.fence); });
  world_.oracle().handler_started(number_, plan_.key, acquired_.fence, policy.lease);
  lease_ =
      std::make_shared<SimulatedLease>(world_, process_,
                                       LeaseTerms{request(StoreStep::renew), lease_end,
                                                  lease_end - policy.lease + policy.max_total_hold},
                                       [this] { stop_handler(); });
  lease_->arm();
  if (ticket_) process_.room().note_lease(*ticket_, lease_end);
  protected_ = true;
  start_handler();
  return std::nullopt;
}

Caller::Step Caller::run_unprotected() {
  world_.note([&] { return name() + " starts its handler without a record"; });
  world_.oracle().handler_started_unprotected(number_);
  start_handler();
  return std::nullopt;
}

void Caller::start_handler() {
  handler_sleeps(plan_.handler.before, [this] { reach_no_return(); });
}

void Caller::handler_sleeps(milliseconds span, std::function<void()> then) {
  sleeping_ = true;
  process_.at(world_.now() + span, [this, expected = ++sleep_, next = std::move(then)] {
    if (sleep_ != expected) return;
    sleeping_ = false;
    next();
  });
}

void Caller::stop_handler() {
  if (vanished_ || !sleeping_ || !plan_.handler.obeys_stop) return;
  ++sleep_;
  sleeping_ = false;
  world_.note([&] { return name() + " stops its handler"; });
  handler_threw(effect_begun_ || cannot_tell() ? Disposition::uncertain : Disposition::retryable);
}

void Caller::reach_no_return() {
  const HandlerPlan& handler = plan_.handler;
  if (handler.fails_before_that) return end_handler();
  if (!handler.marks_no_return) {
    return handler_sleeps(handler.after, [this] { end_handler(); });
  }
  if (!protected_) return pass_no_return();
  if (!lease_is_usable()) return handler_threw(Disposition::retryable);
  if (plan_.policy.on_expired_lease == RecordMode::hold) return pass_no_return();
  mark_effect(world_.now() + plan_.write_budget);
}

void Caller::mark_effect(SteadyTime give_up) {
  process_.send(request(StoreStep::mark_effect), [this, give_up](const Reply& reply) {
    if (vanished_) return;
    if (const Errc* error = reply.error()) {
      if (!safe_to_retry(*error) || world_.now() >= give_up) {
        return handler_threw(Disposition::retryable);
      }
      return process_.at(world_.now() + milliseconds{10},
                         [this, give_up] { mark_effect(give_up); });
    }
    if (!reply.is_stored() || !lease_is_usable()) return handler_threw(Disposition::retryable);
    pass_no_return();
  });
}

void Caller::pass_no_return() {
  effect_begun_ = true;
  world_.note([&] { return name() + " passes its point of no return and has its effect"; });
  world_.oracle().effect(number_, plan_.key, Oracle::Effect::marked);
  handler_sleeps(plan_.handler.after, [this] { end_handler(); });
}

void Caller::end_handler() {
  const Ending ending = plan_.handler.ending;
  if (!plan_.handler.marks_no_return &&
      (ending == Ending::returns || ending == Ending::throws_outcome_unknown)) {
    world_.note([&] { return name() + " has its effect"; });
    world_.oracle().effect(number_, plan_.key, Oracle::Effect::unmarked);
  }
  switch (ending) {
    case Ending::returns:
      return handler_returned(Disposition::success);
    case Ending::returns_retryable:
      return handler_returned(Disposition::retryable);
    case Ending::returns_permanent:
      return handler_returned(Disposition::permanent);
    case Ending::throws_retryable:
      return handler_threw(Disposition::retryable);
    case Ending::throws_permanent:
      return handler_threw(Disposition::permanent);
    case Ending::throws_outcome_unknown:
      return handler_threw(Disposition::uncertain);
    case Ending::throws_something:
      return handler_threw(effect_begun_ || cannot_tell() ? Disposition::uncertain
                                                          : Disposition::retryable);
  }
}

bool Caller::cannot_tell() const noexcept {
  return !plan_.handler.takes_execution && plan_.policy.on_expired_lease == RecordMode::hold;
}

bool Caller::lease_is_usable() const noexcept {
  return !lease_->lost() && world_.now() < lease_->ends_at();
}

void Caller::handler_returned(Disposition disposition) {
  std::optional<std::string> result = "result of call " + std::to_string(number_);
  if (!plan_.keeps_result) result.reset();
  prepare_write(disposition, std::move(result), {});
  report({.kind = Seen::handler_ended, .disposition = disposition});
}

void Caller::handler_threw(Disposition disposition) {
  if (!protected_) return end_by_exception();
  threw_ = true;
  prepare_write(disposition, std::nullopt, "reason of call " + std::to_string(number_));
  report({.kind = Seen::handler_ended, .disposition = disposition});
}

void Caller::prepare_write(Disposition disposition, std::optional<std::string> result,
                           std::string reason) {
  const Policy& policy = plan_.policy;
  switch (disposition) {
    case Disposition::success:
      end_write_ = request(StoreStep::complete);
      end_write_.retention = policy.success_retention;
      break;
    case Disposition::retryable:
    case Disposition::permanent:
      end_write_ = request(StoreStep::fail);
      end_write_.retention = policy.failure_retention;
      end_write_.retryability =
          disposition == Disposition::permanent ? Retryability::permanent : Retryability::retryable;
      break;
    case Disposition::uncertain:
      end_write_ = request(StoreStep::doubt);
      return;
  }
  end_write_.bytes = std::move(result);
  end_write_.reason = std::move(reason);
}

Caller::Step Caller::write() {
  lease_->disarm();
  process_.send(end_write_, [this](const Reply& reply) {
    if (vanished_) return;
    if (const Errc* error = reply.error()) {
      lease_->arm();
      return report({.kind = Seen::write_failed, .error = *error});
    }
    report({.kind = reply.is_stored() ? Seen::write_stored : Seen::write_lost});
  });
  return std::nullopt;
}

Caller::Step Caller::release() {
  Request given_back = request(StoreStep::release);
  given_back.retention = plan_.policy.failure_retention;
  process_.send(given_back, [this](const Reply& /*reply*/) {
    if (!vanished_) report({.kind = Seen::write_stored});
  });
  return std::nullopt;
}

Caller::Step Caller::find() {
  process_.send(request(StoreStep::find), [this](const Reply& reply) {
    if (vanished_) return;
    const auto* record = std::get_if<std::optional<Record>>(&reply.content);
    const bool finished = record != nullptr && *record && holds_answer_for(plan_.meaning, **record);
    if (finished) recorded_ = (*record)->result;
    report({.kind = finished ? Seen::found_finished : Seen::found_other});
  });
  return std::nullopt;
}

void Caller::finish(const ProtocolAction& action) {
  world_.note([&] {
    return name() + (threw_ ? " ends by its handler's exception: " : " ends: ") +
           std::string(to_string(action.status));
  });
  if (action.write_pending) leave_to_background();
  if (lease_) lease_->disarm();
  world_.oracle().ended({.call = number_,
                         .key = plan_.key,
                         .meaning = plan_.meaning,
                         .status = action.status,
                         .own_result = end_write_.bytes,
                         .recorded = recorded_,
                         .failure = failure_});
  if (!threw_) {
    status_ = action.status;
    deliver(action.status);
  } else if (action.status == RunStatus::uncertain) {
    deliver(RunStatus::uncertain);
  } else if (action.status == RunStatus::executed_failed &&
             end_write_.retryability == Retryability::permanent) {
    failure_ = end_write_.reason;
    deliver(RunStatus::failed);
  }
  leave_the_room();
}

void Caller::end_by_exception() {
  world_.note([&] { return name() + " ends by an exception"; });
  ++world_.coverage().exceptions;
  leave_the_room();
}

void Caller::leave_the_room() {
  ended_ = true;
  world_.call_ended();
  if (!ticket_) return;
  ticket_.reset();
  process_.room_changed();
}

void Caller::deliver(RunStatus status) {
  if (!leads()) return;
  detail::Delivery delivery{.status = status, .result = recorded_, .failure = failure_};
  switch (status) {
    case RunStatus::executed:
      delivery.result = end_write_.bytes;
      delivery.status = delivery.result ? RunStatus::replayed : RunStatus::replayed_without_result;
      break;
    case RunStatus::executed_failed:
      if (end_write_.retryability == Retryability::retryable) return;
      delivery.status = RunStatus::failed;
      delivery.result = end_write_.bytes;
      break;
    case RunStatus::replayed:
    case RunStatus::replayed_without_result:
    case RunStatus::failed:
    case RunStatus::uncertain:
    case RunStatus::mismatch:
      break;
    default:
      return;  // no answer for the others
  }
  process_.room().deliver(*ticket_, std::move(delivery));
  process_.room_changed();
}

void Caller::leave_to_background() {
  std::make_shared<BackgroundWrite>(world_, process_, end_write_,
                                    LeaseTerms{request(StoreStep::renew), lease_->ends_at(),
                                               started_ + plan_.policy.max_total_hold})
      ->start();
}

Request Caller::request(StoreStep step) const {
  Request request;
  request.step = step;
  request.key = plan_.key;
  request.call = number_;
  request.by = {owner_, step == StoreStep::begin ? 0 : acquired_.fence};
  request.meaning = plan_.meaning;
  request.mode = plan_.policy.on_expired_lease;
  request.lease = plan_.policy.lease;
  return request;
}

}  // namespace idempotency::simulation
