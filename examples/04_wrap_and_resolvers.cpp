// A handler wrapped once, with the key taken out of each request. What a key needs and the request does
// not have is an error, never an invented id.

#include <idempotency/idempotency.hpp>
#include <idempotency/stores/memory.hpp>
#include <map>
#include <string>

#include "expect.hpp"

namespace idem = idempotency;

struct Order {
  std::string id;
  std::int64_t cents = 0;
};

struct HttpRequest {
  std::multimap<std::string, std::string> headers;
  std::string body;
};

int main() {
  idem::MemoryStore store;
  idem::IdempotencyGuard guard{store};
  int runs = 0;

  auto pay = guard.wrap(
      idem::key_of("payment", &Order::id).fingerprinted_by(&Order::id, &Order::cents),
      [&](const Order& order) { return "paid " + order.id + ' ' + std::to_string(++runs); });
  expect(pay(Order{"order-1", 990}).value() == "paid order-1 1", "the wrapped handler runs");
  expect(pay(Order{"order-1", 990}).value() == "paid order-1 1", "once for an order");
  expect(pay(Order{"order-1", 10}).status() == idem::RunStatus::mismatch, "of one meaning");

  // The client's own key, or else the id in the JSON body; tenants are kept apart.
  auto refund = guard.wrap(idem::key_of("refund", idem::header("X-Tenant"),
                                        idem::first_of(idem::header("Idempotency-Key"),
                                                       idem::json_pointer("/refund/id")))
                               .fingerprinted_by([](const HttpRequest& request) {
                                 return idem::Fingerprint::of_json(request.body);
                               }),
                           [&](const HttpRequest& /*request*/, idem::Execution& execution) {
                             return std::string(execution.key().value());
                           });
  const std::string body = R"({"refund": {"id": "r-5", "cents": 990}})";
  const std::string reordered = R"({ "refund": { "cents": 9.9e2, "id": "r-5" } })";

  const HttpRequest with_key{{{"X-Tenant", "acme"}, {"idempotency-key", "k-1"}}, body};
  expect(refund(with_key).value() == "acme:k-1", "the header's key comes first");
  const HttpRequest without_key{{{"X-Tenant", "acme"}}, body};
  expect(refund(without_key).value() == "acme:r-5", "the body's id is the second choice");
  const HttpRequest same_meaning{{{"X-Tenant", "acme"}}, reordered};
  expect(refund(same_meaning).status() == idem::RunStatus::replayed,
         "order of members and spelling of numbers do not matter");

  bool refused = false;
  try {
    static_cast<void>(refund(HttpRequest{{}, body}));
  } catch (const idem::Error& error) {
    refused = error.code() == idem::Errc::missing_key;
  }
  expect(refused, "no tenant, no key: refused");
}
