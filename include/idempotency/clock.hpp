#pragma once

#include "idempotency/record.hpp"

namespace idempotency {
inline namespace v0 {

/// The clock of an embedded store. Servers bring their own.
///
/// Thread safety: `now` is called concurrently.
/// Lifetime: must outlive the store it is given to.
class Clock {
 public:
  Clock() = default;
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;
  virtual ~Clock() = default;

  [[nodiscard]] virtual Timestamp now() const noexcept = 0;
};

/// The host's UTC clock, which all processes on one machine share.
[[nodiscard]] const Clock& system_clock() noexcept;

}  // namespace v0
}  // namespace idempotency
