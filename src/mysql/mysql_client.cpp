#include "mysql/mysql_client.hpp"

#include <ctime>
#include <string>

#include "idempotency/error.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail::mysql {

namespace {

struct ThreadUse {
  ThreadUse() : failed(mysql_thread_init() != 0) {}
  ThreadUse(const ThreadUse&) = delete;
  ThreadUse& operator=(const ThreadUse&) = delete;
  ~ThreadUse() {
    if (!failed) mysql_thread_end();
  }

  bool failed;
};

void set_option(MYSQL* handle, enum mysql_option option, const void* value) {
  if (mysql_options(handle, option, value) == 0) return;
  throw Error(Errc::invalid_argument, "mysql store: the client does not take the TLS settings");
}

#if defined(MARIADB_BASE_VERSION) || defined(MARIADB_PACKAGE_VERSION_ID)  // libmariadb

constexpr bool writes_plain_without_sigpipe = true;

void set_encryption_mode(MYSQL* handle, MySqlTls tls) {
  const ClientBool encrypt = tls == MySqlTls::off ? 0 : 1;
  const ClientBool verify = tls == MySqlTls::verified ? 1 : 0;
  set_option(handle, MYSQL_OPT_SSL_ENFORCE, &encrypt);
  set_option(handle, MYSQL_OPT_SSL_VERIFY_SERVER_CERT, &verify);
}

#else

constexpr bool writes_plain_without_sigpipe = false;  // it ignores SIGPIPE once, at its start

void set_encryption_mode(MYSQL* handle, MySqlTls tls) {
  unsigned mode = SSL_MODE_DISABLED;
  if (tls == MySqlTls::required) mode = SSL_MODE_REQUIRED;
  if (tls == MySqlTls::verified) mode = SSL_MODE_VERIFY_IDENTITY;
  set_option(handle, MYSQL_OPT_SSL_MODE, &mode);
#if MYSQL_VERSION_ID >= 80000
  // Otherwise a first login with caching_sha2_password fails without TLS; libmariadb asks for the key by itself.
  const bool ask_for_key = tls == MySqlTls::off;
  set_option(handle, MYSQL_OPT_GET_SERVER_PUBLIC_KEY, &ask_for_key);
#endif
}

#endif

sigset_t only_sigpipe() noexcept {
  sigset_t pipe;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  return pipe;
}

bool library_is_ready() {
  static const bool ready = mysql_library_init(0, nullptr, nullptr) == 0;
  return ready;
}

}  // namespace

ClientUse::ClientUse() {
  if (!library_is_ready()) {
    throw Error(Errc::store_unavailable, "mysql store: the client library does not start");
  }
  thread_local const ThreadUse use;
  if (use.failed) {
    throw Error(Errc::store_unavailable,
                "mysql store: the client library does not start on this thread");
  }
}

SigpipeShield::SigpipeShield(Traffic traffic) noexcept {
  if (traffic == Traffic::plain && writes_plain_without_sigpipe) return;
  sigset_t pending;
  if (sigpending(&pending) != 0 || sigismember(&pending, SIGPIPE) != 0) return;  // held already
  const sigset_t pipe = only_sigpipe();
  holds_ = pthread_sigmask(SIG_BLOCK, &pipe, &before_) == 0;
}

SigpipeShield::~SigpipeShield() {
  if (!holds_) return;
  sigset_t pending;
  if (sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) == 1) {
    const sigset_t pipe = only_sigpipe();
    const timespec at_once{};
    static_cast<void>(sigtimedwait(&pipe, nullptr, &at_once));
  }
  static_cast<void>(pthread_sigmask(SIG_SETMASK, &before_, nullptr));
}

Traffic traffic_of(MYSQL* handle) noexcept {
  return mysql_get_ssl_cipher(handle) != nullptr ? Traffic::encrypted : Traffic::plain;
}

void set_encryption(MYSQL* handle, const MySqlOptions& options) {
  set_encryption_mode(handle, options.tls);
  if (options.tls == MySqlTls::off) return;
  const auto set_file = [handle](enum mysql_option option, const std::string& file) {
    if (!file.empty()) set_option(handle, option, file.c_str());
  };
  set_file(MYSQL_OPT_SSL_CA, options.tls_ca);
  set_file(MYSQL_OPT_SSL_CERT, options.tls_certificate);
  set_file(MYSQL_OPT_SSL_KEY, options.tls_key);
}

}  // namespace detail::mysql
}  // namespace v0
}  // namespace idempotency
