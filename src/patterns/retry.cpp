#include "idempotency/patterns/retry.hpp"

#include <algorithm>
#include <random>
#include <thread>

namespace idempotency {
inline namespace v0 {

using std::chrono::milliseconds;

namespace {

constexpr milliseconds longest_pause = std::chrono::hours{24 * 365};

}  // namespace

RetryBudget::RetryBudget(std::uint32_t most, std::uint32_t percent)
    : most_(most * whole), earned_by_call_(percent), saved_(most_) {
  if (most < 1 || most > 1'000'000 || percent > 1'000) {
    throw Error(
        Errc::invalid_argument,
        "a budget saves up 1 to 1000000 repetitions and earns 0 to 1000 percent of one by a "
        "call");
  }
}

void RetryBudget::earn() noexcept {
  std::int64_t saved = saved_.load(std::memory_order_relaxed);
  while (saved < most_ &&
         !saved_.compare_exchange_weak(saved, std::min(most_, saved + earned_by_call_),
                                       std::memory_order_relaxed)) {
  }
}

bool RetryBudget::spend() noexcept {
  std::int64_t saved = saved_.load(std::memory_order_relaxed);
  while (saved >= whole) {
    if (saved_.compare_exchange_weak(saved, saved - whole, std::memory_order_relaxed)) return true;
  }
  return false;
}

RetryBudget& RetryBudget::of_process() noexcept {
  static RetryBudget budget;
  return budget;
}

RetryClock::Time RetryClock::now() { return std::chrono::steady_clock::now(); }

void RetryClock::sleep(milliseconds pause) { std::this_thread::sleep_for(pause); }

milliseconds RetryClock::any_up_to(milliseconds most) {
  thread_local std::minstd_rand random{std::random_device{}()};
  return milliseconds(std::uniform_int_distribution<milliseconds::rep>(0, most.count())(random));
}

RetryClock& RetryClock::of_machine() noexcept {
  static RetryClock clock;
  return clock;
}

namespace detail {

RetryLoop::RetryLoop(const RetryPolicy& policy, const RetryParts& parts)
    : policy_(policy), parts_(parts), end_(parts.clock->now()), pause_(policy.base) {
  if (policy.attempts < 1 || policy.base < milliseconds{0} || policy.longest < policy.base ||
      policy.deadline < milliseconds{0}) {
    throw Error(
        Errc::invalid_argument,
        "a retry policy has at least one attempt, no negative time, and a longest pause that "
        "is not shorter than the first");
  }
  // Milliseconds count further than the clock does.
  const auto left = std::chrono::floor<milliseconds>(RetryClock::Time::max() - end_);
  end_ = left < policy.deadline ? RetryClock::Time::max() : end_ + policy.deadline;
  parts_.budget->earn();
}

bool RetryLoop::again(milliseconds at_least) { return next(at_least, Cost::one); }

bool RetryLoop::again_for_nothing(milliseconds at_least) { return next(at_least, Cost::free); }

bool RetryLoop::next(milliseconds at_least, Cost cost) {
  if (made_ >= policy_.attempts) return false;
  const milliseconds pause =
      std::min(longest_pause, std::max(at_least, parts_.clock->any_up_to(pause_)));
  const RetryClock::Time now = parts_.clock->now();
  if (now >= end_ || end_ - now < pause) return false;
  if (cost == Cost::one && !parts_.budget->spend()) return false;
  pause_ = pause_ > policy_.longest / 2 ? policy_.longest : pause_ * 2;
  ++made_;
  parts_.clock->sleep(pause);
  return true;
}

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
