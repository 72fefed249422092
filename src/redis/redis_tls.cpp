#include "redis/redis_tls.hpp"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>

#include <limits>
#include <new>
#include <utility>

namespace idempotency {
inline namespace v0 {
namespace detail::redis {

namespace {

/// What OpenSSL says of the last failure of this thread.
std::string reason() {
  const unsigned long error = ERR_peek_last_error();
  const char* words = error != 0 ? ERR_reason_error_string(error) : nullptr;
  return words != nullptr ? words : "the encrypted conversation broke off";
}

[[noreturn]] void refuse(const char* why, std::string detail) {
  throw Error(Errc::store_refused, why, std::move(detail));
}

void trust(SSL_CTX* context, const RedisTls& tls) {
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  const bool trusted = tls.ca_file.empty() ? SSL_CTX_set_default_verify_paths(context) == 1
                                           : SSL_CTX_load_verify_locations(
                                                 context, tls.ca_file.c_str(), nullptr) == 1;
  if (!trusted) refuse("redis store: RedisTls::ca_file cannot be used", reason());
}

void show_certificate(SSL_CTX* context, const RedisTls& tls) {
  if (tls.certificate_file.empty()) return;
  // A key with a passphrase is refused, in the place of a question on the terminal.
  SSL_CTX_set_default_passwd_cb(context, [](char*, int, int, void*) { return -1; });
  if (SSL_CTX_use_certificate_chain_file(context, tls.certificate_file.c_str()) != 1) {
    refuse("redis store: RedisTls::certificate_file cannot be used", reason());
  }
  if (SSL_CTX_use_PrivateKey_file(context, tls.key_file.c_str(), SSL_FILETYPE_PEM) != 1 ||
      SSL_CTX_check_private_key(context) != 1) {
    refuse("redis store: RedisTls::key_file cannot be used with the certificate", reason());
  }
}

/// Makes the handshake fail unless the certificate is for this name or address.
void expect(SSL* session, const std::string& name) {
  if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(session), name.c_str()) == 1) return;
  SSL_set_hostflags(session, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  // SSL_set_tlsext_host_name() as it is, but for its cast.
  if (SSL_set1_host(session, name.c_str()) != 1 ||
      SSL_ctrl(session, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name,
               const_cast<char*>(name.c_str())) != 1) {
    refuse("redis store: the server's name cannot be checked in its certificate", reason());
  }
}

}  // namespace

Tls::Tls(const RedisOptions& options) {
  ERR_clear_error();
  context_.reset(SSL_CTX_new(TLS_client_method()));
  if (!context_) throw std::bad_alloc();
  if (SSL_CTX_set_min_proto_version(context_.get(), TLS1_2_VERSION) != 1) {
    refuse("redis store: libssl offers no TLS 1.2", reason());
  }
  SSL_CTX_set_options(context_.get(), SSL_OP_NO_RENEGOTIATION);
  trust(context_.get(), options.tls);
  show_certificate(context_.get(), options.tls);

  session_.reset(SSL_new(context_.get()));
  if (!session_) throw std::bad_alloc();
  expect(session_.get(), options.tls.server_name.empty() ? options.host : options.tls.server_name);
  incoming_ = BIO_new(BIO_s_mem());
  outgoing_ = BIO_new(BIO_s_mem());
  if (incoming_ == nullptr || outgoing_ == nullptr) {
    BIO_free(incoming_);
    BIO_free(outgoing_);
    throw std::bad_alloc();
  }
  SSL_set_bio(session_.get(), incoming_, outgoing_);
  SSL_set_connect_state(session_.get());
}

Tls::Progress Tls::shake_hands() {
  ERR_clear_error();
  const int result = SSL_do_handshake(session_.get());
  if (result == 1) return Progress::done;
  if (SSL_get_error(session_.get(), result) == SSL_ERROR_WANT_READ) return Progress::needs_bytes;
  failed_ = true;
  const long verdict = SSL_get_verify_result(session_.get());
  if (verdict != X509_V_OK) {
    refuse("redis store: the server's certificate is not trusted, or is for another name",
           X509_verify_cert_error_string(verdict));
  }
  refuse("redis store: the server refuses to speak TLS with this client", reason());
}

void Tls::fail() {
  failed_ = true;
  throw TlsFailure{reason()};
}

void Tls::encrypt(std::string_view text) {
  ERR_clear_error();
  std::size_t written = 0;
  if (SSL_write_ex(session_.get(), text.data(), text.size(), &written) != 1 ||
      written != text.size()) {
    fail();
  }
}

Tls::Decrypted Tls::decrypt(char* into, std::size_t size) {
  ERR_clear_error();
  std::size_t count = 0;
  const int result = SSL_read_ex(session_.get(), into, size, &count);
  if (result == 1) return {Reading::text, count};
  switch (SSL_get_error(session_.get(), result)) {
    case SSL_ERROR_WANT_READ:
      return {Reading::needs_bytes, 0};
    case SSL_ERROR_ZERO_RETURN:
      return {Reading::ended, 0};
    default:
      fail();
  }
}

void Tls::incoming(std::string_view bytes) {
  std::size_t written = 0;
  if (BIO_write_ex(incoming_, bytes.data(), bytes.size(), &written) != 1 ||
      written != bytes.size()) {
    throw std::bad_alloc();
  }
}

std::string_view Tls::outgoing() const noexcept {
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(outgoing_, &bytes);
  return size > 0 ? std::string_view(bytes, static_cast<std::size_t>(size)) : std::string_view{};
}

void Tls::sent() noexcept { static_cast<void>(BIO_reset(outgoing_)); }

bool Tls::is_quiet() const noexcept {
  return SSL_has_pending(session_.get()) == 0 && BIO_pending(incoming_) == 0;
}

}  // namespace detail::redis
}  // namespace v0
}  // namespace idempotency
