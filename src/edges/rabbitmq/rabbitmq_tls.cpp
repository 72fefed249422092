#include "edges/rabbitmq/rabbitmq_tls.hpp"

#include <amqp_ssl_socket.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>

#include <new>
#include <utility>

namespace idempotency {
inline namespace v0 {
namespace detail::rabbitmq {

namespace {

constexpr const char* not_willing =
    "rabbitmq: the server refuses to speak TLS with this client; look at the port, and at "
    "RabbitMqTls::certificate_file if the server wants one";

[[noreturn]] void refuse(const char* why, std::string detail) {
  throw Error(Errc::store_refused, why, std::move(detail));
}

/// What OpenSSL says of the last failure of this thread; empty when the connection just ended.
std::string reason() {
  const unsigned long error = ERR_peek_last_error();
  if (error == 0 || ERR_GET_LIB(error) == ERR_LIB_SYS) return {};
#ifdef SSL_R_UNEXPECTED_EOF_WHILE_READING
  if (ERR_GET_LIB(error) == ERR_LIB_SSL &&
      ERR_GET_REASON(error) == SSL_R_UNEXPECTED_EOF_WHILE_READING) {
    return {};
  }
#endif
  const char* words = ERR_reason_error_string(error);
  return words != nullptr ? words : "an error without words";
}

void trust(SSL_CTX* context, const RabbitMqTls& tls) {
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  const bool trusted = tls.ca_file.empty() ? SSL_CTX_set_default_verify_paths(context) == 1
                                           : SSL_CTX_load_verify_locations(
                                                 context, tls.ca_file.c_str(), nullptr) == 1;
  if (!trusted) {
    refuse("rabbitmq: RabbitMqTls::ca_file cannot be used; name a readable PEM file", reason());
  }
}

void show_certificate(SSL_CTX* context, const RabbitMqTls& tls) {
  if (tls.certificate_file.empty()) return;
  // A key with a passphrase is refused, in the place of a question on the terminal.
  SSL_CTX_set_default_passwd_cb(context, [](char*, int, int, void*) { return -1; });
  if (SSL_CTX_use_certificate_chain_file(context, tls.certificate_file.c_str()) != 1) {
    refuse("rabbitmq: RabbitMqTls::certificate_file cannot be used; name a readable PEM file",
           reason());
  }
  if (SSL_CTX_use_PrivateKey_file(context, tls.key_file.c_str(), SSL_FILETYPE_PEM) != 1 ||
      SSL_CTX_check_private_key(context) != 1) {
    refuse(
        "rabbitmq: RabbitMqTls::key_file cannot be used; name the PEM file of the certificate's "
        "own key, without a passphrase",
        reason());
  }
}

/// Makes handshakes fail unless the certificate is for this name or address; says whether it is a name.
bool expect(SSL_CTX* context, const std::string& name) {
  X509_VERIFY_PARAM* expected = SSL_CTX_get0_param(context);
  if (X509_VERIFY_PARAM_set1_ip_asc(expected, name.c_str()) == 1) return false;
  X509_VERIFY_PARAM_set_hostflags(expected, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  if (X509_VERIFY_PARAM_set1_host(expected, name.c_str(), name.size()) != 1) {
    refuse("rabbitmq: the server's name cannot be checked in its certificate", reason());
  }
  return true;
}

}  // namespace

// OpenSSL 1.1 and newer initialises itself, and once, whoever asks for it: nothing of amqp_set_initialize_ssl_library()
// is needed, and nothing global is changed.
Tls::Tls(amqp_connection_state_t connection, const RabbitMqOptions& options)
    : socket_(amqp_ssl_socket_new(connection)) {
  if (socket_ == nullptr) throw std::bad_alloc();
  ERR_clear_error();
  auto* context = static_cast<SSL_CTX*>(amqp_ssl_socket_get_context(socket_));
  if (SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) != 1) {
    refuse("rabbitmq: libssl offers no TLS 1.2", reason());
  }
  SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION);
  trust(context, options.tls);
  show_certificate(context, options.tls);
  const std::string& name =
      options.tls.server_name.empty() ? options.host : options.tls.server_name;
  if (expect(context, name)) asked_for_ = name;
  // Checked by OpenSSL within the handshake, before anything is shown to the server. The check that rabbitmq-c makes behind
  // it knows neither server_name nor addresses (0.11).
  amqp_ssl_socket_set_verify_hostname(socket_, 0);
  SSL_CTX_set_cert_verify_callback(context, verify, &verdict_);
  if (SSL_CTX_set_ex_data(context, 0, &asked_for_) != 1) throw std::bad_alloc();
  SSL_CTX_set_info_callback(context, name_the_server);
}

Tls::~Tls() { ERR_clear_error(); }  // others must not take for theirs what a connection has left

/// As without it, but the verdict is kept: rabbitmq-c frees the session before it can be asked.
int Tls::verify(X509_STORE_CTX* chain, void* verdict) {
  const int result = X509_verify_cert(chain);
  *static_cast<int*>(verdict) = X509_STORE_CTX_get_error(chain);
  return result;
}

/// rabbitmq-c sends the host ahead, where `server_name` belongs, and addresses too, which RFC 6066 rules out.
void Tls::name_the_server(const SSL* session, int event, int /*value*/) {
  if ((event & SSL_CB_HANDSHAKE_START) == 0) return;
  auto& name = *static_cast<std::string*>(SSL_CTX_get_ex_data(SSL_get_SSL_CTX(session), 0));
  // SSL_set_tlsext_host_name() as it is, but for its cast. Without memory the host stays, which is no harm.
  static_cast<void>(SSL_ctrl(const_cast<SSL*>(session), SSL_CTRL_SET_TLSEXT_HOSTNAME,
                             TLSEXT_NAMETYPE_host_name, name.empty() ? nullptr : name.data()));
}

void Tls::check_handshake(int status) const {
  if (status != AMQP_STATUS_SSL_ERROR && status != AMQP_STATUS_SSL_CONNECTION_FAILED &&
      status != AMQP_STATUS_SSL_PEER_VERIFY_FAILED) {
    return;
  }
  if (verdict_ != X509_V_OK) {
    refuse(
        "rabbitmq: the server's certificate is not trusted, or is for another name; look at "
        "RabbitMqTls::ca_file and server_name",
        X509_verify_cert_error_string(verdict_));
  }
  std::string words = reason();
  if (!words.empty()) refuse(not_willing, std::move(words));
  throw Error(Errc::store_unavailable,
              "rabbitmq: the connection ended during the handshake; repeat the call",
              amqp_error_string2(status));
}

void Tls::check_login(int status) const {
  if (status != AMQP_STATUS_SSL_ERROR && status != AMQP_STATUS_CONNECTION_CLOSED) return;
  std::string words = status == AMQP_STATUS_SSL_ERROR ? reason() : std::string();
  if (!words.empty()) refuse(not_willing, std::move(words));
  throw Error(Errc::store_unavailable,
              "rabbitmq: the connection ended right after the handshake; repeat the call, and look "
              "whether the server wants a certificate",
              amqp_error_string2(status));
}

}  // namespace detail::rabbitmq
}  // namespace v0
}  // namespace idempotency
