#pragma once

#include <string>
#include <string_view>

#include "idempotency/error.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail {

/// The order of listings, over `Key::text()`: by type, then by value, both byte by byte.
///
/// Not the order of the texts: "a-b:1" < "a:1" as text, but the type "a" comes first.
struct KeyOrder {
  using is_transparent = void;

  [[nodiscard]] bool operator()(std::string_view left, std::string_view right) const noexcept {
    const std::string_view left_type = left.substr(0, left.find(':'));
    const std::string_view right_type = right.substr(0, right.find(':'));
    if (left_type != right_type) return left_type < right_type;
    return left < right;
  }
};

/// A cursor is the text of the last key before it; an empty one stands before all.
///
/// Errors: `Errc::invalid_argument` for a text that no listing gave.
inline void check_cursor(std::string_view cursor) {
  if (cursor.empty() || cursor.find(':') != std::string_view::npos) return;
  throw Error(Errc::invalid_argument, "the cursor is not one that a listing gave",
              std::string(cursor));
}

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
