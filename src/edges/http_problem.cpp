#include "idempotency/edges/http_problem.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace idempotency {
inline namespace v0 {

namespace {

struct Words {
  std::string_view name;
  std::string_view title;
  std::string_view detail;
  KeyAdvice advice;
};

/// JSON text is made of these without escapes: no quotes, backslashes or control characters.
/// In the order of `HttpProblem`.
constexpr std::array<Words, 13> all_words{{
    {"key-missing", "The request needs an Idempotency-Key",
     "Send it again with a key in the field Idempotency-Key that no other request of yours has, "
     "such as a random UUID in double quotes.",
     KeyAdvice::new_key},
    {"key-malformed", "The Idempotency-Key cannot be read",
     "There must be one such field. Its value is text in double quotes, neither empty nor longer "
     "than this server accepts.",
     KeyAdvice::new_key},
    {"key-not-issued", "The Idempotency-Key was not issued for this",
     "This server accepts keys that it has issued to the same caller, for this, a short time ago. "
     "Ask it for another one.",
     KeyAdvice::new_key},
    {"principal-missing", "The caller is not known", "Keys belong to a caller. Authenticate first.",
     KeyAdvice::keep_key},
    {"body-too-large", "The request is too large",
     "The body is larger than this server accepts under an Idempotency-Key. Nothing was done.",
     KeyAdvice::new_key},
    {"key-reused", "The Idempotency-Key belongs to another request",
     "The key was used before with another address or content. A repeated request must be the "
     "same; another request needs a key of its own.",
     KeyAdvice::new_key},
    {"in-progress", "The first request is still being processed",
     "Ask again with the same key after the time in Retry-After.", KeyAdvice::keep_key},
    {"store-unavailable", "Whether this is a repetition cannot be told now",
     "Nothing was done. Ask again with the same key after the time in Retry-After.",
     KeyAdvice::keep_key},
    {"outcome-unknown", "What became of the request is not known yet",
     "It may have taken effect. Keep the key, do not use another one, and ask the support if the "
     "same request with the same key goes on being answered so.",
     KeyAdvice::keep_key},
    {"result-not-kept", "The request has been processed, its response was not kept",
     "It was processed once and will not be again. Its response is not there, for example because "
     "it was too large; read the state of what it changed.",
     KeyAdvice::done},
    {"failed", "The request has failed for good",
     "It had no effect and will not be tried again under this key.", KeyAdvice::new_key},
    {"failed-for-now", "The request has failed for now",
     "It had no effect. Ask again with the same key after the time in Retry-After.",
     KeyAdvice::keep_key},
    {"record-unreadable", "The record of the request cannot be read",
     "Nothing was done now. Keep the key, do not use another one, and ask the support.",
     KeyAdvice::keep_key},
}};

constexpr const Words& words_of(HttpProblem problem) noexcept {
  return all_words[static_cast<std::size_t>(problem)];
}
static_assert(words_of(HttpProblem::key_missing).name == "key-missing");
static_assert(words_of(HttpProblem::in_progress).name == "in-progress");
static_assert(words_of(HttpProblem::record_unreadable).name == "record-unreadable");

std::int64_t whole_seconds(std::chrono::milliseconds span) noexcept {
  return std::max<std::int64_t>(1, std::chrono::ceil<std::chrono::seconds>(span).count());
}

void append_member(std::string& out, std::string_view name, std::string_view value) {
  out.append(out.empty() ? "{\"" : ",\"").append(name).append("\":\"").append(value).append("\"");
}

}  // namespace

std::string_view to_string(HttpProblem problem) noexcept { return words_of(problem).name; }

std::string_view to_string(KeyAdvice advice) noexcept {
  switch (advice) {
    case KeyAdvice::keep_key:
      return "keep-key";
    case KeyAdvice::new_key:
      return "new-key";
    case KeyAdvice::done:
      return "done";
  }
  return "keep-key";
}

KeyAdvice advice_of(HttpProblem problem) noexcept { return words_of(problem).advice; }

int HttpProblemStatuses::of(HttpProblem problem) const noexcept {
  switch (problem) {
    case HttpProblem::key_missing:
      return key_missing;
    case HttpProblem::key_malformed:
      return key_malformed;
    case HttpProblem::key_not_issued:
      return key_not_issued;
    case HttpProblem::principal_missing:
      return principal_missing;
    case HttpProblem::body_too_large:
      return body_too_large;
    case HttpProblem::key_reused:
      return key_reused;
    case HttpProblem::in_progress:
      return in_progress;
    case HttpProblem::store_unavailable:
      return store_unavailable;
    case HttpProblem::outcome_unknown:
      return outcome_unknown;
    case HttpProblem::result_not_kept:
      return result_not_kept;
    case HttpProblem::failed:
      return failed;
    case HttpProblem::failed_for_now:
      return failed_for_now;
    case HttpProblem::record_unreadable:
      return record_unreadable;
  }
  return record_unreadable;
}

HttpResponse problem_response(HttpProblem problem, int status, std::string_view type_base,
                              std::optional<std::chrono::milliseconds> retry_after) {
  const Words& words = words_of(problem);
  const std::string_view advice = to_string(words.advice);
  HttpResponse response{.status = status};
  std::string& body = response.body;
  append_member(body, "type", std::string(type_base).append(words.name));
  append_member(body, "title", words.title);
  body.append(",\"status\":").append(std::to_string(status));
  append_member(body, "detail", words.detail);
  append_member(body, "advice", advice);
  body += '}';
  response.headers = {{"Content-Type", "application/problem+json"},
                      {"Cache-Control", "no-store"},
                      {"Idempotency-Advice", std::string(advice)}};
  if (retry_after) {
    response.headers.push_back({"Retry-After", std::to_string(whole_seconds(*retry_after))});
  }
  return response;
}

}  // namespace v0
}  // namespace idempotency
