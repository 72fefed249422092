#pragma once

#include <string>
#include <string_view>

namespace idempotency {
inline namespace v0 {
namespace detail::http {

// Not <cctype>: the answers must not depend on the process's locale.
[[nodiscard]] constexpr bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }
[[nodiscard]] constexpr bool is_lower(char c) noexcept { return c >= 'a' && c <= 'z'; }
[[nodiscard]] constexpr bool is_upper(char c) noexcept { return c >= 'A' && c <= 'Z'; }
[[nodiscard]] constexpr bool is_letter(char c) noexcept { return is_lower(c) || is_upper(c); }
[[nodiscard]] constexpr bool is_visible(char c) noexcept { return c > 0x20 && c < 0x7f; }
[[nodiscard]] constexpr char to_lower(char c) noexcept {
  return is_upper(c) ? static_cast<char>(c - 'A' + 'a') : c;
}

/// `tchar` of RFC 9110 section 5.6.2.
[[nodiscard]] constexpr bool is_token_character(char c) noexcept {
  return is_digit(c) || is_letter(c) ||
         std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}
[[nodiscard]] constexpr bool is_token(std::string_view text) noexcept {
  for (const char c : text) {
    if (!is_token_character(c)) return false;
  }
  return !text.empty();
}
/// A field's value that cannot end the field (RFC 9110 section 5.5).
[[nodiscard]] constexpr bool is_field_value(std::string_view text) noexcept {
  for (const char c : text) {
    if (c == '\r' || c == '\n' || c == '\0') return false;
  }
  return true;
}

/// Names of fields are equal without regard to case.
[[nodiscard]] constexpr bool is_same_name(std::string_view left, std::string_view right) noexcept {
  if (left.size() != right.size()) return false;
  for (std::size_t at = 0; at < left.size(); ++at) {
    if (to_lower(left[at]) != to_lower(right[at])) return false;
  }
  return true;
}

/// Without spaces and tabs around it.
[[nodiscard]] constexpr std::string_view trimmed(std::string_view text) noexcept {
  const auto is_space = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && is_space(text.front()))
    text.remove_prefix(1);
  while (!text.empty() && is_space(text.back()))
    text.remove_suffix(1);
  return text;
}

/// Whether a field's comma-separated list names `word`.
[[nodiscard]] constexpr bool names(std::string_view list, std::string_view word) noexcept {
  while (true) {
    const std::size_t comma = list.find(',');
    if (is_same_name(trimmed(list.substr(0, comma)), word)) return true;
    if (comma == std::string_view::npos) return false;
    list.remove_prefix(comma + 1);
  }
}

}  // namespace detail::http
}  // namespace v0
}  // namespace idempotency
