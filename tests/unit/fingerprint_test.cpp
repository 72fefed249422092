#include "idempotency/fingerprint.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "support/error_of.hpp"

namespace idempotency {
namespace {

using namespace std::literals;
using testing_support::code_of;
using testing_support::error_of;

enum class Currency : std::uint16_t { eur = 7, usd = 8 };

std::string hex(const Fingerprint& fingerprint) {
  std::string text;
  for (const std::uint8_t byte : fingerprint.current().digest) {
    text += "0123456789abcdef"[byte >> 4U];
    text += "0123456789abcdef"[byte & 0xfU];
  }
  return text;
}

Fingerprint json(std::string_view text) { return Fingerprint::of_json(text); }

TEST(Fingerprint, OfBytesIsTheirSha256) {  // test vectors of FIPS 180-4
  EXPECT_EQ(hex(Fingerprint::of_bytes("")),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex(Fingerprint::of_bytes("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex(Fingerprint::of_bytes("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

TEST(Fingerprint, OfFieldsKeepsTheDigestsThatStoresHold) {
  EXPECT_EQ(hex(Fingerprint::of("order-7", 1250, Currency::eur, true, 2.5, std::nullopt)),
            "6359fcca5b345ac765a2e0930c5a9535bee78c0d7797132562083fccda69431a");
}

TEST(Fingerprint, OfJsonKeepsTheDigestsThatStoresHold) {
  EXPECT_EQ(hex(json(R"({"id":"order-7","cents":1250,"tags":[true,null,-2.5]})")),
            "b10e6c85a688986b2828876ef6dcfb87cdefd1440486623099db15d701c514a3");
}

TEST(Fingerprint, OfFieldsKeepsNeighboursApart) {
  EXPECT_NE(Fingerprint::of("ab", "c"), Fingerprint::of("a", "bc"));
  EXPECT_NE(Fingerprint::of("abc"), Fingerprint::of("ab", "c"));
  EXPECT_NE(Fingerprint::of("", "a"), Fingerprint::of("a", ""));
  EXPECT_NE(Fingerprint::of("a"), Fingerprint::of("a", ""));
  EXPECT_NE(Fingerprint::of("a\0b"s), Fingerprint::of("a"s));
}

TEST(Fingerprint, OfFieldsCountsIntegersByValue) {
  const Fingerprint seven = Fingerprint::of(7);

  EXPECT_EQ(Fingerprint::of(7L), seven);
  EXPECT_EQ(Fingerprint::of(7ULL), seven);
  EXPECT_EQ(Fingerprint::of(std::uint8_t{7}), seven);
  EXPECT_EQ(Fingerprint::of(std::int8_t{7}), seven);
  EXPECT_EQ(Fingerprint::of(Currency::eur), seven);
  EXPECT_NE(Fingerprint::of(8), seven);
  EXPECT_NE(Fingerprint::of(-7), seven);
  EXPECT_EQ(Fingerprint::of(std::int8_t{-7}), Fingerprint::of(std::int64_t{-7}));
  EXPECT_NE(Fingerprint::of(std::int64_t{-1}),
            Fingerprint::of(std::numeric_limits<std::uint64_t>::max()));
}

TEST(Fingerprint, OfFieldsKeepsKindsApart) {
  EXPECT_NE(Fingerprint::of("1"), Fingerprint::of(1));
  EXPECT_NE(Fingerprint::of(1.0), Fingerprint::of(1));
  EXPECT_NE(Fingerprint::of(true), Fingerprint::of(1));
  EXPECT_NE(Fingerprint::of(""), Fingerprint::of(std::nullopt));
  EXPECT_NE(Fingerprint::of(0), Fingerprint::of(std::nullopt));
  EXPECT_NE(Fingerprint::of('1'), Fingerprint::of(1));
}

TEST(Fingerprint, OfFieldsCountsFloatingPointByValue) {
  EXPECT_EQ(Fingerprint::of(-0.0), Fingerprint::of(0.0));
  EXPECT_EQ(Fingerprint::of(2.5F), Fingerprint::of(2.5));
  EXPECT_EQ(Fingerprint::of(std::nan("1")), Fingerprint::of(-std::nan("2")));
  EXPECT_NE(Fingerprint::of(0.1F), Fingerprint::of(0.1));
}

TEST(Fingerprint, OfFieldsTakesAllKindsOfTextAlike) {
  const Fingerprint abc = Fingerprint::of("abc");

  EXPECT_EQ(Fingerprint::of("abc"s), abc);
  EXPECT_EQ(Fingerprint::of(std::string_view("abc")), abc);
  EXPECT_EQ(Fingerprint::of(static_cast<const char*>("abc")), abc);
  EXPECT_EQ(Fingerprint::of(static_cast<const char*>(nullptr)), Fingerprint::of(nullptr));
}

TEST(Fingerprint, OfFieldsTakesAFullOptionalAsItsValue) {
  EXPECT_EQ(Fingerprint::of(std::optional(7)), Fingerprint::of(7));
  EXPECT_EQ(Fingerprint::of(std::optional<int>()), Fingerprint::of(std::nullopt));
  EXPECT_EQ(Fingerprint::of(std::monostate()), Fingerprint::of(std::nullopt));
}

TEST(Fingerprint, OfFieldsTakesContainersWithTheirSize) {
  using Numbers = std::vector<int>;

  EXPECT_NE(Fingerprint::of(Numbers{1, 2}, Numbers{3}), Fingerprint::of(Numbers{1}, Numbers{2, 3}));
  EXPECT_NE(Fingerprint::of(Numbers{1, 2}), Fingerprint::of(1, 2));
  EXPECT_NE(Fingerprint::of(Numbers{}), Fingerprint::of(std::nullopt));
  EXPECT_EQ(Fingerprint::of(Numbers{1, 2}), Fingerprint::of(std::array{1L, 2L}));
  EXPECT_EQ(Fingerprint::of(std::pair(1, "a"s)), Fingerprint::of(std::tuple(1, "a"s)));
  EXPECT_EQ(Fingerprint::of(std::vector<bool>{true, false}),
            Fingerprint::of(std::array{true, false}));
  EXPECT_EQ(Fingerprint::of(std::map<std::string, int>{{"b", 2}, {"a", 1}}),
            Fingerprint::of(std::vector<std::pair<std::string, int>>{{"a", 1}, {"b", 2}}));
}

TEST(Fingerprint, OfFieldsTakesNothingWithoutACanonicalForm) {
  static_assert(!detail::Fingerprintable<std::unordered_map<int, int>>);
  static_assert(!detail::Fingerprintable<long double>);
  static_assert(!detail::Fingerprintable<int*>);
  static_assert(!detail::Fingerprintable<std::optional<std::optional<int>>>);
  static_assert(detail::Fingerprintable<std::tuple<int, std::vector<std::string>>>);
  SUCCEED();
}

TEST(Fingerprint, OfFieldsTakesMoreThanItsInlineBuffer) {
  const std::string long_text(10'000, 'x');

  EXPECT_NE(Fingerprint::of(long_text, 1), Fingerprint::of(long_text, 2));
  EXPECT_NE(Fingerprint::of(1, long_text), Fingerprint::of(1, long_text + "x"));
  EXPECT_EQ(Fingerprint::of(std::string(244, 'x'), 1, "end"),
            Fingerprint::of(std::string(244, 'x'), 1, "end"));
}

TEST(Fingerprint, OfJsonIgnoresTheSpellingOfTheText) {
  const Fingerprint plain = json(R"({"a":1,"b":["x","é"],"c":{"d":null,"e":true}})");

  EXPECT_EQ(json(" { \"c\" : {\"e\":true,\n\"d\":null}, \"b\":[\"x\",\"\\u00e9\"]\t,\"a\":1.0 } "),
            plain);
  EXPECT_EQ(json(R"("\/\u0041\ud83d\ude00")"), json("\"/A😀\""));
}

TEST(Fingerprint, OfJsonComparesNumbersExactlyAsWritten) {
  for (const char* spelling : {"1", "1.0", "10e-1", "1e0", "1E+0", "0.1e1", "100e-2", "1.000000"}) {
    EXPECT_EQ(json(spelling), json("1")) << spelling;
  }
  for (const char* zero : {"0", "-0", "0.0", "-0.0", "0e5", "-0e-999", "0.000e+7"}) {
    EXPECT_EQ(json(zero), json("0")) << zero;
  }
  EXPECT_EQ(json("9007199254740993"), json("9007199254740993.0"));
  EXPECT_NE(json("9007199254740993"), json("9007199254740992"));
  EXPECT_NE(json("0.1"), json("0.1000000000000000055511151231257827021181583404541015625"));
  EXPECT_EQ(json("18446744073709551616"), json("1.8446744073709551616e19"));
  EXPECT_NE(json("18446744073709551616"), json("18446744073709551617"));
  EXPECT_EQ(json("-9223372036854775808"), json("-9223372036854775808.0"));
  EXPECT_NE(json("-1"), json("1"));
  EXPECT_EQ(json("120"), json("1.2e2"));
  EXPECT_NE(json("12"), json("120"));
}

TEST(Fingerprint, OfJsonTakesAnExponentWithoutWritingItOut) {
  EXPECT_EQ(json("1e-999999999"), json("10e-1000000000"));
  EXPECT_NE(json("1e-999999999"), json("1e-999999998"));
  EXPECT_EQ(json("1e308"), json("10e307"));
  EXPECT_EQ(code_of([] { (void)json("1e999999999"); }), Errc::invalid_fingerprint);
  EXPECT_EQ(code_of([] { (void)json("1e-99999999999999999999"); }), Errc::invalid_fingerprint);
}

TEST(Fingerprint, OfJsonKeepsKindsAndStructureApart) {
  const std::vector<const char*> texts = {
      "1",
      "\"1\"",
      "true",
      "\"true\"",
      "null",
      "\"\"",
      "[]",
      "{}",
      "[[]]",
      "[{}]",
      "[null]",
      "[1,2]",
      "[[1],2]",
      "[[1,2]]",
      "[1,[2]]",
      "[12]",
      "[\"1,2\"]",
      "{\"a\":1}",
      "[\"a\",1]",
      "{\"a\":{}}",
      "{\"\":1}",
      "{\"a\":[]}",
      "{\"a\":1,\"b\":2}",
      "{\"a\":2,\"b\":1}",
      "{\"a\":{\"b\":1}}",
      "[{\"a\":1},{\"b\":2}]",
      "false",
      "0",
  };

  for (std::size_t i = 0; i < texts.size(); ++i) {
    for (std::size_t j = i + 1; j < texts.size(); ++j) {
      EXPECT_NE(json(texts[i]), json(texts[j])) << texts[i] << " and " << texts[j];
    }
  }
}

TEST(Fingerprint, OfJsonKeepsTheOrderOfArrays) { EXPECT_NE(json("[1,2]"), json("[2,1]")); }

TEST(Fingerprint, OfJsonSortsMembersAtEveryDepth) {
  EXPECT_EQ(json(R"({"b":{"y":[{"q":1,"p":2}],"x":2},"a":{"z":1,"aa":3}})"),
            json(R"({"a":{"aa":3,"z":1},"b":{"x":2,"y":[{"p":2,"q":1}]}})"));
}

TEST(Fingerprint, OfJsonRefusesAMemberThatIsNamedTwice) {
  EXPECT_EQ(code_of([] { (void)json(R"({"a":1,"b":2,"a":1})"); }), Errc::invalid_fingerprint);
  EXPECT_EQ(code_of([] { (void)json(R"({"a":1,"\u0061":2})"); }), Errc::invalid_fingerprint);
  EXPECT_NO_THROW((void)json(R"({"a":{"a":1},"b":[{"a":1},{"a":2}]})"));
}

TEST(Fingerprint, OfJsonRefusesWhatIsNotJson) {
  const std::vector<std::string> texts = {
      "",
      " ",
      "{",
      "[1,]",
      "{\"a\":1,}",
      "nul",
      "'a'",
      "01",
      "1.",
      ".5",
      "+1",
      "NaN",
      "Infinity",
      "1 2",
      "[1]]",
      "// c\n1",
      "{\"a\" 1}",
      "{a:1}",
      "\"\\x41\"",
      "\"a\nb\"",
      "\"\\ud800\"",
      "[1]\0"s,
      "[1]\0[2]"s,
      "\"\xff\"",
      "\"\xc0\xaf\"",
      "\"\xed\xa0\x80\"",
  };

  for (const std::string& text : texts) {
    EXPECT_EQ(code_of([&] { (void)json(text); }), Errc::invalid_fingerprint) << text;
  }
}

TEST(Fingerprint, OfJsonDoesNotQuoteTheTextInWhat) {
  const Error error = error_of([] { (void)json("{\"card\": 4111x}"); });

  EXPECT_EQ(std::string(error.what()).find("4111"), std::string::npos);
}

TEST(Fingerprint, OfJsonNestsUpTo256Deep) {
  const auto nested = [](std::size_t depth) {
    return json(std::string(depth, '[') + std::string(depth, ']'));
  };

  EXPECT_NO_THROW((void)nested(256));
  EXPECT_EQ(code_of([&] { (void)nested(257); }), Errc::invalid_fingerprint);
  EXPECT_EQ(code_of([&] { (void)json(std::string(1'000'000, '[')); }), Errc::invalid_fingerprint);
}

TEST(Fingerprint, IsComparedUnderTheSchemeOfTheRecord) {  // KF-03
  const auto first_scheme = [](const char* id, int cents) { return Fingerprint::of(id, cents); };
  const auto second_scheme = [&](const char* id, int cents, const char* currency) {
    return Fingerprint::of(id, cents, currency).as_scheme(2).or_earlier(first_scheme(id, cents));
  };
  const Fingerprint::Part old_record = first_scheme("order-7", 1250).current();
  const Fingerprint::Part new_record = second_scheme("order-7", 1250, "EUR").current();

  EXPECT_EQ(second_scheme("order-7", 1250, "EUR").match(old_record), FingerprintMatch::same);
  EXPECT_EQ(second_scheme("order-7", 9999, "EUR").match(old_record), FingerprintMatch::different);
  EXPECT_EQ(second_scheme("order-7", 1250, "EUR").match(new_record), FingerprintMatch::same);
  EXPECT_EQ(second_scheme("order-7", 1250, "USD").match(new_record), FingerprintMatch::different);
}

TEST(Fingerprint, IsNotComparableWithASchemeThatItDoesNotHave) {  // KF-03
  const Fingerprint::Part third = Fingerprint::of("order-7").as_scheme(3).current();

  EXPECT_EQ(Fingerprint::of("order-7").match(third), FingerprintMatch::not_comparable);
  EXPECT_EQ(Fingerprint::of("order-7").as_scheme(2).or_earlier(Fingerprint::of("x")).match(third),
            FingerprintMatch::not_comparable);
}

TEST(Fingerprint, StoresItsCurrentSchemeOnly) {  // KF-03
  const Fingerprint both = Fingerprint::of("a", 1).as_scheme(2).or_earlier(Fingerprint::of("a"));

  EXPECT_EQ(both.current(), Fingerprint::of("a", 1).as_scheme(2).current());
  EXPECT_EQ(both.earlier(), Fingerprint::of("a").current());
  EXPECT_EQ(Fingerprint::from_stored(2, both.current().digest),
            Fingerprint::of("a", 1).as_scheme(2));
}

TEST(Fingerprint, RefusesSchemesThatCannotBeToldApart) {
  const Fingerprint plain = Fingerprint::of("a");
  const Fingerprint both = plain.as_scheme(2).or_earlier(plain);

  EXPECT_EQ(code_of([&] { (void)plain.as_scheme(0); }), Errc::invalid_argument);
  EXPECT_EQ(code_of([&] { (void)plain.or_earlier(plain); }), Errc::invalid_argument);
  EXPECT_EQ(code_of([&] { (void)both.as_scheme(1); }), Errc::invalid_argument);
  EXPECT_EQ(code_of([&] { (void)plain.as_scheme(3).or_earlier(both); }), Errc::invalid_argument);
  EXPECT_EQ(code_of([&] { (void)both.or_earlier(plain.as_scheme(3)); }), Errc::invalid_argument);
}

}  // namespace
}  // namespace idempotency
