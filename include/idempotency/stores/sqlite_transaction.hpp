#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "idempotency/sql_transaction.hpp"

struct sqlite3;

namespace idempotency {
inline namespace v0 {

class SqliteStore;

namespace detail::sqlite {
struct TransactionState;
}  // namespace detail::sqlite

/// A connection of the application's, lent for one transaction: `SqliteConnection{handle}`.
///
/// Its settings (busy handler, pragmas, hooks) are used as they are and left as they are. So a
/// commit on it is as durable as its `PRAGMA synchronous` makes it, whatever the store's
/// durability.
///
/// Lifetime: borrows the handle, which must outlive the transaction.
class SqliteConnection {
 public:
  explicit SqliteConnection(sqlite3* handle) noexcept : handle_(handle) {}
  [[nodiscard]] sqlite3* handle() const noexcept { return handle_; }

 private:
  sqlite3* handle_;
};

/// A transaction that the record of an operation and the handler's own statements share.
///
/// Made by `SqliteStore::open_transaction` and ended by the store; when it is destroyed unended, it
/// is rolled back.
///
/// Errors of `execute` and `query`: `Errc::statement_failed` when SQLite refuses the statement;
/// `Errc::transaction_lost` when SQLite ended the transaction with it (nothing of it is written);
/// `Errc::invalid_argument` for a statement that would begin or end a transaction, for more than
/// one statement in the text, and for a number of parameters other than the statement has.
/// Thread safety: belongs to one thread.
/// Lifetime: must end before the store and before an adopted connection.
class SqliteTransaction {
 public:
  SqliteTransaction(SqliteTransaction&&) noexcept;
  SqliteTransaction& operator=(SqliteTransaction&&) noexcept;
  SqliteTransaction(const SqliteTransaction&) = delete;
  SqliteTransaction& operator=(const SqliteTransaction&) = delete;
  ~SqliteTransaction();

  /// Executes one statement. Rows of an answer, if any, are dropped.
  template <detail::SqlBindable... Parameters>
  SqlChanges execute(std::string_view sql, const Parameters&... parameters) {
    const std::array<SqlParameter, sizeof...(Parameters)> bound{SqlParameter(parameters)...};
    return execute_with(sql, bound);
  }

  /// Executes one statement and gives all rows of its answer.
  template <detail::SqlBindable... Parameters>
  [[nodiscard]] SqlRows query(std::string_view sql, const Parameters&... parameters) {
    const std::array<SqlParameter, sizeof...(Parameters)> bound{SqlParameter(parameters)...};
    return query_with(sql, bound);
  }

  /// The same for a number of parameters that is known only at run time.
  SqlChanges execute_with(std::string_view sql, std::span<const SqlParameter> parameters);
  [[nodiscard]] SqlRows query_with(std::string_view sql, std::span<const SqlParameter> parameters);

  [[nodiscard]] SqlDialect dialect() const noexcept { return SqlDialect::sqlite; }

  /// The connection itself, for what this interface does not offer. Neither close it nor end the
  /// transaction.
  [[nodiscard]] sqlite3* native_handle() noexcept;

 private:
  friend class SqliteStore;
  explicit SqliteTransaction(std::unique_ptr<detail::sqlite::TransactionState> state) noexcept;

  std::unique_ptr<detail::sqlite::TransactionState> state_;
};
static_assert(SqlTransaction<SqliteTransaction>);

}  // namespace v0
}  // namespace idempotency
