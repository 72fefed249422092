#include "idempotency/key.hpp"

#include <array>
#include <charconv>
#include <cstring>
#include <utility>

#include "idempotency/detail/fingerprint_input.hpp"

namespace idempotency {
inline namespace v0 {
namespace {

constexpr std::string_view lower_digits = "0123456789abcdef";
constexpr std::string_view upper_digits = "0123456789ABCDEF";  // percent-encoding: RFC 3986
constexpr std::size_t readable_prefix_bytes = 32;

constexpr bool is_control(char character) noexcept {
  const auto byte = static_cast<unsigned char>(character);
  return byte < 0x20U || byte == 0x7fU;
}

/// The same for eight bytes at once: keys are checked on every call. In each byte of the word the
/// top bit is set where a byte below 0x20, or zero after the exclusive or with 0x7f, borrows; a
/// borrow into the next byte begins at such a byte only, so the answer for the whole word is exact.
constexpr bool has_control(std::uint64_t word) noexcept {
  constexpr std::uint64_t ones = 0x0101'0101'0101'0101U;
  constexpr std::uint64_t tops = ones * 0x80U;
  const std::uint64_t deleted = word ^ (ones * 0x7fU);
  return ((((word - ones * 0x20U) & ~word) | ((deleted - ones) & ~deleted)) & tops) != 0;
}

bool has_control(std::string_view text) noexcept {
  std::size_t at = 0;
  for (; text.size() - at >= sizeof(std::uint64_t); at += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data() + at, sizeof word);
    if (has_control(word)) return true;
  }
  for (; at < text.size(); ++at) {
    if (is_control(text[at])) return true;
  }
  return false;
}

// Not <cctype>: the answer must not depend on the process's locale.
constexpr auto type_characters = [] {
  std::array<bool, 256> allowed{};
  for (const char character : std::string_view("abcdefghijklmnopqrstuvwxyz"
                                               "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./")) {
    allowed[static_cast<unsigned char>(character)] = true;
  }
  return allowed;
}();

/// Control characters as \xNN: the text goes into a log.
std::string printable(std::string_view text) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string shown;
  for (const char character : text) {
    if (is_control(character)) {
      const unsigned byte = static_cast<unsigned char>(character);
      shown += "\\x";
      shown += digits[byte >> 4U];
      shown += digits[byte & 0xfU];
    } else {
      shown += character;
    }
  }
  return shown;
}

[[noreturn]] void refuse(const char* message, std::string_view offender) {
  throw Error(Errc::invalid_key, message, printable(offender));
}

void check_type(std::string_view type) {
  if (type.empty()) refuse("The key's type is empty; name the kind of operation.", type);
  if (type.size() > Key::max_type_bytes) {
    refuse("The key's type is longer than 64 bytes; choose a shorter name.", type);
  }
  for (const char character : type) {
    if (!type_characters[static_cast<unsigned char>(character)]) {
      refuse("The key's type may hold only letters, digits, '_', '-', '.' and '/'.", type);
    }
  }
}

void check_value(std::string_view value) {
  if (value.empty()) refuse("The key's value is empty; refuse the request instead.", value);
  if (value.size() > Key::max_value_bytes) {
    refuse("The key's value is longer than 255 bytes; use Key::digested for all keys of this type.",
           value);
  }
  if (has_control(value)) {
    refuse("The key's value holds a control character; use Key::of or Key::digested.", value);
  }
  if (value.find_first_not_of(' ') == std::string_view::npos) {
    refuse("The key's value is only white space; refuse the request instead.", value);
  }
}

/// How many bytes at the front of a part can stand in a key as they are.
std::size_t plain_bytes(std::string_view text) noexcept {
  std::size_t count = 0;
  while (count < text.size() && text[count] != ':' && text[count] != '%' &&
         !is_control(text[count])) {
    ++count;
  }
  return count;
}

bool is_blank(std::string_view text) noexcept {
  for (const char character : text) {
    if (static_cast<unsigned char>(character) > 0x20U) return false;
  }
  return true;
}

void append_hex(std::string& text, unsigned byte, std::string_view digits) {
  text += digits[byte >> 4U];
  text += digits[byte & 0xfU];
}

template <class Integer>
void append_decimal(std::string& text, Integer number) {
  std::array<char, 24> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  text.append(digits.data(), end);
}

}  // namespace

namespace detail {

KeyParts::KeyParts(std::string_view type, std::size_t expected_bytes) : type_size_(type.size()) {
  check_type(type);
  text_.reserve(type.size() + expected_bytes);
  text_ = type;
}

void KeyParts::begin_part() {
  text_ += ':';  // after the type and between parts alike
}

void KeyParts::add_text(std::string_view text) {
  if (is_blank(text)) {
    refuse("A part of the key is empty or only white space; refuse the request instead.", text);
  }
  begin_part();
  while (!text.empty()) {
    const std::size_t plain = plain_bytes(text);
    text_ += text.substr(0, plain);
    text.remove_prefix(plain);
    if (text.empty()) break;
    text_ += '%';
    append_hex(text_, static_cast<unsigned char>(text.front()), upper_digits);
    text.remove_prefix(1);
  }
}

void KeyParts::add_signed(std::int64_t number) {
  begin_part();
  append_decimal(text_, number);
}

void KeyParts::add_unsigned(std::uint64_t number) {
  begin_part();
  append_decimal(text_, number);
}

Key KeyParts::take() && {
  check_value(std::string_view(text_).substr(type_size_ + 1));
  return Key(Key::Checked{}, std::move(text_), type_size_);
}

}  // namespace detail

Key::Key(Checked, std::string_view type, std::string_view value)
    : type_size_(static_cast<std::uint8_t>(type.size())) {
  check_type(type);
  check_value(value);
  text_.reserve(type.size() + 1 + value.size());
  text_.append(type).append(1, ':').append(value);
}

Key::Key(Checked, std::string text, std::size_t type_size)
    : text_(std::move(text)), type_size_(static_cast<std::uint8_t>(type_size)) {}

Key Key::digested(std::string_view type, std::string_view value) {
  check_type(type);
  if (is_blank(value)) {
    refuse("The value to digest is empty or blank; refuse the request instead.", value);
  }
  const std::string_view prefix = value.substr(0, readable_prefix_bytes);
  const detail::Sha256Digest digest = detail::sha256(value);
  std::string text;
  text.reserve(type.size() + 1 + prefix.size() + 1 + 2 * digest.size());
  text.append(type).append(1, ':');
  for (const char character : prefix) {
    text += character > ' ' && character < 0x7f ? character : '_';
  }
  text += '~';
  for (const std::uint8_t byte : digest)
    append_hex(text, byte, lower_digits);
  return Key(Checked{}, std::move(text), type.size());
}

}  // namespace v0
}  // namespace idempotency
