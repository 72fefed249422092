// libFuzzer: recorded bytes are refused with a typed error, or are a response that is recorded as the same bytes' value again.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "idempotency/edges/http_message.hpp"
#include "recorded.hpp"
#include "seeds.hpp"

namespace {

using idempotency::HttpResponse;

void check_headers(const HttpResponse& response) {
  for (const idempotency::HttpHeader& header : response.headers) {
    if (header.value.find_first_of(std::string_view("\r\n\0", 3)) != std::string::npos)
      std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  idempotency::fuzzing::check_recorded<HttpResponse>(data, size, check_headers);
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  const HttpResponse created{
      .status = 201, .headers = {{"Content-Type", "text/plain"}, {"Link", "<a>"}}, .body = "paid"};
  std::vector<std::string> seeds = idempotency::fuzzing::recorded(created);
  seeds.emplace_back("\xcc\0\0\0", 4);
  return idempotency::fuzzing::mutate_with_seeds(seeds, data, size, max_size, seed);
}
