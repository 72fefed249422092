#include "idempotency/codecs/protobuf.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/timestamp.pb.h>
#include <google/protobuf/wrappers.pb.h>

#include "support/error_of.hpp"

using google::protobuf::BytesValue;
using google::protobuf::StringValue;
using google::protobuf::Struct;
using google::protobuf::Timestamp;
using NamePart = google::protobuf::UninterpretedOption_NamePart;

template <>
struct idempotency::Codec<StringValue> : idempotency::ProtobufCodec<StringValue> {};
template <>
struct idempotency::Codec<BytesValue> : idempotency::ProtobufCodec<BytesValue> {};
template <>
struct idempotency::Codec<Struct> : idempotency::ProtobufCodec<Struct> {};
template <>
struct idempotency::Codec<Timestamp> : idempotency::ProtobufCodec<Timestamp> {};
template <>
struct idempotency::Codec<NamePart> : idempotency::ProtobufCodec<NamePart> {};

namespace idempotency {
namespace {

using namespace std::literals;
using testing_support::code_of;

StringValue text(std::string value) {
  StringValue message;
  message.set_value(std::move(value));
  return message;
}

TEST(ProtobufCodec, ReturnsWhatWasStored) {
  Timestamp moment;
  moment.set_seconds(1'700'000'000);
  moment.set_nanos(5);

  const Timestamp read = decode_result<Timestamp>(encode_result(moment));

  EXPECT_EQ(read.seconds(), 1'700'000'000);
  EXPECT_EQ(read.nanos(), 5);
}

TEST(ProtobufCodec, KeepsItsBytes) {
  EXPECT_EQ(encode_result(text("ok")), "\1{google.protobuf.StringValue}\4\x0a\2ok"s);
}

TEST(ProtobufCodec, ReturnsAnEmptyMessageAsItself) {  // ID-09
  EXPECT_EQ(encode_result(StringValue()), "\1{google.protobuf.StringValue}\0"s);
  EXPECT_EQ(decode_result<StringValue>(encode_result(StringValue())).value(), "");
}

TEST(ProtobufCodec, NestsInContainers) {
  const std::vector<StringValue> messages = {text("a"), text(""), text("c")};

  const auto read = decode_result<std::vector<StringValue>>(encode_result(messages));

  ASSERT_EQ(read.size(), 3U);
  EXPECT_EQ(read[0].value() + read[1].value() + read[2].value(), "ac");
}

TEST(ProtobufCodec, WritesMapFieldsInOneOrder) {
  Struct forwards;
  Struct backwards;
  for (int i = 0; i < 100; ++i) {
    (*forwards.mutable_fields())["k" + std::to_string(i)].set_number_value(i);
    (*backwards.mutable_fields())["k" + std::to_string(99 - i)].set_number_value(99 - i);
  }

  EXPECT_EQ(encode_result(forwards), encode_result(backwards));
}

TEST(ProtobufCodec, DoesNotReadOneMessageAsAnother) {
  const std::string stored = encode_result(text("ok"));

  EXPECT_EQ(code_of([&] { (void)decode_result<BytesValue>(stored); }), Errc::codec_mismatch);
  EXPECT_EQ(code_of([&] { (void)decode_result<std::string>(stored); }), Errc::codec_mismatch);
}

TEST(ProtobufCodec, RefusesAMessageWithoutARequiredField) {
  NamePart part;
  part.set_name_part("x");

  EXPECT_EQ(code_of([&] { (void)encode_result(part); }), Errc::codec_unencodable);
  part.set_is_extension(false);
  EXPECT_EQ(decode_result<NamePart>(encode_result(part)).name_part(), "x");
}

TEST(ProtobufCodec, RefusesTextThatIsNotUtf8BeforeItIsStored) {
  EXPECT_EQ(code_of([] { (void)encode_result(text("\xff")); }), Errc::codec_unencodable);
}

TEST(ProtobufCodec, FindsDamagedBytes) {
  const auto stored = [](std::string_view bytes) {
    std::string result = "\1{google.protobuf.StringValue}";
    append_sized(result, bytes);
    return result;
  };

  EXPECT_EQ(code_of([&] { (void)decode_result<StringValue>(stored("\x0a\x09ok"sv)); }),
            Errc::codec_corrupt);
  EXPECT_EQ(code_of([&] { (void)decode_result<StringValue>(encode_result(text("ok")) + "x"); }),
            Errc::codec_corrupt);
}

}  // namespace
}  // namespace idempotency
