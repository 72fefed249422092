#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <random>
#include <utility>

#include "idempotency/error.hpp"

namespace idempotency {
inline namespace v0 {
namespace testing {

/// How a store call goes wrong.
enum class Fault : std::uint8_t {
  request_lost,  ///< the store is not called; `Errc::store_unavailable`
  reply_lost,    ///< the store is called, then `Errc::store_reply_lost`
  timed_out,  ///< `Errc::store_reply_lost`; the request arrives when the test calls `deliver_held`
  busy,       ///< the store is not called; `Errc::store_busy`
  full,       ///< the store is not called; `Errc::store_full`
  refused,    ///< the store is not called; `Errc::store_refused`
  too_large,  ///< the store is not called; `Errc::too_large`
};

/// How likely each call is to go wrong; together at most 1.
struct FaultProbabilities {
  double request_lost = 0;
  double reply_lost = 0;
  double timed_out = 0;
  double busy = 0;
};

/// What happens to the calls of one kind, in this order: what was scripted call by call, then `fail_always`,
/// then chance.
///
/// Thread safety: all members may be called concurrently; hooks run on the calling thread, without a lock.
class FaultScript {
 public:
  using Hook = std::function<void()>;

  /// The next `count` calls fail, after those that are scripted already.
  FaultScript& fail_next(std::size_t count, Fault fault) { return script(count, fault); }
  /// The next `count` calls pass, after those that are scripted already.
  FaultScript& pass_next(std::size_t count) { return script(count, std::nullopt); }
  /// Every call that is not scripted one by one fails.
  FaultScript& fail_always(Fault fault) {
    const std::scoped_lock lock(mutex_);
    always_ = fault;
    return *this;
  }
  /// Calls fail by chance; the same seed gives the same faults for the same number of calls.
  FaultScript& fail_randomly(std::uint64_t seed, const FaultProbabilities& probabilities) {
    const std::scoped_lock lock(mutex_);
    random_.seed(seed);
    probabilities_ = probabilities;
    return *this;
  }
  /// Called at the start of every call, whatever becomes of it. It may block, which delays the request.
  FaultScript& before(Hook hook) {
    const std::scoped_lock lock(mutex_);
    before_ = std::move(hook);
    return *this;
  }
  /// Called when the store has answered, before its reply is given or lost. It may block, which delays the reply.
  FaultScript& after(Hook hook) {
    const std::scoped_lock lock(mutex_);
    after_ = std::move(hook);
    return *this;
  }
  /// Forgets faults and hooks; the counters stay.
  FaultScript& heal() {
    const std::scoped_lock lock(mutex_);
    scripted_.clear();
    always_.reset();
    probabilities_ = {};
    before_ = nullptr;
    after_ = nullptr;
    return *this;
  }

  /// How often it was called, and how many of these calls went wrong.
  [[nodiscard]] std::size_t calls() const {
    const std::scoped_lock lock(mutex_);
    return calls_;
  }
  [[nodiscard]] std::size_t faults() const {
    const std::scoped_lock lock(mutex_);
    return faults_;
  }

  /// Counts a call and says what becomes of it. For `FaultyStore`.
  [[nodiscard]] std::optional<Fault> enter() {
    run(&FaultScript::before_);
    const std::scoped_lock lock(mutex_);
    ++calls_;
    const std::optional<Fault> fault = next();
    if (fault) ++faults_;
    return fault;
  }
  void leave() { run(&FaultScript::after_); }

 private:
  FaultScript& script(std::size_t count, std::optional<Fault> fault) {
    const std::scoped_lock lock(mutex_);
    scripted_.insert(scripted_.end(), count, fault);
    return *this;
  }

  void run(Hook FaultScript::*which) {
    Hook hook;
    {
      const std::scoped_lock lock(mutex_);
      hook = this->*which;
    }
    if (hook) hook();
  }

  std::optional<Fault> next() {
    if (!scripted_.empty()) {
      const std::optional<Fault> fault = scripted_.front();
      scripted_.pop_front();
      return fault;
    }
    if (always_) return always_;
    return by_chance();
  }

  std::optional<Fault> by_chance() {
    constexpr double step = 0x1p-53;
    double point = static_cast<double>(random_() >> 11U) * step;
    const auto hit = [&point](double probability) {
      point -= probability;
      return point < 0;
    };
    if (hit(probabilities_.request_lost)) return Fault::request_lost;
    if (hit(probabilities_.reply_lost)) return Fault::reply_lost;
    if (hit(probabilities_.timed_out)) return Fault::timed_out;
    if (hit(probabilities_.busy)) return Fault::busy;
    return std::nullopt;
  }

  mutable std::mutex mutex_;
  std::deque<std::optional<Fault>> scripted_;
  std::optional<Fault> always_;
  FaultProbabilities probabilities_;
  std::mt19937_64 random_;
  Hook before_;
  Hook after_;
  std::size_t calls_ = 0;
  std::size_t faults_ = 0;
};

/// What the caller of a store sees of a fault.
[[nodiscard]] inline Error error_of(Fault fault) {
  switch (fault) {
    case Fault::request_lost:
      return Error(Errc::store_unavailable, "a test lost the request; repeat the call");
    case Fault::reply_lost:
    case Fault::timed_out:
      return Error(Errc::store_reply_lost, "a test lost the reply; repeat the call");
    case Fault::busy:
      return Error(Errc::store_busy, "a test made the store busy; repeat the call");
    case Fault::full:
      return Error(Errc::store_full, "a test made the store full");
    case Fault::refused:
      return Error(Errc::store_refused, "a test made the store refuse the call");
    case Fault::too_large:
      return Error(Errc::too_large, "a test made the store refuse the value as too large");
  }
  return Error(Errc::store_refused, "unknown fault");
}

}  // namespace testing
}  // namespace v0
}  // namespace idempotency
