#include "core/call.hpp"

#include <cxxabi.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "core/steady_time.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail {

namespace {

using std::chrono::milliseconds;
using Do = ProtocolAction::Kind;
using Seen = ProtocolEvent::Kind;

constexpr std::size_t max_trace_bytes = 255;
constexpr milliseconds step_lease{1'000};
constexpr milliseconds step_retention{std::chrono::hours{24 * 365}};

ProtocolSettings settings_of(const GuardOptions& options, const Policy& policy,
                             const OwnerToken& owner, BeginRepetition repeat_begin) noexcept {
  std::uint64_t seed = 0;
  for (std::size_t at = 0; at < 8; ++at)
    seed = (seed << 8U) | owner.bytes()[at];
  return {.lease = policy.lease,
          .wait = policy.wait,
          .on_store_failure = policy.on_store_failure,
          .write_budget = options.write_budget,
          .begin_attempts = options.begin_attempts,
          .repeat_begin = repeat_begin,
          .jitter_seed = seed};
}

std::string_view to_string(Disposition disposition) noexcept {
  switch (disposition) {
    case Disposition::success:
      return "success";
    case Disposition::retryable:
      return "retryable";
    case Disposition::permanent:
      return "permanent";
    case Disposition::uncertain:
      return "uncertain";
  }
  return "uncertain";
}

Policy without_waiting(Policy policy) noexcept {
  policy.wait = milliseconds{0};
  return policy;
}

/// In a later life the key may belong to a request of another meaning, whose result is not this one's.
bool holds_answer_for(const BeginRequest& request, const Record& record) noexcept {
  if (record.state != RecordState::success) return false;
  return !record.fingerprint || !request.fingerprint ||
         request.fingerprint->match(*record.fingerprint) == FingerprintMatch::same;
}

/// Events after which nothing is timed any more: a replay does without another look at the clock.
bool ends_at_once(const ProtocolEvent& event) noexcept {
  if (event.kind == Seen::mismatched || event.kind == Seen::write_stored) return true;
  return event.kind == Seen::begin_answered &&
         (event.answer == Answer::completed || event.answer == Answer::failed);
}

/// Whether an earlier try of `begin` was sent and not answered.
bool may_have_begun(const std::exception_ptr& earlier) noexcept {
  if (!earlier) return false;
  try {
    std::rethrow_exception(earlier);
  } catch (const Error& error) {
    return error.effect_possible();
  } catch (...) {
    return false;
  }
}

/// The last try had no effect; one before it may have made the record.
Error after_lost_reply(const Error& last) {
  return Error(
      Errc::store_reply_lost,
      std::string("a try of this call was sent and not answered, and then: ") + last.what(),
      last.detail());
}

[[noreturn]] void throw_lease_lost() {
  throw Error(Errc::lease_lost,
              "the lease was lost before the point of no return or the step; let this exception "
              "pass, another "
              "call may own the operation");
}

}  // namespace

Policy policy_of(const GuardOptions& options, const Operation& operation) {
  Policy policy = options.policies.find(operation.key.type());
  if (operation.policy != PolicyOverride{}) {
    policy = operation.policy.over(policy);
    validate(policy);
  }
  // Whoever invents a key must not have it accepted because nobody can be asked about it.
  if (operation.admission == Admission::issued) policy.on_store_failure = OnStoreFailure::refuse;
  return policy;
}

BeginRequest request_of(Operation&& operation, const Policy& policy) {
  if (operation.trace.size() > max_trace_bytes) operation.trace.resize(max_trace_bytes);
  return {.key = std::move(operation.key),
          .owner = OwnerToken::generate(),
          .fingerprint = operation.fingerprint,
          .mode = policy.on_expired_lease,
          .lease = policy.lease,
          .trace = std::move(operation.trace),
          .admission = operation.admission};
}

void throw_unknown_scheme(const Mismatch& mismatch) {
  throw Error(Errc::unknown_fingerprint_scheme,
              "the record's fingerprint was made under another scheme; supply the earlier "
              "fingerprint with or_earlier() until the old records are gone",
              "stored scheme " + std::to_string(mismatch.stored_scheme));
}

Judgement judge_exception(const Policy& policy, bool effect_begun) noexcept {
  Judgement judged{effect_begun ? Disposition::uncertain : Disposition::retryable, {}};
  bool says_itself = true;
  try {
    throw;
  } catch (const PermanentFailure& failure) {
    judged = {Disposition::permanent, failure.what()};
  } catch (const RetryableFailure& failure) {
    judged = {Disposition::retryable, failure.what()};
  } catch (const OutcomeUnknown& failure) {
    judged = {Disposition::uncertain, failure.what()};
  } catch (const std::exception& exception) {
    says_itself = false;
    judged.reason = exception.what();
  } catch (...) {
    says_itself = false;
  }
  if (!says_itself && policy.classify != nullptr) {
    try {
      if (const auto decided = policy.classify(std::current_exception())) {
        judged.disposition = *decided == Disposition::success ? Disposition::uncertain : *decided;
      }
    } catch (...) {  // a classifier that throws has not decided
      return judged;
    }
  }
  return judged;
}

Call::Call(Engine::Parts& parts, Operation operation, HandlerPort& handler)
    : parts_(parts),
      handler_(handler),
      policy_(policy_of(parts.options, operation)),
      repeat_begin_(operation.repeat_begin),
      request_(request_of(std::move(operation), policy_)),
      started_(now()),
      begin_sent_(started_),
      protocol_(settings_of(parts.options, policy_, request_.owner, repeat_begin_), started_) {}

// With an answer there is nothing to wait for, so the call does not join those that wait for the same key.
Call::Call(Engine::Parts& parts, const Policy& policy, BeginRequest request, Begun begun,
           SteadyTime lease_end, BeginRepetition repeat_begin, HandlerPort& handler)
    : parts_(parts),
      handler_(handler),
      policy_(policy),
      repeat_begin_(repeat_begin),
      request_(std::move(request)),
      begun_(std::move(begun)),
      started_(now()),
      begin_sent_(begun_->outcome ? lease_end - policy.lease : started_),
      protocol_(settings_of(parts.options, begun_->outcome ? without_waiting(policy_) : policy_,
                            request_.owner, repeat_begin_),
                started_) {}

RunOutcome Call::run() { return finish(drive(protocol_.start(begin_sent_))); }

ProtocolAction Call::drive(ProtocolAction action) {
  while (action.kind != Do::finish) {
    const ProtocolEvent event = perform(action);
    const SteadyTime after_it = ends_at_once(event) ? started_ : now();  // never before `perform`
    action = protocol_.next(event, after_it);
  }
  return action;
}

ProtocolEvent Call::perform(const ProtocolAction& action) {
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
      static_cast<void>(parts_.store.release(request_.key, {request_.owner, acquired_.fence},
                                             policy_.failure_retention));
      return {.kind = Seen::write_stored};
    case Do::find:
      return find();
    case Do::refuse:
      std::rethrow_exception(store_error_);
    case Do::too_slow:
      throw Error(Errc::lease_too_short,
                  "the store's answers took longer than the lease allows, so the handler was not "
                  "started; use a longer lease or a nearer store, then repeat the call");
    case Do::finish:
      break;
  }
  return {};
}

ProtocolEvent Call::join() {
  ticket_.emplace(parts_.room, request_.key, request_.fingerprint);
  const bool leads = parts_.room.enter(*ticket_) == WaitingRoom::Place::leads;
  return {.kind = leads ? Seen::leads : Seen::follows};
}

ProtocolEvent Call::await_leader(SteadyTime deadline) {
  const auto place = [&] {
    const TimedWait waited(parts_.options.observer, request_.key);
    const CancellationShield::Gap gap(shield_);
    return parts_.room.await(*ticket_, deadline);
  }();
  switch (place) {
    case WaitingRoom::Place::delivered: {
      const Delivery& delivery = *ticket_->delivery();
      outcome_.recorded = delivery.result;
      outcome_.report.failure = delivery.failure;
      outcome_.report.fence = delivery.fence;
      return {.kind = Seen::delivered, .status = delivery.status};
    }
    case WaitingRoom::Place::leads:
    case WaitingRoom::Place::promoted:
      return {.kind = Seen::promoted};
    case WaitingRoom::Place::follows:
    case WaitingRoom::Place::outside:
      break;
  }
  const SteadyTime lease_end = parts_.room.lease_end(*ticket_);
  const milliseconds remaining =
      lease_end == SteadyTime{} ? policy_.lease : left_until(lease_end, now());
  return {.kind = Seen::begin_answered, .answer = Answer::in_progress, .remaining = remaining};
}

ProtocolEvent Call::begun_before(Begun begun) {
  if (begun.outcome) return answered(*std::move(begun.outcome));
  errors_seen_ = 1;  // told when it happened
  store_error_ = std::make_exception_ptr(*begun.error);
  if (begun.error->effect_possible()) request_.stage = WorkStage::under_way;
  return {.kind = Seen::begin_failed, .error = begun.error->code()};
}

ProtocolEvent Call::begin() {
  if (std::optional<Begun> begun = std::exchange(begun_, std::nullopt);
      begun && (begun->outcome || begun->error)) {
    return begun_before(*std::move(begun));
  }
  try {
    BeginOutcome outcome = parts_.store.begin(request_);
    if (store_error_) store_error_ = nullptr;
    return answered(std::move(outcome));
  } catch (const Error& error) {
    report_error(StoreCall::begin, error);
    store_error_ = !error.effect_possible() && may_have_begun(store_error_)
                       ? std::make_exception_ptr(after_lost_reply(error))
                       : std::current_exception();
    if (error.effect_possible()) request_.stage = WorkStage::under_way;
    return {.kind = Seen::begin_failed, .error = error.code()};
  }
}

ProtocolEvent Call::answered(BeginOutcome outcome) {
  if (auto* completed = std::get_if<Completed>(&outcome)) {
    outcome_.report.fence = completed->fence;
    const bool kept = completed->result.has_value();
    outcome_.recorded = std::move(completed->result);
    return {.kind = Seen::begin_answered,
            .answer = Answer::completed,
            .status = kept ? RunStatus::replayed : RunStatus::replayed_without_result};
  }
  if (const auto* acquired = std::get_if<Acquired>(&outcome)) {
    acquired_ = *acquired;
    outcome_.report.fence = acquired->fence;
    return {.kind = Seen::begin_answered, .answer = Answer::acquired};
  }
  if (const auto* in_progress = std::get_if<InProgress>(&outcome)) {
    if (ticket_) parts_.room.note_lease(*ticket_, after(now(), in_progress->lease_remaining));
    return {.kind = Seen::begin_answered,
            .answer = Answer::in_progress,
            .remaining = in_progress->lease_remaining};
  }
  if (auto* failed = std::get_if<Failed>(&outcome)) {
    outcome_.report.fence = failed->fence;
    outcome_.report.failure = std::move(failed->failure.reason);
    outcome_.recorded = std::move(failed->failure.result);
    return {.kind = Seen::begin_answered, .answer = Answer::failed};
  }
  if (const auto* uncertain = std::get_if<Uncertain>(&outcome)) {
    outcome_.report.fence = uncertain->fence;
    return {.kind = Seen::begin_answered, .answer = Answer::uncertain};
  }
  if (std::holds_alternative<NotIssued>(outcome)) {
    return {.kind = Seen::begin_answered, .answer = Answer::lost};
  }
  const auto& mismatch = std::get<Mismatch>(outcome);
  if (mismatch.match == FingerprintMatch::not_comparable) throw_unknown_scheme(mismatch);
  return {.kind = Seen::mismatched};
}

ProtocolEvent Call::wait_until(SteadyTime at) {
  if (held_) {  // the handler has ended: what it did is written first
    std::this_thread::sleep_until(at);
  } else {  // for another process, which cannot wake this one, or for a store that failed
    const TimedWait waited(store_error_ ? nullptr : parts_.options.observer, request_.key);
    const CancellationShield::Gap gap(shield_);
    std::this_thread::sleep_until(at);
  }
  return {.kind = Seen::timer};
}

ProtocolEvent Call::run_handler(SteadyTime lease_end) {
  const Ownership ownership{request_.owner, acquired_.fence};
  held_.emplace(parts_.leases, request_.key, ownership, policy_.lease, lease_end,
                after(lease_end - policy_.lease, policy_.max_total_hold));
  try {
    held_->arm();
    // Begun before its turn, so as one that may be taken over: until here nothing of it had been started.
    if (request_.mode != policy_.on_expired_lease) mark_effect();
  } catch (const std::exception&) {  // no thread is to be had, or no answer: nothing has run yet
    held_->disarm();
    static_cast<void>(parts_.store.release(request_.key, ownership, policy_.failure_retention));
    throw;
  }
  if (ticket_) parts_.room.note_lease(*ticket_, lease_end);
  HandlerReport report = invoke();
  prepare_write(report.disposition, std::move(report.result), {});
  return {.kind = Seen::handler_ended, .disposition = report.disposition};
}

HandlerReport Call::invoke() {
  Execution execution(request_.key, acquired_.fence, acquired_.attempt, *this);
  const bool cannot_tell =
      !handler_.takes_execution() && policy_.on_expired_lease == RecordMode::hold;
  try {
    const CancellationShield::Gap gap(shield_);
    return handler_.invoke(execution);
  } catch (const abi::__forced_unwind&) {  // thread cancellation: nothing may catch it but to go on
    const bool begun = effect_begun_ || cannot_tell;
    settle_exception({begun ? Disposition::uncertain : Disposition::retryable,
                      "the thread of the handler was cancelled"});
    throw;
  } catch (...) {
    settle_exception(judge_exception(policy_, effect_begun_ || cannot_tell));
    throw;
  }
}

ProtocolEvent Call::run_unprotected() {
  acquired_ = {.fence = 0, .attempt = 0};
  outcome_.report.fence = 0;
  Execution execution(request_.key, 0, 0, *this);
  const CancellationShield::Gap gap(shield_);
  const HandlerReport report = handler_.invoke(execution);
  return {.kind = Seen::handler_ended, .disposition = report.disposition};
}

void Call::settle_exception(Judgement judged) noexcept {
  if (parts_.options.observer != nullptr) {
    parts_.options.observer->on_handler_threw(request_.key, to_string(judged.disposition));
  }
  try {
    prepare_write(judged.disposition, std::nullopt, std::move(judged.reason));
    const ProtocolAction action = drive(
        protocol_.next({.kind = Seen::handler_ended, .disposition = judged.disposition}, now()));
    if (action.write_pending) leave_to_background();
    held_.reset();
    if (judged.disposition == Disposition::permanent &&
        action.status == RunStatus::executed_failed) {
      outcome_.report.failure = std::get<FailureWrite>(end_write_).failure.reason;
      deliver(RunStatus::failed);
    } else if (action.status == RunStatus::uncertain) {
      deliver(RunStatus::uncertain);
    }
  } catch (const std::exception&) {
    held_.reset();  // the handler's own exception is the one that counts; the lease ends by itself
  }
}

void Call::prepare_write(Disposition disposition, std::optional<std::string> result,
                         std::string reason) {
  if (result && result->size() > policy_.max_result_bytes) result.reset();
  if (reason.size() > Failure::max_reason_bytes) reason.resize(Failure::max_reason_bytes);
  switch (disposition) {
    case Disposition::success:
      end_write_ = Completion{std::move(result), policy_.success_retention};
      return;
    case Disposition::retryable:
    case Disposition::permanent:
      end_write_ =
          FailureWrite{Failure{disposition == Disposition::permanent ? Retryability::permanent
                                                                     : Retryability::retryable,
                               std::move(reason), std::move(result)},
                       policy_.failure_retention};
      return;
    case Disposition::uncertain:
      end_write_ = DoubtWrite{};
      return;
  }
}

ProtocolEvent Call::write() {
  const Ownership by{request_.owner, acquired_.fence};
  held_->disarm();  // nothing is renewed after completion
  try {
    const WriteOutcome outcome = send(parts_.store, request_.key, by, end_write_);
    return {.kind = outcome == WriteOutcome::stored ? Seen::write_stored : Seen::write_lost};
  } catch (const Error& error) {
    report_error(call_of(end_write_), error);
    auto* completion = std::get_if<Completion>(&end_write_);
    if (error.code() == Errc::too_large && completion != nullptr && completion->result) {
      completion->result.reset();  // the store keeps less than the policy allows
      return write();
    }
    held_->arm();
    return {.kind = Seen::write_failed, .error = error.code()};
  }
}

ProtocolEvent Call::find() {
  try {
    std::optional<Record> record = parts_.store.find(request_.key);
    if (record && holds_answer_for(request_, *record)) {
      outcome_.recorded = std::move(record->result);
      outcome_.report.fence = record->ownership.fence;
      return {.kind = Seen::found_finished};
    }
  } catch (const Error& error) {
    report_error(StoreCall::find, error);
  }
  return {.kind = Seen::found_other};
}

RunOutcome Call::finish(const ProtocolAction& action) {
  if (action.write_pending) leave_to_background();
  const bool ran = held_.has_value() || action.status == RunStatus::executed_unprotected;
  held_.reset();
  outcome_.report.status = action.status;
  outcome_.report.retry_after = action.retry_after;
  outcome_.own_value = ran && action.status != RunStatus::superseded;
  if (ticket_) deliver(action.status);
  if (parts_.options.observer != nullptr) {
    parts_.options.observer->on_finished(request_.key, action.status, now() - started_);
  }
  return std::move(outcome_);
}

void Call::deliver(RunStatus status) {
  if (!ticket_) return;
  Delivery delivery{.status = status,
                    .result = outcome_.recorded,
                    .failure = outcome_.report.failure,
                    .fence = outcome_.report.fence};
  switch (status) {
    case RunStatus::executed:
      delivery.result = std::get<Completion>(end_write_).result;
      delivery.status = delivery.result ? RunStatus::replayed : RunStatus::replayed_without_result;
      break;
    case RunStatus::executed_failed: {
      const Failure& failure = std::get<FailureWrite>(end_write_).failure;
      if (failure.retryability == Retryability::retryable) return;  // the next one tries
      delivery.status = RunStatus::failed;
      delivery.result = failure.result;
      break;
    }
    case RunStatus::replayed:
    case RunStatus::replayed_without_result:
    case RunStatus::failed:
    case RunStatus::uncertain:
    case RunStatus::mismatch:
      break;
    default:
      return;  // no answer for the others: the ticket's end hands over to the next in line
  }
  const auto place = ticket_->place();
  if (place == WaitingRoom::Place::leads || place == WaitingRoom::Place::promoted) {
    parts_.room.deliver(*ticket_, std::move(delivery));
  }
}

void Call::leave_to_background() noexcept {
  try {
    parts_.behind.take({.key = request_.key,
                        .ownership = {request_.owner, acquired_.fence},
                        .write = end_write_,
                        .lease = policy_.lease,
                        .lease_ends_at = held_->ends_at(),
                        .hold_until = after(started_, policy_.max_total_hold)});
  } catch (
      const std::exception&) {  // no memory or thread: the lease ends and the record's mode decides
    held_->disarm();
  }
}

void Call::report_error(StoreCall call, const Error& error) noexcept {
  ++errors_seen_;
  if (parts_.options.observer != nullptr) {
    parts_.options.observer->on_store_error(request_.key, call, error, errors_seen_);
  }
}

std::stop_token Call::stop_token() { return held_ ? held_->stop_token() : std::stop_token{}; }

bool Call::is_usable() const noexcept { return !held_->lost() && now() < held_->ends_at(); }

void Call::point_of_no_return() {
  if (effect_begun_ || !held_) {
    effect_begun_ = true;
    return;
  }
  if (!is_usable()) throw_lease_lost();
  if (policy_.on_expired_lease == RecordMode::take_over) mark_effect();
  effect_begun_ = true;
}

void Call::mark_effect() {
  const SteadyTime give_up = after(now(), parts_.options.write_budget);
  const Ownership by{request_.owner, acquired_.fence};
  while (true) {
    try {
      if (parts_.store.mark_effect(request_.key, by) == WriteOutcome::lost) throw_lease_lost();
      break;
    } catch (const Error& error) {
      if (error.code() == Errc::lease_lost) throw;
      report_error(StoreCall::mark_effect, error);
      if (!error.safe_to_retry() || now() >= give_up) throw;
      std::this_thread::sleep_for(milliseconds{10});
    }
  }
  if (!is_usable()) throw_lease_lost();
}

namespace {

/// Another life of the record has other steps: a key that is used again runs them again.
Key step_key(const Key& key, std::string_view name, Timestamp life) {
  return Key(key.type(), "step:" + derived_key(key, name) + '@' +
                             std::to_string(life.time_since_epoch().count()));
}

}  // namespace

/// When this record's life began, by the store's clock: asked for once, when the first step is run.
Timestamp Call::life() {
  if (!life_) {
    const std::optional<Record> record = parts_.store.find(request_.key);
    if (!record || record->ownership != Ownership{request_.owner, acquired_.fence}) {
      throw_lease_lost();
    }
    life_ = record->created_at;
  }
  return *life_;
}

std::optional<std::string> Call::find_step(std::string_view name) {
  if (!held_) {  // no record, no steps; a wrong name is told all the same
    static_cast<void>(derived_key(request_.key, name));
    return std::nullopt;
  }
  const Key key = step_key(request_.key, name, life());
  const std::optional<Record> record = parts_.store.find(key);
  if (record && record->state == RecordState::success) return record->result;
  return std::nullopt;
}

std::optional<std::string> Call::record_step(std::string_view name, std::string result) {
  if (!held_) return std::nullopt;
  const BeginRequest request{.key = step_key(request_.key, name, life()),
                             .owner = OwnerToken::generate(),
                             .fingerprint = std::nullopt,
                             .mode = RecordMode::take_over,
                             .lease = step_lease,
                             .trace = request_.trace,
                             .stage = WorkStage::under_way};
  const Completion completion{std::move(result),
                              std::max(policy_.success_retention, step_retention)};
  const SteadyTime give_up = after(now(), parts_.options.write_budget);
  while (true) {
    try {
      const BeginOutcome outcome = parts_.store.begin(request);
      if (const auto* completed = std::get_if<Completed>(&outcome)) return completed->result;
      if (const auto* acquired = std::get_if<Acquired>(&outcome)) {
        static_cast<void>(
            parts_.store.complete(request.key, {request.owner, acquired->fence}, completion));
        return std::nullopt;
      }
      if (now() >= give_up) return std::nullopt;
    } catch (const Error& error) {  // the step is done: not recording it only costs a repetition
      report_error(StoreCall::complete, error);
      if (!error.safe_to_retry() || now() >= give_up) return std::nullopt;
    }
    std::this_thread::sleep_for(milliseconds{20});
  }
}

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
