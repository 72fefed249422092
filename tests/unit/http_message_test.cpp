#include "idempotency/edges/http_message.hpp"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "support/error_of.hpp"

namespace idempotency {
namespace {

using namespace std::string_view_literals;
using testing_support::code_of;

Errc code_of_decoding(std::string_view bytes) {
  return code_of([&] { static_cast<void>(decode_result<HttpResponse>(bytes)); });
}

const HttpResponse created{.status = 201,
                           .headers = {{"Content-Type", "text/plain"},
                                       {"Link", "</a>; rel=next"},
                                       {"Link", "</b>; rel=prev"},
                                       {"ETag", ""}},
                           .body = std::string("a\0\n", 3)};

// Stored: never change; a new form needs a new name.
TEST(HttpTargets, AreTheSameInOriginAndInAbsoluteForm) {
  const HttpTarget target{.path = "/pay/7", .query = "a=1&b=?"};
  for (const char* text : {"/pay/7?a=1&b=?", "http://shop.example/pay/7?a=1&b=?",
                           "HTTPS://shop.example:8443/pay/7?a=1&b=?", "/pay/7?a=1&b=?#part"}) {
    EXPECT_EQ(split_http_target(text), target) << text;
  }
}

TEST(HttpTargets, HaveAPathAlsoWhereTheAbsoluteFormHasNone) {
  EXPECT_EQ(split_http_target("http://shop.example"), (HttpTarget{.path = "/"}));
  EXPECT_EQ(split_http_target("http://shop.example?a=1"),
            (HttpTarget{.path = "/", .query = "a=1"}));
}

TEST(HttpTargets, KeepWhatIsNoAbsoluteFormAsItIs) {
  EXPECT_EQ(split_http_target("*"), (HttpTarget{.path = "*"}));
  EXPECT_EQ(split_http_target(""), (HttpTarget{.path = ""}));
  EXPECT_EQ(split_http_target("/http://x/y"), (HttpTarget{.path = "/http://x/y"}));
  EXPECT_EQ(split_http_target("ftp://x/y"), (HttpTarget{.path = "ftp://x/y"}));
}

TEST(HttpResponseCodec, WritesTheBytesThatItAlwaysWrote) {
  const std::string bytes =
      encode_result(HttpResponse{.status = 201, .headers = {{"ETag", "x"}}, .body = "hi"});

  EXPECT_EQ(bytes,
            "\x01{http-response/1}\xc9\x00\x01\x04"
            "ETag\x01x\x02hi"sv);
}

TEST(HttpResponseCodec, GivesBackStatusFieldsInOrderAndBody) {
  EXPECT_EQ(decode_result<HttpResponse>(encode_result(created)), created);
  const HttpResponse bare{.status = 204};
  EXPECT_EQ(decode_result<HttpResponse>(encode_result(bare)), bare);
  const HttpResponse large{.status = 200, .body = std::string(1U << 20U, '\xff')};
  EXPECT_EQ(decode_result<HttpResponse>(encode_result(large)), large);
}

TEST(HttpResponseCodec, RefusesEveryTruncation) {
  const std::string bytes = encode_result(created);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const Errc code = code_of_decoding(std::string_view(bytes).substr(0, size));
    EXPECT_TRUE(code == Errc::codec_corrupt || code == Errc::codec_mismatch) << size;
  }
  EXPECT_EQ(code_of_decoding(bytes + 'x'), Errc::codec_corrupt);
}

TEST(HttpResponseCodec, RefusesWhatIsNoResponse) {
  const std::string head = "\x01{http-response/1}";
  EXPECT_EQ(code_of_decoding(head + std::string("\x63\x00\x00\x00", 4)), Errc::codec_corrupt);
  EXPECT_EQ(code_of_decoding(head + std::string("\x58\x02\x00\x00", 4)), Errc::codec_corrupt);
  EXPECT_EQ(code_of_decoding(head + std::string("\xc8\x00\xff\xff\xff\x7f", 6)),
            Errc::codec_corrupt);
  EXPECT_EQ(code_of_decoding(head + std::string("\xc8\x00\x01\x02"
                                                "a:\x01x\x00",
                                                8)),
            Errc::codec_corrupt);
  EXPECT_EQ(code_of_decoding(head + std::string("\xc8\x00\x01\x01"
                                                "a\x03x\r\n\x00",
                                                9)),
            Errc::codec_corrupt);
  EXPECT_EQ(code_of_decoding(encode_result(std::string("text"))), Errc::codec_mismatch);
}

TEST(HttpResponseCodec, DoesNotRecordWhatCouldNotBeSent) {
  const auto code_of_encoding = [](const HttpResponse& response) {
    return code_of([&] { static_cast<void>(encode_result(response)); });
  };

  EXPECT_EQ(code_of_encoding({.form = HttpBodyForm::streamed}), Errc::codec_unencodable);
  EXPECT_EQ(code_of_encoding({.status = 99}), Errc::codec_unencodable);
  EXPECT_EQ(code_of_encoding({.status = 600}), Errc::codec_unencodable);
  EXPECT_EQ(code_of_encoding({.status = -1}), Errc::codec_unencodable);
  EXPECT_EQ(code_of_encoding({.headers = {{"Location", "/a\r\nSet-Cookie: b"}}}),
            Errc::codec_unencodable);
  EXPECT_EQ(code_of_encoding({.headers = {{"", "x"}}}), Errc::codec_unencodable);
}

TEST(HttpMessages, FindFieldsWithoutRegardToCase) {
  const HttpRequest request{.method = "GET", .path = "/", .headers = {{"X-A", "1"}, {"x-a", "2"}}};

  EXPECT_EQ(request.header("x-A"), "1");
  EXPECT_EQ(request.header("x"), "");
  EXPECT_EQ(created.header("LINK"), "</a>; rel=next");
  EXPECT_EQ(created.header("Set-Cookie"), "");
}

}  // namespace
}  // namespace idempotency
