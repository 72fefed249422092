#include "idempotency/execution.hpp"

#include <algorithm>

#include "idempotency/error.hpp"
#include "idempotency/fingerprint.hpp"

namespace idempotency {
inline namespace v0 {

namespace {

bool allowed(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.';
}

}  // namespace

std::string derived_key(const Key& key, std::string_view name) {
  constexpr std::size_t longest_name = 64;
  constexpr std::size_t digest_bytes = 16;
  if (name.empty() || name.size() > longest_name ||
      !std::all_of(name.begin(), name.end(), allowed)) {
    throw Error(
        Errc::invalid_argument,
        "the name of a derived key or step must be 1 to 64 letters, digits, '_', '-' or '.'",
        std::string(name));
  }
  constexpr std::string_view digits = "0123456789abcdef";
  const Fingerprint::Digest digest =
      Fingerprint::of_bytes(key.text() + '\0' + std::string(name)).current().digest;
  std::string derived(name);
  derived += '-';
  for (std::size_t at = 0; at < digest_bytes; ++at) {
    derived += digits[digest[at] >> 4U];
    derived += digits[digest[at] & 0x0fU];
  }
  return derived;
}

std::string Execution::derived_key(std::string_view name) const {
  return v0::derived_key(*key_, name);
}

}  // namespace v0
}  // namespace idempotency
