#include "idempotency/codec.hpp"

#include <array>

namespace idempotency {
inline namespace v0 {
namespace {

constexpr unsigned more_bit = 0x80U;

/// The bytes of one number, gathered before they are appended.
class Spelling {
 public:
  void add(std::uint64_t byte) { bytes_[size_++] = static_cast<char>(byte); }
  void add_sevens(std::uint64_t number) {
    for (; number >= more_bit; number >>= 7U)
      add((number & 0x7fU) | more_bit);
    add(number);
  }
  [[nodiscard]] std::string_view text() const { return {bytes_.data(), size_}; }

 private:
  std::array<char, 11> bytes_{};
  std::size_t size_ = 0;
};

/// Bits above the lowest `shift` ones, which the caller has read. One number has one spelling.
std::uint64_t take_sevens(ByteReader& in, unsigned shift) {
  std::uint64_t number = 0;
  for (;; shift += 7) {
    const std::uint64_t byte = in.take_byte();
    const std::uint64_t bits = byte & 0x7fU;
    if (shift >= 64 || (bits << shift) >> shift != bits) {
      detail::throw_codec_corrupt("a number is longer than 64 bits");
    }
    number |= bits << shift;
    if ((byte & more_bit) == 0) {
      if (bits == 0 && shift > 0) detail::throw_codec_corrupt("a number has a spare byte");
      return number;
    }
  }
}

}  // namespace

std::size_t ByteReader::take_count() {
  const std::uint64_t count = take_sevens(*this, 0);
  if (count > remaining()) detail::throw_codec_corrupt("a length is larger than what follows");
  return static_cast<std::size_t>(count);
}

void append_count(std::string& out, std::size_t count) {
  Spelling spelling;
  spelling.add_sevens(count);
  out += spelling.text();
}

namespace detail {

void throw_codec_corrupt(const char* reason) {
  throw Error(Errc::codec_corrupt,
              "The recorded result does not decode; an operator has to look at the record.",
              reason);
}

void throw_codec_mismatch(const char* reason) {
  throw Error(Errc::codec_mismatch,
              "The recorded result has another type or form; read it with the type that wrote it.",
              reason);
}

void throw_codec_unencodable(const char* reason) {
  throw Error(Errc::codec_unencodable,
              "The result cannot be encoded; return a value that its codec can write.", reason);
}

// First byte: sign, six bits, more_bit. A plain signed number would not leave room for both the
// negative numbers and the upper half of the unsigned ones.
void append_integer(std::string& out, WideInteger number) {
  const std::uint64_t low = (number.magnitude & 0x3fU) << 1U | (number.negative ? 1U : 0U);
  const std::uint64_t rest = number.magnitude >> 6U;
  Spelling spelling;
  spelling.add(rest == 0 ? low : low | more_bit);
  if (rest != 0) spelling.add_sevens(rest);
  out += spelling.text();
}

WideInteger take_integer(ByteReader& in) {
  const std::uint64_t first = in.take_byte();
  WideInteger number{(first & 1U) != 0, (first & 0x7fU) >> 1U};
  if ((first & more_bit) != 0) number.magnitude |= take_sevens(in, 6);
  return number;
}

void append_word(std::string& out, std::uint64_t word, std::size_t size) {
  Spelling spelling;
  for (std::size_t i = 0; i < size; ++i)
    spelling.add((word >> (8U * i)) & 0xffU);
  out += spelling.text();
}

std::uint64_t take_word(ByteReader& in, std::size_t size) {
  const std::string_view bytes = in.take(size);
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < size; ++i) {
    word |= std::uint64_t{static_cast<unsigned char>(bytes[i])} << (8U * i);
  }
  return word;
}

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
