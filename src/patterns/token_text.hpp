#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "idempotency/clock.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail::tokens {

inline constexpr std::size_t time_bytes = 8;
inline constexpr std::size_t nonce_bytes = 16;
inline constexpr std::size_t subject_bytes = 16;

/// In a time that does not depend on where they differ.
[[nodiscard]] bool is_same(std::string_view left, std::string_view right) noexcept;

[[nodiscard]] std::string to_base64url(std::string_view bytes);
/// Nothing for what `to_base64url` would not have written.
[[nodiscard]] std::optional<std::string> from_base64url(std::string_view url);

/// 8 bytes, the highest first: milliseconds since 1970.
[[nodiscard]] std::string time_text(Timestamp time);
[[nodiscard]] Timestamp to_time(std::string_view bytes) noexcept;

/// Errors: `Errc::invalid_argument` for a token that would never be there, or for ever.
void check_lifetime(std::chrono::milliseconds ttl, Timestamp now);

/// Reads parts off the front of a token.
class Parts {
 public:
  explicit Parts(std::string_view bytes) noexcept : rest_(bytes) {}

  std::string_view take(std::size_t count) noexcept {
    if (count > rest_.size()) {
      broken_ = true;
      count = rest_.size();
    }
    const std::string_view part = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return part;
  }
  std::string_view take_with_length() noexcept {
    const std::string_view length = take(1);
    return take(length.empty() ? 0 : static_cast<unsigned char>(length.front()));
  }
  [[nodiscard]] bool is_whole() const noexcept { return !broken_ && rest_.empty(); }

 private:
  std::string_view rest_;
  bool broken_ = false;
};

}  // namespace detail::tokens
}  // namespace v0
}  // namespace idempotency
