#include "idempotency/stores/mysql_transaction.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "idempotency/stores/mysql_handle.hpp"
#include "mysql/mysql_store_impl.hpp"

namespace idempotency {
inline namespace v0 {

using detail::mysql::Parameter;
using detail::mysql::Reply;
using detail::mysql::Stage;
using detail::mysql::TransactionState;

namespace {

/// Behind white space and comments. What stands in /*! ... */ is executed and is no comment.
std::string_view without_space(std::string_view sql) noexcept {
  while (!sql.empty()) {
    std::size_t skip = 0;
    if (sql.starts_with("--") || sql.starts_with('#')) {
      skip = std::min(sql.find('\n'), sql.size());
    } else if (sql.starts_with("/*!") || sql.starts_with("/*M!")) {
      skip = std::min(sql.find_first_not_of("/*M!0123456789"), sql.size());
    } else if (sql.starts_with("/*")) {
      const std::size_t end = sql.find("*/", 2);
      skip = end == std::string_view::npos ? sql.size() : end + 2;
    } else if (sql.find_first_of(" \t\r\n\f\v;(") == 0) {
      skip = 1;
    } else {
      return sql;
    }
    sql.remove_prefix(skip);
  }
  return sql;
}

std::string take_word(std::string_view& sql) {
  sql = without_space(sql);
  std::string word;
  while (!sql.empty()) {
    const char c = sql.front();
    if (c >= 'a' && c <= 'z') {
      word += static_cast<char>(c - 'a' + 'A');
    } else if ((c >= 'A' && c <= 'Z') || c == '_' || c == '@') {
      word += c;
    } else {
      break;
    }
    sql.remove_prefix(1);
  }
  return word;
}

/// Whether the statement begins or ends a transaction, or makes the server commit by itself.
bool ends_transaction(std::string_view sql) {
  const std::string first = take_word(sql);
  constexpr std::array<std::string_view, 25> always{
      "BEGIN",   "START",    "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "XA",
      "LOCK",    "UNLOCK",   "ALTER",  "TRUNCATE", "RENAME",    "GRANT",   "REVOKE",
      "ANALYZE", "OPTIMIZE", "REPAIR", "FLUSH",    "RESET",     "INSTALL", "UNINSTALL",
      "CHANGE",  "STOP",     "CACHE",  "PURGE"};
  if (std::find(always.begin(), always.end(), first) != always.end()) return true;
  const std::string second = take_word(sql);
  if (first == "CREATE" || first == "DROP") return second != "TEMPORARY";
  if (first == "SET") {
    const bool scoped = second == "SESSION" || second == "LOCAL";
    const std::string name = scoped ? take_word(sql) : second;
    return name == "AUTOCOMMIT" || name == "@@AUTOCOMMIT" || name == "TRANSACTION" ||
           name == "PASSWORD";
  }
  return false;
}

Reply execute_in(TransactionState& state, std::string_view sql,
                 std::span<const SqlParameter> parameters) {
  const detail::CancellationShield shield;
  state.check_open();
  if (ends_transaction(sql)) {
    throw Error(Errc::invalid_argument,
                "the transaction belongs to the guard: return to commit it, throw to roll it back; "
                "statements that commit by themselves are refused",
                std::string(sql));
  }
  state.write_pending();
  std::vector<Parameter> values;
  values.reserve(parameters.size());
  for (const SqlParameter& parameter : parameters)
    values.push_back(parameter.value());
  state.reach = TransactionState::Reach::changed;
  try {
    Reply reply = state.connection->execute(sql, values, Stage::handler);
    state.check_still_in_transaction();
    return reply;
  } catch (const Error& error) {
    state.note(error);
    throw;
  }
}

}  // namespace

MySqlTransaction::MySqlTransaction(std::unique_ptr<TransactionState> state) noexcept
    : state_(std::move(state)) {}
MySqlTransaction::MySqlTransaction(MySqlTransaction&&) noexcept = default;

MySqlTransaction& MySqlTransaction::operator=(MySqlTransaction&& other) noexcept {
  if (this != &other) {
    if (state_) state_->store->rollback(*state_);
    state_ = std::move(other.state_);
  }
  return *this;
}

MySqlTransaction::~MySqlTransaction() {
  if (state_) state_->store->rollback(*state_);
}

SqlChanges MySqlTransaction::execute_with(std::string_view sql,
                                          std::span<const SqlParameter> parameters) {
  return execute_in(*state_, sql, parameters).changes;
}

SqlRows MySqlTransaction::query_with(std::string_view sql,
                                     std::span<const SqlParameter> parameters) {
  Reply reply = execute_in(*state_, sql, parameters);
  std::vector<SqlRow> rows;
  rows.reserve(reply.rows.size());
  for (detail::mysql::Cells& cells : reply.rows) {
    std::vector<SqlValue> values;
    values.reserve(cells.size());
    for (SqlValue::Value& cell : cells)
      values.emplace_back(std::move(cell));
    rows.emplace_back(reply.columns, std::move(values));
  }
  return SqlRows(std::move(rows));
}

SqlDialect MySqlTransaction::dialect() const noexcept { return state_->store->dialect(); }

MySqlConnection MySqlTransaction::native_handle() noexcept {
  state_->reach = TransactionState::Reach::changed;
  return detail::mysql::HandleAccess::wrap(state_->connection->handle());
}

}  // namespace v0
}  // namespace idempotency
