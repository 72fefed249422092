#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace idempotency {
inline namespace v0 {
namespace detail {

/// What is left of a store's bytes, shared by its stripes. Each stripe takes a little more than it needs, so that the
/// shared counter is not written by every call.
///
/// Thread safety: may be used concurrently, each `Share` under its stripe's lock.
class MemoryBudget {
 public:
  /// What a stripe has taken and not yet used.
  struct Share {
    std::size_t unused = 0;
  };

  MemoryBudget(std::size_t max_bytes, std::size_t stripes) noexcept
      : step_(max_bytes / (stripes * 64)), left_(static_cast<std::int64_t>(max_bytes)) {}

  enum class Grant : std::uint8_t { granted, refused };

  [[nodiscard]] Grant take(Share& share, std::size_t bytes) noexcept {
    if (share.unused < bytes && !refill(share, bytes - share.unused)) return Grant::refused;
    share.unused -= bytes;
    return Grant::granted;
  }

  /// For what must not be refused; what is left may become negative.
  void take_regardless(Share& share, std::size_t bytes) noexcept {
    if (take(share, bytes) == Grant::granted) return;
    left_.fetch_sub(static_cast<std::int64_t>(bytes), std::memory_order_relaxed);
  }

  void give_back(Share& share, std::size_t bytes) noexcept {
    share.unused += bytes;
    if (share.unused > 2 * step_) return_unused(share);
  }

  void return_unused(Share& share) noexcept {
    left_.fetch_add(static_cast<std::int64_t>(share.unused), std::memory_order_relaxed);
    share.unused = 0;
  }

  [[nodiscard]] std::int64_t left() const noexcept { return left_.load(std::memory_order_relaxed); }

 private:
  bool refill(Share& share, std::size_t least) noexcept {
    std::int64_t left = left_.load(std::memory_order_relaxed);
    for (;;) {
      if (left < static_cast<std::int64_t>(least)) return false;
      std::size_t amount = least + step_;
      if (left < static_cast<std::int64_t>(amount)) amount = least;
      if (left_.compare_exchange_weak(left, left - static_cast<std::int64_t>(amount),
                                      std::memory_order_relaxed)) {
        share.unused += amount;
        return true;
      }
    }
  }

  std::size_t step_;
  std::atomic<std::int64_t> left_;
};

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
