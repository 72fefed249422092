#include "idempotency/edges/http_message.hpp"

#include <cstddef>
#include <utility>

#include "edges/http_text.hpp"

namespace idempotency {
inline namespace v0 {

namespace {

constexpr std::size_t status_bytes = 2;

constexpr bool is_status(std::uint64_t status) noexcept { return status >= 100 && status <= 599; }

bool is_field(const HttpHeader& header) noexcept {
  return detail::http::is_token(header.name) && detail::http::is_field_value(header.value);
}

}  // namespace

HttpTarget split_http_target(std::string_view target) noexcept {
  target = target.substr(0, target.find('#'));
  for (const std::string_view scheme :
       {std::string_view("http://"), std::string_view("https://")}) {
    if (!detail::http::is_same_name(target.substr(0, scheme.size()), scheme)) continue;
    const std::size_t path = target.find_first_of("/?", scheme.size());
    if (path == std::string_view::npos) return {.path = "/"};
    if (target[path] == '?') return {.path = "/", .query = target.substr(path + 1)};
    target.remove_prefix(path);
    break;
  }
  const std::size_t end = target.find('?');
  if (end == std::string_view::npos) return {.path = target};
  return {.path = target.substr(0, end), .query = target.substr(end + 1)};
}

std::string_view HttpRequest::header(std::string_view name) const noexcept {
  for (const HttpField& field : headers) {
    if (detail::http::is_same_name(field.name, name)) return field.value;
  }
  return {};
}

std::string_view HttpResponse::header(std::string_view name) const noexcept {
  for (const HttpHeader& header : headers) {
    if (detail::http::is_same_name(header.name, name)) return header.value;
  }
  return {};
}

void Codec<HttpResponse>::encode(const HttpResponse& response, std::string& out) {
  if (response.form != HttpBodyForm::whole) {
    detail::throw_codec_unencodable("a streamed body is not recorded");
  }
  if (response.status < 0 || !is_status(static_cast<std::uint64_t>(response.status))) {
    detail::throw_codec_unencodable("the status is outside 100 to 599");
  }
  detail::append_word(out, static_cast<std::uint64_t>(response.status), status_bytes);
  append_count(out, response.headers.size());
  for (const HttpHeader& header : response.headers) {
    if (!is_field(header)) {
      detail::throw_codec_unencodable("a header field's name or value is none");
    }
    append_sized(out, header.name);
    append_sized(out, header.value);
  }
  append_sized(out, response.body);
}

HttpResponse Codec<HttpResponse>::decode(ByteReader& in) {
  HttpResponse response;
  const std::uint64_t status = detail::take_word(in, status_bytes);
  if (!is_status(status)) detail::throw_codec_corrupt("the status is outside 100 to 599");
  response.status = static_cast<int>(status);
  const std::size_t count = in.take_count();
  for (std::size_t number = 0; number < count; ++number) {
    HttpHeader header;
    header.name = in.take_sized();
    header.value = in.take_sized();
    if (!is_field(header)) detail::throw_codec_corrupt("a header field's name or value is none");
    response.headers.push_back(std::move(header));
  }
  response.body = in.take_sized();
  return response;
}

}  // namespace v0
}  // namespace idempotency
