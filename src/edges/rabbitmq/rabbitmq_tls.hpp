#pragma once

#include <amqp.h>
#include <openssl/ssl.h>

#include <string>

#include "idempotency/edges/rabbitmq.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail::rabbitmq {

/// What an encrypted connection trusts, shows and expects. rabbitmq-c does the talking, with a context that is set up here.
///
/// Lifetime: ends after the connection.
class Tls {
 public:
  /// Gives the connection a socket that speaks TLS.
  ///
  /// Errors: `Errc::store_refused` for files that cannot be used.
  Tls(amqp_connection_state_t connection, const RabbitMqOptions& options);
  Tls(const Tls&) = delete;
  Tls& operator=(const Tls&) = delete;
  ~Tls();

  /// The connection's.
  [[nodiscard]] amqp_socket_t* socket() const noexcept { return socket_; }

  /// Throws when a status of opening the socket means that the handshake failed, with what OpenSSL said of it in this thread.
  ///
  /// Errors: `Errc::store_refused` when the other side is not whom it should be, or will not speak with this client;
  /// `Errc::store_unavailable` when the connection ended meanwhile.
  void check_handshake(int status) const;
  /// The same for a login, for a server that does not like our certificate says so only then.
  void check_login(int status) const;

 private:
  static int verify(X509_STORE_CTX* chain, void* verdict);
  static void name_the_server(const SSL* session, int event, int value);

  amqp_socket_t* socket_;
  std::string asked_for_;  ///< the name that is sent ahead; empty for an address
  int verdict_ = X509_V_OK;
};

}  // namespace detail::rabbitmq
}  // namespace v0
}  // namespace idempotency
