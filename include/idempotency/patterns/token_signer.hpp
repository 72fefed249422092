#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "idempotency/clock.hpp"

namespace idempotency {
inline namespace v0 {

/// A secret that signs tokens, and the name by which tokens say which one it was.
struct TokenKey {
  std::string id;      ///< 1 to 32 letters, digits, `_` and `-`; public
  std::string secret;  ///< 32 to 1024 bytes from a generator of random numbers
};

/// What is to be said of a presented token.
enum class TokenVerdict : std::uint8_t {
  good = 1,       ///< issued by a holder of the key, for this purpose and subject, and not too old
  expired,        ///< the same, but its time is over
  wrong_purpose,  ///< issued for something else
  foreign_subject,  ///< issued to somebody else
  unknown,          ///< not issued by a holder of a key that is still accepted, or no token at all
};

/// What a good or expired token says.
struct TokenFacts {
  std::string purpose;
  Timestamp expires_at;  ///< to the millisecond
  std::string nonce;     ///< 16 random bytes: what tells this token from all others
  friend bool operator==(const TokenFacts&, const TokenFacts&) = default;
};

/// The answer of `TokenSigner::look`.
struct [[nodiscard]] TokenReading {
  TokenVerdict verdict = TokenVerdict::unknown;
  std::optional<TokenFacts> facts;  ///< of every token that is not `unknown`
};

/// Issues tokens that cost no store to issue and that nobody else can make.
///
/// A token is text that may stand in a header, a form or an address: `letters, digits, - and _`, about 150 characters for a short purpose. It
/// says its purpose and its end in clear (behind base64url), and the subject only as a digest that needs the key to be made.
/// It is signed with HMAC-SHA-256 over all of that and the key's name; signatures and subjects are compared in constant time.
///
/// Rotation: put the new key in front and keep the old one behind it until its last token has expired.
///
/// Thread safety: constant after construction.
/// Source: RFC 2104 (HMAC), FIPS 180-4 (SHA-256), RFC 4648 section 5 (base64url).
class TokenSigner {
 public:
  static constexpr std::size_t longest_purpose = 64;
  static constexpr std::size_t longest_token = 512;

  /// The first key signs; all are accepted.
  ///
  /// Errors: `Errc::invalid_argument` for no key, a key that is too short, and names that are twice there or are none.
  explicit TokenSigner(std::vector<TokenKey> keys);

  /// A new token. `purpose`: 1 to 64 bytes; `subject`: whom it is for, any bytes; `ttl`: 1 ms or more.
  ///
  /// Errors: `Errc::invalid_argument` for a purpose or ttl that is none; `Errc::store_unavailable` when the system gives no random
  /// bytes.
  [[nodiscard]] std::string issue(std::string_view purpose, std::string_view subject,
                                  std::chrono::milliseconds ttl, Timestamp now) const;

  /// What `token` is at `now` for one who asks for this purpose on behalf of this subject. Never throws for what it is given as a
  /// token. Judged in this order: signature, purpose, subject, time.
  [[nodiscard]] TokenReading look(std::string_view token, std::string_view purpose,
                                  std::string_view subject, Timestamp now) const;

 private:
  std::vector<TokenKey> keys_;
};

}  // namespace v0
}  // namespace idempotency
