// libFuzzer: recorded bytes are refused with a typed error, or are a response that is recorded as the same bytes' value again.

#include <cstddef>
#include <cstdint>

#include "idempotency/edges/grpc_response.hpp"
#include "recorded.hpp"
#include "seeds.hpp"

using idempotency::GrpcResponse;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  idempotency::fuzzing::check_recorded<GrpcResponse>(data, size, [](const GrpcResponse&) {});
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  const GrpcResponse paid{.type = "shop.ChargeReply", .reply = "\x0a\x01x"};
  return idempotency::fuzzing::mutate_with_seeds(idempotency::fuzzing::recorded(paid), data, size,
                                                 max_size, seed);
}
