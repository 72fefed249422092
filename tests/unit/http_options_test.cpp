#include "idempotency/edges/http_options.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <set>
#include <string>

#include "idempotency/edges/http.hpp"
#include "idempotency/guard.hpp"
#include "idempotency/stores/memory.hpp"
#include "support/error_of.hpp"

namespace idempotency {
namespace {

using namespace std::chrono_literals;
using testing_support::code_of;

Errc code_of_options(HttpOptions options) {
  MemoryStore store;
  IdempotencyGuard guard{store};
  return code_of([&] { const HttpIdempotency http(guard, std::move(options)); });
}

TEST(HttpStatusPolicy, HasTheDocumentedDefaults) {
  const HttpStatusPolicy policy;
  for (const int status : {200, 201, 204, 303, 400, 401, 404, 410, 422, 499})
    EXPECT_EQ(policy.of(status), HttpMeaning::recorded) << status;
  for (const int status : {408, 409, 425, 429, 500, 501, 503, 599})
    EXPECT_EQ(policy.of(status), HttpMeaning::retryable) << status;
  for (const int status : {502, 504, 100, 199, 600, -1, 0, 1'000'000})
    EXPECT_EQ(policy.of(status), HttpMeaning::uncertain) << status;
}

TEST(HttpStatusPolicy, CanBeChangedWithinFinalStatuses) {
  HttpStatusPolicy policy;
  policy.set(409, HttpMeaning::recorded).set_range(500, 599, HttpMeaning::uncertain);

  EXPECT_EQ(policy.of(409), HttpMeaning::recorded);
  EXPECT_EQ(policy.of(500), HttpMeaning::uncertain);
  EXPECT_EQ(policy.of(408), HttpMeaning::retryable);
  EXPECT_EQ(HttpStatusPolicy::recording_all().of(503), HttpMeaning::recorded);
  EXPECT_EQ(code_of([&] { policy.set(199, HttpMeaning::recorded); }), Errc::invalid_argument);
  EXPECT_EQ(code_of([&] { policy.set(600, HttpMeaning::recorded); }), Errc::invalid_argument);
  EXPECT_EQ(code_of([&] { policy.set_range(300, 299, HttpMeaning::recorded); }),
            Errc::invalid_argument);
}

TEST(HttpOptions, RefusesToReplayCredentialsAndFieldsOfOneConnection) {
  for (const char* name :
       {"Set-Cookie", "set-cookie", "SET-COOKIE2", "Authorization", "WWW-Authenticate",
        "Proxy-Authenticate", "Authentication-Info", "Connection", "Keep-Alive",
        "Transfer-Encoding", "Content-Length", "Trailer", "Upgrade", "Date", "Idempotency-Key",
        "Idempotent-Replayed", "", "a b", "a:"}) {
    SCOPED_TRACE(name);
    EXPECT_EQ(code_of_options({.replayed_headers = {"Location", name}}), Errc::invalid_argument);
  }
}

TEST(HttpOptions, RefusesWhatCannotBeMeant) {
  EXPECT_EQ(code_of_options({.methods = {{"PO ST"}}}), Errc::invalid_argument);
  EXPECT_EQ(code_of_options({.longest_key = 0}), Errc::invalid_argument);
  EXPECT_EQ(code_of_options({.longest_key = 4'097}), Errc::invalid_argument);
  EXPECT_EQ(code_of_options({.missing_key = MissingHttpKey::issue}), Errc::invalid_argument);
  EXPECT_EQ(code_of_options({.type = "no type"}), Errc::invalid_key);
  EXPECT_EQ(code_of_options({.fingerprint = {.headers = {""}}}), Errc::invalid_argument);
  EXPECT_EQ(code_of_options({.problem_statuses = {.in_progress = 200}}), Errc::invalid_argument);
  EXPECT_EQ(code_of_options({.problem_base = "https://a\"b/"}), Errc::invalid_argument);
  EXPECT_EQ(code_of_options({.retry_after = -1ms}), Errc::invalid_argument);
}

TEST(HttpProblems, AreJsonWithTypesOfTheirOwn) {
  std::set<std::string> types;
  for (int number = 0; number <= static_cast<int>(HttpProblem::record_unreadable); ++number) {
    const auto problem = static_cast<HttpProblem>(number);
    const HttpResponse response = problem_response(problem, 418, "https://shop.example/", 1'001ms);
    const auto document = nlohmann::json::parse(response.body);

    EXPECT_EQ(response.status, 418);
    EXPECT_EQ(response.header("content-type"), "application/problem+json");
    EXPECT_EQ(response.header("retry-after"), "2");
    EXPECT_EQ(document.at("status"), 418);
    EXPECT_EQ(document.at("type"), std::string("https://shop.example/").append(to_string(problem)));
    EXPECT_FALSE(document.at("title").get<std::string>().empty());
    EXPECT_FALSE(document.at("detail").get<std::string>().empty());
    EXPECT_EQ(document.at("advice"), to_string(advice_of(problem)));
    EXPECT_EQ(response.header("Idempotency-Advice"), to_string(advice_of(problem)));
    types.insert(document.at("type"));
  }
  EXPECT_EQ(types.size(), 13U);
}

TEST(HttpProblems, RoundRetryAfterUpToWholeSeconds) {
  const auto seconds = [](std::chrono::milliseconds span) {
    return std::string(
        problem_response(HttpProblem::in_progress, 409, "", span).header("Retry-After"));
  };

  EXPECT_EQ(seconds(0ms), "1");
  EXPECT_EQ(seconds(1ms), "1");
  EXPECT_EQ(seconds(1'000ms), "1");
  EXPECT_EQ(seconds(1'001ms), "2");
  EXPECT_EQ(seconds(30'000ms), "30");
}

}  // namespace
}  // namespace idempotency
