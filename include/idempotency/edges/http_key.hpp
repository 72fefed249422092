#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "idempotency/edges/http_message.hpp"
#include "idempotency/key.hpp"

namespace idempotency {
inline namespace v0 {

/// Which forms of the header field `Idempotency-Key` are accepted.
enum class HttpKeySyntax : std::uint8_t {
  /// Also without quotes: visible ASCII but `"`, `\`, `,` and `;`. `8e03978e` and `"8e03978e"` are the same key.
  lenient,
  /// Only a String of RFC 9651, as draft-ietf-httpapi-idempotency-key-header says: `"8e03978e"`.
  strict,
};

/// What is wrong with a request's key.
enum class HttpKeyFault : std::uint8_t {
  none,
  missing,    ///< no field `Idempotency-Key`
  repeated,   ///< more than one
  malformed,  ///< not a String, empty or blank
  too_long,
};

/// The answer of `read_http_key`.
struct [[nodiscard]] HttpKeyReading {
  std::string key;  ///< without quotes and escapes; empty when something is wrong
  HttpKeyFault fault = HttpKeyFault::none;
  friend bool operator==(const HttpKeyReading&, const HttpKeyReading&) = default;
};

/// The key in one field value: a structured field String; its parameters are checked and ignored.
///
/// `longest`: in characters, without quotes and escapes.
///
/// Source: RFC 8941 and RFC 9651, sections 3.3.3 and 4.2.
HttpKeyReading read_http_key(std::string_view field_value, HttpKeySyntax syntax,
                             std::size_t longest);

/// The key of a request. Two fields are a fault, whatever they say.
HttpKeyReading read_http_key(const std::vector<HttpField>& fields, HttpKeySyntax syntax,
                             std::size_t longest);

/// `key` as a String of RFC 9651, for a header field.
///
/// Errors: `Errc::invalid_argument` for what is not printable ASCII.
[[nodiscard]] std::string quoted_http_key(std::string_view key);

/// The record's key for what a client calls `client_key`: for operators who look a request up.
///
/// `scope`: the method, a space, and the route (or, without one, the path). Key, principal and scope are joined so that no other
/// three give the same text, and digested, so that neither length nor content matters; the client's key stands readable in
/// front (32 bytes).
///
/// Errors: `Errc::invalid_key` for a type that is none and an empty client key.
[[nodiscard]] Key http_record_key(std::string_view type, std::string_view principal,
                                  std::string_view scope, std::string_view client_key);

}  // namespace v0
}  // namespace idempotency
