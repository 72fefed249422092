#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include "idempotency/detail/codec_form.hpp"

namespace idempotency {
inline namespace v0 {

namespace detail {

template <class T>
concept CodecInteger =
    std::integral<T> && !std::same_as<std::remove_cv_t<T>, bool> &&
    !std::same_as<std::remove_cv_t<T>, char> && std::same_as<T, std::remove_cv_t<T>>;

template <class T>
concept CodecEnum = std::is_enum_v<T> && std::same_as<T, std::remove_cv_t<T>>;

/// Not `long double`: its bits differ between machines.
template <class T>
concept CodecFloat = (std::same_as<T, float> ||
                      std::same_as<T, double>)&&std::numeric_limits<T>::is_iec559;

}  // namespace detail

template <>
struct Codec<void> {
  template <class Form>
  static void describe(Form& form) {
    form.add('0');
  }
};

template <>
struct Codec<std::monostate> {
  template <class Form>
  static void describe(Form& form) {
    form.add('u');
  }
  static void encode(std::monostate, std::string& out) { out += '\0'; }
  static std::monostate decode(ByteReader& in) {
    if (in.take_byte() != 0) detail::throw_codec_corrupt("an empty alternative is not empty");
    return {};
  }
};

template <>
struct Codec<bool> {
  template <class Form>
  static void describe(Form& form) {
    form.add('b');
  }
  static void encode(bool value, std::string& out) { out += value ? '\1' : '\0'; }
  static bool decode(ByteReader& in) {
    const std::uint8_t byte = in.take_byte();
    if (byte > 1) detail::throw_codec_corrupt("a bool is neither 0 nor 1");
    return byte == 1;
  }
};

template <>
struct Codec<char> {
  template <class Form>
  static void describe(Form& form) {
    form.add('c');
  }
  static void encode(char value, std::string& out) { out += value; }
  static char decode(ByteReader& in) { return static_cast<char>(in.take_byte()); }
};

/// All integers share one form, so that a type may be widened while records live. A number that the
/// reading type cannot hold is a `codec_mismatch`.
template <detail::CodecInteger T>
struct Codec<T> {
  template <class Form>
  static void describe(Form& form) {
    form.add('i');
  }
  static void encode(const T& value, std::string& out) {
    if constexpr (std::is_signed_v<T>) {
      const std::int64_t wide{value};
      const bool negative = wide < 0;
      detail::append_integer(out, {negative, static_cast<std::uint64_t>(negative ? ~wide : wide)});
    } else {
      detail::append_integer(out, {false, std::uint64_t{value}});
    }
  }
  static T decode(ByteReader& in) {
    const detail::WideInteger number = detail::take_integer(in);
    if ((number.negative && std::is_unsigned_v<T>) ||
        number.magnitude > static_cast<std::uint64_t>(std::numeric_limits<T>::max())) {
      detail::throw_codec_mismatch("the integer does not fit into the type that reads it");
    }
    return static_cast<T>(number.negative ? ~number.magnitude : number.magnitude);
  }
};

template <detail::CodecEnum T>
struct Codec<T> {
  using Underlying = std::underlying_type_t<T>;
  template <class Form>
  static void describe(Form& form) {
    form.add('e');
    detail::describe<Underlying>(form);
  }
  static void encode(const T& value, std::string& out) {
    Codec<Underlying>::encode(static_cast<Underlying>(value), out);
  }
  static T decode(ByteReader& in) { return static_cast<T>(Codec<Underlying>::decode(in)); }
};

/// Bit by bit, with the payload of a NaN and the sign of a zero.
template <detail::CodecFloat T>
struct Codec<T> {
  using Word = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  template <class Form>
  static void describe(Form& form) {
    form.add(sizeof(T) == 4 ? 'f' : 'd');
  }
  static void encode(const T& value, std::string& out) {
    detail::append_word(out, __builtin_bit_cast(Word, value), sizeof(T));
  }
  static T decode(ByteReader& in) {
    return __builtin_bit_cast(T, static_cast<Word>(detail::take_word(in, sizeof(T))));
  }
};

template <class Traits, class Allocator>
struct Codec<std::basic_string<char, Traits, Allocator>> {
  using String = std::basic_string<char, Traits, Allocator>;
  template <class Form>
  static void describe(Form& form) {
    form.add('s');
  }
  static void encode(const String& value, std::string& out) {
    append_sized(out, std::string_view(value.data(), value.size()));
  }
  static String decode(ByteReader& in) {
    const std::string_view bytes = in.take_sized();
    return String(bytes.data(), bytes.size());
  }
};

}  // namespace v0
}  // namespace idempotency
