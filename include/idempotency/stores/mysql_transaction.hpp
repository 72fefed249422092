#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "idempotency/sql_transaction.hpp"

namespace idempotency {
inline namespace v0 {

class MySqlStore;

namespace detail::mysql {
struct TransactionState;
struct HandleAccess;
}  // namespace detail::mysql

/// A connection of the application's, lent for one transaction: `mysql_connection(handle)` of
/// `stores/mysql_handle.hpp` makes one from a `MYSQL*`.
///
/// Its settings are used as they are and left as they are, autocommit included.
///
/// Lifetime: borrows the handle, which must outlive the transaction.
class MySqlConnection {
 private:
  friend struct detail::mysql::HandleAccess;
  explicit MySqlConnection(void* handle) noexcept : handle_(handle) {}

  void* handle_;
};

/// A transaction that the record of an operation and the handler's own statements share.
///
/// Made by `MySqlStore::open_transaction` and ended by the store; when it is destroyed unended, it
/// is rolled back.
///
/// Errors of `execute` and `query`: `Errc::statement_failed` when the server refuses the statement;
/// `Errc::transaction_lost` when it ended the transaction with it (deadlock, lost connection; nothing of it is
/// written); `Errc::store_busy` when a lock was waited for in vain, after which only a rollback is possible;
/// `Errc::invalid_argument` for a statement that would begin, end or implicitly commit a transaction, and for a
/// number of parameters other than the statement has.
/// Thread safety: belongs to one thread.
/// Lifetime: must end before the store and before an adopted connection.
class MySqlTransaction {
 public:
  MySqlTransaction(MySqlTransaction&&) noexcept;
  MySqlTransaction& operator=(MySqlTransaction&&) noexcept;
  MySqlTransaction(const MySqlTransaction&) = delete;
  MySqlTransaction& operator=(const MySqlTransaction&) = delete;
  ~MySqlTransaction();

  /// Executes one statement. Rows of an answer, if any, are dropped.
  template <detail::SqlBindable... Parameters>
  SqlChanges execute(std::string_view sql, const Parameters&... parameters) {
    const std::array<SqlParameter, sizeof...(Parameters)> bound{SqlParameter(parameters)...};
    return execute_with(sql, bound);
  }

  /// Executes one statement and gives all rows of its answer. Numbers of the type DECIMAL, dates and times come as
  /// text.
  template <detail::SqlBindable... Parameters>
  [[nodiscard]] SqlRows query(std::string_view sql, const Parameters&... parameters) {
    const std::array<SqlParameter, sizeof...(Parameters)> bound{SqlParameter(parameters)...};
    return query_with(sql, bound);
  }

  /// The same for a number of parameters that is known only at run time.
  SqlChanges execute_with(std::string_view sql, std::span<const SqlParameter> parameters);
  [[nodiscard]] SqlRows query_with(std::string_view sql, std::span<const SqlParameter> parameters);

  [[nodiscard]] SqlDialect dialect() const noexcept;

  /// The connection itself, for what this interface does not offer: `mysql_handle<MYSQL>(connection)` of
  /// `stores/mysql_handle.hpp`. Neither close it nor end the transaction.
  [[nodiscard]] MySqlConnection native_handle() noexcept;

 private:
  friend class MySqlStore;
  explicit MySqlTransaction(std::unique_ptr<detail::mysql::TransactionState> state) noexcept;

  std::unique_ptr<detail::mysql::TransactionState> state_;
};
static_assert(SqlTransaction<MySqlTransaction>);

}  // namespace v0
}  // namespace idempotency
