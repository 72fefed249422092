#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "idempotency/error.hpp"

namespace idempotency {
inline namespace v0 {

namespace detail {

[[noreturn]] void throw_codec_corrupt(const char* reason);
[[noreturn]] void throw_codec_mismatch(const char* reason);
[[noreturn]] void throw_codec_unencodable(const char* reason);

}  // namespace detail

/// Recorded bytes on their way through `Codec<T>::decode`, which takes what `encode` has appended.
///
/// Every `take` checks that the bytes are there, so that a forged length is found before memory is
/// asked for.
///
/// Errors: `Errc::codec_corrupt` when the bytes end too early.
/// Lifetime: of the bytes, which it does not own.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) noexcept : rest_(bytes) {}

  [[nodiscard]] std::size_t remaining() const noexcept { return rest_.size(); }

  [[nodiscard]] std::string_view take(std::size_t count) {
    if (count > rest_.size()) detail::throw_codec_corrupt("the bytes end too early");
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }
  [[nodiscard]] std::uint8_t take_byte() {
    if (rest_.empty()) detail::throw_codec_corrupt("the bytes end too early");
    const auto byte = static_cast<std::uint8_t>(rest_.front());
    rest_.remove_prefix(1);
    return byte;
  }
  /// What `append_sized` has written.
  [[nodiscard]] std::string_view take_sized() { return take(take_count()); }
  /// What `append_count` has written: a number of bytes or elements, each at least one byte long.
  [[nodiscard]] std::size_t take_count();

 private:
  std::string_view rest_;
};

/// Appends a count in one byte for every seven bits.
void append_count(std::string& out, std::size_t count);

/// Appends bytes with their length in front.
inline void append_sized(std::string& out, std::string_view bytes) {
  append_count(out, bytes.size());
  out += bytes;
}

namespace detail {

/// An integer of any type up to 64 bits: its sign and its distance from 0 or -1.
struct WideInteger {
  bool negative = false;
  std::uint64_t magnitude = 0;  ///< of a negative number: the bitwise complement
};

/// One byte for -64 to 63, and one more for every seven bits beyond.
void append_integer(std::string& out, WideInteger number);
[[nodiscard]] WideInteger take_integer(ByteReader& in);

/// Little-endian, `size` bytes.
void append_word(std::string& out, std::uint64_t word, std::size_t size);
[[nodiscard]] std::uint64_t take_word(ByteReader& in, std::size_t size);

/// Writes the tag that says in which form a value is encoded.
class FormWriter {
 public:
  explicit FormWriter(std::string& out) noexcept : out_(&out) {}
  void add(char byte) { *out_ += byte; }
  void add(std::string_view bytes) { *out_ += bytes; }

 private:
  std::string* out_;
};

/// Compares the tag in front of recorded bytes with the one that is expected.
class FormMatcher {
 public:
  explicit FormMatcher(ByteReader& in) noexcept : in_(&in) {}
  void add(char byte) {
    if (same_) same_ = static_cast<char>(in_->take_byte()) == byte;
  }
  void add(std::string_view bytes) {
    for (const char byte : bytes)
      add(byte);
  }
  [[nodiscard]] bool same() const noexcept { return same_; }

 private:
  ByteReader* in_;
  bool same_ = true;
};

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
