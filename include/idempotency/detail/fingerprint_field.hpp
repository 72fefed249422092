#pragma once

#include <concepts>
#include <cstddef>
#include <optional>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

#include "idempotency/detail/fingerprint_input.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail {

/// Puts one field into a fingerprint's input. Undefined for types that have no canonical form.
template <class T>
struct FingerprintField;

/// What `Fingerprint::of` takes.
template <class T>
concept Fingerprintable = requires(FingerprintInput& input, const T& field) {
  FingerprintField<T>::add(input, field);
};

template <class T>
concept FingerprintNull = std::same_as<T, std::nullptr_t> || std::same_as<T, std::nullopt_t> ||
    std::same_as<T, std::monostate>;

template <class T>
concept FingerprintText = std::convertible_to<const T&, std::string_view> && !FingerprintNull<T>;

// Not long double: its bits differ between machines.
template <class T>
concept FingerprintFloat = std::same_as<T, float> || std::same_as<T, double>;

template <class T>
concept FingerprintOptional = requires(const T& optional) {
  typename T::value_type;
  { optional.has_value() } -> std::same_as<bool>;
  *optional;
};

/// `std::pair`, `std::tuple` and what looks like them, but not `std::array`.
template <class T>
concept FingerprintTuple = requires {
  std::tuple_size<T>::value;
}
&&!requires(const T& tuple) { tuple.data(); };

/// Sequences and ordered containers: the order of unordered ones says nothing, so they are refused.
template <class T>
concept FingerprintRange = requires(const T& range) {
  typename T::value_type;
  range.begin() != range.end();
  range.size();
}
&&!FingerprintText<T> && !requires { typename T::hasher; };

template <FingerprintNull T>
struct FingerprintField<T> {
  static void add(FingerprintInput& input, const T&) { input.add_null(); }
};

template <std::integral T>
struct FingerprintField<T> {
  static void add(FingerprintInput& input, const T& field) {
    if constexpr (std::same_as<T, bool>) {
      input.add_boolean(field);
    } else if constexpr (std::same_as<T, char>) {
      input.add_text(std::string_view(&field, 1));
    } else {
      input.add_integer(field);
    }
  }
};

template <class T>
  requires std::is_enum_v<T>
struct FingerprintField<T> {
  static void add(FingerprintInput& input, const T& field) {
    using Underlying = std::underlying_type_t<T>;
    FingerprintField<Underlying>::add(input, static_cast<Underlying>(field));
  }
};

template <FingerprintFloat T>
struct FingerprintField<T> {
  static void add(FingerprintInput& input, const T& field) {
    input.add_floating(static_cast<double>(field));
  }
};

template <FingerprintText T>
struct FingerprintField<T> {
  static void add(FingerprintInput& input, const T& field) {
    if constexpr (std::is_pointer_v<T>) {
      if (field == nullptr) return input.add_null();
    }
    input.add_text(field);
  }
};

/// An optional that holds a value counts as this value, so that a field may become optional later.
template <FingerprintOptional T>
  requires Fingerprintable<typename T::value_type> &&
      (!FingerprintOptional<typename T::value_type>)struct FingerprintField<T> {
    static void add(FingerprintInput& input, const T& field) {
      if (!field.has_value()) return input.add_null();
      FingerprintField<typename T::value_type>::add(input, *field);
    }
  };

  template <class T, std::size_t... Index>
  constexpr bool all_fingerprintable(std::index_sequence<Index...>) {
    return (Fingerprintable<std::remove_cv_t<std::tuple_element_t<Index, T>>> && ...);
  }

  template <FingerprintTuple T>
    requires(all_fingerprintable<T>(std::make_index_sequence<std::tuple_size<T>::value>{}))
  struct FingerprintField<T> {
    static void add(FingerprintInput& input, const T& field) {
      input.add_group(FingerprintInput::Kind::tuple, std::tuple_size_v<T>);
      add_each(input, field, std::make_index_sequence<std::tuple_size_v<T>>{});
    }

   private:
    template <std::size_t... Index>
    static void add_each(FingerprintInput& input, const T& field, std::index_sequence<Index...>) {
      using std::get;
      (FingerprintField<std::remove_cv_t<std::tuple_element_t<Index, T>>>::add(input,
                                                                               get<Index>(field)),
       ...);
    }
  };

  template <FingerprintRange T>
    requires Fingerprintable<typename T::value_type>
  struct FingerprintField<T> {
    static void add(FingerprintInput& input, const T& field) {
      using Element = typename T::value_type;
      input.add_group(FingerprintInput::Kind::list, field.size());
      for (const Element& element : field)
        FingerprintField<Element>::add(input, element);
    }
  };

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
