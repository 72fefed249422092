#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "idempotency/detail/codec_bytes.hpp"
#include "idempotency/detail/codec_containers.hpp"
#include "idempotency/detail/codec_form.hpp"
#include "idempotency/detail/codec_scalars.hpp"
#include "idempotency/detail/codec_time.hpp"
#include "idempotency/error.hpp"

namespace idempotency {
inline namespace v0 {

/// How a result is written into a record and read back. Undefined for types that have no codec;
/// the concept `Encodable<T>` says which have one.
///
/// Provided, and nested freely: void, bool, integers, `char`, `float`, `double`, enums, strings,
/// vectors of bytes, optionals, pairs, tuples, variants, arrays, sequences, sets, maps, durations
/// and time points of the system clock. An integer is read as any type that can hold it; apart from
/// that, what reads a result must have the structure of what wrote it.
///
/// For a type of your own, specialise it beside the type, before its first use: from `JsonCodec<T>`
/// (codecs/json.hpp), from `ProtobufCodec<T>` (codecs/protobuf.hpp), or by hand. `encode` appends
/// at least one byte, `decode` takes exactly what `encode` has appended, and `name` (1 to 64 bytes,
/// no braces; also a static function) changes when the form does:
///
///     template <>
///     struct idempotency::Codec<Receipt> {
///       static constexpr std::string_view name = "receipt/1";
///       static void encode(const Receipt& receipt, std::string& out) {
///         Codec<std::string>::encode(receipt.id, out);
///         Codec<int>::encode(receipt.cents, out);
///       }
///       static Receipt decode(ByteReader& in) {
///         std::string id = Codec<std::string>::decode(in);
///         return {std::move(id), Codec<int>::decode(in)};
///       }
///     };
template <class T>
struct Codec;

namespace detail {

/// In front of every recorded result. A reader refuses any other number.
inline constexpr char result_format = '\1';

/// Reads what stands before the value and throws unless it is what `T` has.
template <class T>
void take_form(ByteReader& in) {
  if (in.take_byte() != static_cast<std::uint8_t>(result_format)) {
    throw_codec_mismatch("no result of encode_result, or one of another version of this library");
  }
  FormMatcher form(in);
  describe<T>(form);
  if (!form.same()) {
    std::string expected = "expected the form ";
    FormWriter writer(expected);
    describe<T>(writer);
    throw_codec_mismatch(expected.c_str());
  }
}

/// Writes what stands before the value.
template <class T>
void append_form(std::string& out) {
  out += result_format;
  FormWriter form(out);
  describe<T>(form);
}

}  // namespace detail

/// The bytes that a record keeps: format, form of the type, value.
///
/// Errors: `Errc::codec_unencodable`, and what the type's codec throws.
template <class T>
  requires(!std::is_void_v<T>)
[[nodiscard]] std::string encode_result(const T& value) {
  static_assert(Encodable<T>,
                "idempotency: this type needs a Codec: specialise idempotency::Codec "
                "for it beside the type, for example from JsonCodec.");
  std::string out;
  if constexpr (Encodable<T>) {
    detail::append_form<T>(out);
    Codec<T>::encode(value, out);
  }
  return out;
}

/// The bytes that a record keeps for a handler without a result.
template <class T>
  requires std::is_void_v<T>
[[nodiscard]] std::string encode_result() {
  std::string out;
  detail::append_form<void>(out);
  return out;
}

/// The value that `encode_result<T>` has written.
///
/// Errors: `Errc::codec_mismatch` when it was written as another type or form,
/// `Errc::codec_corrupt` when the bytes are damaged.
template <class T>
T decode_result(std::string_view bytes) {
  static_assert(Encodable<T>,
                "idempotency: this type needs a Codec: specialise idempotency::Codec "
                "for it beside the type, for example from JsonCodec.");
  if constexpr (Encodable<T>) {
    ByteReader in(bytes);
    detail::take_form<T>(in);
    if constexpr (std::is_void_v<T>) {
      if (in.remaining() != 0) detail::throw_codec_corrupt("bytes are left over");
    } else {
      T value = Codec<T>::decode(in);
      if (in.remaining() != 0) detail::throw_codec_corrupt("bytes are left over");
      return value;
    }
  } else {
    detail::throw_codec_mismatch("the type has no codec");  // not reached: the sentence above stops
  }
}

}  // namespace v0
}  // namespace idempotency
