#pragma once

#include <cmath>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "idempotency/codec.hpp"

namespace idempotency {
inline namespace v0 {

namespace detail {

/// JSON has no spelling for NaN and the infinities; the library would write null.
[[nodiscard]] inline bool is_finite(const nlohmann::json& value) {
  if (value.is_number_float()) return std::isfinite(value.get_ref<const double&>());
  if (value.is_structured()) {
    for (const nlohmann::json& element : value) {
      if (!is_finite(element)) return false;
    }
  }
  return true;
}

/// What nlohmann/json, `to_json` or `from_json` found wrong goes into the error's detail: it may quote the value.
[[noreturn]] inline void rethrow_json(Errc code, const char* message,
                                      const std::exception& failure) {
  throw Error(code, message, failure.what());
}

}  // namespace detail

/// A codec for any type that nlohmann/json can convert: derive `Codec<T>` from it.
///
/// Hide `name` with one of your own to keep types apart, and change it when the JSON changes so
/// that old results can no longer be read:
///
///     template <>
///     struct idempotency::Codec<Receipt> : idempotency::JsonCodec<Receipt> {
///       static constexpr std::string_view name = "receipt/1";
///     };
///
/// Errors: `Errc::codec_unencodable` for text that is not UTF-8, for NaN and for infinities;
/// `Errc::codec_mismatch` when the recorded JSON is not that of a `T`; `Errc::codec_corrupt` when
/// it is not JSON.
template <class T>
struct JsonCodec {
  static constexpr std::string_view name = "json";

  static void encode(const T& value, std::string& out) {
    try {
      append(value, out);
    } catch (const Error&) {
      throw;
    } catch (const std::exception& failure) {
      detail::rethrow_json(Errc::codec_unencodable,
                           "The result cannot be written as JSON; return valid UTF-8 text.",
                           failure);
    }
  }

  static T decode(ByteReader& in) {
    const nlohmann::json json = parse(in.take_sized());
    try {
      return json.get<T>();
    } catch (const Error&) {
      throw;
    } catch (const std::exception& failure) {
      detail::rethrow_json(Errc::codec_mismatch,
                           "The recorded JSON is not that of the type that is asked for.", failure);
    }
  }

 private:
  static void append(const nlohmann::json& json, std::string& out) {
    if (!detail::is_finite(json)) detail::throw_codec_unencodable("JSON has no NaN or infinity");
    append_sized(out, json.dump());
  }

  static nlohmann::json parse(std::string_view text) {
    // The parser takes a NUL for the end of its input and would not see what follows.
    if (text.find('\0') != std::string_view::npos) {
      detail::throw_codec_corrupt("the recorded JSON holds a NUL byte");
    }
    try {
      return nlohmann::json::parse(text);
    } catch (const nlohmann::json::exception& failure) {
      detail::rethrow_json(
          Errc::codec_corrupt,
          "The recorded result is not JSON; an operator has to look at the record.", failure);
    }
  }
};

}  // namespace v0
}  // namespace idempotency
