#pragma once

#include <mysql.h>
#include <signal.h>

#include <cstdint>
#include <type_traits>

#include "core/cancellation.hpp"
#include "idempotency/stores/mysql.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail::mysql {

// Where libmariadb and libmysqlclient differ is here, and in mysql_client.cpp.

/// `my_bool` of libmariadb, `bool` of libmysqlclient 8.
using ClientBool = std::remove_pointer_t<decltype(MYSQL_BIND::is_null)>;

/// Around every use of the client: initialises it once in the process and once in each thread (undone when the
/// thread ends; the library itself is never shut down, others may be using it), and keeps `pthread_cancel` from
/// leaving it half-way.
class ClientUse {
 public:
  ClientUse();

 private:
  CancellationShield shield_;
};

enum class Traffic : std::uint8_t { plain, encrypted };

/// Keeps SIGPIPE from this thread: libmariadb lets OpenSSL write by itself, which raises it when the server has gone.
/// Plain traffic raises it with libmysqlclient only.
class SigpipeShield {
 public:
  explicit SigpipeShield(Traffic traffic) noexcept;
  SigpipeShield(const SigpipeShield&) = delete;
  SigpipeShield& operator=(const SigpipeShield&) = delete;
  ~SigpipeShield();

 private:
  bool holds_ = false;
  sigset_t before_{};
};

[[nodiscard]] Traffic traffic_of(MYSQL* handle) noexcept;

/// How the connection about to be made is encrypted, and whom it trusts.
///
/// Errors: `Errc::invalid_argument` when the client does not take it.
void set_encryption(MYSQL* handle, const MySqlOptions& options);

}  // namespace detail::mysql
}  // namespace v0
}  // namespace idempotency
