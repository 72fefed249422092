#pragma once

#include <chrono>

namespace idempotency::testing_support {

/// Ends a test that would wait for ever; nothing is judged by it.
///
/// Example: `for (const Patience patience; patience.lasts() && !done;) poll();`
class Patience {
 public:
  [[nodiscard]] bool lasts() const noexcept { return std::chrono::steady_clock::now() < end_; }

 private:
  std::chrono::steady_clock::time_point end_ =
      std::chrono::steady_clock::now() + std::chrono::minutes{1};
};

}  // namespace idempotency::testing_support
