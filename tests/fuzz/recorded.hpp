#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "idempotency/codec.hpp"

namespace idempotency::fuzzing {

/// Recorded bytes are refused with a typed error, or are a value that is recorded as the same value again; `also` checks what
/// else is true of every value.
template <class T, class CheckFn>
void check_recorded(std::string_view bytes, const CheckFn& also) {
  T value;
  try {
    value = decode_result<T>(bytes);
  } catch (const Error& error) {
    const Errc code = error.code();
    if (code != Errc::codec_corrupt && code != Errc::codec_mismatch) std::abort();
    return;
  }
  if (decode_result<T>(encode_result(value)) != value) std::abort();
  also(value);
}

/// The same for a fuzzer's input, as it is and behind the form that recorded bytes begin with.
template <class T, class CheckFn>
void check_recorded(const std::uint8_t* data, std::size_t size, const CheckFn& also) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  check_recorded<T>(bytes, also);
  std::string with_form;
  detail::append_form<T>(with_form);
  check_recorded<T>(with_form.append(bytes), also);
}

/// What is recorded of a value, with its form and without.
template <class T>
std::vector<std::string> recorded(const T& value) {
  std::string without_form;
  Codec<T>::encode(value, without_form);
  return {encode_result(value), without_form};
}

}  // namespace idempotency::fuzzing
