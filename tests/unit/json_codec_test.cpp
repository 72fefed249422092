#include "idempotency/codecs/json.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "support/error_of.hpp"

namespace json_shop {

struct Line {
  std::string article;
  double weight = 0;
  friend bool operator==(const Line&, const Line&) = default;
  NLOHMANN_DEFINE_TYPE_INTRUSIVE(Line, article, weight)
};

struct Receipt {
  std::string id;
  std::int64_t cents = 0;
  std::vector<Line> lines;
  friend bool operator==(const Receipt&, const Receipt&) = default;
  NLOHMANN_DEFINE_TYPE_INTRUSIVE(Receipt, id, cents, lines)
};

struct Refund {
  std::string refund_id;
  NLOHMANN_DEFINE_TYPE_INTRUSIVE(Refund, refund_id)
};

struct Named {
  int number = 0;
  NLOHMANN_DEFINE_TYPE_INTRUSIVE(Named, number)
};

}  // namespace json_shop

template <>
struct idempotency::Codec<json_shop::Receipt> : idempotency::JsonCodec<json_shop::Receipt> {};
template <>
struct idempotency::Codec<json_shop::Refund> : idempotency::JsonCodec<json_shop::Refund> {};
template <>
struct idempotency::Codec<json_shop::Line> : idempotency::JsonCodec<json_shop::Line> {};
template <>
struct idempotency::Codec<json_shop::Named> : idempotency::JsonCodec<json_shop::Named> {
  static constexpr std::string_view name = "named/2";
};
template <>
struct idempotency::Codec<nlohmann::json> : idempotency::JsonCodec<nlohmann::json> {};

namespace idempotency {
namespace {

using namespace std::literals;
using json_shop::Named;
using json_shop::Receipt;
using json_shop::Refund;
using testing_support::code_of;
using testing_support::error_of;

TEST(JsonCodec, ReturnsWhatWasStored) {
  const Receipt receipt{"r-1", 9'007'199'254'740'993, {{"tea", 0.1}, {"Käse", -0.0}}};

  EXPECT_EQ(decode_result<Receipt>(encode_result(receipt)), receipt);
}

TEST(JsonCodec, KeepsItsBytes) {
  EXPECT_EQ(encode_result(Receipt{"r", 5, {}}),
            "\1{json}\x1f"s + R"({"cents":5,"id":"r","lines":[]})");
  EXPECT_EQ(encode_result(Named{7}), "\1{named/2}\x0c"s + R"({"number":7})");
}

TEST(JsonCodec, NestsInContainers) {
  const std::map<std::string, std::vector<Receipt>> receipts = {
      {"a", {{"1", 1, {}}, {"2", 2, {}}}}};

  EXPECT_EQ((decode_result<std::map<std::string, std::vector<Receipt>>>(encode_result(receipts))),
            receipts);
}

TEST(JsonCodec, ReturnsFalsyJsonAsItself) {  // ID-09
  for (const char* text : {"null", "0", "false", "\"\"", "[]", "{}", "\"None\""}) {
    const nlohmann::json value = nlohmann::json::parse(text);
    EXPECT_EQ(decode_result<nlohmann::json>(encode_result(value)), value) << text;
  }
}

TEST(JsonCodec, RefusesTextThatIsNotUtf8) {
  EXPECT_EQ(code_of([] { (void)encode_result(Receipt{"\xff", 1, {}}); }), Errc::codec_unencodable);
}

TEST(JsonCodec, RefusesNumbersThatJsonWouldTurnIntoNull) {
  for (const double weight : {std::nan(""), std::numeric_limits<double>::infinity(),
                              -std::numeric_limits<double>::infinity()}) {
    EXPECT_EQ(code_of([&] {
                (void)encode_result(Receipt{"r", 1, {{"tea", weight}}});
              }),
              Errc::codec_unencodable);
  }
}

TEST(JsonCodec, DoesNotReadTheJsonOfAnotherType) {
  const std::string stored = encode_result(Receipt{"r", 1, {}});

  EXPECT_EQ(code_of([&] { decode_result<Refund>(stored); }), Errc::codec_mismatch);
  EXPECT_EQ(code_of([&] { decode_result<Named>(stored); }), Errc::codec_mismatch);
  EXPECT_EQ(code_of([&] { decode_result<std::string>(stored); }), Errc::codec_mismatch);
}

TEST(JsonCodec, FindsDamagedJson) {
  const auto stored = [](std::string_view text) {
    std::string bytes = "\1{json}";
    append_sized(bytes, text);
    return bytes;
  };

  EXPECT_EQ(code_of([&] { decode_result<Receipt>(stored("{\"id\":")); }), Errc::codec_corrupt);
  EXPECT_EQ(code_of([&] { decode_result<Receipt>(stored("")); }), Errc::codec_corrupt);
  EXPECT_EQ(code_of([&] { decode_result<nlohmann::json>(stored("1\0 2"sv)); }),
            Errc::codec_corrupt);
  EXPECT_EQ(code_of([&] { decode_result<nlohmann::json>(stored("1") + "2"); }),
            Errc::codec_corrupt);
}

TEST(JsonCodec, DoesNotQuoteTheValueInWhat) {
  const Error error = error_of([] { (void)encode_result(Receipt{"secret\xff", 1, {}}); });

  EXPECT_EQ(std::string(error.what()).find("secret"), std::string::npos);
}

}  // namespace
}  // namespace idempotency
