#include "idempotency/edges/beast.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "idempotency/guard.hpp"
#include "idempotency/stores/memory.hpp"

namespace idempotency {
namespace {

namespace beast_http = boost::beast::http;
using Request = beast_http::request<beast_http::string_body>;
using Response = beast_http::response<beast_http::string_body>;

Request post(const std::string& key, const std::string& body = "100",
             const std::string& target = "/pay?b=1&a=2") {
  Request request(beast_http::verb::post, target, 11);
  if (!key.empty()) request.set("Idempotency-Key", key);
  request.body() = body;
  request.prepare_payload();
  return request;
}

std::string text(boost::beast::string_view view) { return {view.data(), view.size()}; }

class BeastTest : public ::testing::Test {
 protected:
  Response created(const Request& request) {
    ++runs;
    Response response(beast_http::status::created, request.version());
    response.set(beast_http::field::content_type, "text/plain");
    response.insert("Link", "<a>");
    response.insert("Link", "<b>");
    response.set("Set-Cookie", "a=b");
    response.set(beast_http::field::location, "/payments/1");
    response.keep_alive(false);
    response.body() = "paid " + request.body();
    response.prepare_payload();
    return response;
  }
  Response pay(const Request& request, std::string_view principal = "alice") {
    return answer_idempotently(http, request, {.principal = principal},
                               [&] { return created(request); });
  }

  MemoryStore store;
  IdempotencyGuard<MemoryStore> guard{store};
  HttpIdempotency<IdempotencyGuard<MemoryStore>> http{guard};
  int runs = 0;
};

TEST_F(BeastTest, ReplaysWhatTheHandlerAnswered) {
  const Response first = pay(post("\"k\""));
  const Response second = pay(post("k", "100", "/pay?a=2&b=1"));

  EXPECT_EQ(runs, 1);
  EXPECT_EQ(text(first["Set-Cookie"]), "a=b");
  EXPECT_FALSE(first.keep_alive());
  EXPECT_EQ(first.body(), "paid 100");
  EXPECT_EQ(text(first["Content-Length"]), "8");
  EXPECT_EQ(second.result_int(), 201U);
  EXPECT_EQ(second.body(), "paid 100");
  EXPECT_TRUE(second.keep_alive());
  EXPECT_EQ(second.version(), 11U);
  EXPECT_EQ(text(second["Location"]), "/payments/1");
  EXPECT_EQ(text(second["Idempotent-Replayed"]), "true");
  EXPECT_EQ(text(second["Content-Length"]), "8");
  EXPECT_EQ(second.count("Set-Cookie"), 0U);
  std::vector<std::string> links;
  const auto range = second.equal_range("Link");
  for (auto field = range.first; field != range.second; ++field)
    links.push_back(text(field->value()));
  EXPECT_EQ(links, (std::vector<std::string>{"<a>", "<b>"}));
}

TEST_F(BeastTest, AnswersProblems) {
  EXPECT_EQ(pay(post("")).result_int(), 400U);
  EXPECT_EQ(pay(post("k"), "").result_int(), 403U);
  Request twice = post("k");
  twice.insert("Idempotency-Key", "k");
  EXPECT_EQ(pay(twice).result_int(), 400U);
  EXPECT_EQ(runs, 0);
  EXPECT_EQ(pay(post("k")).result_int(), 201U);
  const Response reused = pay(post("k", "200"));
  EXPECT_EQ(reused.result_int(), 422U);
  EXPECT_EQ(text(reused["Content-Type"]), "application/problem+json");
  EXPECT_EQ(text(reused["Content-Length"]), std::to_string(reused.body().size()));
}

TEST_F(BeastTest, SendsFailuresWithAdvice) {
  const Request request = post("k");
  const Response failed = answer_idempotently(http, request, {.principal = "alice"}, [&] {
    return Response(beast_http::status::service_unavailable, 11);
  });

  EXPECT_EQ(failed.result_int(), 503U);
  EXPECT_EQ(text(failed["Idempotency-Advice"]), "keep-key");
  EXPECT_EQ(pay(request).result_int(), 201U);
}

TEST_F(BeastTest, LeavesOtherMethodsAsTheyAre) {
  Request head(beast_http::verb::head, "/pay", 11);
  const Response answer = answer_idempotently(http, head, {.principal = "alice", .route = "/pay"},
                                              [](Execution* execution) {
                                                EXPECT_EQ(execution, nullptr);
                                                Response response(beast_http::status::ok, 11);
                                                response.content_length(1'000);
                                                return response;
                                              });

  EXPECT_EQ(text(answer["Content-Length"]), "1000");
}

}  // namespace
}  // namespace idempotency
