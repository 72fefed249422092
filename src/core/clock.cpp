#include "idempotency/clock.hpp"

#include <chrono>

namespace idempotency {
inline namespace v0 {

namespace {

class SystemClock final : public Clock {
 public:
  [[nodiscard]] Timestamp now() const noexcept override {
    return std::chrono::floor<std::chrono::milliseconds>(std::chrono::system_clock::now());
  }
};

}  // namespace

const Clock& system_clock() noexcept {
  static const SystemClock clock;
  return clock;
}

}  // namespace v0
}  // namespace idempotency
