#include "idempotency/patterns/token_service.hpp"

#include <openssl/evp.h>

#include <algorithm>
#include <array>

#include "idempotency/error.hpp"
#include "patterns/token_text.hpp"

namespace idempotency {
inline namespace v0 {

using std::chrono::milliseconds;

namespace {

using namespace detail::tokens;

/// The end of a signed token is judged by the services' clocks, that of its record by the store's.
constexpr milliseconds clocks_differ_by{10'000};

/// In front of what a token becomes as a business key, so that it is no other key of its type.
constexpr std::string_view key_prefix = "token:";

// A stored token, before base64url: version, end, nonce, digest of the subject, length and text of the purpose. The text as a
// whole is the key of its record, so that one that was changed is unknown.
constexpr char stored_version = 2;

/// Whose token it is, told from others' only by those who know the subject.
std::string subject_digest(std::string_view nonce, std::string_view subject) {
  const std::string message = std::string(nonce) + std::string(subject);
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  if (EVP_Digest(message.data(), message.size(), digest.data(), &size, EVP_sha256(), nullptr) !=
          1 ||
      size < subject_bytes) {
    throw Error(Errc::store_refused, "libcrypto offers no SHA-256, which tokens need");
  }
  return {reinterpret_cast<const char*>(digest.data()), subject_bytes};
}

class StoredTokens final : public detail::TokenKind {
 public:
  explicit StoredTokens(std::unique_ptr<detail::KeyIssuer> issuer) noexcept
      : issuer_(std::move(issuer)) {}

  std::string issue(std::string_view purpose, std::string_view subject, milliseconds ttl,
                    Timestamp now) override {
    check_lifetime(ttl, now);
    const OwnerToken random = OwnerToken::generate();
    const std::string_view nonce(reinterpret_cast<const char*>(random.bytes().data()), nonce_bytes);
    std::string bytes(1, stored_version);
    bytes += time_text(now + ttl);
    bytes += nonce;
    bytes += subject_digest(nonce, subject);
    bytes += static_cast<char>(purpose.size());
    bytes += purpose;
    std::string token = to_base64url(bytes);
    const IssueRequest request{.key = Key(purpose, std::string(key_prefix) + token),
                               .issuer = OwnerToken::generate(),
                               .lifetime = ttl};
    if (issuer_->issue(request) == WriteOutcome::lost) {
      throw Error(Errc::store_refused,
                  "a new token's random key is in use: is the generator sound?");
    }
    return token;
  }

  [[nodiscard]] TokenReading look(const PresentedToken& presented, Timestamp now) const override {
    if (presented.token.size() > TokenSigner::longest_token) return {};
    const std::optional<std::string> bytes = from_base64url(presented.token);
    if (!bytes || bytes->empty() || bytes->front() != stored_version) return {};
    Parts parts(std::string_view(*bytes).substr(1));
    const std::string_view end = parts.take(time_bytes);
    const std::string_view nonce = parts.take(nonce_bytes);
    const std::string_view digest = parts.take(subject_bytes);
    const std::string_view purpose = parts.take_with_length();
    if (!parts.is_whole()) return {};
    TokenReading reading;
    reading.facts = TokenFacts{std::string(purpose), to_time(end), presented.token};
    if (purpose != presented.purpose) {
      reading.verdict = TokenVerdict::wrong_purpose;
    } else if (!is_same(subject_digest(nonce, presented.subject), digest)) {
      reading.verdict = TokenVerdict::foreign_subject;
    } else {
      reading.verdict =
          now < reading.facts->expires_at ? TokenVerdict::good : TokenVerdict::expired;
    }
    return reading;
  }

  [[nodiscard]] Admission admission(TokenVerdict /*verdict*/) const noexcept override {
    return Admission::issued;
  }

 private:
  std::unique_ptr<detail::KeyIssuer> issuer_;
};

class SignedTokens final : public detail::TokenKind {
 public:
  explicit SignedTokens(TokenSigner signer) : signer_(std::move(signer)) {}

  std::string issue(std::string_view purpose, std::string_view subject, milliseconds ttl,
                    Timestamp now) override {
    return signer_.issue(purpose, subject, ttl, now);
  }
  [[nodiscard]] TokenReading look(const PresentedToken& presented, Timestamp now) const override {
    TokenReading reading = signer_.look(presented.token, presented.purpose, presented.subject, now);
    if (reading.facts) reading.facts->nonce = to_base64url(reading.facts->nonce);
    return reading;
  }
  /// Its time over, it makes no record any more.
  [[nodiscard]] Admission admission(TokenVerdict verdict) const noexcept override {
    return verdict == TokenVerdict::good ? Admission::any : Admission::issued;
  }

 private:
  TokenSigner signer_;
};

}  // namespace

namespace detail {

std::unique_ptr<TokenKind> stored_tokens(std::unique_ptr<KeyIssuer> issuer) {
  return std::make_unique<StoredTokens>(std::move(issuer));
}

std::unique_ptr<TokenKind> signed_tokens(TokenSigner signer) {
  return std::make_unique<SignedTokens>(std::move(signer));
}

}  // namespace detail

TokenService::TokenService(std::unique_ptr<detail::TokenKind> kind,
                           const TokenServiceOptions& options)
    : kind_(std::move(kind)), longest_lifetime_(options.longest_lifetime), clock_(options.clock) {
  if (longest_lifetime_ < milliseconds{1}) {
    throw Error(Errc::invalid_argument, "TokenServiceOptions: longest_lifetime is at least 1 ms");
  }
}

Timestamp TokenService::now() const { return (clock_ ? *clock_ : system_clock()).now(); }

std::string TokenService::issue(std::string_view purpose, std::string_view subject,
                                milliseconds ttl) {
  if (ttl > longest_lifetime_) {
    throw Error(
        Errc::invalid_argument,
        "a token may not live longer than TokenServiceOptions::longest_lifetime, as long as "
        "records are known to be kept");
  }
  const Key is_a_business_type(purpose, "token");
  return kind_->issue(is_a_business_type.type(), subject, ttl, now());
}

TokenService::Admitted TokenService::admit(const PresentedToken& presented) const {
  const Timestamp asked = now();
  const TokenReading reading = kind_->look(presented, asked);
  const bool is_ours =
      reading.verdict == TokenVerdict::good || reading.verdict == TokenVerdict::expired;
  if (!is_ours) return {reading.verdict, std::nullopt};
  const Admission admission = kind_->admission(reading.verdict);
  // Milliseconds count further than the clock does.
  constexpr milliseconds longest = std::chrono::hours{24 * 365 * 100};
  const milliseconds usable_for = admission == Admission::any
                                      ? std::min(reading.facts->expires_at - asked, longest)
                                      : milliseconds{0};
  return {reading.verdict,
          Operation{.key = Key(presented.purpose, std::string(key_prefix) + reading.facts->nonce),
                    .fingerprint = presented.fingerprint,
                    .trace = presented.trace,
                    .policy = presented.policy,
                    .admission = admission},
          usable_for};
}

void TokenService::check_retention(const Policy& policy, milliseconds usable_for) const {
  const milliseconds shortest = std::min(policy.success_retention, policy.failure_retention);
  const bool outlives = usable_for == milliseconds{0} || shortest >= usable_for + clocks_differ_by;
  if (shortest >= longest_lifetime_ && outlives) return;
  throw Error(
      Errc::invalid_argument,
      "a token could outlive its record: give the purpose's policy a success_retention and a "
      "failure_retention of at least TokenServiceOptions::longest_lifetime, of all services that "
      "issue such tokens");
}

}  // namespace v0
}  // namespace idempotency
