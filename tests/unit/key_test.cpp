#include "idempotency/key.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "support/allocations.hpp"
#include "support/error_of.hpp"

namespace idempotency {
namespace {

using namespace std::literals;
using testing_support::code_of;
using testing_support::error_of;

enum class Region : std::uint8_t { north = 1, south = 2 };

TEST(Key, IsItsTypeAndItsValue) {
  const Key key("payment", "order_123");

  EXPECT_EQ(key.type(), "payment");
  EXPECT_EQ(key.value(), "order_123");
  EXPECT_EQ(key.text(), "payment:order_123");
}

TEST(Key, KeepsEqualValuesOfDifferentTypesApart) {  // KF-01
  EXPECT_NE(Key("payment", "42"), Key("refund", "42"));
}

TEST(Key, IsEqualOnlyWithTheSameSplitOfTypeAndValue) {  // KF-01
  EXPECT_NE(Key("a", "b:c").text(), Key("a.b", "c").text());
  EXPECT_EQ(code_of([] { Key("a:b", "c"); }), Errc::invalid_key);
}

TEST(Key, DistinguishesWhatCollationsMerge) {  // MY-01
  const std::vector<std::string> values = {"abc",     "ABC", "Abc", "ß", "ss", "é",
                                           "e\u0301", "e",   "İ",   "i", "I",  "ı"};
  std::set<std::string> texts;

  for (const std::string& value : values)
    texts.insert(Key("order", value).text());

  EXPECT_EQ(texts.size(), values.size());
}

TEST(Key, DistinguishesTrailingAndLeadingSpaces) {  // MY-02
  EXPECT_NE(Key("order", "k"), Key("order", "k "));
  EXPECT_NE(Key("order", "k"), Key("order", " k"));
  EXPECT_NE(Key("order", "k "), Key("order", "k  "));
}

TEST(Key, ShowsNoControlCharacterWhenItIsRefused) {
  try {
    Key("order", "a\n\x1b[2J");
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.detail(), "a\\x0a\\x1b[2J");
  }
}

TEST(Key, RefusesControlCharactersInItsValue) {  // MY-02, KF-05
  for (int byte = 0; byte < 256; ++byte) {
    const std::string value = "k"s + static_cast<char>(byte);
    const bool control = byte < 0x20 || byte == 0x7f;
    if (control) {
      EXPECT_EQ(code_of([&] { Key("order", value); }), Errc::invalid_key) << byte;
    } else {
      EXPECT_EQ(Key("order", value).value(), value) << byte;
    }
  }
}

TEST(Key, FindsAControlCharacterAtEveryPlace) {
  for (std::size_t size = 1; size <= 20; ++size) {
    for (std::size_t at = 0; at < size; ++at) {
      for (int byte = 0; byte < 256; ++byte) {
        std::string value(size, byte % 2 == 0 ? '\x80' : 'k');
        value[at] = static_cast<char>(byte);
        bool accepted = true;
        try {
          Key("order", value);
        } catch (const Error&) {
          accepted = false;
        }
        const bool blank = size == 1 && byte == ' ';
        ASSERT_EQ(accepted, byte >= 0x20 && byte != 0x7f && !blank)
            << size << ' ' << at << ' ' << byte;
      }
    }
  }
}

TEST(Key, CountsItsLimitsInBytesAndTruncatesNothing) {  // MY-04
  const std::string longest(Key::max_value_bytes, 'x');
  const std::string type(Key::max_type_bytes, 't');

  EXPECT_EQ(Key(type, longest).value(), longest);
  EXPECT_EQ(Key(type, longest).type(), type);
  EXPECT_EQ(code_of([&] { Key("order", longest + "x"); }), Errc::invalid_key);
  EXPECT_EQ(code_of([&] { Key("order", std::string(1024, 'x')); }), Errc::invalid_key);
  EXPECT_EQ(code_of([&] { Key(type + "t", "1"); }), Errc::invalid_key);
}

TEST(Key, CountsAMultiByteCharacterAcrossTheLimitInFull) {  // MY-04
  const std::string fits = std::string(253, 'x') + "é";
  const std::string straddles = std::string(254, 'x') + "é";

  EXPECT_EQ(Key("order", fits).value(), fits);
  EXPECT_EQ(code_of([&] { Key("order", straddles); }), Errc::invalid_key);
}

TEST(Key, RefusesWhatIsMissing) {  // KF-05
  EXPECT_EQ(code_of([] { Key("payment", ""); }), Errc::invalid_key);
  EXPECT_EQ(code_of([] { Key("payment", " "); }), Errc::invalid_key);
  EXPECT_EQ(code_of([] { Key("payment", "    "); }), Errc::invalid_key);
  EXPECT_EQ(code_of([] { Key("payment", "\0"s); }), Errc::invalid_key);
  EXPECT_EQ(code_of([] { Key("payment", "\t\n"); }), Errc::invalid_key);
}

TEST(Key, RefusesANullPointerInsteadOfSharingOneRecord) {  // SL-05
  const char* null = nullptr;

  EXPECT_EQ(code_of([&] { Key("payment", null); }), Errc::invalid_key);
  EXPECT_EQ(code_of([&] { Key(null, "42"); }), Errc::invalid_key);
  EXPECT_EQ(code_of([&] { (void)Key::of("payment", null, 1); }), Errc::invalid_key);
}

TEST(Key, RefusesAnEmptyScope) {  // SL-05
  EXPECT_EQ(code_of([] { Key("", "42"); }), Errc::invalid_key);
  EXPECT_EQ(code_of([] { (void)Key::of("payment", "", "42"); }), Errc::invalid_key);
  EXPECT_EQ(code_of([] { (void)Key::of("payment", " ", "42"); }), Errc::invalid_key);
}

TEST(Key, TakesATypeOfNameCharactersOnly) {
  EXPECT_EQ(Key("Pay-ment_2.v/1", "x").type(), "Pay-ment_2.v/1");
  for (const std::string& type : {"a b"s, "a:b"s, "a%b"s, "é"s, "a\n"s, "a\0b"s}) {
    EXPECT_EQ(code_of([&] { Key(type, "x"); }), Errc::invalid_key) << type;
  }
}

TEST(Key, DoesNotSayItsValueInWhat) {
  const Error error = error_of([] { Key("payment", "secret\n"); });

  EXPECT_EQ(std::string(error.what()).find("secret"), std::string::npos);
  EXPECT_EQ(error.detail(), "secret\\x0a");
}

TEST(Key, OfPartsDiffersWhereverThePartsDiffer) {  // KF-01
  EXPECT_NE(Key::of("payment", "a:b", "c"), Key::of("payment", "a", "b:c"));
  EXPECT_NE(Key::of("payment", "a", "b", "c"), Key::of("payment", "a:b", "c"));
  EXPECT_NE(Key::of("payment", "a%3Ab"), Key::of("payment", "a:b"));
  EXPECT_NE(Key::of("payment", "ab", "c"), Key::of("payment", "a", "bc"));
}

TEST(Key, OfPartsStaysReadable) {
  EXPECT_EQ(Key::of("payment", "tenant 7", 42, Region::south, true).text(),
            "payment:tenant 7:42:2:true");
  EXPECT_EQ(Key::of("payment", "a:b", "50%", "1\n2\x7f").text(), "payment:a%3Ab:50%25:1%0A2%7F");
}

TEST(Key, OfPartsTakesATenantAndRefusesToGuessIt) {  // KF-01
  EXPECT_NE(Key::of("payment", "tenant-1", "42"), Key::of("payment", "tenant-2", "42"));
}

TEST(Key, OfPartsCountsIntegersByValue) {
  EXPECT_EQ(Key::of("order", 7), Key::of("order", 7L));
  EXPECT_EQ(Key::of("order", std::uint8_t{7}), Key::of("order", std::int64_t{7}));
  EXPECT_EQ(Key::of("order", 7), Key::of("order", "7"));
  EXPECT_EQ(Key::of("order", std::numeric_limits<std::int64_t>::min()).value(),
            "-9223372036854775808");
  EXPECT_EQ(Key::of("order", std::numeric_limits<std::uint64_t>::max()).value(),
            "18446744073709551615");
}

TEST(Key, OfPartsTakesACharacterAsText) { EXPECT_EQ(Key::of("seat", 12, 'C').value(), "12:C"); }

TEST(Key, OfPartsRefusesMoreThanFits) {  // MY-04
  EXPECT_EQ(Key::of("order", std::string(127, 'x'), std::string(127, 'y')).value().size(), 255U);
  EXPECT_EQ(code_of([] { (void)Key::of("order", std::string(127, 'x'), std::string(128, 'y')); }),
            Errc::invalid_key);
}

TEST(Key, DigestedTakesAnyLengthAndAnyBytes) {  // MY-04
  const std::string long_value(100'000, 'x');

  const Key key = Key::digested("webhook", long_value);

  EXPECT_EQ(key.value().substr(0, 33), std::string(32, 'x') + "~");
  EXPECT_EQ(key.value().size(), 32U + 1U + 64U);
  EXPECT_NE(Key::digested("webhook", long_value + "y"), key);
  EXPECT_EQ(Key::digested("webhook", "a\0b\n"s).value().substr(0, 5), "a_b_~");
}

TEST(Key, DigestedIsTheSha256OfTheValue) {  // test vector of FIPS 180-4
  EXPECT_EQ(Key::digested("t", "abc").value(),
            "abc~ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Key, DigestedDiffersFromEveryPlainValueOfItsPrefix) {
  EXPECT_NE(Key::digested("t", "abc"), Key("t", "abc"));
  EXPECT_NE(Key::digested("t", Key::digested("t", "abc").value()), Key::digested("t", "abc"));
}

TEST(Key, DigestedRefusesWhatIsMissing) {  // KF-05
  EXPECT_EQ(code_of([] { (void)Key::digested("t", ""); }), Errc::invalid_key);
  EXPECT_EQ(code_of([] { (void)Key::digested("t", " \t"); }), Errc::invalid_key);
  EXPECT_EQ(code_of([] { (void)Key::digested("t", "\0\0"s); }), Errc::invalid_key);
  EXPECT_EQ(code_of([] { (void)Key::digested("", "x"); }), Errc::invalid_key);
}

TEST(Key, CostsOneAllocationAtMost) {
  const std::string id = "0123456789abcdef-0123456789abcdef";

  EXPECT_EQ(testing_support::allocations_of([&] { Key("payment", id); }), 1U);
  EXPECT_EQ(testing_support::allocations_of([&] { (void)Key::of("payment", id, 42, "eur"); }), 1U);
  EXPECT_EQ(testing_support::allocations_of([&] { Key("order", "7"); }), 0U);
}

}  // namespace
}  // namespace idempotency
