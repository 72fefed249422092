#pragma once

// Identity is bytes, and what is stored comes back byte by byte.

#include <vector>

#include "idempotency/testing/conformance_fixture.hpp"

namespace idempotency {
inline namespace v0 {
namespace testing {

/// Every byte there is, in order.
[[nodiscard]] inline std::string every_byte() {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte)
    bytes += static_cast<char>(byte);
  return bytes;
}

// KF-01, MY-01, MY-02, MY-04
TYPED_TEST_P(StoreConformance, TellsKeysApartByEveryByte) {
  const std::vector<std::string> values{"order",
                                        "ORDER",
                                        "Order",
                                        "order ",
                                        " order",
                                        "order  ",
                                        "order.",
                                        "caf\xc3\xa9",   // one code point
                                        "cafe\xcc\x81",  // the same word, decomposed
                                        "caf\xe9",       // the same word, not UTF-8
                                        "\xf0\x9f\x98\x80",
                                        "\xf0\x9f\x98\x81",
                                        "0",
                                        "00",
                                        "1",
                                        "1.0",
                                        "o'rder",
                                        "order\"",
                                        "ord%er",
                                        "ord_er",
                                        "ord\\er",
                                        "{order}",
                                        "ord*er",
                                        "ord:er"};
  for (const std::string& value : values) {
    auto call = this->caller({.key = this->key(value)});
    ASSERT_EQ(call.begin(), acquired(1, 1)) << value;
    ASSERT_EQ(call.complete("result of " + value), WriteOutcome::stored) << value;
  }

  for (const std::string& value : values) {
    EXPECT_TRUE(replays(this->caller({.key = this->key(value)}).begin(), "result of " + value));
    EXPECT_EQ(this->record(this->key(value)).key.value(), value);
  }
}

TYPED_TEST_P(StoreConformance, TellsBusinessTypesApart) {
  const std::string upper_case = this->type() + "A";
  const std::string lower_case = this->type() + "a";
  for (const std::string& type : {this->type(), upper_case, lower_case}) {
    auto call = this->caller({.key = Key(type, "1")});
    ASSERT_EQ(call.begin(), acquired(1, 1)) << type;
    ASSERT_EQ(call.complete("result of " + type), WriteOutcome::stored) << type;
  }

  for (const std::string& type : {this->type(), upper_case, lower_case}) {
    EXPECT_TRUE(replays(this->caller({.key = Key(type, "1")}).begin(), "result of " + type));
    EXPECT_EQ(this->record(Key(type, "1")).key.type(), type);
  }
}

TYPED_TEST_P(StoreConformance, KeepsKeysOfTheGreatestLengthWhole) {
  const std::string type =
      this->type() + std::string(Key::max_type_bytes - this->type().size() - 1, 't');
  const std::string value(Key::max_value_bytes - 1, 'v');
  const std::vector<Key> keys{Key(type + "1", value + "1"), Key(type + "1", value + "2"),
                              Key(type + "2", value + "1"), Key(type + "1", value)};

  for (const Key& key : keys) {
    EXPECT_EQ(this->caller({.key = key}).begin(), acquired(1, 1)) << key.text();
    EXPECT_EQ(this->record(key).key, key);
  }
}

// KF-01
TYPED_TEST_P(StoreConformance, TellsPartsOfKeysApart) {
  const auto text = [](const char* bytes, std::size_t size) {
    return std::string_view(bytes, size);
  };
  const std::vector<Key> keys{
      Key::of(this->type(), "a:b", "c"),      Key::of(this->type(), "a", "b:c"),
      Key::of(this->type(), "a", "b", "c"),   Key::of(this->type(), text("a\0b", 3)),
      Key::of(this->type(), text("a\0c", 3)), Key::of(this->type(), "a"),
      Key::of(this->type(), text("a\0", 2)),  Key::of(this->type(), "a%00")};

  for (const Key& key : keys) {
    EXPECT_EQ(this->caller({.key = key}).begin(), acquired(1, 1)) << key.text();
  }
}

// ID-09
TYPED_TEST_P(StoreConformance, ReturnsResultsAsTheyWereStored) {
  const std::vector<std::string> results{"",
                                         "0",
                                         "false",
                                         std::string(1, '\0'),
                                         std::string(5, '\0'),
                                         std::string("a\0b", 3),
                                         "nil",
                                         "None",
                                         "null",
                                         "\r\n",
                                         " ",
                                         "trailing ",
                                         "'\"",
                                         every_byte(),
                                         "\xff\xfe"};
  for (std::size_t i = 0; i < results.size(); ++i) {
    auto call = this->owner({.key = this->key(std::to_string(i))});
    ASSERT_EQ(call.complete(results[i]), WriteOutcome::stored) << "result " << i;
  }

  for (std::size_t i = 0; i < results.size(); ++i) {
    const Key key = this->key(std::to_string(i));
    EXPECT_TRUE(replays(this->caller({.key = key}).begin(), results[i])) << "result " << i;
    EXPECT_EQ(this->record(key).result, results[i]) << "result " << i;
  }
}

// ID-09
TYPED_TEST_P(StoreConformance, TellsAnAbsentResultFromAnEmptyOne) {
  auto without = this->owner({.key = this->key("without")});
  auto with_empty = this->owner({.key = this->key("empty")});

  ASSERT_EQ(without.complete(std::nullopt), WriteOutcome::stored);
  ASSERT_EQ(with_empty.complete(""), WriteOutcome::stored);

  EXPECT_TRUE(replays(this->caller({.key = without.key()}).begin(), std::nullopt));
  EXPECT_TRUE(replays(this->caller({.key = with_empty.key()}).begin(), ""));
  EXPECT_EQ(this->record(without.key()).result, std::nullopt);
  EXPECT_EQ(this->record(with_empty.key()).result, "");
}

// MY-19, MY-21
TYPED_TEST_P(StoreConformance, ReturnsAResultOfOneMebibyte) {
  std::string result;
  while (result.size() < (std::size_t{1} << 20U))
    result += every_byte();
  auto first = this->owner();

  ASSERT_EQ(first.complete(result), WriteOutcome::stored);

  EXPECT_TRUE(replays(this->caller().begin(), result));
  EXPECT_EQ(this->record().result, result);
}

TYPED_TEST_P(StoreConformance, ReturnsFailuresAsTheyWereStored) {
  const std::vector<Failure> failures{
      {Retryability::permanent, "", std::nullopt},
      {Retryability::permanent, "card declined", std::nullopt},
      {Retryability::permanent, "caf\xc3\xa9 \xf0\x9f\x98\x80", ""},
      {Retryability::permanent, std::string("with\0nul", 8), std::string("\0", 1)},
      {Retryability::permanent, std::string(Failure::max_reason_bytes, 'r'), every_byte()},
      {Retryability::retryable, "line 1\nline 2", std::nullopt},
      {Retryability::retryable, "", "the encoded refusal"}};
  for (std::size_t i = 0; i < failures.size(); ++i) {
    auto call = this->owner({.key = this->key(std::to_string(i))});
    ASSERT_EQ(call.fail(failures[i]), WriteOutcome::stored) << "failure " << i;

    EXPECT_TRUE(replays(call.begin(), failures[i])) << "failure " << i;
    EXPECT_EQ(this->record(call.key()).failure, failures[i]) << "failure " << i;
    EXPECT_EQ(this->record(call.key()).result, std::nullopt) << "failure " << i;
  }
}

TYPED_TEST_P(StoreConformance, ForgetsAFailureWhenTheNextTurnBegins) {
  auto first = this->owner();
  ASSERT_EQ(first.fail({Retryability::retryable, "first", "first"}), WriteOutcome::stored);
  auto second = this->owner();
  EXPECT_EQ(this->record().failure, std::nullopt);

  ASSERT_EQ(second.complete(std::nullopt), WriteOutcome::stored);

  EXPECT_TRUE(replays(this->caller().begin(), std::nullopt));
  EXPECT_EQ(this->record().failure, std::nullopt);
}

TYPED_TEST_P(StoreConformance, KeepsTheTraceOfTheFirstCaller) {
  const std::string trace = "request-1 \xc3\xa9 '\"" + std::string("\0", 1) + std::string(200, 't');
  auto first = this->owner({.lease = this->short_lease, .trace = trace});
  this->advance(this->short_lease + this->tolerance);
  auto second = this->owner({.trace = "request-2"});

  ASSERT_EQ(second.complete(), WriteOutcome::stored);

  EXPECT_EQ(this->record().trace, trace);
}

TYPED_TEST_P(StoreConformance, KeepsItsBirthdayThroughTakeOverAndCompletion) {
  auto first = this->owner({.lease = this->short_lease});
  const Timestamp created_at = this->record().created_at;
  this->advance(this->short_lease + this->tolerance);
  auto second = this->owner();
  EXPECT_EQ(this->record().created_at, created_at);
  EXPECT_GT(this->record().updated_at, created_at);

  ASSERT_EQ(second.complete(), WriteOutcome::stored);

  EXPECT_EQ(this->record().created_at, created_at);
}

}  // namespace testing
}  // namespace v0
}  // namespace idempotency
