#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "idempotency/edges/http_fingerprint.hpp"
#include "idempotency/edges/http_key.hpp"
#include "idempotency/edges/http_message.hpp"
#include "idempotency/edges/http_problem.hpp"
#include "idempotency/policy.hpp"

namespace idempotency {
inline namespace v0 {

class TokenService;

/// What a key means for requests of a method or route.
enum class HttpKeyUse : std::uint8_t {
  ignored,   ///< the request is passed on untouched, also when it brings a key
  optional,  ///< protected when there is a key; otherwise passed on, and counted
  required,  ///< refused without one
};

/// A method and what a key means for it.
struct HttpMethodRule {
  std::string method;
  HttpKeyUse use = HttpKeyUse::required;
};

/// What a handler's response says of the effect.
enum class HttpMeaning : std::uint8_t {
  recorded,   ///< the answer to this request, for good: replayed
  retryable,  ///< no effect: sent to the client, and the next attempt runs
  uncertain,  ///< the effect may have happened: sent to the client, and blocked until settled
};

/// What each final status means.
///
/// By default 200 to 499 is recorded, but 408, 409, 425 and 429 are retryable; so are 5xx, but 502 and 504 are uncertain: the work
/// behind may have been done. A handler that has had an effect must not answer 500 or 503 without another setting here.
/// Thread safety: a value.
class HttpStatusPolicy {
 public:
  HttpStatusPolicy();
  /// Every response is recorded and replayed, failures too.
  [[nodiscard]] static HttpStatusPolicy recording_all();

  /// Errors: `Errc::invalid_argument` outside 200 to 599.
  HttpStatusPolicy& set(int status, HttpMeaning meaning);
  HttpStatusPolicy& set_range(int first, int last, HttpMeaning meaning);

  /// `uncertain` for what is no final status.
  [[nodiscard]] HttpMeaning of(int status) const noexcept;

 private:
  std::array<HttpMeaning, 400> meanings_{};
};

/// What becomes of a request without a principal.
enum class AnonymousRequests : std::uint8_t {
  refuse,  ///< `HttpProblem::principal_missing`
  share,   ///< all of them are one principal: whoever guesses a key gets its response
};

/// What becomes of a request without a key where one is required.
enum class MissingHttpKey : std::uint8_t {
  refuse,
  /// Refused too, and the answer's field `Idempotency-Key` has a new key for the next attempt; needs `HttpOptions::tokens`.
  issue,
};

/// `Content-Type`, `Content-Encoding`, `Content-Language`, `Content-Location`, `Content-Disposition`, `ETag`, `Last-Modified`,
/// `Link`, `Location`, `Cache-Control`, `Vary`.
[[nodiscard]] std::vector<std::string> default_replayed_headers();

/// How an `HttpIdempotency` works.
///
/// Callbacks are called concurrently. What they throw reaches the caller of `handle`; nothing has run then.
struct HttpOptions {
  /// Methods that are not named are ignored.
  std::vector<HttpMethodRule> methods = {{"POST", HttpKeyUse::required},
                                         {"PATCH", HttpKeyUse::required}};
  /// Asked first; nothing leaves it to `methods`. May be empty.
  std::function<std::optional<HttpKeyUse>(const HttpRequest&)> key_use = {};
  HttpKeySyntax key_syntax = HttpKeySyntax::lenient;
  std::size_t longest_key = 255;  ///< in characters, 1 to 4096; with `tokens` at least theirs
  MissingHttpKey missing_key = MissingHttpKey::refuse;
  AnonymousRequests anonymous = AnonymousRequests::refuse;

  /// The business type of the records, which selects the guard's policy; `type_of` says it for each request.
  std::string type = "http";
  std::function<std::string(const HttpRequest&)> type_of = {};
  /// What these operations want different from their type's policy.
  PolicyOverride policy = {};

  HttpFingerprintOptions fingerprint = {};
  /// In the place of `http_fingerprint`, for example with a scheme of its own.
  std::function<std::optional<Fingerprint>(const HttpRequest&)> fingerprint_of = {};

  HttpStatusPolicy statuses = {};
  /// Fields of the response that are recorded. Refused: cookies, credentials, hop-by-hop fields, `Content-Length`, and this
  /// edge's own.
  std::vector<std::string> replayed_headers = default_replayed_headers();

  /// Larger bodies are refused before anything is stored; in bytes.
  std::size_t longest_body = std::size_t{8} << 20U;

  HttpProblemStatuses problem_statuses = {};
  /// In front of a problem's name: your documentation's address, or this. Visible ASCII but `"` and `\`.
  std::string problem_base = "urn:idempotency:problem:";
  /// What `Retry-After` says when the store cannot be asked, and after `RetryableFailure`.
  std::chrono::milliseconds retry_after{1'000};

  /// Only keys that this issued are accepted, from the principal they were issued to, for the same type. Null: any key. Must
  /// outlive the edge.
  TokenService* tokens = nullptr;
  /// How long an issued key may be used first.
  std::chrono::milliseconds token_lifetime{std::chrono::minutes{10}};
};

}  // namespace v0
}  // namespace idempotency
