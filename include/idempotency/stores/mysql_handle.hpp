#pragma once

// The client's own connection, in and out. Include the client's <mysql.h> as well; this header does not, so that it
// fits both libmysqlclient and libmariadb.

#include "idempotency/stores/mysql_transaction.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail::mysql {

/// What `MYSQL` of both clients is, and hardly anything else.
template <class T>
concept ClientConnection = requires(T& connection) {
  connection.net;
  connection.host_info;
  connection.server_status;
  connection.server_capabilities;
  connection.affected_rows;
  connection.thread_id;
};

struct HandleAccess {
  [[nodiscard]] static MySqlConnection wrap(void* handle) noexcept {
    return MySqlConnection(handle);
  }
  [[nodiscard]] static void* unwrap(const MySqlConnection& connection) noexcept {
    return connection.handle_;
  }
};

}  // namespace detail::mysql

/// Lends a `MYSQL*` for one transaction.
///
/// Preconditions: connected, with no answer left to be fetched.
/// Lifetime: borrows; the handle must outlive the transaction.
template <detail::mysql::ClientConnection T>
[[nodiscard]] MySqlConnection mysql_connection(T* handle) noexcept {
  return detail::mysql::HandleAccess::wrap(handle);
}

/// The `MYSQL*` of a transaction: `mysql_handle<MYSQL>(transaction.native_handle())`.
template <detail::mysql::ClientConnection T>
[[nodiscard]] T* mysql_handle(const MySqlConnection& connection) noexcept {
  return static_cast<T*>(detail::mysql::HandleAccess::unwrap(connection));
}

}  // namespace v0
}  // namespace idempotency
