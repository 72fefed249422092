#include "idempotency/patterns/sql_states.hpp"

namespace idempotency {
inline namespace v0 {

namespace detail {

SqlStatesStatements::SqlStatesStatements(const SqlStatesOptions& options)
    : has_history(!options.history_table.empty()) {
  const std::string table = quoted_table(options.table);
  const std::string id = quoted_column(options.id_column);
  const std::string state = quoted_column(options.state_column);
  move = "UPDATE " + table + " SET " + state + " = ? WHERE " + id + " = ? AND " + state + " = ?";
  look = "SELECT " + state + " FROM " + table + " WHERE " + id + " = ?";
  if (has_history) {
    history_insert = "INSERT INTO " + quoted_table(options.history_table) +
                     " (object, from_state, to_state, who, why, idempotency_key, at) VALUES "
                     "(?, ?, ?, ?, ?, ?, ";
  }
}

std::string SqlStatesStatements::look_now(SqlDialect dialect) const {
  return look + std::string(current_read(dialect));
}

std::string SqlStatesStatements::remember(SqlDialect dialect) const {
  return history_insert + std::string(now_milliseconds(dialect)) + ')';
}

}  // namespace detail

std::string history_schema(std::string_view table, SqlDialect dialect) {
  const bool is_sqlite = dialect == SqlDialect::sqlite;
  const std::string text = is_sqlite ? "TEXT" : "VARBINARY(255)";
  const std::string long_text =
      is_sqlite ? "TEXT" : "VARBINARY(1024)";  // a key has up to 320 bytes
  const std::string serial =
      is_sqlite ? "INTEGER PRIMARY KEY AUTOINCREMENT" : "BIGINT AUTO_INCREMENT PRIMARY KEY";
  return "CREATE TABLE IF NOT EXISTS " + detail::quoted_table(table) + " (id " + serial +
         ", object " + text + " NOT NULL, from_state " + text + " NOT NULL, to_state " + text +
         " NOT NULL, who " + text + " NOT NULL, why " + long_text + " NOT NULL, idempotency_key " +
         long_text + " NOT NULL, at BIGINT NOT NULL)" + (is_sqlite ? "" : " ENGINE = InnoDB");
}

}  // namespace v0
}  // namespace idempotency
