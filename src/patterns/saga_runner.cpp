#include "idempotency/patterns/saga_runner.hpp"

#include <cxxabi.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "idempotency/patterns/retry.hpp"

namespace idempotency {
inline namespace v0 {

using std::chrono::milliseconds;

namespace detail {

namespace {

constexpr milliseconds day = std::chrono::hours{24};
constexpr milliseconds longest_span = std::chrono::hours{24 * 365 * 50};

[[noreturn]] void refuse(const char* sentence) { throw Error(Errc::invalid_argument, sentence); }

void check_times(const SagaOptions& options) {
  if (options.max_attempts < 1) refuse("SagaOptions: a step is tried at least once");
  if (options.first_pause < milliseconds{1} || options.longest_pause < options.first_pause ||
      options.longest_pause > longest_span) {
    refuse("SagaOptions: the first pause is at least 1 ms, and the longest is not shorter");
  }
  if (options.lease < milliseconds{1} || options.lease > day) {
    refuse("SagaOptions: the lease is from 1 ms to 1 day");
  }
  if (options.max_age < milliseconds{1} || options.max_age > longest_span) {
    refuse("SagaOptions: the longest age is from 1 ms to 50 years");
  }
}

/// The policy of steps with everything said that a saga depends on.
PolicyOverride checked(PolicyOverride policy, const SagaOptions& options) {
  if (!policy.success_retention) policy.success_retention = options.max_age + day;
  if (!policy.failure_retention) policy.failure_retention = options.max_age + day;
  const milliseconds least = options.max_age + options.lease;
  if (*policy.success_retention < least || *policy.failure_retention < least) {
    refuse(
        "SagaOptions: records of steps must be kept for longer than a saga may take: raise both "
        "retentions above max_age and a lease, or lower max_age");
  }
  if (policy.on_store_failure == OnStoreFailure::run_unprotected) {
    refuse("SagaOptions: a step that runs without a record cannot be told from one that did not");
  }
  policy.on_store_failure = OnStoreFailure::refuse;
  Policy whole = policy.over(Policy{});
  if (!policy.max_total_hold) whole.max_total_hold = std::max(whole.max_total_hold, whole.lease);
  validate(whole);
  return policy;
}

milliseconds pause_behind(std::uint32_t tries, const SagaOptions& options) {
  milliseconds pause = options.first_pause;
  for (std::uint32_t at = 1; at < tries && pause < options.longest_pause; ++at)
    pause = pause > options.longest_pause / 2 ? options.longest_pause : pause * 2;
  const milliseconds half = pause / 2;
  return pause - half + RetryClock::of_machine().any_up_to(half);
}

SagaRun unsettled(std::string note) {
  return {.what = {SagaOutcome::unsettled}, .note = std::move(note)};
}

}  // namespace

SagaRules::SagaRules(Saga saga, SagaOptions options)
    : saga_(std::move(saga)), options_(std::move(options)) {
  check_times(options_);
  options_.step_policy = checked(options_.step_policy, options_);
  retention_ =
      std::max(*options_.step_policy.success_retention, *options_.step_policy.failure_retention);
}

SagaStart SagaRules::start(std::string_view id, std::string_view input) const {
  return {.name = {saga_.name(), std::string(id)},
          .plan = saga_.plan(),
          .steps = static_cast<std::uint32_t>(saga_.steps().size()),
          .input = std::string(input)};
}

SagaClaim SagaRules::claim(std::optional<std::string> id) const {
  return {.definition = saga_.name(),
          .plan = saga_.plan(),
          .id = std::move(id),
          .worker = OwnerToken::generate(),
          .lease = options_.lease};
}

SagaReport SagaRules::report(SagaRow row, std::string_view input) const {
  if (row.input != input) return {SagaStatus::mismatch, {.name = std::move(row.name)}};
  if (row.plan != saga_.plan() && !is_ended(row.progress.state)) {
    throw Error(Errc::invalid_argument,
                "the saga was started under another list of steps: move it on with a worker that "
                "has that list",
                row.name.id);
  }
  return report(std::move(row));
}

SagaReport SagaRules::report(SagaRow row) {
  SagaStatus status = SagaStatus::waiting;
  if (row.progress.state == SagaState::finished) status = SagaStatus::finished;
  if (row.progress.state == SagaState::compensated) status = SagaStatus::compensated;
  if (is_parked(row.progress.state)) status = SagaStatus::parked;
  return {status, std::move(row)};
}

Operation SagaRules::operation(const SagaRow& row, std::uint32_t step, SagaPart part) const {
  return {.key = saga_key(row.name, saga_.steps()[step].name(), part),
          .fingerprint = Fingerprint::of_bytes(row.input),
          .trace = row.name.id,
          .policy = options_.step_policy};
}

Operation SagaRules::look(const SagaRow& row, std::uint32_t step) const {
  Operation operation = this->operation(row, step, SagaPart::action);
  operation.policy.on_expired_lease = RecordMode::take_over;
  return operation;
}

SagaChange SagaRules::change(const SagaRow& row, const SagaRun& run) const {
  const SagaProgress to = saga_transition(
      row.progress, run.what, {.steps = row.steps, .max_attempts = options_.max_attempts});
  SagaChange change{.to = to, .note = run.note};
  if (run.what.outcome == SagaOutcome::done && row.progress.state == SagaState::compensating) {
    change.note = row.note;  // why it is being undone
  }
  if (is_parked(to.state)) {
    if (options_.alert) change.due_in = options_.lease;
  } else if (to.state == row.progress.state && to.step == row.progress.step) {
    const milliseconds asked = std::min(run.ask_again_in, options_.longest_pause);
    change.due_in = std::max(asked, pause_behind(to.attempts, options_));
  } else if (!is_ended(to.state)) {
    change.due_in = options_.lease;
  }
  return change;
}

std::string SagaRules::why_not(const SagaRow& row) const {
  // What is undone looks at the action's record first, and is not undone without it.
  const bool forward = row.progress.state == SagaState::running;
  if (forward && row.read_at - row.created_at > options_.max_age) {
    return "the saga is older than the records of its steps are kept for";
  }
  if (row.claims > options_.max_attempts) return "its workers keep dying over it";
  if (row.progress.step >= saga_.steps().size()) return "its row names a step that there is not";
  return {};
}

bool SagaRules::stands_where(const SagaRow& then, const SagaRow& now) noexcept {
  // The fence rises with every write; a lower one is another saga's, made under the same id.
  return now.claim.fence >= then.claim.fence && now.progress.state == then.progress.state &&
         now.progress.step == then.progress.step;
}

void SagaRules::seal(const Execution& execution, std::uint32_t known_runs) {
  if (known_runs == SagaProgress::record_must_tell) {
    throw RetryableFailure("the action's record has gone, or the action was skipped");
  }
  if (known_runs == SagaProgress::vouched_for || execution.attempt() == known_runs + 1) {
    throw PermanentFailure("given up by its saga");
  }
  throw RetryableFailure("an earlier run of the action fell silent: its effect may stand");
}

SagaRun SagaRules::judge(RunStatus status, milliseconds retry_after, const std::string& failure) {
  switch (status) {
    case RunStatus::executed:
    case RunStatus::replayed:
    case RunStatus::replayed_without_result:
      return {};
    case RunStatus::failed:
    case RunStatus::executed_failed:
      return {.what = {SagaOutcome::failed}, .note = failure};
    case RunStatus::in_progress:
      return {.what = {SagaOutcome::busy},
              .note = "the step is still being run",
              .ask_again_in = retry_after};
    case RunStatus::executed_unrecorded:
    case RunStatus::executed_unprotected:
    case RunStatus::executed_pending_commit:
    case RunStatus::mismatch:
    case RunStatus::uncertain:
    case RunStatus::superseded:
    case RunStatus::undecidable:
    case RunStatus::not_issued:
      break;
  }
  SagaRun run = unsettled("the step's record: " + std::string(to_string(status)));
  run.is_answered = status != RunStatus::undecidable && status != RunStatus::superseded;
  return run;
}

SagaRun SagaRules::judge_exception(std::uint32_t run) {
  try {
    throw;
  } catch (const abi::__forced_unwind&) {  // thread cancellation: nothing may catch it but to go on
    throw;
  } catch (const std::exception& exception) {
    SagaRun judged = unsettled(exception.what());
    judged.what.run = run;
    if (run == 0) {  // the guard's own: no handler was started
      judged.is_answered = false;
      return judged;
    }
    judged.what.outcome = SagaOutcome::retryable;
    if (dynamic_cast<const PermanentFailure*>(&exception) != nullptr ||
        dynamic_cast<const CompensationRefused*>(&exception) != nullptr) {
      judged.what.outcome = SagaOutcome::failed;
    } else if (dynamic_cast<const OutcomeUnknown*>(&exception) != nullptr) {
      judged.what.outcome = SagaOutcome::unsettled;
    }
    return judged;
  } catch (...) {
    return {.what = {run == 0 ? SagaOutcome::unsettled : SagaOutcome::retryable, run},
            .note = "the step threw what is no std::exception",
            .is_answered = run != 0};
  }
}

void wait_or_stop(const std::stop_token& stop, milliseconds pause) {
  std::mutex mutex;
  std::condition_variable_any changed;
  std::unique_lock lock(mutex);
  changed.wait_for(lock, stop, pause, [] { return false; });
}

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
