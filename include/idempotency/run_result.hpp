#pragma once

#include <chrono>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "idempotency/error.hpp"
#include "idempotency/observer.hpp"

namespace idempotency {
inline namespace v0 {

namespace detail {

/// What every run result has, whatever its value.
struct RunReport {
  RunStatus status = RunStatus::executed;
  std::chrono::milliseconds retry_after{0};
  std::uint64_t fence = 0;
  std::string failure;
};

[[noreturn]] void throw_no_value(RunStatus status);

/// `void` kept as a value.
struct Nothing {};

}  // namespace detail

/// How a call of `run` ended, and the value where there is one.
///
/// Thread safety: a value; distinct copies may be used concurrently.
template <class T>
class [[nodiscard(
    "idempotency: look at status(), or call value(), which throws where there is "
    "none.")]] RunResult {
  using Stored = std::conditional_t<std::is_void_v<T>, detail::Nothing, T>;

 public:
  RunResult(detail::RunReport report, std::optional<Stored> value)
      : value_(std::move(value)), report_(std::move(report)) {}

  [[nodiscard]] RunStatus status() const noexcept { return report_.status; }

  /// Whether the handler was run by this call.
  [[nodiscard]] bool ran_now() const noexcept {
    switch (report_.status) {
      case RunStatus::executed:
      case RunStatus::executed_failed:
      case RunStatus::executed_unrecorded:
      case RunStatus::executed_unprotected:
      case RunStatus::executed_pending_commit:
      case RunStatus::superseded:
        return true;
      default:
        return false;
    }
  }

  [[nodiscard]] bool has_value() const noexcept { return value_.has_value(); }

  /// The value that was returned now or recorded before.
  ///
  /// Errors: `Errc::no_value` where there is none; `status()` says why.
  [[nodiscard]] const Stored& value() const& requires(!std::is_void_v<T>) {
    if (!value_) detail::throw_no_value(report_.status);
    return *value_;
  }
  [[nodiscard]] Stored&& value() && requires(!std::is_void_v<T>) {
    if (!value_) detail::throw_no_value(report_.status);
    return *std::move(value_);
  }
  /// For handlers without a result: throws where the operation is not known to have succeeded.
  void value() const& requires(std::is_void_v<T>) {
    if (!value_) detail::throw_no_value(report_.status);
  }

  /// When to ask again, for `in_progress`: what remains of the other's lease. Zero otherwise.
  [[nodiscard]] std::chrono::milliseconds retry_after() const noexcept {
    return report_.retry_after;
  }
  /// The reason of a replayed failure; empty otherwise.
  [[nodiscard]] const std::string& failure() const noexcept { return report_.failure; }
  /// The fence of the record as this call saw it; 0 where there is none (also inside a transaction).
  [[nodiscard]] std::uint64_t fence() const noexcept { return report_.fence; }

 private:
  std::optional<Stored> value_;
  detail::RunReport report_;
};

}  // namespace v0
}  // namespace idempotency
