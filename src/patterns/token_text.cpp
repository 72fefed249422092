#include "patterns/token_text.hpp"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>

#include "idempotency/error.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail::tokens {

using std::chrono::milliseconds;

bool is_same(std::string_view left, std::string_view right) noexcept {
  return left.size() == right.size() && CRYPTO_memcmp(left.data(), right.data(), left.size()) == 0;
}

std::string to_base64url(std::string_view bytes) {
  std::string text(4 * ((bytes.size() + 2) / 3) + 1, '\0');
  const int size = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                   reinterpret_cast<const unsigned char*>(bytes.data()),
                                   static_cast<int>(bytes.size()));
  text.resize(static_cast<std::size_t>(size));
  text.erase(text.find_last_not_of('=') + 1);
  std::replace(text.begin(), text.end(), '+', '-');
  std::replace(text.begin(), text.end(), '/', '_');
  return text;
}

std::optional<std::string> from_base64url(std::string_view url) {
  std::string text(url);
  std::replace(text.begin(), text.end(), '-', '+');
  std::replace(text.begin(), text.end(), '_', '/');
  const std::size_t padding = (4 - text.size() % 4) % 4;
  text.append(padding, '=');
  std::string bytes(text.size() / 4 * 3, '\0');
  const int size = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                                   reinterpret_cast<const unsigned char*>(text.data()),
                                   static_cast<int>(text.size()));
  if (size < 0 || static_cast<std::size_t>(size) < padding) return std::nullopt;
  bytes.resize(static_cast<std::size_t>(size) - padding);
  if (to_base64url(bytes) != url) return std::nullopt;
  return bytes;
}

std::string time_text(Timestamp time) {
  const auto count = static_cast<std::uint64_t>(time.time_since_epoch().count());
  std::string bytes;
  for (int shift = 56; shift >= 0; shift -= 8)
    bytes += static_cast<char>((count >> shift) & 0xff);
  return bytes;
}

Timestamp to_time(std::string_view bytes) noexcept {
  std::uint64_t count = 0;
  for (const char byte : bytes)
    count = count << 8 | static_cast<unsigned char>(byte);
  return Timestamp{milliseconds{static_cast<milliseconds::rep>(count)}};
}

void check_lifetime(milliseconds ttl, Timestamp now) {
  if (ttl >= milliseconds{1} && ttl <= Timestamp::max() - now) return;
  throw Error(Errc::invalid_argument, "a token lives 1 ms or more, and ends some day");
}

}  // namespace detail::tokens
}  // namespace v0
}  // namespace idempotency
