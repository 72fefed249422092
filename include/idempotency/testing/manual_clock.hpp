#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "idempotency/clock.hpp"

namespace idempotency {
inline namespace v0 {
namespace testing {

/// A clock that stands still until a test moves it.
///
/// Thread safety: all members may be called concurrently.
class ManualClock final : public Clock {
 public:
  /// Starts at an arbitrary moment in 2020, always the same.
  ManualClock() noexcept : ManualClock(Timestamp{std::chrono::milliseconds{1'600'000'000'123}}) {}
  explicit ManualClock(Timestamp start) noexcept : now_(start.time_since_epoch().count()) {}

  [[nodiscard]] Timestamp now() const noexcept override {
    return Timestamp{std::chrono::milliseconds{now_.load(std::memory_order_acquire)}};
  }
  /// Moves the clock by `span`; a negative one sets it back.
  void advance(std::chrono::milliseconds span) noexcept {
    now_.fetch_add(span.count(), std::memory_order_acq_rel);
  }
  void set(Timestamp now) noexcept {
    now_.store(now.time_since_epoch().count(), std::memory_order_release);
  }

 private:
  std::atomic<std::int64_t> now_;
};

}  // namespace testing
}  // namespace v0
}  // namespace idempotency
