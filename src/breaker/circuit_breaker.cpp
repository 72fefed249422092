#include "idempotency/detail/circuit_breaker.hpp"

#include <utility>

#include "core/fork_generation.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail {

namespace {

using std::chrono::milliseconds;

constexpr std::uint32_t most_failures = 1'000'000;
constexpr milliseconds longest{std::chrono::hours{24}};
constexpr unsigned state_bits = 2;

BreakerState state_of(std::uint64_t word) noexcept {
  return static_cast<BreakerState>(word & ((1U << state_bits) - 1));
}
std::uint64_t epoch_of(std::uint64_t word) noexcept { return word >> state_bits; }

BreakerOptions checked(BreakerOptions options) {
  const auto is_span = [](milliseconds span) { return span >= milliseconds{1} && span <= longest; };
  if (options.failure_threshold < 1 || options.failure_threshold > most_failures ||
      !is_span(options.open_duration) || !is_span(options.probe_timeout)) {
    throw Error(Errc::invalid_argument,
                "BreakerOptions: failure_threshold is from 1 to a million, open_duration and "
                "probe_timeout from 1 ms to a day");
  }
  return options;
}

/// What a failed call says of the store.
enum class Finding : std::uint8_t { unreachable, answers, nothing };

Finding finding_of(Errc code) noexcept {
  switch (code) {
    case Errc::store_unavailable:
    case Errc::store_reply_lost:
    case Errc::commit_unknown:
      return Finding::unreachable;
    case Errc::store_full:
    case Errc::store_refused:
    case Errc::store_corrupt:
      return Finding::answers;
    default:  // busy may be a row, or a pool without a free connection; the rest is the caller's, or a handler's
      return Finding::nothing;
  }
}

}  // namespace

CircuitBreaker::CircuitBreaker(BreakerOptions options)
    : options_(checked(std::move(options))), made_in_(fork_generation()) {
  if (options_.observer != nullptr) {
    options_.observer->on_breaker_changed(options_.name, BreakerState::closed);
  }
}

CircuitBreaker::Pass CircuitBreaker::admit() {
  if (const std::uint64_t word = word_.load(std::memory_order_acquire);
      state_of(word) == BreakerState::closed) {
    return Pass(*this, epoch_of(word), false);
  }
  if (made_in_ != fork_generation())
    return let_through();  // the lock may be the parent's: the store refuses
  const std::lock_guard lock(mutex_);
  const std::uint64_t word = word_.load(std::memory_order_relaxed);
  const BreakerState state = state_of(word);
  if (state == BreakerState::closed) return Pass(*this, epoch_of(word), false);

  const Timestamp seen = now();
  const bool is_due = state == BreakerState::half_open && !is_probed_;
  if (!is_due && seen < until_) refuse(state, until_ - seen);
  is_probed_ = true;
  until_ = seen + options_.probe_timeout;
  become(BreakerState::half_open);
  return Pass(*this, epoch_of(word_.load(std::memory_order_relaxed)), true);
}

CircuitBreaker::Pass CircuitBreaker::let_through() noexcept {
  return Pass(*this, epoch_of(word_.load(std::memory_order_acquire)), false);
}

BreakerState CircuitBreaker::state() const noexcept {
  return state_of(word_.load(std::memory_order_acquire));
}

void CircuitBreaker::reached(const Pass& pass) noexcept {
  if (!is_of_now(pass)) return;
  if (state() == BreakerState::closed) {
    if (failures_.load(std::memory_order_relaxed) != 0) {
      failures_.store(0, std::memory_order_relaxed);
    }
    return;
  }
  const std::lock_guard lock(mutex_);
  if (!is_of_now(pass)) return;
  failures_.store(0, std::memory_order_relaxed);
  become(BreakerState::closed);
}

void CircuitBreaker::failed(const Pass& pass, Errc code) noexcept {
  const Finding finding = finding_of(code);
  if (finding == Finding::answers) return reached(pass);
  if (finding == Finding::nothing) return abandoned(pass);
  if (!is_of_now(pass)) return;
  const std::lock_guard lock(mutex_);
  if (!is_of_now(pass)) return;
  switch (state()) {
    case BreakerState::closed:
      last_failure_ = code;
      if (failures_.fetch_add(1, std::memory_order_relaxed) + 1 >= options_.failure_threshold) {
        open();
      }
      return;
    case BreakerState::half_open:
      if (!pass.is_probe_) return;
      last_failure_ = code;
      return open();
    case BreakerState::open:
      return;
  }
}

void CircuitBreaker::abandoned(const Pass& pass) noexcept {
  if (!pass.is_probe_ || !is_of_now(pass)) return;
  const std::lock_guard lock(mutex_);
  if (is_of_now(pass)) is_probed_ = false;
}

bool CircuitBreaker::is_of_now(const Pass& pass) const noexcept {
  return pass.epoch_ == epoch_of(word_.load(std::memory_order_acquire)) &&
         made_in_ == fork_generation();
}

void CircuitBreaker::become(BreakerState state) noexcept {
  const std::uint64_t before = word_.load(std::memory_order_relaxed);
  word_.store(((epoch_of(before) + 1) << state_bits) | static_cast<std::uint64_t>(state),
              std::memory_order_release);
  if (state_of(before) != state && options_.observer != nullptr) {
    options_.observer->on_breaker_changed(options_.name, state);
  }
}

void CircuitBreaker::open() noexcept {
  until_ = now() + options_.open_duration;
  is_probed_ = false;
  become(BreakerState::open);
}

Timestamp CircuitBreaker::now() const noexcept {
  if (options_.clock != nullptr) return options_.clock->now();
  return Timestamp(
      std::chrono::floor<milliseconds>(std::chrono::steady_clock::now().time_since_epoch()));
}

void CircuitBreaker::refuse(BreakerState state, milliseconds left) const {
  throw Error(Errc::store_unavailable,
              state == BreakerState::open
                  ? "the breaker is open: the store could not be reached several times in a row. "
                    "Nothing was sent; repeat the call later"
                  : "the breaker is half open: one call tries whether the store can be reached "
                    "again. Nothing was sent; repeat the call later",
              "breaker " + options_.name + ", last failure " +
                  std::string(to_string(last_failure_)) + ", for at most another " +
                  std::to_string(left.count()) + " ms");
}

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
