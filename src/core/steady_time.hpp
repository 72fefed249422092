#pragma once

#include <algorithm>
#include <chrono>

#include "idempotency/protocol.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail {

/// `span` after `now`, or the end of time; a negative span is none.
[[nodiscard]] inline SteadyTime after(SteadyTime now, std::chrono::milliseconds span) noexcept {
  const auto room = std::chrono::floor<std::chrono::milliseconds>(SteadyTime::max() - now);
  return span >= room ? SteadyTime::max() : now + std::max(span, std::chrono::milliseconds{0});
}

/// How long it is until `end`, at least 1 ms.
[[nodiscard]] inline std::chrono::milliseconds left_until(SteadyTime end, SteadyTime now) noexcept {
  return std::max(std::chrono::milliseconds{1},
                  std::chrono::ceil<std::chrono::milliseconds>(end - now));
}

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
