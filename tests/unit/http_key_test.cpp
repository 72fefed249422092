#include "idempotency/edges/http_key.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "support/error_of.hpp"

namespace idempotency {
namespace {

using testing_support::code_of;

HttpKeyReading read(std::string_view value, HttpKeySyntax syntax = HttpKeySyntax::lenient) {
  return read_http_key(value, syntax, 255);
}

HttpKeyReading key(std::string text) { return {.key = std::move(text)}; }

const HttpKeyReading malformed{.key = {}, .fault = HttpKeyFault::malformed};

TEST(HttpKey, IsAStructuredFieldString) {
  for (const HttpKeySyntax syntax : {HttpKeySyntax::lenient, HttpKeySyntax::strict}) {
    EXPECT_EQ(read(R"("8e03978e-40d5-43dd-bc93-6894a57f9324")", syntax),
              key("8e03978e-40d5-43dd-bc93-6894a57f9324"));
    EXPECT_EQ(read(R"(  "a b"	)", syntax), key("a b"));
    EXPECT_EQ(read(R"("a\"b\\c")", syntax), key(R"(a"b\c)"));
    EXPECT_EQ(read(R"("a,b;c")", syntax), key("a,b;c"));
    EXPECT_EQ(read(R"(" ~")", syntax), key(" ~"));
  }
}

TEST(HttpKey, IsTheSameWithoutQuotesUnlessStrict) {
  for (const char* bare : {"8e03978e-40d5-43dd-bc93-6894a57f9324", "K2_x",
                           "a/b+c==", ":YQ==:", "?1", "12.50", "it's"}) {
    SCOPED_TRACE(bare);
    EXPECT_EQ(read(bare), key(bare));
    EXPECT_EQ(read(bare), read(quoted_http_key(bare)));
    EXPECT_EQ(read(bare, HttpKeySyntax::strict), malformed);
  }
}

TEST(HttpKey, MayHaveParametersThatAreIgnored) {
  for (const char* parameters :
       {";a", "; a=1", ";a=-1.5;b=?0", ";a=\"x\\\"\"", ";a=tok/en:x", ";a=*",
        ";a=:aGk=:", ";a=@1700000000", ";a=%\"f%c3%bc\"", ";*x_-.*=1;  b", ";a=123456789012345"}) {
    SCOPED_TRACE(parameters);
    EXPECT_EQ(read(std::string("\"k\"") + parameters, HttpKeySyntax::strict), key("k"));
    EXPECT_EQ(read(std::string("k") + parameters), key("k"));
  }
}

TEST(HttpKey, IsRefusedWhenMalformed) {
  for (const char* value : {"",
                            " ",
                            "\"",
                            "\"a",
                            "a\"",
                            "\"a\"b",
                            "\"a\" \"b\"",
                            "\"a\", \"b\"",
                            "a,b",
                            "a b",
                            R"("\a")",
                            R"("a\)",
                            "\"\x01\"",
                            "\"\x7f\"",
                            "\"\xc3\xbc\"",
                            "\xc3\xbc",
                            "a\\b",
                            "\"\"",
                            "\"   \"",
                            ";",
                            "\"a\";",
                            "\"a\";A",
                            "\"a\";1",
                            "\"a\";a=",
                            "\"a\";a=\"",
                            "\"a\";a=-",
                            "\"a\";a=1.",
                            "\"a\";a=1.2345",
                            "\"a\";a=1234567890123.1",
                            "\"a\";a=1234567890123456",
                            "\"a\";a=@1.5",
                            "\"a\";a=?2",
                            "\"a\";a=:a",
                            "\"a\";a=%x",
                            "\"a\";a=()",
                            "\"a\" ;a"}) {
    SCOPED_TRACE(value);
    EXPECT_EQ(read(value), malformed);
    EXPECT_EQ(read(value, HttpKeySyntax::strict), malformed);
  }
  EXPECT_EQ(read(std::string_view("\"a\0b\"", 5)), malformed);
}

TEST(HttpKey, IsMeasuredWithoutQuotesAndEscapes) {
  EXPECT_EQ(read_http_key(R"("\"\"\"")", HttpKeySyntax::strict, 3), key("\"\"\""));
  EXPECT_EQ(read_http_key(R"("abcd")", HttpKeySyntax::strict, 3).fault, HttpKeyFault::too_long);
  EXPECT_EQ(read(std::string(255, 'k')), key(std::string(255, 'k')));
  EXPECT_EQ(read(std::string(256, 'k')).fault, HttpKeyFault::too_long);
}

TEST(HttpKey, StandsInOneFieldOnly) {
  const auto of = [](const std::vector<HttpField>& fields) {
    return read_http_key(fields, HttpKeySyntax::lenient, 255);
  };

  EXPECT_EQ(of({{"Accept", "*/*"}, {"idempotency-KEY", "k"}}), key("k"));
  EXPECT_EQ(of({{"Accept", "*/*"}}).fault, HttpKeyFault::missing);
  EXPECT_EQ(of({{"Idempotency-Key", "k"}, {"idempotency-key", "k"}}).fault, HttpKeyFault::repeated);
}

TEST(HttpKey, ComesBackFromItsQuotedForm) {
  std::string all;
  for (char c = 0x20; c < 0x7f; ++c)
    all += c;

  EXPECT_EQ(read(quoted_http_key(all), HttpKeySyntax::strict), key(all));
  EXPECT_EQ(code_of([] { static_cast<void>(quoted_http_key("a\n")); }), Errc::invalid_argument);
  EXPECT_EQ(code_of([] { static_cast<void>(quoted_http_key("\xff")); }), Errc::invalid_argument);
}

TEST(HttpRecordKey, KeepsPrincipalsAndRoutesApart) {  // KF-01
  std::set<std::string> texts;
  const auto add = [&](const char* principal, const char* scope, const char* client_key) {
    texts.insert(http_record_key("payment", principal, scope, client_key).text());
  };
  add("alice", "POST /pay", "k");
  add("bob", "POST /pay", "k");
  add("alice", "POST /refund", "k");
  add("alice", "PATCH /pay", "k");
  add("alice:POST /pay", "", "k");
  add("", "alice:POST /pay", "k");
  add("alice", "POST /pay", "k:alice");
  add("alice%3APOST /pay", "", "k");
  add("alice%3APOST", "/pay", "k");

  EXPECT_EQ(texts.size(), 9U);
}

TEST(HttpRecordKey, IsReadableInFrontAndShort) {
  const Key stored =
      http_record_key("payment", "alice", "POST /pay", "8e03978e-40d5-43dd-bc93-6894a57f9324");

  EXPECT_EQ(stored.type(), "payment");
  EXPECT_TRUE(stored.value().starts_with("8e03978e-40d5-43dd-bc93-6894a57f~")) << stored.value();
  EXPECT_EQ(stored.value().size(), 97U);
  EXPECT_EQ(http_record_key("t", std::string(9'000, 'p'), std::string(9'000, 's'),
                            std::string(4'096, 'k'))
                .value()
                .size(),
            97U);
  EXPECT_EQ(code_of([] { static_cast<void>(http_record_key("t", "p", "s", "")); }),
            Errc::invalid_key);
}

// Stored: a change makes every repeated request run again.
TEST(HttpRecordKey, NeverChanges) {
  EXPECT_EQ(http_record_key("payment", "ali:ce", "POST /pay%", "k").text(),
            "payment:k:ali%3Ace:POST_/pay%25~"
            "570b6ae68abb6a0619f96f800fa640cb3d2eccc82e6e6c98cc5b8974e1fdef2a");
}

}  // namespace
}  // namespace idempotency
