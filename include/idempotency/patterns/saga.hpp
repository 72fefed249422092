#pragma once

#include <concepts>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "idempotency/codec.hpp"
#include "idempotency/error.hpp"
#include "idempotency/execution.hpp"
#include "idempotency/key.hpp"
#include "idempotency/patterns/saga_journal.hpp"

namespace idempotency {
inline namespace v0 {

/// What is kept under a key of its own for each step of a saga.
enum class SagaPart : std::uint8_t { action = 1, compensation = 2 };

/// The key under which the guard runs a step: type `saga/` and the definition's name, value derived from the saga's id, the
/// step's name and the part. For looking up and settling a step's record.
[[nodiscard]] Key saga_key(const SagaName& saga, std::string_view step, SagaPart part);

/// The bytes of a step's record for a result: what `Resolution::result` takes when an action is settled as succeeded.
template <class T>
[[nodiscard]] std::string encode_saga_result(const T& result) {
  return encode_result<std::string>(encode_result<T>(result));
}

namespace detail {

[[noreturn]] void throw_no_such_result(std::string_view step);

/// Results of actions by the step's name; an empty one took effect, and its result was not kept.
using SagaResults = std::map<std::string, std::string, std::less<>>;

}  // namespace detail

/// What an action or compensation is told of the saga it belongs to.
///
/// Thread safety: belongs to the thread of the step.
/// Lifetime: ends when the step returns.
class SagaCall {
 public:
  SagaCall(const SagaRow& row, const detail::SagaResults& results, Execution& execution) noexcept
      : row_(&row), results_(&results), execution_(&execution) {}
  SagaCall(const SagaCall&) = delete;
  SagaCall& operator=(const SagaCall&) = delete;

  [[nodiscard]] const std::string& id() const noexcept { return row_->name.id; }
  /// The bytes that the saga was started with.
  [[nodiscard]] const std::string& input() const noexcept { return row_->input; }
  /// The run within the guard: fence, attempt, stop token, point of no return, derived keys.
  [[nodiscard]] Execution& execution() const noexcept { return *execution_; }
  /// A key for another system's own idempotency, the same for every try of this action or compensation.
  [[nodiscard]] std::string derived_key(std::string_view name) const {
    return execution_->derived_key(name);
  }

  /// What an earlier action returned; a compensation is told what any action returned that took effect, its own as well.
  ///
  /// Errors: `Errc::no_value` when that step took no effect, was skipped, or returned more than is kept;
  /// `Errc::codec_mismatch` when it returned another type.
  template <class T>
  [[nodiscard]] T result(std::string_view step) const {
    const auto found = results_->find(step);
    if (found == results_->end() || found->second.empty()) detail::throw_no_such_result(step);
    return decode_result<T>(found->second);
  }

 private:
  const SagaRow* row_;
  const detail::SagaResults* results_;
  Execution* execution_;
};

/// A step: an action, and how to undo it.
///
/// The action takes `SagaCall&` and returns a value with a `Codec`, or nothing; later steps are handed what it returned, also in
/// another process. What it throws is judged as by `IdempotencyGuard::run`: `PermanentFailure` undoes the saga, `RetryableFailure`
/// and what is thrown before a point of no return is tried again, `OutcomeUnknown` and what is thrown behind one waits for a
/// settlement. `PermanentFailure` says that the action has no effect, not only this run: under `take_over` a run before it may have
/// fallen silent with its effect done, so throw it when the other side, asked under `derived_key`, says so, or nothing can have been asked.
/// A compensation takes `SagaCall&`. What it throws is tried again; after `PermanentFailure` only when a person says so, and after
/// `OutcomeUnknown` only when a person has settled its record, as for actions.
///
/// Thread safety: as that of its functions.
class SagaStep {
 public:
  /// A step that leaves nothing to undo.
  template <class Action>
  SagaStep(std::string name, Action action)
      : name_(std::move(name)), action_(erased(std::move(action))) {}
  template <class Action, class Compensation>
  SagaStep(std::string name, Action action, Compensation compensation)
      : name_(std::move(name)), action_(erased(std::move(action))) {
    static_assert(std::invocable<Compensation&, SagaCall&>,
                  "idempotency: a compensation must be callable with SagaCall&.");
    if constexpr (std::invocable<Compensation&, SagaCall&>) {
      compensation_ = [compensation = std::move(compensation)](SagaCall& call) mutable {
        static_cast<void>(compensation(call));
      };
    }
  }

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] bool has_compensation() const noexcept { return compensation_ != nullptr; }
  /// The encoded result; empty when it cannot be encoded.
  [[nodiscard]] std::string act(SagaCall& call) const { return action_(call); }
  void compensate(SagaCall& call) const { compensation_(call); }

 private:
  template <class Action>
  static std::function<std::string(SagaCall&)> erased(Action action) {
    static_assert(std::invocable<Action&, SagaCall&>,
                  "idempotency: an action must be callable with SagaCall&.");
    if constexpr (std::invocable<Action&, SagaCall&>) {
      using Result = std::remove_cvref_t<std::invoke_result_t<Action&, SagaCall&>>;
      static_assert(Encodable<Result>,
                    "idempotency: the result of an action needs a Codec: specialise "
                    "idempotency::Codec for it beside the type, for example from JsonCodec.");
      return [action = std::move(action)](SagaCall& call) mutable -> std::string {
        if constexpr (std::is_void_v<Result>) {
          action(call);
          return encode_result<void>();
        } else if constexpr (Encodable<Result>) {
          return encoded(Result(action(call)));
        } else {
          return {};
        }
      };
    } else {
      return nullptr;
    }
  }

  /// The action is done: that its result cannot be encoded is no reason to do it again.
  template <class Result>
  static std::string encoded(const Result& result) {
    try {
      return encode_result<Result>(result);
    } catch (const std::exception&) {
      return {};
    }
  }

  std::string name_;
  std::function<std::string(SagaCall&)> action_;
  std::function<void(SagaCall&)> compensation_;
};

/// A saga's definition: its steps, in the order in which their actions are run.
///
/// What the functions do may change while sagas are under way, the names of the steps and their order may not: a saga is only
/// ever run under the plan, the digest of these names, that it was started with. Deploy a changed list beside the old one until
/// the last of the old sagas has ended, or give it another name.
///
/// Thread safety: constant; as that of the steps' functions.
class Saga {
 public:
  /// Errors: `Errc::invalid_argument` for a name that is not 1 to 59 letters, digits, '_', '-', '.' or '/', for no steps, more than
  /// 1000, two of the same name, or one whose name is not 1 to 64 letters, digits, '_', '-' or '.'.
  Saga(std::string name, std::vector<SagaStep> steps);

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] const std::vector<SagaStep>& steps() const noexcept { return steps_; }
  [[nodiscard]] const std::string& plan() const noexcept { return plan_; }

 private:
  std::string name_;
  std::vector<SagaStep> steps_;
  std::string plan_;
};

}  // namespace v0
}  // namespace idempotency
