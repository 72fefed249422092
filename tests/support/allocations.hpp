#pragma once

#include <cstddef>
#include <utility>

namespace idempotency::testing_support {

/// How often this thread has called `operator new`. Defined with the replaced operators in
/// allocations.cpp; for the unit tests' executable only.
[[nodiscard]] std::size_t allocations() noexcept;

template <class Fn>
[[nodiscard]] std::size_t allocations_of(Fn&& fn) {
  const std::size_t before = allocations();
  std::forward<Fn>(fn)();
  return allocations() - before;
}

}  // namespace idempotency::testing_support
