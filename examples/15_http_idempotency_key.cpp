// An HTTP service whose clients may send a request again: same Idempotency-Key, same answer, one effect.

#include <atomic>
#include <iostream>
#include <string>
#include <thread>

#include <idempotency/edges/httplib.hpp>
#include <idempotency/idempotency.hpp>
#include <idempotency/stores/memory.hpp>

#include "expect.hpp"

namespace idem = idempotency;

int main() {
  idem::MemoryStore store;  // in a service: SqliteStore, RedisStore or MySqlStore
  idem::IdempotencyGuard guard{store};
  idem::HttpIdempotency http{guard,
                             {.type = "payment",  // `hold`, 30 days
                              .fingerprint = {.body = idem::HttpBodyMeaning::json}}};

  // Who asks is what the service has authenticated; here the token is the account.
  const idem::HttplibOptions options{.principal = [](const httplib::Request& request) {
    return request.get_header_value("Authorization");
  }};

  httplib::Server server;
  std::atomic<int> charges{0};
  server.Post("/payments",
              idem::idempotent_handler(
                  http, options,
                  [&](const httplib::Request& request, httplib::Response& response,
                      idem::Execution* execution) {
                    execution->point_of_no_return();  // from here on a failure is "unknown"
                    const int number = ++charges;
                    response.status = 201;
                    response.set_header("Location", "/payments/" + std::to_string(number));
                    response.set_content(request.body, "application/json");
                  }));

  const int port = server.bind_to_any_port("127.0.0.1");
  std::thread serving([&] { server.listen_after_bind(); });

  httplib::Client client("127.0.0.1", port);
  const auto pay = [&](const std::string& key, const std::string& body,
                       const std::string& account = "alice") {
    const httplib::Headers headers{{"Idempotency-Key", key}, {"Authorization", account}};
    return client.Post("/payments", headers, body, "application/json");
  };
  const auto first = pay(R"("8e03978e")", R"({"cents": 100, "to": "bob"})");
  const auto again = pay(R"("8e03978e")", R"({"to": "bob", "cents": 100})");
  const auto other = pay(R"("8e03978e")", R"({"cents": 999, "to": "bob"})");
  const auto keyless =
      client.Post("/payments", {{"Authorization", "alice"}}, "{}", "application/json");
  const auto bobs = pay(R"("8e03978e")", R"({"cents": 100, "to": "bob"})", "bob");
  server.stop();
  serving.join();

  std::cout << other->status << ' ' << other->body << '\n';
  expect(first->status == 201 && !first->has_header("Idempotent-Replayed"), "it ran");
  expect(again->status == 201 && again->body == first->body, "the same answer");
  expect(again->get_header_value("Location") == "/payments/1", "with its Location");
  expect(again->get_header_value("Idempotent-Replayed") == "true", "marked as a replay");
  expect(other->status == 422, "another payment under the same key is refused");
  expect(keyless->status == 400, "so is one without a key");
  expect(bobs->get_header_value("Location") == "/payments/2", "another account's key is another");
  expect(charges == 2, "two charges");
}
