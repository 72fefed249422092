#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>

#include "idempotency/error.hpp"
#include "idempotency/operation.hpp"
#include "idempotency/run_result.hpp"

namespace idempotency {
inline namespace v0 {

/// How often and for how long something is tried again.
struct RetryPolicy {
  std::uint32_t attempts = 4;          ///< the first one counts; at least 1
  std::chrono::milliseconds base{50};  ///< the most that the first pause lasts; doubles each time
  std::chrono::milliseconds longest{2'000};  ///< no pause is longer
  std::chrono::milliseconds deadline{
      30'000};  ///< no attempt is started later than this after the first
};

/// What all callers of a process may spend on repetitions, so that an outage is not multiplied: each call earns a part of
/// a repetition, and a repetition costs a whole one.
///
/// Thread safety: all members may be called concurrently.
/// Source: the throttling of retries in gRPC (proposal A6), which keeps the same account.
class RetryBudget {
 public:
  /// `most`: repetitions that may be saved up, 1 to 1'000'000; the budget begins full. `percent`: of a repetition, earned by each
  /// call, 0 to 1000.
  ///
  /// Errors: `Errc::invalid_argument`.
  explicit RetryBudget(std::uint32_t most = 100, std::uint32_t percent = 10);

  /// A call begins.
  void earn() noexcept;
  /// Whether one more repetition may be made; it is paid for then.
  [[nodiscard]] bool spend() noexcept;

  /// The one that is used where none is given.
  [[nodiscard]] static RetryBudget& of_process() noexcept;

 private:
  static constexpr std::int64_t whole = 100;

  std::int64_t most_;
  std::int64_t earned_by_call_;
  std::atomic<std::int64_t> saved_;
};

/// Time and chance, as `retry` sees them. The default ones are the machine's.
class RetryClock {
 public:
  using Time = std::chrono::steady_clock::time_point;

  RetryClock() = default;
  RetryClock(const RetryClock&) = delete;
  RetryClock& operator=(const RetryClock&) = delete;
  virtual ~RetryClock() = default;

  [[nodiscard]] virtual Time now();
  virtual void sleep(std::chrono::milliseconds pause);
  /// Any of 0 to `most`, each as likely.
  [[nodiscard]] virtual std::chrono::milliseconds any_up_to(std::chrono::milliseconds most);

  [[nodiscard]] static RetryClock& of_machine() noexcept;
};

/// Whom `retry` pays, and whom it asks for the time.
struct RetryParts {
  RetryBudget* budget = &RetryBudget::of_process();
  RetryClock* clock = &RetryClock::of_machine();
};

namespace detail {

/// Counts attempts, pays for them and sleeps between them.
class RetryLoop {
 public:
  RetryLoop(const RetryPolicy& policy, const RetryParts& parts);
  /// Whether there is another attempt; when there is, the pause before it has passed. `at_least`: what the other side asked
  /// for.
  [[nodiscard]] bool again(std::chrono::milliseconds at_least = std::chrono::milliseconds{0});
  /// The same without paying: the other side answered.
  [[nodiscard]] bool again_for_nothing(
      std::chrono::milliseconds at_least = std::chrono::milliseconds{0});

 private:
  enum class Cost : std::uint8_t { free, one };
  bool next(std::chrono::milliseconds at_least, Cost cost);

  RetryPolicy policy_;
  RetryParts parts_;
  RetryClock::Time end_;
  std::uint32_t made_ = 1;
  std::chrono::milliseconds pause_;
};

}  // namespace detail

/// Calls `fn` until it ends well: again only after an `Error` that says `safe_to_retry()`, while the policy and the budget last.
/// Each pause is drawn from 0 to a bound that doubles from `base` to `longest` (full jitter). Otherwise the error is the caller's.
///
/// Errors: those of `fn`; `Errc::invalid_argument` for a policy without attempts.
/// Thread safety: may be called concurrently, with the same budget.
/// Source: M. Brooker, "Exponential Backoff And Jitter", 2015.
/// Example: `auto record = retry({}, [&] { return store.find(key); });`
template <class Fn>
auto retry(const RetryPolicy& policy, Fn&& fn, const RetryParts& parts = {})
    -> std::invoke_result_t<Fn&> {
  detail::RetryLoop loop(policy, parts);
  while (true) {
    try {
      return fn();
    } catch (const Error& error) {
      if (!error.safe_to_retry() || !loop.again()) throw;
    }
  }
}

/// `guard.run(operation, handler)` until there is an answer: again after an error that is safe to retry, and while another runs the
/// operation. Every attempt asks for the same key, so that what has been recorded is given, by whomever, and the
/// handler is not started for it. The answer is `in_progress` only when the policy ended first.
///
/// The guard does not repeat `begin` by itself meanwhile, unless a reply was lost (then the record may be this call's
/// own), so that the budget counts what a store in need is asked. Waiting for another's run costs nothing of it.
///
/// Errors: those of `run`.
template <class Guard, class Handler>
auto run_with_retries(const RetryPolicy& policy, Guard& guard, const Operation& operation,
                      Handler&& handler, const RetryParts& parts = {})
    -> decltype(guard.run(operation, handler)) {
  detail::RetryLoop loop(policy, parts);
  Operation asked = operation;
  asked.repeat_begin = BeginRepetition::after_lost_reply;
  while (true) {
    try {
      auto result = guard.run(asked, handler);
      if (result.status() != RunStatus::in_progress) return result;
      if (!loop.again_for_nothing(std::min(result.retry_after(), policy.longest))) return result;
    } catch (const Error& error) {
      if (!error.safe_to_retry() || !loop.again()) throw;
    }
  }
}

}  // namespace v0
}  // namespace idempotency
