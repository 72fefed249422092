#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "idempotency/edges/http_message.hpp"

namespace idempotency {
inline namespace v0 {

/// Why a request was answered without its handler's response. Each has a problem type of its own (RFC 9457), so that a client can
/// tell it from a 409 or 422 of the business.
enum class HttpProblem : std::uint8_t {
  key_missing,    ///< a key is required
  key_malformed,  ///< not a String, empty, too long, or more than one
  key_not_issued,  ///< only issued keys are accepted, and this one was not, is another's, or is too old
  principal_missing,  ///< nobody is known to whom the key could belong
  body_too_large,     ///< the request's body is larger than is read
  key_reused,         ///< the key belongs to another request
  in_progress,        ///< the first request is still running
  store_unavailable,  ///< the records cannot be asked; nothing was done
  outcome_unknown,    ///< the first request may have taken effect: somebody has to look
  result_not_kept,    ///< the first request has ended, its response was too large or streamed
  failed,             ///< the first request failed for good, without effect
  failed_for_now,     ///< this attempt failed without effect; the next one runs
  record_unreadable,  ///< there is a record that this version cannot read; nothing was done
};

/// The last part of the problem's type URI: `key-missing`, `key-reused`, ...
[[nodiscard]] std::string_view to_string(HttpProblem problem) noexcept;

/// What a client does with its key after an answer that is no success. Sent as `Idempotency-Advice`, and in problem documents as
/// the member `advice`.
enum class KeyAdvice : std::uint8_t {
  keep_key,  ///< ask again with the same key, now or when somebody has looked; a new one could do it twice
  new_key,  ///< it is settled, without effect or as a refusal: a corrected request takes a new key
  done,     ///< it has been done: do not send it again
};
[[nodiscard]] std::string_view to_string(KeyAdvice advice) noexcept;
[[nodiscard]] KeyAdvice advice_of(HttpProblem problem) noexcept;

/// The status of each problem, 400 to 599.
struct HttpProblemStatuses {
  int key_missing = 400;
  int key_malformed = 400;
  int key_not_issued = 400;
  int principal_missing = 403;
  int body_too_large = 413;
  int key_reused = 422;
  int in_progress = 409;
  int store_unavailable = 503;
  int outcome_unknown = 409;
  int result_not_kept = 410;
  int failed = 422;
  int failed_for_now = 503;
  int record_unreadable = 500;

  [[nodiscard]] int of(HttpProblem problem) const noexcept;
};

/// The answer to a problem: `application/problem+json` with `type`, `title`, `status`, `detail` and `advice`. It says nothing of
/// the first request and does not repeat the key.
///
/// `type_base` goes in front of the problem's name; `retry_after` becomes whole seconds, rounded up, at least 1.
[[nodiscard]] HttpResponse problem_response(
    HttpProblem problem, int status, std::string_view type_base,
    std::optional<std::chrono::milliseconds> retry_after = std::nullopt);

}  // namespace v0
}  // namespace idempotency
