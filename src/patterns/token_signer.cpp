#include "idempotency/patterns/token_signer.hpp"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <array>
#include <utility>

#include "idempotency/error.hpp"
#include "idempotency/lease.hpp"
#include "patterns/token_text.hpp"

namespace idempotency {
inline namespace v0 {

using namespace detail::tokens;
using std::chrono::milliseconds;

namespace {

// A token, before base64url: version, length and name of the key, end, nonce, digest of the subject, length and text of
// the purpose, signature over all that stands before it.
constexpr char version = 1;
constexpr std::size_t longest_key_id = 32;
constexpr std::size_t signature_bytes = 32;

// What is signed begins with what it is for, so that no signature of one kind is one of the other.
constexpr std::string_view for_tokens = "idempotency token 1\n";
constexpr std::string_view for_subjects = "idempotency subject 1\n";

std::string signature_of(const TokenKey& key, std::string_view what_for, std::string_view bytes) {
  const std::string message = std::string(what_for) + std::string(bytes);
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  if (HMAC(EVP_sha256(), key.secret.data(), static_cast<int>(key.secret.size()),
           reinterpret_cast<const unsigned char*>(message.data()), message.size(), digest.data(),
           &size) == nullptr ||
      size != signature_bytes) {
    throw Error(Errc::store_refused, "libcrypto offers no HMAC with SHA-256, which signs tokens");
  }
  return {reinterpret_cast<const char*>(digest.data()), size};
}

bool is_key_name(std::string_view id) noexcept {
  return !id.empty() && id.size() <= longest_key_id &&
         std::all_of(id.begin(), id.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '_' || c == '-';
         });
}

void check(const std::vector<TokenKey>& keys) {
  if (keys.empty()) {
    throw Error(Errc::invalid_argument, "a token signer needs a key: its first one signs");
  }
  for (std::size_t at = 0; at < keys.size(); ++at) {
    if (!is_key_name(keys[at].id)) {
      throw Error(Errc::invalid_argument,
                  "a token key's name has 1 to 32 letters, digits, '_' and '-'", keys[at].id);
    }
    if (keys[at].secret.size() < 32 || keys[at].secret.size() > 1024) {
      throw Error(Errc::invalid_argument,
                  "a token key's secret has 32 to 1024 bytes: take them from a random generator",
                  keys[at].id);
    }
    for (std::size_t other = 0; other < at; ++other) {
      if (keys[at].id == keys[other].id) {
        throw Error(Errc::invalid_argument, "two token keys have one name", keys[at].id);
      }
    }
  }
}

}  // namespace

TokenSigner::TokenSigner(std::vector<TokenKey> keys) : keys_(std::move(keys)) { check(keys_); }

std::string TokenSigner::issue(std::string_view purpose, std::string_view subject, milliseconds ttl,
                               Timestamp now) const {
  if (purpose.empty() || purpose.size() > longest_purpose) {
    throw Error(Errc::invalid_argument, "a token's purpose has 1 to 64 bytes");
  }
  check_lifetime(ttl, now);
  const TokenKey& key = keys_.front();
  const OwnerToken nonce = OwnerToken::generate();
  std::string bytes(1, version);
  bytes += static_cast<char>(key.id.size());
  bytes += key.id;
  bytes += time_text(now + ttl);
  bytes.append(reinterpret_cast<const char*>(nonce.bytes().data()), nonce_bytes);
  bytes.append(signature_of(key, for_subjects, subject), 0, subject_bytes);
  bytes += static_cast<char>(purpose.size());
  bytes += purpose;
  bytes += signature_of(key, for_tokens, bytes);
  return to_base64url(bytes);
}

TokenReading TokenSigner::look(std::string_view token, std::string_view purpose,
                               std::string_view subject, Timestamp now) const {
  if (token.empty() || token.size() > longest_token) return {};
  const std::optional<std::string> bytes = from_base64url(token);
  if (!bytes || bytes->size() <= signature_bytes || bytes->front() != version) return {};
  const std::string_view all(*bytes);
  const std::string_view is_signed = all.substr(0, all.size() - signature_bytes);
  Parts parts(is_signed.substr(1));
  const std::string_view key_id = parts.take_with_length();
  const std::string_view end = parts.take(time_bytes);
  const std::string_view nonce = parts.take(nonce_bytes);
  const std::string_view digest = parts.take(subject_bytes);
  const std::string_view made_for = parts.take_with_length();
  const auto key = std::find_if(keys_.begin(), keys_.end(),
                                [&](const TokenKey& known) { return known.id == key_id; });
  if (!parts.is_whole() || key == keys_.end()) return {};
  if (!is_same(signature_of(*key, for_tokens, is_signed), all.substr(is_signed.size()))) {
    return {};
  }

  TokenReading reading;
  reading.facts = TokenFacts{std::string(made_for), to_time(end), std::string(nonce)};
  const std::string own = signature_of(*key, for_subjects, subject).substr(0, subject_bytes);
  if (made_for != purpose) {
    reading.verdict = TokenVerdict::wrong_purpose;
  } else if (!is_same(own, digest)) {
    reading.verdict = TokenVerdict::foreign_subject;
  } else {
    reading.verdict = now < reading.facts->expires_at ? TokenVerdict::good : TokenVerdict::expired;
  }
  return reading;
}

}  // namespace v0
}  // namespace idempotency
