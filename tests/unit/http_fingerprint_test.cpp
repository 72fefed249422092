#include "idempotency/edges/http_fingerprint.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace idempotency {
namespace {

using Parameters = std::vector<std::string>;

const HttpRequest base{.method = "POST",
                       .path = "/pay",
                       .query = "b=2&a=1",
                       .headers = {{"Content-Type", "application/json; charset=utf-8"}},
                       .body = R"({"cents": 100, "to": "bob"})"};

template <class Change>
HttpRequest changed(Change change) {
  HttpRequest request = base;
  change(request);
  return request;
}

TEST(CanonicalQuery, SortsByNameAndKeepsTheOrderOfOneName) {
  EXPECT_EQ(canonical_query("b=2&a=1"), (Parameters{"a=1", "b=2"}));
  EXPECT_EQ(canonical_query("a=2&b=1&a=1"), (Parameters{"a=2", "a=1", "b=1"}));
  EXPECT_EQ(canonical_query(""), Parameters{});
  EXPECT_EQ(canonical_query("&&a&&"), Parameters{"a"});
  EXPECT_NE(canonical_query("a"), canonical_query("a="));
}

TEST(CanonicalQuery, NormalisesPercentEncodingOnly) {
  EXPECT_EQ(canonical_query("%61=%7e%2f"), Parameters{"a=~%2F"});
  EXPECT_EQ(canonical_query("a=%26&b=%3D%25"), (Parameters{"a=%26", "b=%3D%25"}));
  EXPECT_EQ(canonical_query("a=%&b=%4&c=%zz&d=%2"), (Parameters{"a=%", "b=%4", "c=%zz", "d=%2"}));
  EXPECT_NE(canonical_query("a=b+c"), canonical_query("a=b%20c"));
  EXPECT_NE(canonical_query("a=%2541"), canonical_query("a=A"));
  EXPECT_EQ(canonical_query("%62=1&a=1"), canonical_query("a=1&b=1"));
}

TEST(HttpFingerprint, IsOneForWhatMeansTheSame) {
  EXPECT_EQ(http_fingerprint(base),
            http_fingerprint(changed([](HttpRequest& r) { r.query = "a=1&b=2"; })));
  EXPECT_EQ(http_fingerprint(base),
            http_fingerprint(changed([](HttpRequest& r) { r.path = "/p%61y"; })));
  EXPECT_EQ(http_fingerprint(base), http_fingerprint(changed([](HttpRequest& r) {
              r.headers.push_back({"User-Agent", "curl"});
              r.principal = "alice";
            })));
}

TEST(HttpFingerprint, DiffersWithMethodPathQueryAndBody) {
  const auto differs = [](auto change) {
    return !(http_fingerprint(base) == http_fingerprint(changed(change)));
  };

  EXPECT_TRUE(differs([](HttpRequest& r) { r.method = "PATCH"; }));
  EXPECT_TRUE(differs([](HttpRequest& r) { r.path = "/pay/"; }));
  EXPECT_TRUE(differs([](HttpRequest& r) { r.query = "a=1&b=3"; }));
  EXPECT_TRUE(differs([](HttpRequest& r) { r.query = "a=1&b=2&b=2"; }));
  EXPECT_TRUE(differs([](HttpRequest& r) { r.body = R"({"cents":100,"to":"bob"})"; }));
  EXPECT_TRUE(differs([](HttpRequest& r) { r.body = ""; }));
}

TEST(HttpFingerprint, ComparesJsonAsAValueWhenWanted) {
  const HttpFingerprintOptions json{.body = HttpBodyMeaning::json};
  const auto of = [&](std::string_view body, std::string_view type = "application/json") {
    return http_fingerprint(changed([&](HttpRequest& r) {
                              r.body = body;
                              r.headers = {{"content-type", type}};
                            }),
                            json);
  };

  EXPECT_EQ(of(R"({"a":1,"b":[]})"), of(R"({ "b": [], "a": 1.0 })"));
  EXPECT_EQ(of(R"({"a":1})", "application/vnd.x+json;v=1"), of(R"({"a": 1})"));
  EXPECT_FALSE(of(R"({"a":1})") == of(R"({"a":2})"));
  EXPECT_FALSE(of(R"({"a":1})", "text/plain") == of(R"({"a": 1})", "text/plain"));
  EXPECT_FALSE(of("{", "application/json") == of("[", "application/json"));
  EXPECT_EQ(of("{", "application/json"), of("{", "application/json"));
  EXPECT_FALSE(of(R"({"a":1})", "application/json") == of(R"({"a":1})", "text/plain"));
}

TEST(HttpFingerprint, TakesChosenFieldsAndLeavesTheBodyOutWhenTold) {
  const HttpFingerprintOptions with_language{.headers = {"accept-LANGUAGE"}};
  const auto in = [](std::vector<HttpField> fields) {
    return changed([&](HttpRequest& r) { r.headers = std::move(fields); });
  };
  const HttpRequest german = in({{"Accept-Language", "de"}, {"X", "1"}});

  EXPECT_EQ(http_fingerprint(german, with_language),
            http_fingerprint(in({{"X", "2"}, {"accept-language", " de "}}), with_language));
  EXPECT_FALSE(http_fingerprint(german, with_language) ==
               http_fingerprint(in({{"Accept-Language", "fr"}}), with_language));
  EXPECT_FALSE(http_fingerprint(german, with_language) == http_fingerprint(in({}), with_language));
  const HttpFingerprintOptions no_body{.body = HttpBodyMeaning::ignored};
  EXPECT_EQ(http_fingerprint(base, no_body),
            http_fingerprint(changed([](HttpRequest& r) { r.body = "x"; }), no_body));
}

// Stored: a change makes every repeated request a mismatch.
TEST(HttpFingerprint, NeverChanges) {
  const Fingerprint made = http_fingerprint(base, {.body = HttpBodyMeaning::json});
  std::string hex;
  for (const std::uint8_t byte : made.current().digest) {
    hex += "0123456789abcdef"[byte >> 4U];
    hex += "0123456789abcdef"[byte & 15U];
  }

  EXPECT_EQ(hex, "71db075f08d14595f64fda69ec9730b153d15b366206ba5330940d25b27ca91f");
}

}  // namespace
}  // namespace idempotency
