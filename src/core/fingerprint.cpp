#include "idempotency/fingerprint.hpp"

#include <openssl/evp.h>

#include <memory>

namespace idempotency {
inline namespace v0 {
namespace {

struct FreeContext {
  void operator()(EVP_MD_CTX* context) const noexcept { EVP_MD_CTX_free(context); }
};
using Context = std::unique_ptr<EVP_MD_CTX, FreeContext>;

[[noreturn]] void refuse_digest() {
  throw Error(Errc::invalid_fingerprint,
              "libcrypto cannot compute SHA-256 here; check its configuration and providers.");
}

// Looking an algorithm up takes longer than hashing a key, so it is done once and kept for the
// process: other threads may still hash while the process ends.
const EVP_MD* sha256_algorithm() {
  static const EVP_MD* const algorithm = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  if (algorithm == nullptr) refuse_digest();
  return algorithm;
}

}  // namespace

namespace detail {

Sha256Digest sha256(std::string_view bytes) {
  thread_local const Context context(EVP_MD_CTX_new());
  Sha256Digest digest{};
  if (context == nullptr || EVP_DigestInit_ex2(context.get(), sha256_algorithm(), nullptr) != 1 ||
      EVP_DigestUpdate(context.get(), bytes.data(), bytes.size()) != 1 ||
      EVP_DigestFinal_ex(context.get(), digest.data(), nullptr) != 1) {
    refuse_digest();
  }
  return digest;
}

}  // namespace detail

Fingerprint Fingerprint::of_bytes(std::string_view bytes) {
  return Fingerprint(Part{1, detail::sha256(bytes)});
}

Fingerprint Fingerprint::as_scheme(std::uint8_t scheme) const {
  if (scheme == 0) {
    throw Error(Errc::invalid_argument, "A fingerprint's scheme is a number from 1 to 255.");
  }
  if (earlier_ && earlier_->scheme == scheme) {
    throw Error(Errc::invalid_argument, "The earlier fingerprint has this scheme already.");
  }
  Fingerprint renumbered = *this;
  renumbered.current_.scheme = scheme;
  return renumbered;
}

Fingerprint Fingerprint::or_earlier(const Fingerprint& earlier) const {
  if (earlier.earlier_ || earlier_) {
    throw Error(Errc::invalid_argument,
                "A fingerprint keeps one earlier scheme; pass only the last.");
  }
  if (earlier.current_.scheme == current_.scheme) {
    throw Error(Errc::invalid_argument,
                "The earlier fingerprint needs another scheme number; use as_scheme.");
  }
  Fingerprint both = *this;
  both.earlier_ = earlier.current_;
  return both;
}

}  // namespace v0
}  // namespace idempotency
