#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "idempotency/error.hpp"

namespace idempotency {
inline namespace v0 {

class Key;

namespace detail {

/// Text that can be a part of a key, but not a null pointer or a literal zero.
template <class T>
concept TextLike = std::convertible_to<const T&, std::string_view> &&
    !std::same_as<std::remove_cvref_t<T>, std::nullptr_t>;

template <class T>
concept KeyPart = TextLike<T> || std::integral<T> || std::is_enum_v<T>;

/// The text's bytes; a null `const char*` counts as empty, which every key refuses.
template <TextLike T>
[[nodiscard]] constexpr std::string_view text_of(const T& text) {
  if constexpr (std::is_pointer_v<T>) {
    if (text == nullptr) return {};
  }
  return text;
}

/// Builds the text of `Key::of`: parts joined by ':' with what would be ambiguous percent-encoded.
class KeyParts {
 public:
  /// `expected_bytes` is a guess at all parts together; a good one saves allocations.
  KeyParts(std::string_view type, std::size_t expected_bytes);

  template <KeyPart T>
  void add(const T& part) {
    if constexpr (TextLike<T>) {
      add_text(text_of(part));
    } else if constexpr (std::is_enum_v<T>) {
      add(static_cast<std::underlying_type_t<T>>(part));
    } else if constexpr (std::same_as<T, bool>) {
      add_text(part ? "true" : "false");
    } else if constexpr (std::same_as<T, char>) {
      add_text(std::string_view(&part, 1));
    } else if constexpr (std::is_signed_v<T>) {
      add_signed(static_cast<std::int64_t>(part));
    } else {
      add_unsigned(static_cast<std::uint64_t>(part));
    }
  }

  template <KeyPart T>
  [[nodiscard]] static constexpr std::size_t expected_bytes(const T& part) {
    if constexpr (TextLike<T>) {
      return text_of(part).size() + 1U;
    } else {
      return 21U;  // a sign and the digits of 64 bits
    }
  }

  [[nodiscard]] Key take() &&;

 private:
  void begin_part();
  void add_text(std::string_view text);
  void add_signed(std::int64_t number);
  void add_unsigned(std::uint64_t number);

  std::string text_;
  std::size_t type_size_;
};

}  // namespace detail

/// The name of one business operation: a business type and a value within it.
///
/// The type selects the policy and keeps types apart; the value is compared byte by byte: case,
/// white space and Unicode form all distinguish, nothing is normalised or cut. `text()` is
/// `type:value`, which is unambiguous because a type holds no ':'.
///
/// Errors: `Errc::invalid_key` when the type is empty, longer than 64 bytes or holds anything but
/// letters, digits, '_', '-', '.' and '/'; when the value is empty, only white space, longer than
/// 255 bytes or holds a control character (bytes 0x00-0x1f, 0x7f).
/// Thread safety: a value; distinct copies may be used concurrently.
class Key {
 public:
  static constexpr std::size_t max_type_bytes = 64;
  static constexpr std::size_t max_value_bytes = 255;

  template <detail::TextLike Type, detail::TextLike Value>
  Key(const Type& type, const Value& value)
      : Key(Checked{}, detail::text_of(type), detail::text_of(value)) {}

  /// A key from several parts: text, integers, enumerators and bool, joined by ':'.
  ///
  /// ':', '%' and control characters within a part are percent-encoded, so that ("a:b", "c") and
  /// ("a", "b:c") differ; the rest stays readable. Integers count by value, not by width.
  ///
  /// Errors: `Errc::invalid_key` also when a part is empty or only white space: an absent tenant
  /// must not become a shared one.
  template <detail::KeyPart... Parts>
    requires(sizeof...(Parts) > 0)
  [[nodiscard]] static Key of(std::string_view type, const Parts&... parts);

  /// A key for a value of any length and any bytes: a readable prefix, '~' and the value's SHA-256.
  ///
  /// Always digested, also when the value is short, so that no plain value can be made to look like
  /// a long one. Use it for all keys of a type or for none.
  ///
  /// Errors: `Errc::invalid_key` for the type as above, and when the value is empty or nothing but
  /// white space and control characters.
  [[nodiscard]] static Key digested(std::string_view type, std::string_view value);

  [[nodiscard]] std::string_view type() const noexcept {
    return std::string_view(text_).substr(0, type_size_);
  }
  [[nodiscard]] std::string_view value() const noexcept {
    return std::string_view(text_).substr(type_size_ + 1U);
  }
  /// `type:value`, the identity as one string of at most 320 bytes.
  [[nodiscard]] const std::string& text() const noexcept { return text_; }

  friend bool operator==(const Key&, const Key&) = default;

 private:
  friend class detail::KeyParts;
  struct Checked {};
  Key(Checked, std::string_view type, std::string_view value);
  Key(Checked, std::string text, std::size_t type_size);

  std::string text_;
  std::uint8_t type_size_ = 0;
};

template <detail::KeyPart... Parts>
  requires(sizeof...(Parts) > 0)
Key Key::of(std::string_view type, const Parts&... parts) {
  detail::KeyParts joined(type, (detail::KeyParts::expected_bytes(parts) + ...));
  (joined.add(parts), ...);
  return std::move(joined).take();
}

}  // namespace v0
}  // namespace idempotency
