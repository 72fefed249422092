// libFuzzer: recorded bytes are refused with a typed error, or are a response that is recorded as the same bytes' value again.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "idempotency/edges/http_message.hpp"
#include "seeds.hpp"

namespace {

using idempotency::HttpResponse;

void check(std::string_view bytes) {
  HttpResponse response;
  try {
    response = idempotency::decode_result<HttpResponse>(bytes);
  } catch (const idempotency::Error& error) {
    const idempotency::Errc code = error.code();
    if (code != idempotency::Errc::codec_corrupt && code != idempotency::Errc::codec_mismatch) {
      std::abort();
    }
    return;
  }
  if (idempotency::decode_result<HttpResponse>(idempotency::encode_result(response)) != response) {
    std::abort();
  }
  for (const idempotency::HttpHeader& header : response.headers) {
    if (header.value.find_first_of(std::string_view("\r\n\0", 3)) != std::string::npos)
      std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  check(bytes);
  std::string with_form;
  idempotency::detail::append_form<HttpResponse>(with_form);
  check(with_form.append(bytes));
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  const HttpResponse created{
      .status = 201, .headers = {{"Content-Type", "text/plain"}, {"Link", "<a>"}}, .body = "paid"};
  std::string value;
  idempotency::Codec<HttpResponse>::encode(created, value);
  return idempotency::fuzzing::mutate_with_seeds(
      {idempotency::encode_result(created), value, std::string("\xcc\0\0\0", 4)}, data, size,
      max_size, seed);
}
