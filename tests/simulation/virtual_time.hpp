#pragma once

#include <algorithm>
#include <chrono>

#include "history.hpp"
#include "idempotency/clock.hpp"
#include "seeded_random.hpp"

namespace idempotency::simulation {

/// The callers' steady clock and the store's clock, which drifts against it and jumps.
///
/// Both move in whole milliseconds.
class VirtualTime {
 public:
  explicit VirtualTime(int drift_per_thousand) noexcept : drift_(drift_per_thousand) {}
  VirtualTime(const VirtualTime&) = delete;
  VirtualTime& operator=(const VirtualTime&) = delete;

  [[nodiscard]] SteadyTime now() const noexcept { return now_; }
  void advance_to(SteadyTime at) noexcept { now_ = std::max(now_, at); }

  [[nodiscard]] Timestamp store_now() const noexcept {
    const milliseconds passed = std::chrono::duration_cast<milliseconds>(now_ - beginning);
    return Timestamp{epoch + passed + passed * drift_ / 1'000 + offset_ + ahead_};
  }
  void jump(milliseconds by) noexcept {
    offset_ += by;
    if (by > milliseconds{0}) last_forward_jump_ = now_;
  }
  /// For a moment only: what the store is asked then sees a clock that is far ahead.
  void set_ahead(milliseconds by) noexcept { ahead_ = by; }
  /// The moment of the last jump forward, which shortens leases; before the beginning when there was none.
  [[nodiscard]] SteadyTime last_forward_jump() const noexcept { return last_forward_jump_; }

  [[nodiscard]] const Clock& store_clock() const noexcept { return store_clock_; }
  /// The steady clock as the caches of the processes see it.
  [[nodiscard]] const Clock& cache_clock() const noexcept { return cache_clock_; }

 private:
  static constexpr milliseconds epoch{1'700'000'000'000};

  class StoreClock final : public Clock {
   public:
    explicit StoreClock(const VirtualTime& time) noexcept : time_(time) {}
    [[nodiscard]] Timestamp now() const noexcept override { return time_.store_now(); }

   private:
    const VirtualTime& time_;
  };
  class CacheClock final : public Clock {
   public:
    explicit CacheClock(const VirtualTime& time) noexcept : time_(time) {}
    [[nodiscard]] Timestamp now() const noexcept override {
      return Timestamp{std::chrono::floor<milliseconds>(time_.now().time_since_epoch())};
    }

   private:
    const VirtualTime& time_;
  };

  SteadyTime now_ = beginning;
  SteadyTime last_forward_jump_ = beginning - milliseconds{1};
  int drift_;
  milliseconds offset_{0};
  milliseconds ahead_{0};
  StoreClock store_clock_{*this};
  CacheClock cache_clock_{*this};
};

}  // namespace idempotency::simulation
