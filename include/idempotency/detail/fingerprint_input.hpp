#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

namespace idempotency {
inline namespace v0 {
namespace detail {

using Sha256Digest = std::array<std::uint8_t, 32>;

/// SHA-256 of `bytes`, through libcrypto.
[[nodiscard]] Sha256Digest sha256(std::string_view bytes);

/// What is hashed for `Fingerprint::of`: fields in a form that no other sequence of fields has.
///
/// Part of stored fingerprints: the tests hold golden digests, and a change needs a new scheme.
class FingerprintInput {
 public:
  /// Kinds go in front of each field. Stored in effect: never renumber.
  enum class Kind : char {
    null = 'n',
    boolean = 'b',
    positive = 'u',
    negative = 'i',
    floating = 'd',
    text = 's',
    list = 'l',
    tuple = 't',
  };

  FingerprintInput() { append(form_prefix); }

  void add_null() { append_kind(Kind::null); }
  void add_boolean(bool truth) {
    append_kind(Kind::boolean);
    append_byte(truth ? '\1' : '\0');
  }
  template <std::integral Integer>
  void add_integer(Integer number) {
    if constexpr (std::is_signed_v<Integer>) {
      const std::int64_t wide{number};
      append_kind(wide < 0 ? Kind::negative : Kind::positive);
      append_word(static_cast<std::uint64_t>(wide));
    } else {
      append_kind(Kind::positive);
      append_word(std::uint64_t{number});
    }
  }
  void add_floating(double number) {
    if (number == 0.0) number = 0.0;  // -0.0 means the same
    append_kind(Kind::floating);
    append_word(number != number ? quiet_nan : __builtin_bit_cast(std::uint64_t, number));
  }
  void add_text(std::string_view text) {
    append_kind(Kind::text);
    append_word(text.size());
    append(text);
  }
  /// The `count` fields that follow belong together.
  void add_group(Kind kind, std::uint64_t count) {
    append_kind(kind);
    append_word(count);
  }

  [[nodiscard]] Sha256Digest digest() const {
    return sha256(overflow_.empty() ? std::string_view(inline_.data(), used_) : overflow_);
  }

 private:
  // Sets fields apart from the inputs of `of_bytes` and `of_json` in practice.
  static constexpr std::string_view form_prefix = "F1";
  static constexpr std::uint64_t quiet_nan = 0x7ff8'0000'0000'0000U;

  void append_kind(Kind kind) { append_byte(static_cast<char>(kind)); }
  void append_byte(char byte) { append(std::string_view(&byte, 1)); }
  void append_word(std::uint64_t word) {
    std::array<char, 8> bytes{};
    for (std::size_t i = 0; i < bytes.size(); ++i)
      bytes[i] = static_cast<char>(word >> (8U * i));
    append(std::string_view(bytes.data(), bytes.size()));
  }
  void append(std::string_view bytes) {
    if (overflow_.empty() && bytes.size() <= inline_.size() - used_) {
      bytes.copy(inline_.data() + used_, bytes.size());
      used_ += bytes.size();
      return;
    }
    if (overflow_.empty()) overflow_.assign(inline_.data(), used_);
    overflow_.append(bytes);
  }

  std::array<char, 256> inline_{};
  std::size_t used_ = 0;
  std::string overflow_;
};

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
