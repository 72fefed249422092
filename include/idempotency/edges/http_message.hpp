#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "idempotency/codec.hpp"

namespace idempotency {
inline namespace v0 {

/// One header field of a request, as it was received. Names are compared without regard to case.
///
/// Lifetime: of the text, which it does not own.
struct HttpField {
  std::string_view name;
  std::string_view value;
};

/// What a server knows of a request, without a copy of it.
///
/// Lifetime: of the server's own request, which must outlive it.
struct HttpRequest {
  std::string_view method;  ///< as sent; methods distinguish case
  std::string_view path;    ///< as sent: percent-encoded, without the query
  /// The pattern that the router matched, such as `/accounts/{id}/payments`: keys are kept apart by it. Empty: the path.
  std::string_view route = {};
  std::string_view query = {};  ///< as sent, without the `?`
  std::vector<HttpField> headers = {};
  std::string_view body = {};  ///< all of it
  /// Who is asking, as the server has authenticated it (account, tenant), never as the client says.
  std::string_view principal = {};

  /// The value of the first field of that name; empty without one.
  [[nodiscard]] std::string_view header(std::string_view name) const noexcept;
};

/// Path and query of a request's target, as they were sent.
struct HttpTarget {
  std::string_view path;
  std::string_view query = {};  ///< without the `?`
  friend bool operator==(const HttpTarget&, const HttpTarget&) = default;
};

/// Takes a target apart, in origin form (`/pay?a=1`) or in absolute form (`http://host/pay?a=1`), as proxies and some clients send it: the
/// same request has the same path. A fragment is dropped. RFC 9112 sections 3.2.1 and 3.2.2.
[[nodiscard]] HttpTarget split_http_target(std::string_view target) noexcept;

/// One header field of a response.
struct HttpHeader {
  std::string name;
  std::string value;
  friend bool operator==(const HttpHeader&, const HttpHeader&) = default;
};

/// Whether a response's body can be recorded.
enum class HttpBodyForm : std::uint8_t {
  whole,     ///< `HttpResponse::body` is all of it
  streamed,  ///< it is produced while it is sent: duplicates get `HttpProblem::result_not_kept`
};

/// A response: what a handler produces and what is replayed. Fields keep their order, and a name may stand there repeatedly.
///
/// Thread safety: a value.
struct HttpResponse {
  int status = 200;
  std::vector<HttpHeader> headers = {};
  std::string body = {};
  HttpBodyForm form = HttpBodyForm::whole;

  /// The value of the first field of that name, without regard to case; empty without one.
  [[nodiscard]] std::string_view header(std::string_view name) const noexcept;

  friend bool operator==(const HttpResponse&, const HttpResponse&) = default;
};

/// How a response stands in a record: status (2 bytes, little-endian), number of fields, each name and value with its
/// length, body with its length; lengths as in `append_count`.
///
/// Errors: `Errc::codec_unencodable` for a streamed body, a status outside 100 to 599, and fields that are none (RFC 9110
/// section 5); `Errc::codec_corrupt` for bytes that say such a thing.
template <>
struct Codec<HttpResponse> {
  static constexpr std::string_view name = "http-response/1";
  static void encode(const HttpResponse& response, std::string& out);
  [[nodiscard]] static HttpResponse decode(ByteReader& in);
};

}  // namespace v0
}  // namespace idempotency
