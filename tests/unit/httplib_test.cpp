#include "idempotency/edges/httplib.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <utility>

#include "idempotency/guard.hpp"
#include "idempotency/patterns/token_service.hpp"
#include "idempotency/stores/memory.hpp"
#include "support/local_http_server.hpp"

namespace idempotency {
namespace {

using testing_support::LocalHttpServer;

/// A cpp-httplib server behind the edge, on a free port.
class HttplibTest : public ::testing::Test {
 protected:
  /// `Next` is registered for POST and PUT.
  template <class Next>
  httplib::Client serve(Next next) {
    const HttplibOptions options{.principal = [](const httplib::Request& request) {
      return request.get_header_value("X-User");
    }};
    server.http().Post(R"(/pay/.*)", idempotent_handler(http, options, next));
    server.http().Put(R"(/pay/.*)", idempotent_handler(http, options, next));
    server.http().Post("/keys", key_issuing_handler(http, options));
    server.start();
    return httplib::Client("127.0.0.1", server.port());
  }
  static httplib::Headers with(const std::string& key, const std::string& user = "alice") {
    return {{"Idempotency-Key", key}, {"X-User", user}};
  }

  MemoryStore store;
  IdempotencyGuard<MemoryStore> guard{store};
  HttpIdempotency<IdempotencyGuard<MemoryStore>> http{guard};
  std::atomic<int> runs{0};
  LocalHttpServer server;
};

TEST_F(HttplibTest, ReplaysWhatTheHandlerAnswered) {
  httplib::Client client = serve([&](const httplib::Request& request, httplib::Response& response) {
    ++runs;
    response.status = 201;
    response.set_header("Location", "/payments/1");
    response.set_header("Link", "<a>");
    response.set_header("Link", "<b>");
    response.set_header("Set-Cookie", "a=b");
    response.set_content(std::string("paid ") + request.body + '\0', "application/x-receipt");
  });

  const auto first = client.Post("/pay/a?x=1&y=2", with("\"k\""), "100", "text/plain");
  const auto second = client.Post("/pay/%61?y=2&x=1", with("k"), "100", "text/plain");

  ASSERT_TRUE(first && second);
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(first->status, 201);
  EXPECT_EQ(first->get_header_value("Set-Cookie"), "a=b");
  EXPECT_FALSE(first->has_header("Idempotent-Replayed"));
  EXPECT_EQ(second->status, 201);
  EXPECT_EQ(second->body, first->body);
  EXPECT_EQ(second->body, std::string("paid 100\0", 9));
  EXPECT_EQ(second->get_header_value("Content-Type"), "application/x-receipt");
  EXPECT_EQ(second->get_header_value("Location"), "/payments/1");
  EXPECT_EQ(second->get_header_value("Link", 0), "<a>");
  EXPECT_EQ(second->get_header_value("Link", 1), "<b>");
  EXPECT_EQ(second->get_header_value("Idempotent-Replayed"), "true");
  EXPECT_FALSE(second->has_header("Set-Cookie"));
}

TEST_F(HttplibTest, TakesAStatusThatTheHandlerDidNotSetFor200) {
  httplib::Client client = serve([&](const httplib::Request&, httplib::Response& response) {
    ++runs;
    response.body = "ok";
  });

  EXPECT_EQ(client.Post("/pay/a", with("k"), "", "text/plain")->status, 200);
  const auto second = client.Post("/pay/a", with("k"), "", "text/plain");
  EXPECT_EQ(second->status, 200);
  EXPECT_EQ(second->body, "ok");
  EXPECT_EQ(runs, 1);
}

TEST_F(HttplibTest, AnswersProblemsWithoutTheHandler) {
  httplib::Client client = serve([&](const httplib::Request&, httplib::Response&) { ++runs; });
  const auto post = [&](const httplib::Headers& headers, const char* body = "") {
    return client.Post("/pay/a", headers, body, "text/plain");
  };

  EXPECT_EQ(post({{"X-User", "alice"}})->status, 400);
  EXPECT_EQ(post({{"Idempotency-Key", "k"}})->status, 403);
  EXPECT_EQ(post({{"Idempotency-Key", "k"}, {"Idempotency-Key", "k"}, {"X-User", "a"}})->status,
            400);
  EXPECT_EQ(runs, 0);
  EXPECT_EQ(post(with("k"))->status, 200);
  const auto reused = post(with("k"), "other");
  EXPECT_EQ(reused->status, 422);
  EXPECT_EQ(reused->get_header_value_count("Content-Type"), 1U);
  EXPECT_EQ(reused->get_header_value("Content-Type"), "application/problem+json");
  EXPECT_EQ(post(with("k", "bob"), "other")->status, 200);
  EXPECT_EQ(runs, 2);
}

TEST_F(HttplibTest, LeavesOtherMethodsAlone) {
  httplib::Client client = serve([&](const httplib::Request&, httplib::Response& response) {
    response.set_content(std::to_string(++runs), "text/plain");
  });

  EXPECT_EQ(client.Put("/pay/a", with("k"), "", "text/plain")->body, "1");
  const auto second = client.Put("/pay/a", with("k"), "", "text/plain");
  EXPECT_EQ(second->body, "2");
  EXPECT_FALSE(second->has_header("Idempotent-Replayed"));
}

TEST_F(HttplibTest, SendsAStreamOnceAndDoesNotRecordIt) {
  httplib::Client client = serve([&](const httplib::Request&, httplib::Response& response) {
    ++runs;
    response.set_chunked_content_provider("text/plain", [](std::size_t, httplib::DataSink& sink) {
      sink.write("streamed", 8);
      sink.done();
      return true;
    });
  });

  const auto first = client.Post("/pay/a", with("k"), "", "text/plain");
  const auto second = client.Post("/pay/a", with("k"), "", "text/plain");

  EXPECT_EQ(first->body, "streamed");
  EXPECT_EQ(second->status, 410);
  EXPECT_EQ(runs, 1);
}

TEST_F(HttplibTest, TakesThePartsOfAFormForItsBody) {
  httplib::Client client = serve([&](const httplib::Request&, httplib::Response& response) {
    response.set_content(std::to_string(++runs), "text/plain");
  });
  const auto upload = [&](const std::string& content) {
    const httplib::MultipartFormDataItems items{{"file", content, "a.txt", "text/plain"}};
    return client.Post("/pay/a", with("k"), items);  // with a boundary of its own
  };

  EXPECT_EQ(upload("one")->status, 200);
  EXPECT_EQ(upload("one")->get_header_value("Idempotent-Replayed"), "true");
  EXPECT_EQ(upload("two")->status, 422);
  EXPECT_EQ(runs, 1);
}

TEST_F(HttplibTest, ForgetsWhatAHandlerLeftThatFailed) {
  httplib::Client client = serve(
      [&](const httplib::Request& request, httplib::Response& response, Execution* execution) {
        EXPECT_NE(execution, nullptr);
        response.set_header("X-Half", "done");
        response.set_content("half", "text/plain");
        if (request.body == "unknown") throw OutcomeUnknown("the bank did not answer");
        throw std::runtime_error("bug");
      });

  const auto unknown = client.Post("/pay/a", with("1"), "unknown", "text/plain");
  EXPECT_EQ(unknown->status, 409);
  EXPECT_FALSE(unknown->has_header("X-Half"));
  EXPECT_EQ(unknown->get_header_value("Content-Type"), "application/problem+json");
  EXPECT_EQ(client.Post("/pay/a", with("2"), "", "text/plain")->status, 500);
}

TEST_F(HttplibTest, IssuesKeys) {
  TokenService tokens{store};
  HttpIdempotency issuing(guard, {.type = "order", .tokens = &tokens});
  const HttplibOptions options{.principal = [](const httplib::Request&) { return "alice"; }};
  server.http().Post("/issue", key_issuing_handler(issuing, options));
  server.http().Post(
      "/order", idempotent_handler(issuing, options,
                                   [&](const httplib::Request&, httplib::Response&) { ++runs; }));
  httplib::Client client = serve([](const httplib::Request&, httplib::Response&) {});

  const auto issued = client.Post("/issue");
  ASSERT_EQ(issued->status, 201);
  const std::string key = issued->get_header_value("Idempotency-Key");
  EXPECT_EQ(client.Post("/order", with(key), "", "text/plain")->status, 200);
  EXPECT_EQ(client.Post("/order", with(key), "", "text/plain")->status, 200);
  EXPECT_EQ(client.Post("/order", with("mine"), "", "text/plain")->status, 400);
  EXPECT_EQ(runs, 1);
}

}  // namespace
}  // namespace idempotency
