// libFuzzer: nothing but a token that was issued is taken for one, whatever stands in its place, and nothing throws.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "idempotency/patterns/token_signer.hpp"
#include "patterns/token_text.hpp"
#include "seeds.hpp"

namespace {

using namespace idempotency;

constexpr Timestamp now{std::chrono::milliseconds{1'760'000'000'000}};

const TokenSigner& signer() {
  static const TokenSigner one(
      {{"2026-10", std::string(32, 'a')}, {"2026-09", std::string(32, 'b')}});
  return one;
}

const std::string& issued() {
  static const std::string token =
      signer().issue("pay", "customer-7", std::chrono::minutes{15}, now);
  return token;
}

void check(std::string_view token) {
  const TokenReading reading = signer().look(token, "pay", "customer-7", now);
  const bool is_ours = token == issued();
  if ((reading.verdict == TokenVerdict::good) != is_ours) std::abort();
  if (!is_ours && reading.verdict != TokenVerdict::unknown) std::abort();
  if (reading.facts.has_value() != is_ours) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  check(bytes);
  check(detail::tokens::to_base64url(bytes));
  if (const auto decoded = detail::tokens::from_base64url(bytes)) {
    if (detail::tokens::to_base64url(*decoded) != bytes) std::abort();
  }
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  const std::string bytes = detail::tokens::from_base64url(issued()).value_or("");
  return idempotency::fuzzing::mutate_with_seeds({issued(), bytes}, data, size, max_size, seed);
}
