#pragma once

#include <httplib.h>

#include <algorithm>
#include <chrono>
#include <idempotency/idempotency.hpp>
#include <nlohmann/json.hpp>
#include <string>

namespace shop {

/// Reads a request's JSON. Errors: `Errc::invalid_argument` when it is not what is expected.
template <class T>
T parse(const std::string& body) {
  try {
    return nlohmann::json::parse(body).get<T>();
  } catch (const nlohmann::json::exception& problem) {
    throw idempotency::Error(idempotency::Errc::invalid_argument,
                             "the request is not the JSON object that is expected", problem.what());
  }
}

inline void reply(httplib::Response& response, const nlohmann::json& body, int status = 200) {
  response.status = status;
  response.set_content(body.dump(), "application/json");
}

/// A refusal that tells people and programs what to do.
inline void reply_problem(httplib::Response& response, int status, const std::string& problem) {
  response.status = status;
  response.set_content(nlohmann::json{{"problem", problem}}.dump(), "application/problem+json");
}

/// "Ask again with the same key, after this time."
inline void reply_later(httplib::Response& response, int status, const std::string& problem,
                        std::chrono::milliseconds after = std::chrono::seconds{1}) {
  const auto seconds =
      std::max(std::chrono::ceil<std::chrono::seconds>(after), std::chrono::seconds{1});
  response.set_header("Retry-After", std::to_string(seconds.count()));
  reply_problem(response, status, problem);
}

/// What a run's status means in HTTP. `to_json` makes the body from the value: for equal values equal bytes.
template <class T, class ToJson>
void reply(httplib::Response& response, const idempotency::RunResult<T>& result, ToJson to_json) {
  using idempotency::RunStatus;
  switch (result.status()) {
    case RunStatus::replayed:
      response.set_header("Idempotent-Replayed", "true");
      return reply(response, to_json(result.value()), 201);
    case RunStatus::executed:
    case RunStatus::executed_unrecorded:  // it happened, and goes on being recorded
    case RunStatus::executed_unprotected:
    case RunStatus::executed_pending_commit:
      return reply(response, to_json(result.value()), 201);
    case RunStatus::superseded:  // somebody else settled it: what is recorded counts
      if (result.has_value()) return reply(response, to_json(result.value()), 201);
      return reply_later(response, 202, "the outcome is not known yet; it is being found out");
    case RunStatus::replayed_without_result:
      response.set_header("Idempotent-Replayed", "true");
      return reply(response, nlohmann::json::object(), 200);
    case RunStatus::in_progress:
      return reply_later(response, 409, "the same request is being worked on",
                         result.retry_after());
    case RunStatus::uncertain:
      return reply_later(response, 202, "the outcome is not known yet; it is being found out");
    case RunStatus::mismatch:
      return reply_problem(response, 422, "this id was used for another request");
    case RunStatus::failed:
      response.set_header("Idempotent-Replayed", "true");
      return reply_problem(response, 402, result.failure());
    case RunStatus::executed_failed:
      return reply_problem(response, 402, "the request failed");
    case RunStatus::undecidable:
      return reply_later(response, 503, "the service cannot tell whether it knows this request");
    case RunStatus::not_issued:
      return reply_problem(response, 403, "this id was not issued here, or its time is over");
  }
}

template <class T>
void reply(httplib::Response& response, const idempotency::RunResult<T>& result) {
  reply(response, result, [](const T& value) { return nlohmann::json(value); });
}

/// What an exception of the library's, or of a handler's, means in HTTP.
inline void reply_to_error(httplib::Response& response, const idempotency::Error& error) {
  using idempotency::Errc;
  switch (error.code()) {
    case Errc::permanent_failure:  // what `RunStatus::failed` replays from now on
      return reply_problem(response, 402, error.what());
    case Errc::outcome_unknown:
      return reply_later(response, 202, "the outcome is not known yet; it is being found out");
    case Errc::invalid_key:
    case Errc::missing_key:
    case Errc::invalid_fingerprint:
    case Errc::invalid_argument:
      return reply_problem(response, 400, error.what());
    default:
      if (error.safe_to_retry()) return reply_later(response, 503, error.what());
      return reply_problem(response, 500, error.what());
  }
}

}  // namespace shop
