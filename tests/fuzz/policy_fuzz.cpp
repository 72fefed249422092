// libFuzzer: a policy file is refused with `invalid_policy`, with a place in words, or gives policies that contradict nothing.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "idempotency/error.hpp"
#include "idempotency/policy.hpp"
#include "seeds.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const idempotency::PolicyTable table = idempotency::PolicyTable::from_json(text);
    for (const char* type : {"payment", "order", "refund", ""})
      validate(table.find(type));
  } catch (const idempotency::Error& error) {
    if (error.code() != idempotency::Errc::invalid_policy) std::abort();
    if (std::string_view(error.what()).empty()) std::abort();
  }
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  return idempotency::fuzzing::mutate_with_seeds(
      {R"({"refund":{"lease":"30s","success_retention":"30d","failure_retention":"1h",)"
       R"("wait":"0ms","on_expired_lease":"hold","on_store_failure":"refuse",)"
       R"("max_result_bytes":65536,"max_total_hold":"1h"}})",
       R"({"*":{"lease":"10s"},"payment":{"wait":"2s"}})", R"({})"},
      data, size, max_size, seed);
}
