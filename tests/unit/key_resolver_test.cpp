#include "idempotency/key_resolver.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/error_of.hpp"

namespace idempotency {
namespace {

using namespace std::literals;
using testing_support::code_of;
using testing_support::error_of;

enum class Channel : std::uint8_t { web = 1, app = 2 };

struct Order {
  std::string id;
  std::int64_t cents = 0;
  std::optional<std::string> tenant = std::nullopt;
  Channel channel = Channel::web;
  [[nodiscard]] std::string region() const { return "eu"; }
};

struct HttpRequest {
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
};

static_assert(KeyResolver<decltype(key_of("payment", &Order::id)), Order>);
static_assert(KeyResolver<decltype(key_of("payment", header("X-Id"))), HttpRequest>);
static_assert(!KeyResolver<decltype(key_of("payment", &Order::id)), HttpRequest>);
static_assert(!KeyResolver<decltype(key_of("payment", header("X-Id"))), Order>);

TEST(KeyOf, GivesThePlainKeyForASinglePart) {
  const auto resolver = key_of("payment", &Order::id);

  EXPECT_EQ(resolver.key(Order{"order:7"}), Key("payment", "order:7"));
  EXPECT_EQ(key_of("payment", &Order::cents).key(Order{"x", 125}), Key("payment", "125"));
}

TEST(KeyOf, JoinsSeveralPartsLikeKeyOf) {  // KF-01
  const auto resolver = key_of("payment", &Order::tenant, &Order::id, &Order::channel,
                               &Order::region, [](const Order& order) { return order.cents; });

  EXPECT_EQ(resolver.key(Order{"b:c", 5, "a", Channel::app}),
            Key::of("payment", "a", "b:c", 2, "eu", 5));
}

TEST(KeyOf, KeepsTenantsApart) {  // KF-01
  const auto resolver = key_of("payment", &Order::tenant, &Order::id);

  EXPECT_NE(resolver.key(Order{"7", 0, "a"}), resolver.key(Order{"7", 0, "b"}));
  EXPECT_NE(resolver.key(Order{"c", 0, "a:b"}), resolver.key(Order{"b:c", 0, "a"}));
}

TEST(KeyOf, RefusesARequestWithoutAPartInsteadOfInventingOne) {  // KF-05
  const auto tenant_and_id = key_of("payment", &Order::tenant, &Order::id);
  const auto tenant = key_of("payment", &Order::tenant);

  EXPECT_EQ(code_of([&] { (void)tenant_and_id.key(Order{"7"}); }), Errc::missing_key);
  EXPECT_EQ(code_of([&] { (void)tenant_and_id.key(Order{"", 0, "a"}); }), Errc::missing_key);
  EXPECT_EQ(code_of([&] { (void)tenant_and_id.key(Order{"  ", 0, "a"}); }), Errc::missing_key);
  EXPECT_EQ(code_of([&] { (void)tenant_and_id.key(Order{"\0"s, 0, "a"}); }), Errc::invalid_key);
  EXPECT_EQ(code_of([&] { (void)tenant.key(Order{"7"}); }), Errc::missing_key);
  EXPECT_EQ(code_of([&] { (void)tenant.key(Order{"7", 0, " "}); }), Errc::missing_key);
}

TEST(KeyOf, TakesAThrowingExtractorForAMissingPart) {  // KF-05
  const auto throwing = key_of(
      "payment", [](const Order&) -> std::string { throw std::out_of_range("no member 'id'"); });
  const auto throwing_nothing =
      key_of("payment", [](const Order&) -> std::string { throw std::nullopt; });
  const auto empty_access =
      key_of("payment", [](const Order& order) { return order.tenant.value(); });

  EXPECT_EQ(error_of([&] { (void)throwing.key(Order{}); }).code(), Errc::missing_key);
  EXPECT_EQ(error_of([&] { (void)throwing.key(Order{}); }).detail(), "no member 'id'");
  EXPECT_EQ(code_of([&] { (void)throwing_nothing.key(Order{}); }), Errc::missing_key);
  EXPECT_EQ(code_of([&] { (void)empty_access.key(Order{}); }), Errc::missing_key);
}

TEST(KeyOf, LetsWhatIsNoAnswerAboutThePartPass) {
  const auto exhausted =
      key_of("payment", [](const Order&) -> std::string { throw std::bad_alloc(); });

  EXPECT_THROW((void)exhausted.key(Order{}), std::bad_alloc);
}

TEST(KeyOf, RefusesAnImpossibleTypeWhenItIsMade) {
  EXPECT_EQ(code_of([] { (void)key_of("pay ment", &Order::id); }), Errc::invalid_key);
}

TEST(KeyOf, HasNoFingerprintUnlessItIsAskedFor) {
  EXPECT_EQ(key_of("payment", &Order::id).fingerprint(Order{"7"}), std::nullopt);
}

TEST(KeyOf, FingerprintsTheFieldsThatItIsTold) {
  const auto resolver = key_of("payment", &Order::id).fingerprinted_by(&Order::id, &Order::cents);

  EXPECT_EQ(resolver.key(Order{"7", 125}), Key("payment", "7"));
  EXPECT_EQ(resolver.fingerprint(Order{"7", 125}), Fingerprint::of("7", 125));
  EXPECT_NE(resolver.fingerprint(Order{"7", 126}), Fingerprint::of("7", 125));
}

TEST(KeyOf, TakesAFingerprintThatAFunctionMakes) {
  const auto resolver =
      key_of("payment", json_pointer("/id")).fingerprinted_by([](const HttpRequest& request) {
        return Fingerprint::of_json(request.body);
      });

  EXPECT_EQ(resolver.fingerprint(HttpRequest{{}, R"({"id":1, "n":2})"}),
            Fingerprint::of_json(R"({"n":2,"id":1})"));
}

TEST(Header, IsFoundWithoutRegardToCase) {  // RFC 9110, 5.1
  const auto resolver = key_of("payment", header("Idempotency-Key"));

  EXPECT_EQ(resolver.key(HttpRequest{{{"Host", "x"}, {"iDEMPOTENCY-kEY", "abc"}}, ""}),
            Key("payment", "abc"));
}

TEST(Header, LosesTheWhiteSpaceAroundItsValue) {  // RFC 9110, 5.5
  const auto resolver = key_of("payment", header("Idempotency-Key"));

  EXPECT_EQ(resolver.key(HttpRequest{{{"Idempotency-Key", " \ta b\t "}}, ""}),
            Key("payment", "a b"));
}

TEST(Header, IsMissingWhenAbsentOrEmpty) {  // KF-05
  const auto resolver = key_of("payment", header("Idempotency-Key"));

  EXPECT_EQ(code_of([&] { (void)resolver.key(HttpRequest{}); }), Errc::missing_key);
  EXPECT_EQ(code_of([&] {
              (void)resolver.key(HttpRequest{{{"Idempotency-Key", " \t"}}, ""});
            }),
            Errc::missing_key);
  EXPECT_EQ(code_of([&] {
              (void)resolver.key(HttpRequest{{{"Idempotency-Key2", "a"}}, ""});
            }),
            Errc::missing_key);
}

TEST(Header, IsRefusedWhenItIsSentWithDifferentValues) {
  const auto resolver = key_of("payment", header("Idempotency-Key"));

  EXPECT_EQ(
      code_of([&] {
        (void)resolver.key(HttpRequest{{{"Idempotency-Key", "a"}, {"idempotency-key", "b"}}, ""});
      }),
      Errc::invalid_key);
  EXPECT_EQ(resolver.key(HttpRequest{{{"Idempotency-Key", "a"}, {"idempotency-key", " a"}}, ""}),
            Key("payment", "a"));
}

TEST(Header, IsFoundWhereverARequestKeepsIt) {
  struct WithFunction {
    std::multimap<std::string, std::string> fields;
    [[nodiscard]] const std::multimap<std::string, std::string>& headers() const { return fields; }
  };
  struct WithLookup {
    [[nodiscard]] std::optional<std::string_view> header(std::string_view name) const {
      if (name == "X-Id") return " 7 ";
      return std::nullopt;
    }
  };
  const auto lookup = [](std::string_view name) -> const char* {
    return name == "X-Id" ? "7" : nullptr;
  };
  const std::map<std::string, std::string> fields = {{"x-id", "7"}};
  const auto id = key_of("payment", header("X-Id"));
  const auto other = key_of("payment", header("X-Other"));

  EXPECT_EQ(id.key(WithFunction{{{"x-ID", "7"}}}), Key("payment", "7"));
  EXPECT_EQ(id.key(WithLookup{}), Key("payment", "7"));
  EXPECT_EQ(id.key(lookup), Key("payment", "7"));
  EXPECT_EQ(id.key(fields), Key("payment", "7"));
  EXPECT_EQ(code_of([&] { (void)other.key(WithLookup{}); }), Errc::missing_key);
  EXPECT_EQ(code_of([&] { (void)other.key(lookup); }), Errc::missing_key);
}

std::optional<std::string> at(std::string_view pointer, std::string_view json) {
  return json_pointer(pointer)(json);
}

TEST(JsonPointer, FollowsRfc6901) {
  const std::string_view json =
      R"({"foo":["bar","baz"],"":0,"a/b":1,"c%d":2,"e^f":3,"g|h":4,"i\\j":5,"k\"l":6," ":7,"m~n":8})";

  EXPECT_EQ(at("/foo/0", json), "bar");
  EXPECT_EQ(at("/foo/1", json), "baz");
  EXPECT_EQ(at("/", json), "0");
  EXPECT_EQ(at("/a~1b", json), "1");
  EXPECT_EQ(at("/c%d", json), "2");
  EXPECT_EQ(at("/e^f", json), "3");
  EXPECT_EQ(at("/g|h", json), "4");
  EXPECT_EQ(at("/i\\j", json), "5");
  EXPECT_EQ(at("/k\"l", json), "6");
  EXPECT_EQ(at("/ ", json), "7");
  EXPECT_EQ(at("/m~0n", json), "8");
  EXPECT_EQ(at("", "\"whole\""), "whole");
}

TEST(JsonPointer, GoesIntoNestedValuesOnly) {
  const std::string_view json =
      R"({"x":{"id":1},"order":{"a":[{"id":2}],"id":"o-7","z":{"id":3}},"id":4})";

  EXPECT_EQ(at("/order/id", json), "o-7");
  EXPECT_EQ(at("/order/a/0/id", json), "2");
  EXPECT_EQ(at("/id", json), "4");
  EXPECT_EQ(at("/order/id/id", json), std::nullopt);
  EXPECT_EQ(at("/order/a/1", json), std::nullopt);
  EXPECT_EQ(at("/order/a/-", json), std::nullopt);
  EXPECT_EQ(at("/order/a/00", json), std::nullopt);
  EXPECT_EQ(at("/order/b", json), std::nullopt);
  EXPECT_EQ(at("/0", "{\"0\":\"name\"}"), "name");
}

TEST(JsonPointer, TakesIntegersExactly) {
  EXPECT_EQ(at("/id", R"({"id":9007199254740993})"), "9007199254740993");
  EXPECT_EQ(at("/id", R"({"id":-1})"), "-1");
  EXPECT_EQ(at("/id", R"({"id":18446744073709551615})"), "18446744073709551615");
  EXPECT_EQ(code_of([] { (void)at("/id", R"({"id":18446744073709551616})"); }), Errc::invalid_key);
  EXPECT_EQ(code_of([] { (void)at("/id", R"({"id":1.5})"); }), Errc::invalid_key);
}

TEST(JsonPointer, RefusesWhatIsNoKey) {
  EXPECT_EQ(code_of([] { (void)at("/id", R"({"id":{}})"); }), Errc::invalid_key);
  EXPECT_EQ(code_of([] { (void)at("/id", R"({"id":["a"]})"); }), Errc::invalid_key);
  EXPECT_EQ(at("/id", R"({"id":null})"), std::nullopt);
}

TEST(JsonPointer, RefusesAPathThatIsNamedTwice) {
  EXPECT_EQ(code_of([] { (void)at("/id", R"({"id":1,"id":1})"); }), Errc::invalid_key);
  EXPECT_EQ(code_of([] { (void)at("/o/id", R"({"o":{"id":1},"o":{}})"); }), Errc::invalid_key);
  EXPECT_EQ(at("/id", R"({"id":1,"x":{"id":2},"y":2,"y":3})"), "1");
}

TEST(JsonPointer, FindsNothingInWhatIsNotJson) {
  const std::vector<std::string> texts = {
      "", "{", R"({"id":1)", R"({"id":1}x)", "{\"id\":1}\0"s, "{\"id\":\"\xff\"}"};

  for (const std::string& text : texts)
    EXPECT_EQ(at("/id", text), std::nullopt) << text;
}

TEST(JsonPointer, IsCheckedWhenItIsMade) {
  EXPECT_EQ(code_of([] { (void)json_pointer("id"); }), Errc::invalid_argument);
  EXPECT_EQ(code_of([] { (void)json_pointer("/a~2"); }), Errc::invalid_argument);
  EXPECT_EQ(code_of([] { (void)json_pointer("/a~"); }), Errc::invalid_argument);
}

TEST(JsonPointer, ReadsTheBodyOfARequest) {
  struct WithFunction {
    [[nodiscard]] std::string body() const { return R"({"id":"f"})"; }
  };
  struct Event {
    std::string payload;
  };

  EXPECT_EQ(key_of("event", json_pointer("/id")).key(HttpRequest{{}, R"({"id":"m"})"}),
            Key("event", "m"));
  EXPECT_EQ(key_of("event", json_pointer("/id")).key(WithFunction{}), Key("event", "f"));
  EXPECT_EQ(key_of("event", json_pointer("/id", &Event::payload)).key(Event{R"({"id":"p"})"}),
            Key("event", "p"));
  EXPECT_EQ(code_of([] { (void)key_of("event", json_pointer("/id")).key("{}"s); }),
            Errc::missing_key);
}

TEST(FirstOf, TakesTheFirstPartThatIsThere) {
  const auto resolver =
      key_of("payment", first_of(header("Idempotency-Key"), json_pointer("/order/id")));
  const std::string body = R"({"order":{"id":7}})";

  EXPECT_EQ(resolver.key(HttpRequest{{{"Idempotency-Key", "h"}}, body}), Key("payment", "h"));
  EXPECT_EQ(resolver.key(HttpRequest{{}, body}), Key("payment", "7"));
  EXPECT_EQ(resolver.key(HttpRequest{{{"Idempotency-Key", " "}}, body}), Key("payment", "7"));
}

TEST(FirstOf, IsMissingWhenNoPartIsThere) {  // KF-05
  const auto resolver =
      key_of("payment", first_of(header("Idempotency-Key"), json_pointer("/order/id")));

  EXPECT_EQ(code_of([&] { (void)resolver.key(HttpRequest{{}, "{}"}); }), Errc::missing_key);
}

TEST(FirstOf, TakesEveryKindOfPart) {
  const auto resolver = key_of("payment", first_of(&Order::tenant, &Order::cents));

  EXPECT_EQ(resolver.key(Order{"x", -5}), Key("payment", "-5"));
  EXPECT_EQ(resolver.key(Order{"x", -5, "t"}), Key("payment", "t"));
}

TEST(Fixed, IsTheSameForEveryRequest) {
  const auto resolver =
      key_of("payment", fixed("capture"), header("X-Tenant"), json_pointer("/order/id"));

  EXPECT_EQ(resolver.key(HttpRequest{{{"X-Tenant", "a"}}, R"({"order":{"id":"7"}})"}),
            Key::of("payment", "capture", "a", "7"));
}

TEST(Fixed, KeepsTwoOperationsOfATenantApart) {  // KF-01
  const Order order{"7"};

  EXPECT_NE(key_of("payment", fixed("capture"), &Order::id).key(order),
            key_of("payment", fixed("refund"), &Order::id).key(order));
}

}  // namespace
}  // namespace idempotency
