#pragma once

#include <concepts>
#include <cstddef>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "idempotency/error.hpp"
#include "idempotency/key.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail {

[[noreturn]] void throw_missing_key(const char* message, std::string detail = {});
[[noreturn]] void throw_ambiguous_header(std::string_view name);

/// Applies a projection: a pointer to a data member or to a function without arguments, or a
/// callable. `std::invoke`, which lives in a header that the core does without.
template <class Projection, class Request>
  requires std::is_invocable_v<const Projection&, const Request&>
decltype(auto) project(const Projection& projection, const Request& request) {
  if constexpr (std::is_member_object_pointer_v<Projection>) {
    return (request.*projection);
  } else if constexpr (std::is_member_function_pointer_v<Projection>) {
    return (request.*projection)();
  } else {
    return projection(request);
  }
}

template <class Projection, class Request>
using Projected = std::remove_cvref_t<std::invoke_result_t<const Projection&, const Request&>>;

template <class T>
concept OptionalLike = requires(const T& optional) {
  { optional.has_value() } -> std::same_as<bool>;
  *optional;
};

template <class T>
struct PartValue {
  using type = T;
};
template <OptionalLike T>
struct PartValue<T> {
  using type = std::remove_cvref_t<decltype(*std::declval<const T&>())>;
};

/// Gives something that can be a part of a key, or an optional of it, for a `Request`.
template <class Projection, class Request>
concept PartOf = std::is_invocable_v<const Projection&, const Request&> &&
    KeyPart<typename PartValue<Projected<Projection, Request>>::type>;

/// Hands the part to `use` as soon as it is there and not empty.
template <class T, class Use>
decltype(auto) with_present(const T& part, Use&& use) {
  if constexpr (OptionalLike<T>) {
    if (!part.has_value()) throw_missing_key("A part of the key is not in the request; refuse it.");
    return with_present(*part, std::forward<Use>(use));
  } else {
    if constexpr (TextLike<T>) {
      const std::string_view text = text_of(part);
      if (text.find_first_not_of(' ') == std::string_view::npos) {
        throw_missing_key("A part of the key is empty in the request; refuse it.");
      }
    }
    return std::forward<Use>(use)(part);
  }
}

/// Extractors say "not there" in many ways; all of them are a missing key to the caller.
template <class Fn>
decltype(auto) missing_key_if_thrown(Fn&& fn) {
  try {
    return std::forward<Fn>(fn)();
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& failure) {
    throw_missing_key("A part of the key cannot be read from the request; refuse it.",
                      failure.what());
  } catch (const std::nullopt_t&) {
    throw_missing_key("A part of the key is not in the request; refuse it.");
  }
}

/// The part as the text that stands in a key.
template <KeyPart T>
[[nodiscard]] std::string key_text(const T& part) {
  if constexpr (TextLike<T>) {
    return std::string(text_of(part));
  } else if constexpr (std::is_enum_v<T>) {
    return key_text(static_cast<std::underlying_type_t<T>>(part));
  } else if constexpr (std::same_as<T, bool>) {
    return part ? "true" : "false";
  } else if constexpr (std::same_as<T, char>) {
    return std::string(1, part);
  } else {
    return std::to_string(part);
  }
}

/// The part's text, or nothing where it is absent or empty.
template <class T>
[[nodiscard]] std::optional<std::string> text_if_present(const T& part) {
  if constexpr (OptionalLike<T>) {
    return part.has_value() ? text_if_present(*part) : std::nullopt;
  } else {
    std::string text = key_text(part);
    if (text.find_first_not_of(' ') == std::string::npos) return std::nullopt;
    return text;
  }
}

// --- where a request keeps its headers and its body ----------------------------------------------

template <class T>
concept HeaderFields = requires(const T& fields) {
  fields.begin() != fields.end();
  { (*fields.begin()).first } -> std::convertible_to<std::string_view>;
  { (*fields.begin()).second } -> std::convertible_to<std::string_view>;
};

template <class T>
concept HeaderValue = TextLike<T> ||(OptionalLike<T>&& TextLike<typename PartValue<T>::type>);

template <class T>
concept LooksUpHeaders = requires(const T& request, std::string_view name) {
  request.header(name);
  requires HeaderValue<std::remove_cvref_t<decltype(request.header(name))>>;
};
template <class T>
concept HasHeadersFunction = requires(const T& request) {
  request.headers();
  requires HeaderFields<std::remove_cvref_t<decltype(request.headers())>>;
};
template <class T>
concept HasHeadersMember = requires(const T& request) {
  requires HeaderFields<std::remove_cvref_t<decltype(request.headers)>>;
};
template <class T>
concept IsHeaderLookup = requires(const T& lookup, std::string_view name) {
  lookup(name);
  requires HeaderValue<std::remove_cvref_t<decltype(lookup(name))>>;
};

template <class T>
concept HasHeaders = LooksUpHeaders<T> || HasHeadersFunction<T> || HasHeadersMember<T> ||
    HeaderFields<T> || IsHeaderLookup<T>;

/// Whether both are the same header's name (RFC 9110, 5.1).
[[nodiscard]] bool same_header_name(std::string_view left, std::string_view right) noexcept;
/// Without the white space around it (RFC 9110, 5.5).
[[nodiscard]] std::string_view header_value(std::string_view text) noexcept;

template <HeaderFields Fields>
[[nodiscard]] std::optional<std::string> find_field(const Fields& fields, std::string_view name) {
  std::optional<std::string> found;
  for (const auto& field : fields) {
    if (!same_header_name(field.first, name)) continue;
    const std::string_view value = header_value(field.second);
    if (found && *found != value) throw_ambiguous_header(name);
    found = std::string(value);
  }
  return found;
}

template <HasHeaders Request>
[[nodiscard]] std::optional<std::string> find_header(const Request& request,
                                                     std::string_view name) {
  const auto trimmed = [](const auto& value) -> std::optional<std::string> {
    const std::optional<std::string> text = text_if_present(value);
    if (!text) return std::nullopt;
    return std::string(header_value(*text));
  };
  if constexpr (LooksUpHeaders<Request>) {
    return trimmed(request.header(name));
  } else if constexpr (HasHeadersFunction<Request>) {
    return find_field(request.headers(), name);
  } else if constexpr (HasHeadersMember<Request>) {
    return find_field(request.headers, name);
  } else if constexpr (HeaderFields<Request>) {
    return find_field(request, name);
  } else {
    return trimmed(request(name));
  }
}

/// The reference tokens of a JSON pointer (RFC 6901).
[[nodiscard]] std::vector<std::string> parse_json_pointer(std::string_view pointer);

/// The text, integer or bool at `path`, as text; nothing when it is not there or `json` is not
/// JSON.
[[nodiscard]] std::optional<std::string> find_in_json(const std::vector<std::string>& path,
                                                      std::string_view json);

/// The projection that finds the body of a request that is text or has a `body`.
struct BodyOf {
  template <class Request>
    requires TextLike<Request>
  [[nodiscard]] std::string_view operator()(const Request& request) const {
    return text_of(request);
  }
  template <class Request>
    requires requires(const Request& request) {
      { request.body } -> std::convertible_to<std::string_view>;
    }
  [[nodiscard]] std::string_view operator()(const Request& request) const { return request.body; }
  template <class Request>
    requires requires(const Request& request) {
      { request.body() } -> std::convertible_to<std::string_view>;
    }
  [[nodiscard]] decltype(auto) operator()(const Request& request) const { return request.body(); }
};

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
