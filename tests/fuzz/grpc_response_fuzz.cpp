// libFuzzer: recorded bytes are refused with a typed error, or are a response that is recorded as the same bytes' value again.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "idempotency/edges/grpc_response.hpp"
#include "seeds.hpp"

namespace {

using idempotency::GrpcResponse;

void check(std::string_view bytes) {
  GrpcResponse response;
  try {
    response = idempotency::decode_result<GrpcResponse>(bytes);
  } catch (const idempotency::Error& error) {
    const idempotency::Errc code = error.code();
    if (code != idempotency::Errc::codec_corrupt && code != idempotency::Errc::codec_mismatch) {
      std::abort();
    }
    return;
  }
  if (idempotency::decode_result<GrpcResponse>(idempotency::encode_result(response)) != response) {
    std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  check(bytes);
  std::string with_form;
  idempotency::detail::append_form<GrpcResponse>(with_form);
  check(with_form.append(bytes));
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  const GrpcResponse paid{.type = "shop.ChargeReply", .reply = "\x0a\x01x"};
  std::string value;
  idempotency::Codec<GrpcResponse>::encode(paid, value);
  return idempotency::fuzzing::mutate_with_seeds({idempotency::encode_result(paid), value}, data,
                                                 size, max_size, seed);
}
