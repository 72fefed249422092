#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "idempotency/codec.hpp"
#include "idempotency/detail/engine.hpp"
#include "idempotency/detail/ports.hpp"
#include "idempotency/execution.hpp"
#include "idempotency/run_result.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail {

/// What misuse is answered with, so that our sentence is the only error.
struct Misused {};

/// `std::span` by its shape, so that its header need not be included.
template <class T>
concept SpanLike = requires(const T& view) {
  typename T::element_type;
  T::extent;
  { view.data() } -> std::same_as<typename T::pointer>;
};

template <class T>
concept Awaitable = requires(T value) {
  value.await_resume();
}
|| requires(T value) { value.operator co_await(); };

/// Results that refer to something that will be gone when the result is replayed.
template <class T>
concept ViewLike = std::is_reference_v<T> || std::is_pointer_v<std::remove_cvref_t<T>> ||
    std::same_as<std::remove_cvref_t<T>, std::string_view> || SpanLike<std::remove_cvref_t<T>> ||
    Awaitable<std::remove_cvref_t<T>>;

/// The result of calling `Fn` with `Argument`, or without one where it takes none; `Misused` for neither.
template <class Fn, class Argument>
[[nodiscard]] consteval auto handler_result() {
  if constexpr (std::invocable<Fn&, Argument>) {
    return std::type_identity<std::invoke_result_t<Fn&, Argument>>{};
  } else if constexpr (std::invocable<Fn&>) {
    return std::type_identity<std::invoke_result_t<Fn&>>{};
  } else {
    return std::type_identity<Misused>{};
  }
}

template <class Fn, class Argument>
using HandlerResult = typename decltype(handler_result<Fn, Argument>())::type;

/// Whether `Result` can be recorded and replayed; says why not in one sentence.
template <class Result>
[[nodiscard]] consteval bool check_result() {
  if constexpr (std::same_as<Result, Misused>) {
    static_assert(!std::same_as<Result, Misused>,
                  "idempotency: the handler must be callable without arguments, or with "
                  "Execution& (run) or the store's transaction (run_in_transaction).");
    return false;
  } else if constexpr (ViewLike<Result>) {
    static_assert(!ViewLike<Result>,
                  "idempotency: a handler must return a value that can be recorded, not a view, "
                  "pointer, reference or awaitable.");
    return false;
  } else if constexpr (!Encodable<std::remove_cv_t<Result>>) {
    static_assert(Encodable<std::remove_cv_t<Result>>,
                  "idempotency: the handler's result needs a Codec: specialise idempotency::Codec "
                  "for it beside the type, for example from JsonCodec.");
    return false;
  } else {
    return true;
  }
}

/// Says that every returned value is a success: for handlers that report failure by exception only.
struct AlwaysSuccess {
  template <class T>
  constexpr Disposition operator()(const T& /*value*/) const noexcept {
    return Disposition::success;
  }
};

/// A user's handler behind the engine's port; keeps the value that it returned.
template <class Result, class Call, class Judge>
class HandlerPortOf final : public HandlerPort {
  using Stored = std::conditional_t<std::is_void_v<Result>, Nothing, Result>;

 public:
  HandlerPortOf(Call& call, Judge& judge, bool takes_execution) noexcept
      : call_(&call), judge_(&judge), takes_execution_(takes_execution) {}

  HandlerReport invoke(Execution& execution) override {
    value_.reset();  // a repeated transaction starts anew
    if constexpr (std::is_void_v<Result>) {
      (*call_)(execution);
      value_.emplace();
      return {Disposition::success, encode_result<void>()};
    } else {
      value_.emplace((*call_)(execution));
      return {static_cast<const Judge&>(*judge_)(std::as_const(*value_)), encoded()};
    }
  }
  [[nodiscard]] bool takes_execution() const noexcept override { return takes_execution_; }
  [[nodiscard]] std::optional<Stored>& value() noexcept { return value_; }

 private:
  /// A value that cannot be encoded is a success without a recorded result, never a reason to run again.
  [[nodiscard]] std::optional<std::string> encoded() const requires(!std::is_void_v<Result>) {
    try {
      return encode_result<Result>(*value_);
    } catch (const std::exception&) {  // the library's or a codec's own
      return std::nullopt;
    }
  }

  Call* call_;
  Judge* judge_;
  std::optional<Stored> value_;
  bool takes_execution_;
};

/// Puts together what the engine knows and the value that stayed with the handler.
template <class Result, class Stored>
[[nodiscard]] RunResult<Result> to_result(RunOutcome outcome, std::optional<Stored>& own) {
  if (outcome.own_value) return RunResult<Result>(std::move(outcome.report), std::move(own));
  if (!outcome.recorded) {
    if constexpr (std::is_void_v<Result>) {  // nothing is missing from a success without a result
      if (outcome.report.status == RunStatus::replayed_without_result) {
        return RunResult<Result>(std::move(outcome.report), Nothing{});
      }
    }
    return RunResult<Result>(std::move(outcome.report), std::nullopt);
  }
  if constexpr (std::is_void_v<Result>) {
    decode_result<void>(*outcome.recorded);
    return RunResult<Result>(std::move(outcome.report), Nothing{});
  } else {
    Stored value = decode_result<Result>(*outcome.recorded);
    return RunResult<Result>(std::move(outcome.report), std::move(value));
  }
}

/// The result of running `Fn`, whatever comes of it.
template <class Fn>
using RunResultOf = RunResult<std::remove_reference_t<HandlerResult<Fn, Execution&>>>;

/// Gives `handler` behind its port to `run_port`, and puts the result together.
template <class Fn, class ResultClassifier, class RunPort>
[[nodiscard]] RunResultOf<Fn> run_behind_port(Fn& handler, ResultClassifier& classifier,
                                              RunPort run_port) {
  using Result = HandlerResult<Fn, Execution&>;
  if constexpr (check_result<Result>()) {
    constexpr bool takes_execution = std::invocable<Fn&, Execution&>;
    auto call = [&](Execution& execution) -> Result {
      if constexpr (takes_execution) {
        return handler(execution);
      } else {
        return handler();
      }
    };
    HandlerPortOf<Result, decltype(call), ResultClassifier> port(call, classifier, takes_execution);
    RunOutcome outcome = run_port(static_cast<HandlerPort&>(port));
    return to_result<Result>(std::move(outcome), port.value());
  } else {
    return RunResultOf<Fn>({}, std::nullopt);
  }
}

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
