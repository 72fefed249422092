// libFuzzer: `of_json` accepts nothing that nlohmann/json refuses, and spelling the same value anew does not
// change the fingerprint.
//
//   clang++ -std=c++20 -g -O1 -fsanitize=fuzzer,address,undefined -Iinclude
//     tests/fuzz/fingerprint_json_fuzz.cpp src/core/fingerprint.cpp src/core/fingerprint_json.cpp -lcrypto
//     -o fingerprint_json_fuzz && ./fingerprint_json_fuzz -max_total_time=60

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "idempotency/fingerprint.hpp"

namespace {

std::optional<idempotency::Fingerprint> fingerprint_of(std::string_view text) {
  try {
    return idempotency::Fingerprint::of_json(text);
  } catch (const idempotency::Error& error) {
    if (error.code() != idempotency::Errc::invalid_fingerprint) std::abort();
    return std::nullopt;
  }
}

/// Numbers with a fraction or exponent are rounded when they are parsed and may then differ.
bool has_floating_point(const nlohmann::json& value) {
  if (value.is_number_float()) return true;
  if (!value.is_structured()) return false;
  for (const nlohmann::json& element : value) {
    if (has_floating_point(element)) return true;
  }
  return false;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::optional<idempotency::Fingerprint> fingerprint = fingerprint_of(text);
  if (!fingerprint) return 0;
  const nlohmann::json value = nlohmann::json::parse(text, nullptr, false);
  if (value.is_discarded()) std::abort();
  if (has_floating_point(value)) return 0;
  if (fingerprint_of(value.dump(3, ' ', true)) != fingerprint) std::abort();
  return 0;
}
