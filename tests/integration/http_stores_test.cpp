// KF-06, KF-01: requests through an HTTP server, twice, over each real store.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>

#include "idempotency/edges/httplib.hpp"
#include "idempotency/guard.hpp"
#include "idempotency/patterns/token_service.hpp"
#include "idempotency/stores/open.hpp"
#include "support/local_http_server.hpp"
#include "support/real_store.hpp"

namespace idempotency {
namespace {

using namespace std::chrono_literals;
using testing_support::LocalHttpServer;
using testing_support::RealStore;
using testing_support::StoreKind;

/// One of several equal servers in front of one store.
class Replica {
 public:
  Replica(AnyStore& store, std::atomic<int>& effects)
      : guard_(store), http_(guard_, {.fingerprint = {.body = HttpBodyMeaning::json}}) {
    const HttplibOptions options{.principal = [](const httplib::Request& request) {
      return request.get_header_value("X-User");
    }};
    const auto pay = [&effects](const httplib::Request&, httplib::Response& response) {
      response.status = 201;
      response.set_header("Location", "/payments/" + std::to_string(++effects));
      response.set_header("Link", "<a>");
      response.set_header("Link", "<b>");
      response.set_header("Set-Cookie", "session=1");
      response.set_content(std::string("\0receipt\r\n\xff", 11), "application/octet-stream");
    };
    const auto busy_thrice = [this, &effects](const httplib::Request&,
                                              httplib::Response& response) {
      if (++attempts_ <= 3) {
        response.status = 503;
      } else {
        ++effects;
        response.status = 201;
      }
    };
    server_.http().Post("/pay", idempotent_handler(http_, options, pay));
    server_.http().Post("/refund", idempotent_handler(http_, options, pay));
    server_.http().Post("/busy", idempotent_handler(http_, options, busy_thrice));
    server_.start();
  }

  httplib::Result post(const char* path, const std::string& key, const std::string& body,
                       const std::string& user = "alice") {
    httplib::Client client("127.0.0.1", server_.port());
    return client.Post(path, {{"Idempotency-Key", key}, {"X-User", user}}, body,
                       "application/json");
  }

 private:
  IdempotencyGuard<AnyStore> guard_;
  HttpIdempotency<IdempotencyGuard<AnyStore>> http_;
  std::atomic<int> attempts_{0};
  LocalHttpServer server_;
};

/// Both replicas may have a store of their own, over the same records.
void expect_one_effect(Replica& here, Replica& there, const std::atomic<int>& effects) {
  const auto first = here.post("/pay", "\"k\"", R"({"cents":1,"to":"bob"})");
  const auto second = there.post("/pay", "k", R"({ "to": "bob", "cents": 1.0 })");

  ASSERT_TRUE(first && second);
  EXPECT_EQ(effects, 1);
  EXPECT_EQ(first->status, 201);
  EXPECT_EQ(first->get_header_value("Set-Cookie"), "session=1");
  EXPECT_FALSE(first->has_header("Idempotent-Replayed"));
  EXPECT_EQ(second->status, 201);
  EXPECT_EQ(second->body, std::string("\0receipt\r\n\xff", 11));
  EXPECT_EQ(second->body, first->body);
  EXPECT_EQ(second->get_header_value("Location"), "/payments/1");
  EXPECT_EQ(second->get_header_value("Content-Type"), "application/octet-stream");
  EXPECT_EQ(second->get_header_value("Link", 0), "<a>");
  EXPECT_EQ(second->get_header_value("Link", 1), "<b>");
  EXPECT_FALSE(second->has_header("Set-Cookie"));
  EXPECT_EQ(second->get_header_value("Idempotent-Replayed"), "true");
  EXPECT_EQ(there.post("/pay", "k", R"({"cents":2,"to":"bob"})")->status, 422);
  EXPECT_EQ(effects, 1);
}

void expect_nothing_crosses(Replica& here, Replica& there, const std::atomic<int>& effects) {
  const int before = effects;
  EXPECT_EQ(here.post("/pay", "k", "{}", "bob")->get_header_value("Idempotent-Replayed"), "");
  EXPECT_EQ(there.post("/refund", "k", "{}", "bob")->get_header_value("Idempotent-Replayed"), "");
  EXPECT_EQ(effects, before + 2);
}

void expect_transient_failures_end(Replica& replica) {
  for (int attempt = 1; attempt <= 3; ++attempt)
    EXPECT_EQ(replica.post("/busy", "b", "{}")->status, 503);
  EXPECT_EQ(replica.post("/busy", "b", "{}")->get_header_value("Idempotent-Replayed"), "");
  const auto replay = replica.post("/busy", "b", "{}");
  EXPECT_EQ(replay->status, 201);
  EXPECT_EQ(replay->get_header_value("Idempotent-Replayed"), "true");
}

void expect_all_of_it(AnyStore& one, AnyStore& other) {
  std::atomic<int> effects{0};
  Replica here(one, effects);
  Replica there(other, effects);
  expect_one_effect(here, there, effects);
  expect_nothing_crosses(here, there, effects);
  expect_transient_failures_end(here);
}

TEST(HttpOverOneStore, ReplaysFromMemory) {
  AnyStore store = open_store("memory:");
  expect_all_of_it(store, store);
}

class HttpOverEachStore : public ::testing::TestWithParam<StoreKind> {};

TEST_P(HttpOverEachStore, Replays) {
  const RealStore real(GetParam());
  AnyStore here = open_store(real.address());
  AnyStore there = open_store(real.address());
  expect_all_of_it(here, there);
}

INSTANTIATE_TEST_SUITE_P(Stores, HttpOverEachStore,
                         ::testing::Values(StoreKind::sqlite, StoreKind::redis, StoreKind::mariadb),
                         testing_support::name_of);

}  // namespace
}  // namespace idempotency
