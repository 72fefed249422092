#pragma once

#include <cxxabi.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

#include "idempotency/error.hpp"
#include "idempotency/execution.hpp"
#include "idempotency/operation.hpp"
#include "idempotency/patterns/saga.hpp"
#include "idempotency/patterns/saga_journal.hpp"
#include "idempotency/policy.hpp"
#include "idempotency/run_result.hpp"

namespace idempotency {
inline namespace v0 {

struct SagaOptions {
  /// How often a step is tried in one direction, the first try included, and how many workers may die over a saga one after the
  /// other. At least 1.
  std::uint32_t max_attempts = 10;
  /// The pause behind the first try; doubles each time up to the longest. Each is drawn from its upper half.
  std::chrono::milliseconds first_pause{1'000};
  std::chrono::milliseconds longest_pause{std::chrono::minutes{5}};
  /// How long a saga is its worker's own: longer than a step usually takes. When it has run out another worker takes over, and finds
  /// that the guard still runs the step.
  std::chrono::milliseconds lease{60'000};
  /// A saga that is older goes no step further but is parked: `give_up` undoes it, where its records are still there, which are
  /// kept for longer.
  std::chrono::milliseconds max_age{std::chrono::hours{24 * 90}};
  /// What steps want different from the guard's policy. Retentions that are not said here are `max_age` and a day.
  PolicyOverride step_policy = {};
  /// Called when a saga has been parked; the row says where and why. Once for each parking, but again when it throws, when its
  /// worker dies before it has noted the call or the journal does not answer then, and when it takes longer than the lease.
  std::function<void(const SagaRow&)> alert = nullptr;
};

/// How a saga stands after a call.
enum class SagaStatus : std::uint8_t {
  finished = 1,
  compensated,
  parked,    ///< people decide: `SagaDesk`
  waiting,   ///< for its next try, or another worker has it
  mismatch,  ///< the id belongs to a saga that was started with another input; nothing was done
};

struct SagaReport {
  SagaStatus status = SagaStatus::waiting;
  SagaRow row = {};
};

namespace detail {

/// A compensation that said it will never succeed: for its record only a failure that may be tried again.
class CompensationRefused : public RetryableFailure {
 public:
  using RetryableFailure::RetryableFailure;
};

/// What became of one run within the guard.
struct SagaRun {
  SagaTry what = {};
  std::string note = {};
  std::optional<std::string> result = std::nullopt;  ///< of an action that took effect
  std::chrono::milliseconds ask_again_in{0};         ///< at least
  bool is_answered = true;  ///< false: the guard's store could not be asked
};

/// What is decided without a template.
class SagaRules {
 public:
  SagaRules(Saga saga, SagaOptions options);

  [[nodiscard]] const Saga& saga() const noexcept { return saga_; }
  [[nodiscard]] const SagaOptions& options() const noexcept { return options_; }
  [[nodiscard]] SagaStart start(std::string_view id, std::string_view input) const;
  [[nodiscard]] SagaClaim claim(std::optional<std::string> id) const;
  /// Errors: `Errc::invalid_argument` for a saga under another plan.
  [[nodiscard]] SagaReport report(SagaRow row, std::string_view input) const;
  [[nodiscard]] static SagaReport report(SagaRow row);
  [[nodiscard]] Operation operation(const SagaRow& row, std::uint32_t step, SagaPart part) const;
  /// The same for a look that seals: whoever dies in it leaves nothing uncertain.
  [[nodiscard]] Operation look(const SagaRow& row, std::uint32_t step) const;
  [[nodiscard]] SagaChange change(const SagaRow& row, const SagaRun& run) const;
  /// Whether the row `now` is where `then` was, so that what was found out since is still to be noted.
  [[nodiscard]] static bool stands_where(const SagaRow& then, const SagaRow& now) noexcept;
  /// Why nothing of a saga is to be tried any more; empty when it may be.
  [[nodiscard]] std::string why_not(const SagaRow& row) const;
  /// How long records of steps and ended sagas are kept.
  [[nodiscard]] std::chrono::milliseconds retention() const noexcept { return retention_; }

  /// A handler that has no effect, and lets none follow when all runs of the action are accounted for.
  [[noreturn]] static void seal(const Execution& execution, std::uint32_t known_runs);
  [[nodiscard]] static SagaRun judge(RunStatus status, std::chrono::milliseconds retry_after,
                                     const std::string& failure);
  /// Within a `catch`. `run` is 0 when no handler was started.
  [[nodiscard]] static SagaRun judge_exception(std::uint32_t run);

 private:
  Saga saga_;
  SagaOptions options_;
  std::chrono::milliseconds retention_;
};

/// Waits, and wakes when asked to stop.
void wait_or_stop(const std::stop_token& stop, std::chrono::milliseconds pause);

}  // namespace detail

/// Runs sagas: every action and compensation through the guard, under a key of its own, with progress in a journal.
///
/// The journal's row is the authority on where a saga stands, the guard's records on what each step did. Whoever picks up a
/// saga after a crash or a week repeats at most the run that was under way, and the guard says whether it may. Under `take_over` it
/// may, so the effect needs `derived_key`; under `hold` the saga waits for a settlement and is parked when none comes.
/// Several workers may share one journal. `saga_transition` is the table of all that may happen.
///
/// Errors: those of the journal, and `Errc::invalid_argument` for a saga that was started under another list of steps. What steps
/// throw, and what the guard's store throws, is an outcome of the saga: the row's `note` says what.
/// Thread safety: all members may be called concurrently, when the steps may.
/// Lifetime: borrows guard and journal.
/// Source: H. Garcia-Molina, K. Salem, "Sagas", 1987.
/// Example: see `examples/12_saga`.
template <class Guard, class JournalT>
class SagaRunner {
  static_assert(SagaJournal<JournalT>,
                "idempotency: SagaRunner needs a SagaJournal, such as MemorySagas or SqlSagas.");

 public:
  /// Errors: `Errc::invalid_argument` for options out of range, for a step policy that runs unprotected, and for a retention that does
  /// not outlive `max_age` and a lease.
  SagaRunner(Guard& guard, JournalT& journal, Saga saga, SagaOptions options = {})
      : guard_(&guard), journal_(&journal), rules_(std::move(saga), std::move(options)) {}
  SagaRunner(const SagaRunner&) = delete;
  SagaRunner& operator=(const SagaRunner&) = delete;

  /// Makes the saga, due at once, unless there is one of that id.
  SagaReport start(std::string_view id, std::string_view input) {
    return rules_.report(journal_->create(rules_.start(id, input)), input);
  }

  /// The same, and moves it on, until it has ended or has to wait.
  SagaReport run(std::string_view id, std::string_view input) {
    SagaReport report = start(id, input);
    if (report.status == SagaStatus::mismatch || !report.row.due_at) return report;
    std::optional<SagaReport> moved = claim_and_drive(std::string(id));
    return moved ? *std::move(moved) : report;
  }

  /// Moves on the saga that has been due for longest, until it has ended or has to wait; nothing when none is due.
  std::optional<SagaReport> work_once() { return claim_and_drive(std::nullopt); }

  /// Does so until it is asked to stop, with a pause when nothing is due or the store does not answer.
  ///
  /// Errors: those after which repeating does not help.
  void work(const std::stop_token& stop, std::chrono::milliseconds pause) {
    while (!stop.stop_requested()) {
      bool worked = false;
      try {
        worked = work_once().has_value();
      } catch (const Error& error) {
        if (!error.safe_to_retry()) throw;
      }
      if (!worked) detail::wait_or_stop(stop, pause);
    }
  }

  /// Removes up to `limit` sagas that have ended so long ago that the records of their steps are gone as well. Says how many.
  std::size_t clean(std::size_t limit) {
    return journal_->clean(rules_.saga().name(), rules_.retention(), limit);
  }

 private:
  using SteadyTime = std::chrono::steady_clock::time_point;

  std::optional<SagaReport> claim_and_drive(std::optional<std::string> id) {
    const SteadyTime asked = std::chrono::steady_clock::now();
    std::optional<SagaRow> row = journal_->claim(rules_.claim(std::move(id)));
    if (!row) return std::nullopt;
    return detail::SagaRules::report(drive(*std::move(row), asked + rules_.options().lease));
  }

  /// Until the saga has ended, must wait or belongs to another worker.
  SagaRow drive(SagaRow row, SteadyTime own_until) {
    detail::SagaResults results;
    while (std::chrono::steady_clock::now() < own_until) {
      if (is_parked(row.progress.state)) return announce(std::move(row));
      const detail::SagaRun run = try_step(row, results);
      const SteadyTime asked = std::chrono::steady_clock::now();
      std::optional<SagaRow> next = note(row, run);
      if (!next) return row;
      const bool waits =
          next->progress.state == row.progress.state && next->progress.step == row.progress.step;
      row = *std::move(next);
      if (waits || !row.due_at) return row;
      own_until = asked + rules_.options().lease;
    }
    return row;
  }

  /// What a run came to is noted also when the lease has run out meanwhile and another worker has claimed the saga and found the step
  /// busy: otherwise the run would count for nothing. Nothing when the saga has moved on.
  std::optional<SagaRow> note(const SagaRow& row, const detail::SagaRun& run) {
    constexpr int most_rivals = 8;
    std::optional<SagaRow> now = row;
    for (int rival = 0; rival < most_rivals; ++rival) {
      std::optional<SagaRow> next = journal_->advance(*now, rules_.change(*now, run));
      if (next || run.what.outcome == SagaOutcome::busy) return next;
      now = journal_->find(row.name);
      if (!now || !detail::SagaRules::stands_where(row, *now)) return std::nullopt;
    }
    return std::nullopt;
  }

  detail::SagaRun try_step(const SagaRow& row, detail::SagaResults& results) {
    if (std::string reason = rules_.why_not(row); !reason.empty()) {
      return {.what = {SagaOutcome::unworkable}, .note = std::move(reason)};
    }
    return row.progress.state == SagaState::running ? act(row, results) : undo(row, results);
  }

  detail::SagaRun act(const SagaRow& row, detail::SagaResults& results) {
    if (std::optional<detail::SagaRun> missing = collect(row, row.progress.step, results)) {
      return *std::move(missing);
    }
    const SagaStep& step = rules_.saga().steps()[row.progress.step];
    detail::SagaRun run = run_step(rules_.operation(row, row.progress.step, SagaPart::action),
                                   [&](Execution& execution) {
                                     SagaCall call(row, results, execution);
                                     return step.act(call);
                                   });
    if (run.result) results[step.name()] = *run.result;
    return run;
  }

  /// Nothing is undone before it is known what was done.
  detail::SagaRun undo(const SagaRow& row, detail::SagaResults& results) {
    const SagaStep& step = rules_.saga().steps()[row.progress.step];
    detail::SagaRun done = look(row, row.progress.step, results);
    if (done.what.outcome == SagaOutcome::failed) return {};
    if (done.what.outcome != SagaOutcome::done || !step.has_compensation()) return done;
    const auto all = static_cast<std::uint32_t>(rules_.saga().steps().size());
    if (std::optional<detail::SagaRun> missing = collect(row, all, results)) {
      return *std::move(missing);
    }
    return run_step(rules_.operation(row, row.progress.step, SagaPart::compensation),
                    [&](Execution& execution) {
                      SagaCall call(row, results, execution);
                      try {
                        step.compensate(call);
                      } catch (const PermanentFailure& failure) {  // a person may want it again
                        throw detail::CompensationRefused(failure.what());
                      }
                      return std::string();
                    });
  }

  /// The results of the steps before `end`, whoever ran them. What has none (skipped, given up, never begun) is left out; when it
  /// cannot be found out, that is the outcome of this try.
  std::optional<detail::SagaRun> collect(const SagaRow& row, std::uint32_t end,
                                         detail::SagaResults& results) {
    for (std::uint32_t at = 0; at < end; ++at) {
      if (at == row.progress.step) continue;
      detail::SagaRun seen = look(row, at, results);
      if (seen.what.outcome == SagaOutcome::busy) return seen;
      if (!seen.is_answered) return seen;
    }
    return std::nullopt;
  }

  /// What an action's record says. An action that was given up is sealed: it will not be begun any more.
  detail::SagaRun look(const SagaRow& row, std::uint32_t at, detail::SagaResults& results) {
    const SagaStep& step = rules_.saga().steps()[at];
    if (results.contains(step.name())) return {};
    const std::uint32_t known_runs =
        at == row.progress.step ? row.progress.known_runs : SagaProgress::record_must_tell;
    detail::SagaRun run = run_step(rules_.look(row, at), [&](Execution& execution) -> std::string {
      detail::SagaRules::seal(execution, known_runs);
    });
    if (run.result) results[step.name()] = *run.result;
    return run;
  }

  template <class Handler>
  detail::SagaRun run_step(Operation operation, Handler handler) {
    std::uint32_t attempt = 0;
    try {
      RunResult<std::string> result =
          guard_->run(std::move(operation), [&](Execution& execution) -> std::string {
            attempt = execution.attempt();
            return handler(execution);
          });
      detail::SagaRun run =
          detail::SagaRules::judge(result.status(), result.retry_after(), result.failure());
      run.what.run = attempt;
      if (run.what.outcome == SagaOutcome::done) {
        run.result = result.has_value() ? std::move(result).value() : std::string();
      }
      return run;
    } catch (...) {
      return detail::SagaRules::judge_exception(attempt);
    }
  }

  /// The row stays due until the alert has been noted, so that a worker's death cannot swallow it.
  SagaRow announce(SagaRow row) {
    SagaChange noted{.to = row.progress, .note = row.note};
    try {
      if (rules_.options().alert) rules_.options().alert(row);
    } catch (
        const abi::__forced_unwind&) {  // thread cancellation: nothing may catch it but to go on
      throw;
    } catch (...) {
      noted.due_in = rules_.options().longest_pause;
    }
    std::optional<SagaRow> next = journal_->advance(row, noted);
    return next ? *std::move(next) : row;
  }

  Guard* guard_;
  JournalT* journal_;
  detail::SagaRules rules_;
};

}  // namespace v0
}  // namespace idempotency
