#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "idempotency/edges/http_message.hpp"
#include "idempotency/fingerprint.hpp"

namespace idempotency {
inline namespace v0 {

/// What of a body tells two requests apart.
enum class HttpBodyMeaning : std::uint8_t {
  bytes,  ///< each byte
  json,  ///< for `application/json` and `+json`: the JSON value (`Fingerprint::of_json`); else, or if it is none, each byte
  ignored,  ///< nothing
};

/// What goes into a request's fingerprint, besides method, path and query.
struct HttpFingerprintOptions {
  /// Header fields that matter, such as `Accept-Language`; all values of each, in their order.
  std::vector<std::string> headers = {};
  HttpBodyMeaning body = HttpBodyMeaning::bytes;
};

/// Percent-encoding in one form (RFC 3986 section 6.2.2): unreserved characters plain, the rest with upper-case digits. A `%` that
/// begins no such triplet stays as it is.
[[nodiscard]] std::string normalized_percent_encoding(std::string_view text);

/// The parameters of a query, normalised and sorted by name; those of one name keep their order. `+` and `%20` differ, and so do `a`
/// and `a=`.
[[nodiscard]] std::vector<std::string> canonical_query(std::string_view query);

/// What a request means: method, normalised path, canonical query, chosen header fields and body.
[[nodiscard]] Fingerprint http_fingerprint(const HttpRequest& request,
                                           const HttpFingerprintOptions& options = {});

}  // namespace v0
}  // namespace idempotency
