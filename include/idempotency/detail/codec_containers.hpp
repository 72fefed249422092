#pragma once

#include <concepts>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "idempotency/detail/codec_form.hpp"

namespace idempotency {
inline namespace v0 {

namespace detail {

// Containers are recognised by what they can do, so that this header need not include them. One
// whose elements are of its own type (a tree) would be its own condition and needs a codec of its
// own.

template <class T>
concept CodecRange = requires(const T& range) {
  typename T::value_type;
  range.begin() != range.end();
  range.size();
}
&&std::default_initializable<T> && !std::same_as<typename T::value_type, T>;

template <class T>
concept CodecSequence = CodecRange<T> && requires(T& sequence, typename T::value_type element) {
  sequence.push_back(std::move(element));
};

template <class T>
concept CodecMap = CodecRange<T> &&
    requires(T& map, typename T::key_type key, typename T::mapped_type mapped) {
  map.emplace_hint(map.end(), std::move(key), std::move(mapped));
};

template <class T>
concept CodecSet = CodecRange<T> && std::same_as<typename T::key_type, typename T::value_type> &&
    requires(T& set, typename T::key_type key) {
  set.emplace_hint(set.end(), std::move(key));
};

template <class T>
concept CodecArray = CodecRange<T> && requires(T& array) {
  std::tuple_size<T>::value;
  array.data();
};

template <class T>
concept CodecByte =
    std::same_as<T, char> || std::same_as<T, unsigned char> || std::same_as<T, std::byte>;

/// Checks the promise on which forged counts are found: an element is at least one byte long.
class ElementsWritten {
 public:
  ElementsWritten(std::string& out, std::size_t count) : out_(&out), count_(count) {
    append_count(out, count);
    begin_ = out.size();
  }
  void check() const {
    if (out_->size() - begin_ < count_) {
      throw_codec_unencodable("the codec of an element has appended nothing");
    }
  }

 private:
  std::string* out_;
  std::size_t count_;
  std::size_t begin_ = 0;
};

/// Room for what a count says, as long as that is little: a forged count must not fill the memory.
template <class T>
void reserve_some(T& container, std::size_t count) {
  constexpr std::size_t limit = 1024;
  if constexpr (requires { container.reserve(count); }) {
    container.reserve(count < limit ? count : limit);
  }
}

}  // namespace detail

template <Encodable T>
struct Codec<std::optional<T>> {
  template <class Form>
  static void describe(Form& form) {
    form.add('?');
    detail::describe<T>(form);
  }
  static void encode(const std::optional<T>& value, std::string& out) {
    out += value ? '\1' : '\0';
    if (value) Codec<T>::encode(*value, out);
  }
  static std::optional<T> decode(ByteReader& in) {
    switch (in.take_byte()) {
      case 0:
        return std::nullopt;
      case 1:
        return std::optional<T>(std::in_place, Codec<T>::decode(in));
      default:
        detail::throw_codec_corrupt("an optional is neither empty nor full");
    }
  }
};

template <Encodable... Ts>
struct Codec<std::tuple<Ts...>> {
  using Tuple = std::tuple<Ts...>;
  template <class Form>
  static void describe(Form& form) {
    form.add('t');
    detail::describe_number(form, sizeof...(Ts));
    (detail::describe<Ts>(form), ...);
  }
  static void encode(const Tuple& value, std::string& out) {
    if constexpr (sizeof...(Ts) == 0) out += '\0';
    encode_each(value, out, std::index_sequence_for<Ts...>{});
  }
  static Tuple decode(ByteReader& in) {
    if constexpr (sizeof...(Ts) == 0) {
      if (in.take_byte() != 0) detail::throw_codec_corrupt("an empty tuple is not empty");
    }
    return Tuple{Codec<Ts>::decode(in)...};  // braces: from left to right
  }

 private:
  template <std::size_t... Index>
  static void encode_each([[maybe_unused]] const Tuple& value, std::string& out,
                          std::index_sequence<Index...>) {
    (Codec<Ts>::encode(std::get<Index>(value), out), ...);
  }
};

/// In the form of a tuple of two.
template <Encodable First, Encodable Second>
struct Codec<std::pair<First, Second>> {
  using Pair = std::pair<First, Second>;
  template <class Form>
  static void describe(Form& form) {
    Codec<std::tuple<First, Second>>::describe(form);
  }
  static void encode(const Pair& value, std::string& out) {
    Codec<First>::encode(value.first, out);
    Codec<Second>::encode(value.second, out);
  }
  static Pair decode(ByteReader& in) {
    return Pair{Codec<First>::decode(in), Codec<Second>::decode(in)};
  }
};

template <Encodable... Ts>
struct Codec<std::variant<Ts...>> {
  using Variant = std::variant<Ts...>;
  template <class Form>
  static void describe(Form& form) {
    form.add('v');
    detail::describe_number(form, sizeof...(Ts));
    (detail::describe<Ts>(form), ...);
  }
  static void encode(const Variant& value, std::string& out) {
    if (value.valueless_by_exception()) {
      detail::throw_codec_unencodable("a variant has lost its value to an exception");
    }
    detail::append_integer(out, {false, value.index()});
    encode_alternative(value, out, std::index_sequence_for<Ts...>{});
  }
  static Variant decode(ByteReader& in) {
    const detail::WideInteger index = detail::take_integer(in);
    if (index.negative || index.magnitude >= sizeof...(Ts)) {
      detail::throw_codec_corrupt("a variant has no such alternative");
    }
    return decode_alternative<0>(index.magnitude, in);
  }

 private:
  template <std::size_t... Index>
  static void encode_alternative(const Variant& value, std::string& out,
                                 std::index_sequence<Index...>) {
    ((value.index() == Index ? Codec<Ts>::encode(*std::get_if<Index>(&value), out) : void()), ...);
  }
  template <std::size_t Index>
  static Variant decode_alternative(std::size_t index, ByteReader& in) {
    if constexpr (Index + 1 < sizeof...(Ts)) {
      if (index != Index) return decode_alternative<Index + 1>(index, in);
    }
    using Alternative = std::variant_alternative_t<Index, Variant>;
    return Variant(std::in_place_index<Index>, Codec<Alternative>::decode(in));
  }
};

template <detail::CodecByte Byte, class Allocator>
struct Codec<std::vector<Byte, Allocator>> {
  using Bytes = std::vector<Byte, Allocator>;
  template <class Form>
  static void describe(Form& form) {
    form.add('y');
  }
  static void encode(const Bytes& value, std::string& out) {
    if (value.empty()) return append_count(out, 0);
    append_sized(out, std::string_view(reinterpret_cast<const char*>(value.data()), value.size()));
  }
  static Bytes decode(ByteReader& in) {
    const std::string_view bytes = in.take_sized();
    const auto* begin = reinterpret_cast<const Byte*>(bytes.data());
    return Bytes(begin, begin + bytes.size());
  }
};

template <detail::CodecSequence T>
  requires Encodable<typename T::value_type>
struct Codec<T> {
  using Element = typename T::value_type;
  template <class Form>
  static void describe(Form& form) {
    form.add('l');
    detail::describe<Element>(form);
  }
  static void encode(const T& value, std::string& out) {
    const detail::ElementsWritten written(out, value.size());
    for (const Element& element : value)
      Codec<Element>::encode(element, out);
    written.check();
  }
  static T decode(ByteReader& in) {
    const std::size_t count = in.take_count();
    T value;
    detail::reserve_some(value, count);
    for (std::size_t i = 0; i < count; ++i)
      value.push_back(Codec<Element>::decode(in));
    return value;
  }
};

/// In the form of a sequence.
template <detail::CodecArray T>
  requires Encodable<typename T::value_type>
struct Codec<T> {
  using Element = typename T::value_type;
  template <class Form>
  static void describe(Form& form) {
    form.add('l');
    detail::describe<Element>(form);
  }
  static void encode(const T& value, std::string& out) {
    const detail::ElementsWritten written(out, value.size());
    for (const Element& element : value)
      Codec<Element>::encode(element, out);
    written.check();
  }
  static T decode(ByteReader& in) {
    if (in.take_count() != std::tuple_size_v<T>) {
      detail::throw_codec_mismatch("the array has another size than the one that was recorded");
    }
    T value{};
    for (Element& element : value)
      element = Codec<Element>::decode(in);
    return value;
  }
};

template <detail::CodecMap T>
  requires Encodable<typename T::key_type> && Encodable<typename T::mapped_type>
struct Codec<T> {
  using KeyType = typename T::key_type;
  using Mapped = typename T::mapped_type;
  template <class Form>
  static void describe(Form& form) {
    form.add('m');
    detail::describe<KeyType>(form);
    detail::describe<Mapped>(form);
  }
  static void encode(const T& value, std::string& out) {
    const detail::ElementsWritten written(out, value.size());
    for (const auto& [key, mapped] : value) {
      Codec<KeyType>::encode(key, out);
      Codec<Mapped>::encode(mapped, out);
    }
    written.check();
  }
  static T decode(ByteReader& in) {
    const std::size_t count = in.take_count();
    T value;
    for (std::size_t i = 0; i < count; ++i) {
      KeyType key = Codec<KeyType>::decode(in);
      value.emplace_hint(value.end(), std::move(key), Codec<Mapped>::decode(in));
    }
    if (value.size() != count) detail::throw_codec_corrupt("a map holds a key twice");
    return value;
  }
};

template <detail::CodecSet T>
  requires Encodable<typename T::key_type>
struct Codec<T> {
  using Element = typename T::key_type;
  template <class Form>
  static void describe(Form& form) {
    form.add('k');
    detail::describe<Element>(form);
  }
  static void encode(const T& value, std::string& out) {
    const detail::ElementsWritten written(out, value.size());
    for (const Element& element : value)
      Codec<Element>::encode(element, out);
    written.check();
  }
  static T decode(ByteReader& in) {
    const std::size_t count = in.take_count();
    T value;
    for (std::size_t i = 0; i < count; ++i) {
      value.emplace_hint(value.end(), Codec<Element>::decode(in));
    }
    if (value.size() != count) detail::throw_codec_corrupt("a set holds an element twice");
    return value;
  }
};

}  // namespace v0
}  // namespace idempotency
