#pragma once

#include <openssl/ssl.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "idempotency/stores/redis.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail::redis {

/// An encrypted conversation cannot go on, thrown inside the room only.
struct TlsFailure {
  std::string words;
};

/// One encrypted conversation. It turns bytes into bytes and knows no socket: sending and waiting stay where deadlines
/// and SIGPIPE are looked after, and no version of hiredis is needed for it.
class Tls {
 public:
  /// Errors: `Errc::store_refused` for files that cannot be used.
  explicit Tls(const RedisOptions& options);

  enum class Progress : std::uint8_t { done, needs_bytes };
  /// Goes on with the handshake; what it says in turn is in `outgoing`.
  ///
  /// Errors: `Errc::store_refused` when the other side is not whom it should be, or speaks no TLS.
  [[nodiscard]] Progress shake_hands();

  /// Errors, of this and of `decrypt`: `TlsFailure`.
  void encrypt(std::string_view text);
  enum class Reading : std::uint8_t { text, needs_bytes, ended };
  struct Decrypted {
    Reading reading;
    std::size_t size;  ///< of the text
  };
  [[nodiscard]] Decrypted decrypt(char* into, std::size_t size);

  /// What came from the other side.
  void incoming(std::string_view bytes);
  /// What has to be sent to it, until `sent`.
  [[nodiscard]] std::string_view outgoing() const noexcept;
  void sent() noexcept;

  /// Whether nothing is left of what came.
  [[nodiscard]] bool is_quiet() const noexcept;
  /// Whether the other side refused, or sent what is no TLS.
  [[nodiscard]] bool has_failed() const noexcept { return failed_; }

 private:
  struct Free {
    void operator()(SSL_CTX* context) const noexcept { SSL_CTX_free(context); }
    void operator()(SSL* session) const noexcept { SSL_free(session); }
  };

  [[noreturn]] void fail();

  std::unique_ptr<SSL_CTX, Free> context_;
  std::unique_ptr<SSL, Free> session_;
  BIO* incoming_ = nullptr;  ///< the session's
  BIO* outgoing_ = nullptr;  ///< the session's
  bool failed_ = false;
};

}  // namespace detail::redis
}  // namespace v0
}  // namespace idempotency
