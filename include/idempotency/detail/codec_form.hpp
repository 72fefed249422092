#pragma once

#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>

#include "idempotency/detail/codec_bytes.hpp"

namespace idempotency {
inline namespace v0 {

template <class T>
struct Codec;

namespace detail {

template <class T>
concept HasCodecNameValue = requires {
  { Codec<T>::name } -> std::convertible_to<std::string_view>;
};
template <class T>
concept HasCodecNameFunction = requires {
  { Codec<T>::name() } -> std::convertible_to<std::string_view>;
};
/// The codecs of this library spell their form out, so that it follows the type's structure.
template <class T>
concept HasCodecDescription = requires(FormWriter& form) {
  Codec<T>::describe(form);
};

template <class T>
concept HasCodecForm = HasCodecDescription<T> || HasCodecNameValue<T> || HasCodecNameFunction<T>;

template <class T>
concept CanEncode = requires(const T& value, std::string& out) {
  Codec<T>::encode(value, out);
};
template <class T>
concept CanDecode = requires(ByteReader& in) {
  { Codec<T>::decode(in) } -> std::same_as<T>;
};

constexpr bool is_codec_name(std::string_view name) noexcept {
  return !name.empty() && name.size() <= 64 && name.find_first_of("{}") == std::string_view::npos;
}

/// Says `T`'s form to a `FormWriter` or `FormMatcher`. No form is the beginning of another, so that
/// forms need no separators.
template <class T, class Form>
void describe(Form& form) {
  if constexpr (HasCodecDescription<T>) {
    Codec<T>::describe(form);
  } else {
    form.add('{');
    if constexpr (HasCodecNameValue<T>) {
      static_assert(is_codec_name(Codec<T>::name),
                    "idempotency: the name of a Codec has 1 to 64 bytes and no braces.");
      form.add(std::string_view(Codec<T>::name));
    } else {
      form.add(std::string_view(Codec<T>::name()));
    }
    form.add('}');
  }
}

/// A number within a form, self-delimiting.
template <class Form>
void describe_number(Form& form, std::size_t number) {
  for (; number >= 0x80U; number >>= 7U)
    form.add(static_cast<char>((number & 0x7fU) | 0x80U));
  form.add(static_cast<char>(number));
}

}  // namespace detail

/// Has a codec, all the way down.
template <class T>
concept Encodable = std::is_void_v<T> ||
    (detail::HasCodecForm<T>&& detail::CanEncode<T>&& detail::CanDecode<T>);

}  // namespace v0
}  // namespace idempotency
