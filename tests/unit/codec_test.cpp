#include "idempotency/codec.hpp"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <deque>
#include <limits>
#include <list>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <typeinfo>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include "support/allocations.hpp"
#include "support/error_of.hpp"

namespace shop {

struct Receipt {
  std::string id;
  int cents = 0;
  friend bool operator==(const Receipt&, const Receipt&) = default;
};
struct Mark {
  friend bool operator==(const Mark&, const Mark&) = default;
};
struct Unknown {};
enum class Color : std::uint8_t { red = 1, blue = 200 };

}  // namespace shop

template <>
struct idempotency::Codec<shop::Receipt> {
  static constexpr std::string_view name = "receipt/1";
  static void encode(const shop::Receipt& receipt, std::string& out) {
    Codec<std::string>::encode(receipt.id, out);
    Codec<int>::encode(receipt.cents, out);
  }
  static shop::Receipt decode(ByteReader& in) {
    std::string id = Codec<std::string>::decode(in);
    return {std::move(id), Codec<int>::decode(in)};
  }
};

/// Breaks the rule that `encode` appends at least one byte.
template <>
struct idempotency::Codec<shop::Mark> {
  static std::string name() { return "mark"; }
  static void encode(const shop::Mark&, std::string&) {}
  static shop::Mark decode(ByteReader&) { return {}; }
};

namespace idempotency {
namespace {

using testing_support::allocations_of;
using testing_support::code_of;
using testing_support::error_of;
using namespace std::literals;

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char character : bytes) {
    const auto byte = static_cast<unsigned char>(character);
    text += "0123456789abcdef"[byte >> 4U];
    text += "0123456789abcdef"[byte & 0xfU];
  }
  return text;
}

/// The stored bytes; a failed test when they do not come back as the same value.
template <class T>
std::string golden(const T& value) {
  const std::string bytes = encode_result(value);
  EXPECT_EQ(decode_result<T>(bytes), value) << hex(bytes);
  return hex(bytes);
}

TEST(Codec, KeepsTheBytesOfIntegers) {
  EXPECT_EQ(golden(0), "016900");
  EXPECT_EQ(golden(1), "016902");
  EXPECT_EQ(golden(-1), "016901");
  EXPECT_EQ(golden(63), "01697e");
  EXPECT_EQ(golden(-64), "01697f");
  EXPECT_EQ(golden(64), "01698001");
  EXPECT_EQ(golden(-65), "01698101");
  EXPECT_EQ(golden(std::int8_t{-128}), "0169ff01");
  EXPECT_EQ(golden(std::uint8_t{255}), "0169fe03");
  EXPECT_EQ(golden(std::numeric_limits<std::int64_t>::max()), "0169feffffffffffffffff01");
  EXPECT_EQ(golden(std::numeric_limits<std::int64_t>::min()), "0169ffffffffffffffffff01");
  EXPECT_EQ(golden(std::numeric_limits<std::uint64_t>::max()), "0169feffffffffffffffff03");
}

TEST(Codec, KeepsTheBytesOfOtherScalars) {
  EXPECT_EQ(hex(encode_result<void>()), "0130");
  EXPECT_EQ(golden(std::monostate()), "017500");
  EXPECT_EQ(golden(false), "016200");
  EXPECT_EQ(golden(true), "016201");
  EXPECT_EQ(golden('A'), "016341");
  EXPECT_EQ(golden(1.5F), "01660000c03f");
  EXPECT_EQ(golden(-2.0), "016400000000000000c0");
  EXPECT_EQ(golden(shop::Color::blue), "0165699003");
}

TEST(Codec, KeepsTheBytesOfText) {
  EXPECT_EQ(golden(""s), "017300");
  EXPECT_EQ(golden("ok"s), "0173026f6b");
  EXPECT_EQ(golden(std::string(200, 'x')).substr(0, 10), "0173c80178");
  EXPECT_EQ(golden(std::vector<std::byte>{std::byte{0}, std::byte{255}}), "01790200ff");
  EXPECT_EQ(golden(std::vector<char>{'a'}), "01790161");
  EXPECT_EQ(golden(std::vector<std::uint8_t>{7, 8}), "0179020708");
}

TEST(Codec, KeepsTheBytesOfContainers) {
  EXPECT_EQ(golden(std::optional<int>()), "013f6900");
  EXPECT_EQ(golden(std::optional(1)), "013f690102");
  EXPECT_EQ(golden(std::pair(1, "a"s)), "0174026973020161");
  EXPECT_EQ(golden(std::tuple(1, true, "a"s)), "01740369627302010161");
  EXPECT_EQ(golden(std::tuple<>()), "01740000");
  EXPECT_EQ(golden(std::variant<int, std::string>("a")), "0176026973020161");
  EXPECT_EQ(golden(std::vector<int>{1, 2}), "016c69020204");
  EXPECT_EQ(golden(std::vector<bool>{true, false}), "016c62020100");
  EXPECT_EQ(golden(std::array<int, 2>{1, 2}), "016c69020204");
  EXPECT_EQ(golden(std::deque<int>{1, 2}), "016c69020204");
  EXPECT_EQ(golden(std::list<int>{1, 2}), "016c69020204");
  EXPECT_EQ(golden(std::map<std::string, int>{{"a", 1}, {"b", 2}}), "016d736902016102016204");
  EXPECT_EQ(golden(std::set<int>{2, 1}), "016b69020204");
}

TEST(Codec, KeepsTheBytesOfTimes) {
  EXPECT_EQ(golden(5ms), "014401e807690a");
  EXPECT_EQ(golden(5s), "01440101690a");
  EXPECT_EQ(golden(1min), "01443c016902");
  EXPECT_EQ(golden(std::chrono::duration<double>(0.5)), "0144010164000000000000e03f");
  EXPECT_EQ(golden(std::chrono::sys_seconds(1s)), "01544401016902");
}

TEST(Codec, KeepsTheBytesOfAUsersOwn) {
  EXPECT_EQ(golden(shop::Receipt{"r1", 5}), "017b726563656970742f317d0272310a");
  EXPECT_EQ(golden(shop::Mark()), "017b6d61726b7d");
}

TEST(Codec, ReturnsFalsyResultsAsThemselves) {  // ID-09
  golden(0);
  golden(0.0);
  golden(false);
  golden(""s);
  golden("\0\0\0"s);
  golden("None"s);
  golden("null"s);
  golden(std::vector<int>());
  golden(std::optional<int>());
  golden(std::optional<std::optional<int>>(std::optional<int>()));
  golden(std::monostate());
  golden(std::map<int, int>());
  EXPECT_NO_THROW(decode_result<void>(encode_result<void>()));
}

TEST(Codec, KeepsFalsyResultsOfDifferentTypesApart) {  // ID-09
  const std::set<std::string> stored = {
      encode_result(0),
      encode_result(false),
      encode_result(""s),
      encode_result<void>(),
      encode_result(0.0),
      encode_result(std::monostate()),
      encode_result("None"s),
      encode_result(std::vector<int>()),
      encode_result(std::optional<int>()),
  };

  EXPECT_EQ(stored.size(), 9U);
}

TEST(Codec, ReturnsNestedValues) {
  using Deep = std::map<std::string, std::vector<std::optional<std::pair<std::int64_t, double>>>>;
  golden(Deep{{"", {}}, {"a", {std::nullopt, std::pair(std::int64_t{-1}, 0.1)}}});
  golden(std::unordered_map<std::string, std::set<int>>{{"x", {3, 1}}, {"y", {}}});
  golden(std::multimap<int, int>{{1, 1}, {1, 2}});
  golden(std::unordered_set<std::string>{"a", "b"});
  golden(std::tuple(std::tuple(1), std::variant<std::monostate, std::vector<std::string>>()));
  golden(std::vector{shop::Receipt{"a", 1}, shop::Receipt{"", -1}});
  golden(std::vector<std::tuple<>>(3));
  golden(std::array<std::array<int, 2>, 2>{{{1, 2}, {3, 4}}});
}

TEST(Codec, ReturnsAMebibyteOfAnyBytes) {
  std::string bytes(1U << 20U, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<char>(i * 31U);

  EXPECT_EQ(decode_result<std::string>(encode_result(bytes)), bytes);
}

TEST(Codec, ReturnsFloatingPointBitByBit) {
  const auto bits_after = [](std::uint64_t bits) {
    return std::bit_cast<std::uint64_t>(
        decode_result<double>(encode_result(std::bit_cast<double>(bits))));
  };

  for (const std::uint64_t bits :
       std::vector<std::uint64_t>{0x8000000000000000U, 0x7ff8000000000123U, 0xfff8000000000001U,
                                  0x7ff0000000000000U, 0x0000000000000001U, 0x3fb999999999999aU}) {
    EXPECT_EQ(bits_after(bits), bits);
  }
}

TEST(Codec, ReadsAnIntegerAsAnyTypeThatCanHoldIt) {
  const std::string stored = encode_result(200);

  EXPECT_EQ(decode_result<std::int64_t>(stored), 200);
  EXPECT_EQ(decode_result<std::uint8_t>(stored), 200);
  EXPECT_EQ(decode_result<std::uint64_t>(stored), 200U);
  EXPECT_EQ(code_of([&] { decode_result<std::int8_t>(stored); }), Errc::codec_mismatch);
  EXPECT_EQ(code_of([] { decode_result<unsigned>(encode_result(-1)); }), Errc::codec_mismatch);
  EXPECT_EQ(code_of([] {
              decode_result<std::int64_t>(encode_result(std::numeric_limits<std::uint64_t>::max()));
            }),
            Errc::codec_mismatch);
  EXPECT_EQ(code_of([] {
              decode_result<std::int32_t>(
                  encode_result(std::int64_t{std::numeric_limits<std::int32_t>::min()} - 1));
            }),
            Errc::codec_mismatch);
}

TEST(Codec, ReadsOneSequenceAsAnother) {
  const std::string stored = encode_result(std::vector<int>{1, 2});

  EXPECT_EQ(decode_result<std::list<long>>(stored), (std::list<long>{1, 2}));
  EXPECT_EQ((decode_result<std::array<int, 2>>(stored)), (std::array{1, 2}));
  EXPECT_EQ(code_of([&] { decode_result<std::array<int, 3>>(stored); }), Errc::codec_mismatch);
}

template <class Read>
void expect_mismatch_reading(std::string_view stored) {
  EXPECT_EQ(code_of([&] { decode_result<Read>(stored); }), Errc::codec_mismatch)
      << typeid(Read).name() << ' ' << hex(stored);
}

template <class Written, class... Read>
void expect_mismatch(const Written& value) {
  const std::string stored = encode_result(value);
  (expect_mismatch_reading<Read>(stored), ...);
}

TEST(Codec, ReadsNothingAsAnotherType) {
  expect_mismatch<int, std::string, bool, double, void, std::optional<int>, std::vector<int>,
                  shop::Color, char>(1);
  expect_mismatch<std::string, int, std::vector<char>, std::vector<std::string>, shop::Receipt>(
      "1");
  expect_mismatch<double, float, int, std::chrono::duration<double>>(1.0);
  expect_mismatch<std::pair<int, std::string>, std::pair<std::string, int>,
                  std::tuple<int, std::string, int>, std::tuple<int>, std::map<int, std::string>>(
      {1, "a"});
  expect_mismatch<std::map<int, int>, std::set<int>, std::vector<std::pair<int, int>>,
                  std::map<int, std::string>>({{1, 1}});
  expect_mismatch<std::vector<int>, std::vector<std::string>, std::set<int>, int>({1});
  expect_mismatch<shop::Receipt, std::string, shop::Mark>({"r", 1});
  expect_mismatch<std::monostate, bool, int>({});
}

TEST(Codec, DoesNotReadSecondsAsMilliseconds) {
  expect_mismatch<std::chrono::seconds, std::chrono::milliseconds, std::chrono::minutes,
                  std::int64_t, std::chrono::duration<double>>(5s);
  expect_mismatch<std::chrono::sys_seconds, std::chrono::sys_time<std::chrono::milliseconds>,
                  std::chrono::seconds>(std::chrono::sys_seconds(5s));
}

TEST(Codec, SaysWhichFormItExpectedInTheDetailOnly) {
  const Error error = error_of([] { decode_result<std::vector<int>>(encode_result("secret"s)); });

  EXPECT_EQ(error.detail(), "expected the form li");
  EXPECT_EQ(std::string(error.what()).find("secret"), std::string::npos);
}

TEST(Codec, RefusesTheFormatOfAnotherVersion) {
  std::string stored = encode_result(1);
  stored[0] = '\2';

  EXPECT_EQ(code_of([&] { decode_result<int>(stored); }), Errc::codec_mismatch);
}

template <class T>
void expect_corrupt(std::string_view bytes) {
  EXPECT_EQ(code_of([&] { decode_result<T>(bytes); }), Errc::codec_corrupt) << hex(bytes);
}

TEST(Codec, RefusesBytesThatEndTooEarly) {
  using Value = std::tuple<std::string, std::vector<std::optional<int>>, double, bool>;
  const std::string stored = encode_result(Value("text", {1, std::nullopt, 70'000}, 1.0, true));

  for (std::size_t size = 0; size < stored.size(); ++size) {
    expect_corrupt<Value>(std::string_view(stored).substr(0, size));
  }
}

TEST(Codec, RefusesBytesThatAreLeftOver) {
  expect_corrupt<void>(encode_result<void>() + "x");
  expect_corrupt<int>(encode_result(1) + "\0"s);
  expect_corrupt<std::string>(encode_result("a"s) + "b");
}

TEST(Codec, RefusesBytesThatNoEncoderWrites) {
  expect_corrupt<bool>("\1b\2"s);
  expect_corrupt<std::optional<int>>("\1?i\2\0"s);
  expect_corrupt<std::monostate>("\1u\1"s);
  expect_corrupt<std::tuple<>>("\1t\0\1"s);
  expect_corrupt<int>("\1i\x80\0"s);                                              // a spare byte
  expect_corrupt<std::uint64_t>("\1i\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x07"s);  // 65 bits
  expect_corrupt<std::uint64_t>("\1i\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01"s);
  expect_corrupt<std::variant<int, bool>>("\1v\2ib\4\0"s);
  expect_corrupt<std::variant<int, bool>>("\1v\2ib\1\0"s);
  expect_corrupt<std::map<int, int>>("\1mii\2\2\2\2\2"s);  // a key twice
  expect_corrupt<std::set<int>>("\1ki\2\2\2"s);
}

TEST(Codec, DoesNotAskForTheMemoryThatAForgedLengthNames) {
  const std::string huge = "\xff\xff\xff\xff\xff\xff\xff\xff\x7f"s;

  expect_corrupt<std::string>("\1s" + huge + "abc");
  expect_corrupt<std::vector<std::byte>>("\1y" + huge);
  expect_corrupt<std::vector<std::string>>("\1ls" + huge + "abc");
  expect_corrupt<std::vector<std::tuple<>>>("\1lt\0"s + huge + "\0\0\0"s);
  expect_corrupt<std::map<int, int>>("\1mii" + huge + "\2\2");
}

TEST(Codec, RefusesElementsWhoseCodecWritesNothing) {
  EXPECT_EQ(code_of([] { (void)encode_result(std::vector<shop::Mark>(2)); }),
            Errc::codec_unencodable);
}

TEST(Codec, StaysWithItsErrorsOnRandomBytes) {
  using Value = std::variant<std::map<std::string, std::vector<int>>, std::optional<shop::Receipt>,
                             std::tuple<double, std::chrono::seconds>, std::deque<std::set<char>>>;
  const unsigned seed = 20240607;
  std::mt19937 random(seed);
  const std::string form = [] {
    std::string out;
    detail::append_form<Value>(out);
    return out;
  }();
  int decoded = 0;

  for (int round = 0; round < 50'000; ++round) {
    std::string bytes = form;
    for (auto size = random() % 24; size > 0; --size) {
      bytes += static_cast<char>(random() % 4 == 0 ? random() : random() % 8);
    }
    try {
      const std::string written = encode_result(decode_result<Value>(bytes));
      EXPECT_EQ(written.size(), bytes.size()) << "seed " << seed << ' ' << hex(bytes);
      EXPECT_EQ(encode_result(decode_result<Value>(written)), written) << "seed " << seed;
      ++decoded;
    } catch (const Error& error) {
      EXPECT_TRUE(error.code() == Errc::codec_corrupt || error.code() == Errc::codec_mismatch);
    }
  }

  EXPECT_GT(decoded, 100) << "seed " << seed;
}

TEST(Codec, IsThereAllTheWayDownOrNotAtAll) {
  static_assert(Encodable<void> && Encodable<int> && Encodable<std::string>);
  static_assert(Encodable<std::vector<std::optional<shop::Receipt>>>);
  static_assert(!Encodable<shop::Unknown>);
  static_assert(!Encodable<std::vector<shop::Unknown>>);
  static_assert(!Encodable<std::optional<shop::Unknown>>);
  static_assert(!Encodable<std::map<int, shop::Unknown>>);
  static_assert(!Encodable<std::pair<int, std::vector<shop::Unknown>>>);
  static_assert(!Encodable<std::variant<int, shop::Unknown>>);
  static_assert(!Encodable<std::string_view> && !Encodable<const char*>);
  static_assert(!Encodable<int&> && !Encodable<const int> && !Encodable<int*>);
  static_assert(!Encodable<long double>);
  static_assert(!Encodable<std::chrono::steady_clock::time_point>);
  SUCCEED();
}

TEST(Codec, CostsOneAllocationForAShortTextEachWay) {
  const std::string text = "charge-123456789";
  std::string stored;
  std::string read;

  EXPECT_EQ(allocations_of([&] { stored = encode_result(text); }), 1U);
  EXPECT_EQ(allocations_of([&] { read = decode_result<std::string>(stored); }), 1U);
  EXPECT_EQ(read, text);
}

}  // namespace
}  // namespace idempotency
