#pragma once

#include <concepts>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "idempotency/detail/request_parts.hpp"
#include "idempotency/error.hpp"
#include "idempotency/fingerprint.hpp"
#include "idempotency/key.hpp"

namespace idempotency {
inline namespace v0 {

/// Takes the key and, where there is one, the fingerprint out of a request.
///
/// A resolver never makes an id up: what is not in the request is an `Errc::missing_key`.
template <class R, class Request>
concept KeyResolver = requires(const R& resolver, const Request& request) {
  { resolver.key(request) } -> std::same_as<Key>;
  { resolver.fingerprint(request) } -> std::same_as<std::optional<Fingerprint>>;
};

namespace detail {

/// A tuple of projections gives a fingerprint: of all fields, or the one that a single projection
/// made.
template <class Request, class... Fields>
[[nodiscard]] Fingerprint fingerprint_of(const Request& request,
                                         const std::tuple<Fields...>& fields) {
  return std::apply(
      [&request](const Fields&... each) {
        if constexpr ((std::same_as<Projected<Fields, Request>, Fingerprint> && ...)) {
          static_assert(
              sizeof...(Fields) == 1,
              "idempotency: fingerprinted_by takes fields, or one function that returns a "
              "Fingerprint.");
          return (project(each, request), ...);
        } else {
          return Fingerprint::of(project(each, request)...);
        }
      },
      fields);
}

}  // namespace detail

/// A key resolver with a fingerprint; made by `key_of(...).fingerprinted_by(...)`.
template <class Resolver, class... Fields>
class FingerprintedKey {
 public:
  FingerprintedKey(Resolver resolver, Fields... fields)
      : resolver_(std::move(resolver)), fields_(std::move(fields)...) {}

  template <class Request>
    requires KeyResolver<Resolver, Request>
  [[nodiscard]] Key key(const Request& request) const { return resolver_.key(request); }
  template <class Request>
    requires KeyResolver<Resolver, Request> &&
        (std::is_invocable_v<const Fields&, const Request&>&&...)
            [[nodiscard]] std::optional<Fingerprint> fingerprint(const Request& request) const {
      return detail::fingerprint_of(request, fields_);
    }

   private:
    Resolver resolver_;
    std::tuple<Fields...> fields_;
};

/// A key resolver from parts; made by `key_of`.
template <class... Parts>
class KeyOf {
 public:
  KeyOf(std::string_view type, Parts... parts) : type_(type), parts_(std::move(parts)...) {
    static_cast<void>(Key(type_, "checks the type"));
  }

  /// Errors: `Errc::missing_key` when a part is absent, empty or cannot be read (its extractor
  /// threw a `std::exception`); `Errc::invalid_key` when it cannot stand in a key.
  template <class Request>
    requires(detail::PartOf<Parts, Request>&&...)
  [[nodiscard]] Key key(const Request& request) const {
    return detail::missing_key_if_thrown([&] { return key_from(request); });
  }

  template <class Request>
    requires(detail::PartOf<Parts, Request>&&...)
  [[nodiscard]] std::optional<Fingerprint> fingerprint(const Request&) const {
    return std::nullopt;
  }

  /// The same resolver with a fingerprint over what the projections give: member pointers and
  /// callables as in `key_of`, or one callable that returns a `Fingerprint`.
  template <class... Fields>
    requires(sizeof...(Fields) > 0)
  [[nodiscard]] FingerprintedKey<KeyOf, Fields...> fingerprinted_by(Fields... fields) const {
    return FingerprintedKey<KeyOf, Fields...>(*this, std::move(fields)...);
  }

 private:
  template <class Request>
  [[nodiscard]] Key key_from(const Request& request) const {
    if constexpr (sizeof...(Parts) == 1) {
      return detail::with_present(detail::project(std::get<0>(parts_), request),
                                  [this](const auto& part) { return this->key_of_one(part); });
    } else {
      constexpr std::size_t expected_bytes = 24;
      detail::KeyParts joined(type_, expected_bytes * sizeof...(Parts));
      const auto add = [&](const auto& part) {
        detail::with_present(detail::project(part, request),
                             [&joined](const auto& present) { joined.add(present); });
      };
      std::apply([&add](const Parts&... each) { (add(each), ...); }, parts_);
      return std::move(joined).take();
    }
  }
  template <class Part>
  [[nodiscard]] Key key_of_one(const Part& part) const {
    if constexpr (detail::TextLike<Part>) {
      return Key(type_, part);
    } else {
      return Key::of(type_, part);
    }
  }

  std::string type_;
  std::tuple<Parts...> parts_;
};

/// A resolver that builds keys of one business type from parts of the request.
///
/// A part is a pointer to a data member or to a member function without arguments, or a callable
/// that takes the request - `header`, `json_pointer`, `first_of` and `fixed` make such callables -
/// and gives text, an integer, an enumerator or bool, or an optional of these. One part gives the
/// key `Key{type, part}`, several give `Key::of(type, parts...)`.
///
/// Errors: `Errc::invalid_key` when the type cannot be one.
/// Example: `key_of("payment", &Order::id).fingerprinted_by(&Order::id, &Order::cents)`
template <class... Parts>
  requires(sizeof...(Parts) > 0)
[[nodiscard]] KeyOf<Parts...> key_of(std::string_view type, Parts... parts) {
  return KeyOf<Parts...>(type, std::move(parts)...);
}

/// The value of a header of the request; made by `header`.
class HeaderPart {
 public:
  explicit HeaderPart(std::string_view name) : name_(name) {}

  template <detail::HasHeaders Request>
  [[nodiscard]] std::optional<std::string> operator()(const Request& request) const {
    return detail::find_header(request, name_);
  }

 private:
  std::string name_;
};

/// A part that is the value of a header; names are compared without case (RFC 9110), the white
/// space around the value is left out.
///
/// The request has `header(name)` that gives text or an optional of it; or has `headers` or
/// `headers()`, or is itself, a range of pairs such as a (multi)map or a vector; or can be called
/// with the name.
///
/// Errors: `Errc::invalid_key` when a range holds the header several times with different values.
[[nodiscard]] inline HeaderPart header(std::string_view name) { return HeaderPart(name); }

/// A value within the request's JSON; made by `json_pointer`.
template <class Body>
class JsonPointerPart {
 public:
  JsonPointerPart(std::vector<std::string> path, Body body)
      : path_(std::move(path)), body_(std::move(body)) {}

  template <class Request>
    requires detail::TextLike<detail::Projected<Body, Request>>
  [[nodiscard]] std::optional<std::string> operator()(const Request& request) const {
    return detail::find_in_json(path_, detail::project(body_, request));
  }

 private:
  std::vector<std::string> path_;
  Body body_;
};

/// A part that is the value at a JSON pointer (RFC 6901) in the request's body.
///
/// The request is the JSON text itself, or has it in `body` or `body()`. Text, integers that fit
/// into 64 bits and bool can be parts of a key; null and what is not there are missing.
///
/// Errors: `Errc::invalid_argument` when `pointer` is not a JSON pointer; when used,
/// `Errc::invalid_key` when the value is of another kind or a name on the way to it stands twice.
[[nodiscard]] inline JsonPointerPart<detail::BodyOf> json_pointer(std::string_view pointer) {
  return JsonPointerPart<detail::BodyOf>(detail::parse_json_pointer(pointer), {});
}
/// The same, in the JSON text that the projection `body` gives.
template <class Body>
[[nodiscard]] JsonPointerPart<Body> json_pointer(std::string_view pointer, Body body) {
  return JsonPointerPart<Body>(detail::parse_json_pointer(pointer), std::move(body));
}

/// The first part that the request has; made by `first_of`.
template <class... Parts>
class FirstOf {
 public:
  explicit FirstOf(Parts... parts) : parts_(std::move(parts)...) {}

  template <class Request>
    requires(detail::PartOf<Parts, Request>&&...)
  [[nodiscard]] std::optional<std::string> operator()(const Request& request) const {
    std::optional<std::string> found;
    const auto try_part = [&](const auto& part) {
      found = detail::text_if_present(detail::project(part, request));
      return found.has_value();
    };
    std::apply([&](const Parts&... each) { static_cast<void>((try_part(each) || ...)); }, parts_);
    return found;
  }

 private:
  std::tuple<Parts...> parts_;
};

/// A part that is the first of several that the request has, for example a header and, where it is
/// not sent, an id in the body. The key does not say which one it was.
template <class... Parts>
  requires(sizeof...(Parts) > 0)
[[nodiscard]] FirstOf<Parts...> first_of(Parts... parts) {
  return FirstOf<Parts...>(std::move(parts)...);
}

/// A part that is the same for every request; made by `fixed`.
class FixedPart {
 public:
  explicit FixedPart(std::string_view text) : text_(text) {}

  template <class Request>
  [[nodiscard]] const std::string& operator()(const Request&) const noexcept {
    return text_;
  }

 private:
  std::string text_;
};

/// A part that is the same for every request, for example the name of the operation.
[[nodiscard]] inline FixedPart fixed(std::string_view text) { return FixedPart(text); }

}  // namespace v0
}  // namespace idempotency
