#include "idempotency/edges/http.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <atomic>
#include <functional>
#include <latch>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "idempotency/guard.hpp"
#include "idempotency/stores/memory.hpp"
#include "idempotency/testing/faulty_store.hpp"
#include "idempotency/testing/manual_clock.hpp"
#include "support/error_of.hpp"
#include "support/event.hpp"

namespace idempotency {
namespace {

using namespace std::chrono_literals;
using testing::Fault;
using testing::FaultyStore;
using testing::ManualClock;
using testing_support::code_of;
using testing_support::Event;

HttpRequest post(std::string_view key = "k", std::string_view principal = "alice",
                 std::string_view body = "{}") {
  HttpRequest request{.method = "POST", .path = "/pay", .body = body, .principal = principal};
  if (!key.empty()) request.headers.push_back({"Idempotency-Key", key});
  return request;
}

/// A shop behind the edge; tests count how often its handler ran.
class HttpTest : public ::testing::Test {
 protected:
  using Shop = HttpIdempotency<IdempotencyGuard<FaultyStore<MemoryStore>>>;

  [[nodiscard]] Shop shop(HttpOptions options = {}) { return Shop(guard, std::move(options)); }
  static HttpResponse receipt() {
    return {.status = 201,
            .headers = {{"Content-Type", "text/plain"},
                        {"Set-Cookie", "session=1"},
                        {"Location", "/payments/7"},
                        {"Link", "<a>"},
                        {"X-Trace", "1"},
                        {"Link", "<b>"}},
            .body = std::string("paid\0\r\n", 7)};
  }
  HttpResponse created() {
    ++runs;
    return receipt();
  }
  HttpAnswer pay(Shop& http, const HttpRequest& request) {
    return http.handle(request, [this] { return created(); });
  }
  HttpAnswer answer_with(Shop& http, int status) {
    return http.handle(post(), [&] {
      ++runs;
      return HttpResponse{.status = status};
    });
  }

  ManualClock clock;
  MemoryStore memory{{.clock = &clock}};
  FaultyStore<MemoryStore> store{memory};
  IdempotencyGuard<FaultyStore<MemoryStore>> guard{store};
  int runs = 0;
};

std::string type_of(const HttpAnswer& answer) {
  return nlohmann::json::parse(answer.response.body).at("type");
}

void expect_problem(const HttpAnswer& answer, HttpProblem problem, int status) {
  EXPECT_EQ(answer.problem, problem);
  EXPECT_EQ(answer.origin, HttpOrigin::edge);
  EXPECT_EQ(answer.response.status, status);
  EXPECT_EQ(answer.response.header("Content-Type"), "application/problem+json");
  EXPECT_EQ(answer.response.header("Idempotent-Replayed"), "");
  EXPECT_EQ(type_of(answer), std::string("urn:idempotency:problem:").append(to_string(problem)));
  EXPECT_EQ(answer.response.header("Idempotency-Advice"), to_string(advice_of(problem)));
}

TEST_F(HttpTest, ReplaysStatusAllowedFieldsInOrderAndBytes) {  // KF-06
  Shop http = shop();

  const HttpAnswer first = pay(http, post());
  const HttpAnswer second = pay(http, post("\"k\""));

  EXPECT_EQ(runs, 1);
  EXPECT_EQ(first.origin, HttpOrigin::executed);
  EXPECT_EQ(first.response, receipt());
  EXPECT_EQ(second.origin, HttpOrigin::replayed);
  EXPECT_EQ(second.response, (HttpResponse{.status = 201,
                                           .headers = {{"Content-Type", "text/plain"},
                                                       {"Location", "/payments/7"},
                                                       {"Link", "<a>"},
                                                       {"Link", "<b>"},
                                                       {"Idempotent-Replayed", "true"}},
                                           .body = std::string("paid\0\r\n", 7)}));
  EXPECT_FALSE(second.advice);
}

TEST_F(HttpTest, AsksTheStoreAsOftenAsTheGuardDoes) {
  Shop http = shop();

  static_cast<void>(pay(http, post()));
  EXPECT_EQ(store.calls(StoreCall::begin), 1U);
  EXPECT_EQ(store.calls(StoreCall::complete), 1U);
  static_cast<void>(pay(http, post()));
  EXPECT_EQ(store.calls(StoreCall::begin), 2U);
  EXPECT_EQ(store.calls(StoreCall::complete), 1U);
  EXPECT_EQ(store.calls(StoreCall::find), 0U);
  static_cast<void>(pay(http, post("")));
  static_cast<void>(pay(http, post("a,b")));
  EXPECT_EQ(store.calls(StoreCall::begin), 2U);
}

TEST_F(HttpTest, KeepsPrincipalsRoutesAndMethodsApart) {  // KF-01
  Shop http = shop({.methods = {{"POST"}, {"PATCH"}}});
  HttpRequest refund = post();
  refund.path = "/refund";
  HttpRequest routed = post();
  routed.route = "/{operation}";
  HttpRequest patch = post();
  patch.method = "PATCH";

  for (const HttpRequest& request : {post(), post("k", "bob"), refund, routed, patch})
    EXPECT_EQ(pay(http, request).origin, HttpOrigin::executed);

  EXPECT_EQ(runs, 5);
  EXPECT_EQ(pay(http, post("k", "bob")).origin, HttpOrigin::replayed);
}

TEST_F(HttpTest, LetsOneRouteHoldManyPaths) {
  Shop http = shop();
  HttpRequest first = post();
  first.path = "/accounts/1/payments";
  first.route = "/accounts/{id}/payments";
  HttpRequest other = first;
  other.path = "/accounts/2/payments";

  EXPECT_EQ(pay(http, first).origin, HttpOrigin::executed);
  expect_problem(pay(http, other), HttpProblem::key_reused, 422);
}

TEST_F(HttpTest, RefusesRequestsWithoutAUsableKey) {  // KF-05
  Shop http = shop();

  expect_problem(pay(http, post("")), HttpProblem::key_missing, 400);
  expect_problem(pay(http, post("\"\"")), HttpProblem::key_malformed, 400);
  expect_problem(pay(http, post("\"k")), HttpProblem::key_malformed, 400);
  expect_problem(pay(http, post(std::string(256, 'k'))), HttpProblem::key_malformed, 400);
  HttpRequest twice = post();
  twice.headers.push_back({"idempotency-key", "k"});
  expect_problem(pay(http, twice), HttpProblem::key_malformed, 400);
  expect_problem(pay(http, post("k", "")), HttpProblem::principal_missing, 403);
  EXPECT_EQ(runs, 0);
}

TEST_F(HttpTest, TakesQuotedKeysOnlyWhenStrict) {
  Shop http = shop({.key_syntax = HttpKeySyntax::strict});

  expect_problem(pay(http, post("k")), HttpProblem::key_malformed, 400);
  EXPECT_EQ(pay(http, post("\"k\";v=1")).origin, HttpOrigin::executed);
  EXPECT_EQ(pay(http, post("\"k\"")).origin, HttpOrigin::replayed);
}

TEST_F(HttpTest, PassesOtherMethodsOnUntouched) {
  Shop http = shop();
  for (const char* method : {"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE", "post"}) {
    HttpRequest request = post();
    request.method = method;
    const HttpAnswer answer = pay(http, request);
    EXPECT_EQ(answer.origin, HttpOrigin::untouched) << method;
    EXPECT_EQ(answer.response.headers.size(), 6U) << method;
  }
  EXPECT_EQ(runs, 7);
  EXPECT_EQ(store.calls(StoreCall::begin), 0U);
  EXPECT_EQ(http.passed_without_key(), 0U);
}

TEST_F(HttpTest, CountsWhatIsPassedOnBecauseItsOptionalKeyIsMissing) {  // KF-05
  Shop http = shop({.methods = {{"POST", HttpKeyUse::optional}},
                    .key_use = [](const HttpRequest& request) -> std::optional<HttpKeyUse> {
                      if (request.path == "/log") return HttpKeyUse::ignored;
                      return std::nullopt;
                    }});
  HttpRequest log = post();
  log.path = "/log";

  EXPECT_EQ(pay(http, post("", "")).origin, HttpOrigin::untouched);
  EXPECT_EQ(pay(http, post("")).origin, HttpOrigin::untouched);
  EXPECT_EQ(pay(http, log).origin, HttpOrigin::untouched);
  EXPECT_EQ(pay(http, post()).origin, HttpOrigin::executed);
  EXPECT_EQ(pay(http, post()).origin, HttpOrigin::replayed);
  expect_problem(pay(http, post("\"")), HttpProblem::key_malformed, 400);
  EXPECT_EQ(http.passed_without_key(), 2U);
}

TEST_F(HttpTest, TellsAReusedKeyFromTheHandlersOwn422And409) {  // KF-12
  Shop http = shop({.statuses = HttpStatusPolicy().set(409, HttpMeaning::recorded)});
  for (const int status : {409, 422}) {
    const std::string key = "k" + std::to_string(status);
    const auto business = [&] {
      return HttpResponse{.status = status,
                          .headers = {{"Content-Type", "application/problem+json"}},
                          .body = R"({"type":"https://shop.example/no-stock"})"};
    };
    const HttpAnswer first = http.handle(post(key), business);
    const HttpAnswer second = http.handle(post(key), business);

    EXPECT_EQ(first.response.status, status);
    EXPECT_EQ(second.origin, HttpOrigin::replayed);
    EXPECT_EQ(type_of(second), "https://shop.example/no-stock");
    EXPECT_EQ(second.response.header("Idempotency-Advice"), "new-key");
    expect_problem(http.handle(post(key, "alice", "[]"), business), HttpProblem::key_reused, 422);
  }
}

TEST_F(HttpTest, SaysNothingOfTheFirstRequestNorOfTheKey) {
  Shop http = shop();
  static_cast<void>(http.handle(post("secret-key", "alice", "secret-body"), [] {
    return HttpResponse{.headers = {{"Location", "/secret-place"}}, .body = "secret-answer"};
  }));

  const HttpAnswer refusal = pay(http, post("secret-key", "alice", "other"));

  expect_problem(refusal, HttpProblem::key_reused, 422);
  EXPECT_EQ(refusal.response.body.find("secret"), std::string::npos);
  for (const HttpHeader& header : refusal.response.headers)
    EXPECT_EQ(header.value.find("secret"), std::string::npos) << header.name;
}

TEST_F(HttpTest, HasConfigurableStatusesAndTypes) {  // KF-12
  Shop http = shop({.problem_statuses = {.key_missing = 428, .key_reused = 409},
                    .problem_base = "https://shop.example/problems#"});

  EXPECT_EQ(pay(http, post("")).response.status, 428);
  static_cast<void>(pay(http, post()));
  const HttpAnswer reused = pay(http, post("k", "alice", "[]"));
  EXPECT_EQ(reused.response.status, 409);
  EXPECT_EQ(type_of(reused), "https://shop.example/problems#key-reused");
}

TEST_F(HttpTest, SaysWhenToAskAgainWhileTheFirstIsRunning) {
  Shop http = shop({.policy = {.lease = 20'001ms}});
  std::optional<HttpAnswer> meanwhile;

  static_cast<void>(http.handle(post(), [&] {
    meanwhile = pay(http, post());
    return created();
  }));

  ASSERT_TRUE(meanwhile);
  expect_problem(*meanwhile, HttpProblem::in_progress, 409);
  EXPECT_EQ(meanwhile->response.header("Retry-After"), "21");
  EXPECT_EQ(runs, 1);
}

TEST_F(HttpTest, GivesThoseWhoWaitTheRecordedResponse) {
  Shop http = shop({.policy = {.wait = 30'000ms}});
  Event running;
  Event may_end;
  std::thread first([&] {
    static_cast<void>(http.handle(post(), [&] {
      running.set();
      static_cast<void>(may_end.wait());
      return created();
    }));
  });
  ASSERT_TRUE(running.wait());
  std::thread releasing([&] { may_end.set(); });
  const HttpAnswer second = pay(http, post());
  first.join();
  releasing.join();

  EXPECT_EQ(second.origin, HttpOrigin::replayed);
  EXPECT_EQ(second.response.header("Location"), "/payments/7");
  EXPECT_EQ(runs, 1);
}

TEST_F(HttpTest, RunsAgainAfterTransientFailuresAndThenReplays) {  // KF-14
  Shop http = shop();
  const auto fails_three_times = [&] {
    return HttpResponse{.status = ++runs <= 3 ? 503 : 201, .body = std::to_string(runs)};
  };

  for (int attempt = 1; attempt <= 3; ++attempt) {
    const HttpAnswer failed = http.handle(post(), fails_three_times);
    EXPECT_EQ(failed.origin, HttpOrigin::executed);
    EXPECT_EQ(failed.response.status, 503);
    EXPECT_EQ(failed.response.body, std::to_string(attempt));
    EXPECT_EQ(failed.advice, KeyAdvice::keep_key);
    EXPECT_EQ(failed.response.header("Idempotency-Advice"), "keep-key");
  }
  EXPECT_EQ(http.handle(post(), fails_three_times).response.status, 201);
  const HttpAnswer replay = http.handle(post(), fails_three_times);

  EXPECT_EQ(replay.origin, HttpOrigin::replayed);
  EXPECT_EQ(replay.response.body, "4");
  EXPECT_EQ(runs, 4);
}

TEST_F(HttpTest, ReplaysFailuresTooWhenAllIsRecorded) {  // KF-14
  Shop http = shop({.statuses = HttpStatusPolicy::recording_all()});

  EXPECT_EQ(answer_with(http, 500).origin, HttpOrigin::executed);
  const HttpAnswer replay = answer_with(http, 201);

  EXPECT_EQ(replay.origin, HttpOrigin::replayed);
  EXPECT_EQ(replay.response.status, 500);
  EXPECT_EQ(replay.response.header("Idempotent-Replayed"), "true");
  EXPECT_EQ(replay.advice, KeyAdvice::new_key);
  EXPECT_EQ(runs, 1);
}

TEST_F(HttpTest, BlocksTheKeyAfterAnAnswerThatMayHideAnEffect) {
  for (const int status : {502, 504}) {
    Shop http = shop({.type = "gateway" + std::to_string(status)});
    runs = 0;

    const HttpAnswer first = answer_with(http, status);
    const HttpAnswer second = answer_with(http, 201);

    EXPECT_EQ(first.origin, HttpOrigin::executed);
    EXPECT_EQ(first.response.status, status);
    EXPECT_EQ(first.advice, KeyAdvice::keep_key);
    expect_problem(second, HttpProblem::outcome_unknown, 409);
    EXPECT_EQ(second.response.header("Retry-After"), "");
    EXPECT_EQ(runs, 1);
  }
}

TEST_F(HttpTest, TurnsTheLibrarysFailuresIntoProblems) {
  Shop http = shop();
  const auto throwing = [&](const char* key, auto failure) {
    return http.handle(post(key), [&]() -> HttpResponse {
      ++runs;
      throw failure;
    });
  };

  expect_problem(throwing("1", PermanentFailure("secret")), HttpProblem::failed, 422);
  expect_problem(throwing("1", PermanentFailure("secret")), HttpProblem::failed, 422);
  EXPECT_EQ(runs, 1);
  const HttpAnswer later = throwing("2", RetryableFailure("secret"));
  expect_problem(later, HttpProblem::failed_for_now, 503);
  EXPECT_EQ(later.response.header("Retry-After"), "1");
  EXPECT_EQ(pay(http, post("2")).origin, HttpOrigin::executed);
  const HttpAnswer unknown = throwing("3", OutcomeUnknown("secret"));
  expect_problem(unknown, HttpProblem::outcome_unknown, 409);
  expect_problem(pay(http, post("3")), HttpProblem::outcome_unknown, 409);
  for (const HttpAnswer* answer : {&later, &unknown})
    EXPECT_EQ(answer->response.body.find("secret"), std::string::npos);
}

TEST_F(HttpTest, LetsOtherExceptionsOfTheHandlersPass) {
  Shop http = shop({.type = "payment"});  // hold
  const auto throws = [&]() -> HttpResponse { throw std::runtime_error("bug"); };
  const auto throws_an_error = [&]() -> HttpResponse {
    throw Error(Errc::store_unavailable, "the handler's own store");
  };

  EXPECT_THROW(static_cast<void>(http.handle(post("1"), throws)), std::runtime_error);
  expect_problem(pay(http, post("1")), HttpProblem::outcome_unknown, 409);
  EXPECT_EQ(code_of([&] { static_cast<void>(http.handle(post("2"), throws_an_error)); }),
            Errc::store_unavailable);
}

TEST_F(HttpTest, HandsTheExecutionToHandlersThatTakeIt) {
  Shop http = shop({.type = "payment"});  // hold
  std::string derived;
  const auto fails = [&](Execution* execution) -> HttpResponse {
    derived = execution->derived_key("charge");
    throw std::runtime_error("before the point of no return");
  };

  EXPECT_THROW(static_cast<void>(http.handle(post(), fails)), std::runtime_error);
  const HttpAnswer second = http.handle(post(), [&](Execution* execution) {
    EXPECT_EQ(execution->derived_key("charge"), derived);
    EXPECT_EQ(execution->attempt(), 2U);
    return created();
  });
  HttpRequest get = post();
  get.method = "GET";
  const HttpAnswer untouched = http.handle(get, [&](Execution* execution) {
    EXPECT_EQ(execution, nullptr);
    return created();
  });

  EXPECT_EQ(second.origin, HttpOrigin::executed);
  EXPECT_EQ(untouched.origin, HttpOrigin::untouched);
}

TEST_F(HttpTest, DoesNothingWhileTheStoreIsDown) {
  Shop http = shop({.retry_after = 2'500ms});
  for (const Fault fault : {Fault::request_lost, Fault::busy, Fault::full, Fault::refused}) {
    store.on(StoreCall::begin).heal().fail_next(10, fault);
    const HttpAnswer answer = pay(http, post());
    expect_problem(answer, HttpProblem::store_unavailable, 503);
    EXPECT_EQ(answer.response.header("Retry-After"), "3");
  }
  EXPECT_EQ(runs, 0);
  store.heal();
  EXPECT_EQ(pay(http, post()).origin, HttpOrigin::executed);
}

TEST_F(HttpTest, RunsUnprotectedWhileTheStoreIsDownWhereThePolicySaysSo) {
  Shop http = shop({.policy = {.on_store_failure = OnStoreFailure::run_unprotected}});
  store.on(StoreCall::begin).fail_next(20, Fault::request_lost);

  EXPECT_EQ(pay(http, post()).response.status, 201);
  EXPECT_EQ(runs, 1);
}

TEST_F(HttpTest, SendsTheResponseAlsoWhenItCouldNotBeRecordedYet) {
  IdempotencyGuard impatient(store, {.write_budget = 1ms});
  Shop http(impatient);
  store.on(StoreCall::complete).fail_next(3, Fault::request_lost);

  const HttpAnswer answer = pay(http, post());

  EXPECT_EQ(answer.origin, HttpOrigin::executed);
  EXPECT_EQ(answer.response.status, 201);
}

TEST_F(HttpTest, ReplaysTheResponseThatAnOperatorSettledWith) {
  Shop http = shop();
  const auto settle = [&](const char* key, std::optional<std::string> result) {
    static_cast<void>(http.handle(post(key), [] { return HttpResponse{.status = 504}; }));
    const auto record = memory.find(http_record_key("http", "alice", "POST /pay", key));
    EXPECT_EQ(memory.resolve(*record, {.verdict = Resolution::Verdict::succeeded,
                                       .result = std::move(result)}),
              WriteOutcome::stored);
  };
  settle("1", encode_result(receipt()));
  settle("2", std::nullopt);
  settle("3", "no response");

  const HttpAnswer replay = pay(http, post("1"));

  EXPECT_EQ(replay.origin, HttpOrigin::replayed);
  EXPECT_EQ(replay.response.status, 201);
  EXPECT_EQ(replay.response.header("Location"), "/payments/7");
  EXPECT_EQ(replay.response.header("Set-Cookie"), "");
  expect_problem(pay(http, post("2")), HttpProblem::result_not_kept, 410);
  expect_problem(pay(http, post("3")), HttpProblem::record_unreadable, 500);
  EXPECT_EQ(runs, 0);
}

TEST_F(HttpTest, SaysThatAnOverSizeResponseIsNotKept) {  // KF-09
  Shop http = shop({.policy = {.max_result_bytes = 100}});
  const auto large = [&] {
    ++runs;
    return HttpResponse{.status = 201, .body = std::string(101, 'x')};
  };

  EXPECT_EQ(http.handle(post(), large).response.body.size(), 101U);
  const HttpAnswer second = http.handle(post(), large);

  expect_problem(second, HttpProblem::result_not_kept, 410);
  EXPECT_EQ(second.advice, KeyAdvice::done);
  EXPECT_EQ(runs, 1);
}

TEST_F(HttpTest, DoesNotRecordAStreamNorAFieldThatIsNone) {
  Shop http = shop();
  const auto streamed = [&] {
    ++runs;
    return HttpResponse{.status = 200, .form = HttpBodyForm::streamed};
  };
  const auto injected = [&] {
    ++runs;
    return HttpResponse{.status = 201, .headers = {{"Location", "/\r\nSet-Cookie: a"}}};
  };

  EXPECT_EQ(http.handle(post("1"), streamed).response.form, HttpBodyForm::streamed);
  expect_problem(http.handle(post("1"), streamed), HttpProblem::result_not_kept, 410);
  EXPECT_EQ(http.handle(post("2"), injected).origin, HttpOrigin::executed);
  expect_problem(http.handle(post("2"), injected), HttpProblem::result_not_kept, 410);
  EXPECT_EQ(runs, 2);
}

TEST_F(HttpTest, RefusesAnOverSizeRequestBeforeAnythingIsStored) {
  Shop http = shop({.longest_body = 3});

  expect_problem(pay(http, post("k", "alice", "1234")), HttpProblem::body_too_large, 413);
  EXPECT_EQ(store.calls(StoreCall::begin), 0U);
  EXPECT_EQ(pay(http, post("k", "alice", "123")).origin, HttpOrigin::executed);
}

TEST_F(HttpTest, DoesNotRecordFieldsThatConnectionNames) {
  Shop http = shop();
  const auto answers = [&] {
    return HttpResponse{.headers = {{"Connection", "close, etag"}, {"ETag", "1"}, {"Vary", "*"}}};
  };

  static_cast<void>(http.handle(post(), answers));

  EXPECT_EQ(http.handle(post(), answers).response.headers,
            (std::vector<HttpHeader>{{"Vary", "*"}, {"Idempotent-Replayed", "true"}}));
}

TEST_F(HttpTest, TakesTheBusinessTypeOfEachRequest) {
  Shop http = shop({.type_of = [](const HttpRequest& request) {
    return std::string(request.path == "/pay" ? "payment" : "note");
  }});
  static_cast<void>(pay(http, post()));

  const std::optional<Record> record =
      memory.find(http_record_key("payment", "alice", "POST /pay", "k"));

  ASSERT_TRUE(record);
  EXPECT_EQ(record->mode, RecordMode::hold);
}

TEST_F(HttpTest, KeepsTheTraceOfTheRequest) {
  Shop http = shop();
  HttpRequest traced = post();
  traced.headers.push_back({"Traceparent", "00-1-2-01"});
  static_cast<void>(pay(http, traced));

  const std::optional<Record> record =
      memory.find(http_record_key("http", "alice", "POST /pay", "k"));

  ASSERT_TRUE(record);
  EXPECT_EQ(record->trace, "00-1-2-01");
}

TEST_F(HttpTest, TakesAFingerprintOfTheApplications) {
  Shop http = shop({.fingerprint_of = [](const HttpRequest& request) {
    return std::optional(Fingerprint::of(request.path).as_scheme(7));
  }});

  EXPECT_EQ(pay(http, post("k", "alice", "1")).origin, HttpOrigin::executed);
  EXPECT_EQ(pay(http, post("k", "alice", "2")).origin, HttpOrigin::replayed);
  Shop upgraded = shop();
  expect_problem(pay(upgraded, post()), HttpProblem::record_unreadable, 500);  // KF-03
}

TEST_F(HttpTest, SharesKeysAmongUnknownCallersOnlyWhenTold) {
  Shop http = shop({.anonymous = AnonymousRequests::share});

  EXPECT_EQ(pay(http, post("k", "")).origin, HttpOrigin::executed);
  EXPECT_EQ(pay(http, post("k", "")).origin, HttpOrigin::replayed);
  EXPECT_EQ(pay(http, post("k", "alice")).origin, HttpOrigin::executed);
}

TEST_F(HttpTest, IssuesKeysAndAcceptsNoOthers) {
  TokenService tokens{store};
  Shop http = shop({.type = "order", .tokens = &tokens});

  const HttpAnswer issued = http.issue_key(post(""));
  const std::string key(issued.response.header("Idempotency-Key"));
  const auto document = nlohmann::json::parse(issued.response.body);

  EXPECT_EQ(issued.response.status, 201);
  EXPECT_EQ(quoted_http_key(document.at("idempotency_key").get<std::string>()), key);
  EXPECT_EQ(document.at("expires_in"), 600);
  EXPECT_EQ(issued.response.header("Cache-Control"), "no-store");
  expect_problem(pay(http, post("mine")), HttpProblem::key_not_issued, 400);
  expect_problem(pay(http, post(key, "bob")), HttpProblem::key_not_issued, 400);
  EXPECT_EQ(runs, 0);
  EXPECT_EQ(pay(http, post(key)).origin, HttpOrigin::executed);
  EXPECT_EQ(pay(http, post(key)).origin, HttpOrigin::replayed);
  expect_problem(pay(http, post(key, "alice", "[]")), HttpProblem::key_reused, 422);
  EXPECT_EQ(runs, 1);
}

TEST_F(HttpTest, NeverReplaysAnIssuedKeyOnAnotherRouteWhateverTheFingerprintSays) {
  TokenService tokens{store};
  const auto body_only = [](const HttpRequest& request) {
    return std::optional(Fingerprint::of_bytes(request.body).as_scheme(7));
  };
  const auto nothing = [](const HttpRequest&) { return std::optional<Fingerprint>(); };
  const auto upgraded = [](const HttpRequest& request) {
    return std::optional(Fingerprint::of_bytes(request.body)
                             .as_scheme(8)
                             .or_earlier(Fingerprint::of_bytes(request.body).as_scheme(7)));
  };
  Shop http = shop({.type = "order", .fingerprint_of = body_only, .tokens = &tokens});
  Shop blind = shop({.type = "order", .fingerprint_of = nothing, .tokens = &tokens});
  Shop later = shop({.type = "order", .fingerprint_of = upgraded, .tokens = &tokens});

  for (Shop* edge : {&http, &blind}) {
    const std::string key(edge->issue_key(post("")).response.header("Idempotency-Key"));
    HttpRequest refund = post(key);
    refund.path = "/refund";
    HttpRequest patch = post(key);
    patch.method = "PATCH";

    EXPECT_EQ(pay(*edge, post(key)).origin, HttpOrigin::executed);
    expect_problem(pay(*edge, refund), HttpProblem::key_reused, 422);
    expect_problem(pay(*edge, patch), HttpProblem::key_reused, 422);
    EXPECT_EQ(pay(*edge, post(key)).origin, HttpOrigin::replayed);
  }
  const std::string key(http.issue_key(post("")).response.header("Idempotency-Key"));
  EXPECT_EQ(pay(http, post(key)).origin, HttpOrigin::executed);
  EXPECT_EQ(pay(later, post(key)).origin, HttpOrigin::replayed);
  EXPECT_EQ(runs, 3);
}

TEST_F(HttpTest, JudgesResponsesUnderIssuedKeysAsUnderOthers) {
  TokenService tokens{TokenSigner({{"1", std::string(32, 's')}})};
  Shop http = shop({.type = "order", .tokens = &tokens});
  const std::string key(http.issue_key(post("")).response.header("Idempotency-Key"));

  const HttpAnswer failed = http.handle(post(key), [] { return HttpResponse{.status = 503}; });

  EXPECT_EQ(failed.advice, KeyAdvice::keep_key);
  EXPECT_EQ(pay(http, post(key)).origin, HttpOrigin::executed);
}

TEST_F(HttpTest, HandsAKeyToAClientThatBringsNone) {
  TokenService tokens{store};
  Shop http = shop({.missing_key = MissingHttpKey::issue, .type = "order", .tokens = &tokens});

  const HttpAnswer refusal = pay(http, post(""));
  expect_problem(refusal, HttpProblem::key_missing, 400);
  const std::string key(refusal.response.header("Idempotency-Key"));

  EXPECT_EQ(runs, 0);
  EXPECT_EQ(pay(http, post(key)).origin, HttpOrigin::executed);
  expect_problem(pay(http, post("", "")), HttpProblem::principal_missing, 403);
  store.on(StoreCall::begin).fail_next(1, Fault::request_lost);
  expect_problem(pay(http, post("")), HttpProblem::store_unavailable, 503);
}

TEST_F(HttpTest, RefusesToIssueKeysWithoutATokenService) {
  const Shop http = shop();

  EXPECT_EQ(code_of([&] { static_cast<void>(http.issue_key(post(""))); }), Errc::invalid_argument);
}

TEST_F(HttpTest, LetsMistakesOfTheProgrammersPass) {
  Shop no_type = shop({.type_of = [](const HttpRequest&) { return std::string("no type"); }});
  Shop no_policy = shop({.policy = {.lease = 0ms}});

  EXPECT_EQ(code_of([&] { static_cast<void>(pay(no_type, post())); }), Errc::invalid_key);
  EXPECT_EQ(code_of([&] { static_cast<void>(pay(no_policy, post())); }), Errc::invalid_policy);
}

TEST_F(HttpTest, SendsWhatIsRecordedWhenTheLeaseWasLost) {
  Shop http = shop({.policy = {.lease = 1'000ms}});

  const HttpAnswer late = http.handle(post(), [&] {
    clock.advance(2'000ms);
    static_cast<void>(pay(http, post()));  // takes over
    return HttpResponse{.status = 200, .headers = {{"Set-Cookie", "late"}}, .body = "late"};
  });

  EXPECT_EQ(late.origin, HttpOrigin::replayed);
  EXPECT_EQ(late.response.status, 201);
  EXPECT_EQ(late.response.header("Set-Cookie"), "");
}

TEST_F(HttpTest, RunsOnceWhenManyAskAtTheSameTime) {
  Shop http = shop({.policy = {.wait = 30'000ms}});
  constexpr int callers = 16;
  std::latch start(callers);
  std::atomic<int> ran{0};
  std::atomic<int> executed{0};
  std::atomic<int> replayed{0};
  std::vector<std::thread> crowd;
  for (int number = 0; number < callers; ++number) {
    crowd.emplace_back([&] {
      start.arrive_and_wait();
      const HttpAnswer answer = http.handle(post(), [&] {
        ++ran;
        return HttpResponse{.status = 201, .body = "once"};
      });
      if (answer.response.body != "once") return;
      ++(answer.origin == HttpOrigin::executed ? executed : replayed);
    });
  }
  for (std::thread& thread : crowd)
    thread.join();

  EXPECT_EQ(ran, 1);
  EXPECT_EQ(executed, 1);
  EXPECT_EQ(replayed, callers - 1);
}

}  // namespace
}  // namespace idempotency
