#pragma once

#include <string_view>

#include "idempotency/store.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail {

/// What `Observer::on_resolved` is told.
[[nodiscard]] constexpr std::string_view name_of(Resolution::Verdict verdict) noexcept {
  switch (verdict) {
    case Resolution::Verdict::succeeded:
      return "succeeded";
    case Resolution::Verdict::failed:
      return "failed";
    case Resolution::Verdict::retry:
      return "retry";
  }
  return "retry";
}

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
