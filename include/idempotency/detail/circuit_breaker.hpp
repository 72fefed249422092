#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <type_traits>

#include "idempotency/clock.hpp"
#include "idempotency/error.hpp"
#include "idempotency/observer.hpp"

namespace idempotency {
inline namespace v0 {

/// When a `BreakerStore` refuses.
struct BreakerOptions {
  /// So many calls in a row that could not reach the store open the breaker. From 1 to a million.
  std::uint32_t failure_threshold = 10;
  /// How long an open breaker refuses before it lets one call try. From 1 ms to a day.
  std::chrono::milliseconds open_duration{1'000};
  /// After so long without an answer the call that tries is given up, and another may. From 1 ms to a day; more than the
  /// store's own time limit.
  std::chrono::milliseconds probe_timeout{10'000};
  /// Tells breakers apart in metrics, logs and errors.
  std::string name = "store";
  /// Told of every change of state; may be null. Must outlive the store.
  Observer* observer = nullptr;
  /// Null is the host's steady clock. Must outlive the store.
  const Clock* clock = nullptr;
};

namespace detail {

/// The states of a circuit breaker (Nygard, "Release It!", 2nd edition, 5.2) and who may call in which.
///
/// Only the calls that were let through in the present state change it: an answer that comes late says nothing of now.
///
/// Errors: `Errc::invalid_argument` for options out of range.
/// Thread safety: all members may be called concurrently. A call that is let through while closed takes no lock.
class CircuitBreaker {
 public:
  /// A call that was let through; it tells the breaker how it went, once.
  class Pass {
   public:
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;
    ~Pass() {
      if (!told_) breaker_->abandoned(*this);
    }

    /// Calls a store that answers or throws, and passes on what comes back.
    template <class Call>
    std::invoke_result_t<Call&> watch(Call call) {
      std::invoke_result_t<Call&> answer = watch_failures(call);
      reached();
      return answer;
    }
    /// The same for a call that may come back without having asked the store, which says nothing of it.
    template <class Call>
    std::invoke_result_t<Call&> watch_failures(Call call) {
      try {
        return call();
      } catch (const Error& error) {
        failed(error.code());
        throw;
      }
    }
    void reached() noexcept {
      told_ = true;
      breaker_->reached(*this);
    }
    [[nodiscard]] bool is_probe() const noexcept { return is_probe_; }
    void failed(Errc code) noexcept {
      told_ = true;
      breaker_->failed(*this, code);
    }

   private:
    friend class CircuitBreaker;
    Pass(CircuitBreaker& breaker, std::uint64_t epoch, bool is_probe) noexcept
        : breaker_(&breaker), epoch_(epoch), is_probe_(is_probe) {}

    CircuitBreaker* breaker_;
    std::uint64_t epoch_;
    bool is_probe_;
    bool told_ = false;
  };

  explicit CircuitBreaker(BreakerOptions options);

  /// For a call that begins something. Errors: `Errc::store_unavailable` while it is not admitted.
  [[nodiscard]] Pass admit();
  /// For a call that ends something: never refused.
  [[nodiscard]] Pass let_through() noexcept;
  [[nodiscard]] BreakerState state() const noexcept;

 private:
  void reached(const Pass& pass) noexcept;
  void failed(const Pass& pass, Errc code) noexcept;
  void abandoned(const Pass& pass) noexcept;
  [[nodiscard]] bool is_of_now(const Pass& pass) const noexcept;
  void become(BreakerState state) noexcept;
  void open() noexcept;
  [[nodiscard]] Timestamp now() const noexcept;
  [[noreturn]] void refuse(BreakerState state, std::chrono::milliseconds left) const;

  BreakerOptions options_;
  std::uint64_t made_in_;               ///< the process, by its generation
  std::atomic<std::uint64_t> word_{0};  ///< the epoch above two bits of state
  std::atomic<std::uint32_t> failures_{0};
  std::mutex mutex_;  ///< for every change of state
  Timestamp until_{};
  bool is_probed_ = false;
  Errc last_failure_ = Errc::store_unavailable;
};

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
