#include "idempotency/stores/sqlite_transaction.hpp"

#include <sqlite3.h>

#include <array>
#include <string>
#include <utility>

#include "sqlite/sqlite_store_impl.hpp"

namespace idempotency {
inline namespace v0 {

using detail::CancellationShield;
using detail::sqlite::Stage;
using detail::sqlite::SteadyTime;
using detail::sqlite::TransactionState;

namespace {

std::size_t after_space(std::string_view sql, std::size_t at) noexcept {
  while (at < sql.size()) {
    const std::string_view rest = sql.substr(at);
    std::size_t skip = 0;
    if (rest.starts_with("--")) {
      skip = rest.find('\n');
    } else if (rest.starts_with("/*")) {
      skip = rest.find("*/", 2);
      if (skip != std::string_view::npos) skip += 1;
    } else if (rest.find_first_of(" \t\r\n\f;") != 0 && !rest.starts_with("\xEF\xBB\xBF")) {
      return at;
    } else {
      skip = rest.front() == '\xEF' ? 2 : 0;
    }
    if (skip == std::string_view::npos) return sql.size();
    at += skip + 1;
  }
  return at;
}

/// Whether the statement's first word is one of those with which all statements about transactions
/// begin.
bool controls_transaction(std::string_view sql) {
  std::string word;
  for (std::size_t at = after_space(sql, 0); at < sql.size() && word.size() < 10; ++at) {
    const char c = sql[at];
    if (c >= 'a' && c <= 'z') {
      word += static_cast<char>(c - 'a' + 'A');
    } else if (c >= 'A' && c <= 'Z') {
      word += c;
    } else {
      break;
    }
  }
  constexpr std::array<std::string_view, 6> words{"BEGIN",    "COMMIT",    "END",
                                                  "ROLLBACK", "SAVEPOINT", "RELEASE"};
  for (const std::string_view control : words) {
    if (word == control) return true;
  }
  return false;
}

/// One execution of an application's statement.
class HandlerStatement {
 public:
  HandlerStatement(TransactionState& state, std::string_view sql,
                   std::span<const SqlParameter> parameters)
      : state_(state) {
    state.check_open();
    if (controls_transaction(sql)) {
      throw Error(
          Errc::invalid_argument,
          "the transaction belongs to the guard: return to commit it, throw to roll it back",
          std::string(sql));
    }
    handle_ = state.cache->prepare(sql);
    if (static_cast<std::size_t>(sqlite3_bind_parameter_count(handle_)) != parameters.size()) {
      throw Error(Errc::invalid_argument, "give as many parameters as the statement has",
                  std::string(sql));
    }
    int index = 0;
    for (const SqlParameter& parameter : parameters) {
      ++index;
      const int bound =
          std::visit([&](const auto& value) { return bind(index, value); }, parameter.value());
      if (bound != SQLITE_OK) fail(bound);
    }
  }
  HandlerStatement(const HandlerStatement&) = delete;
  HandlerStatement& operator=(const HandlerStatement&) = delete;
  ~HandlerStatement() {
    static_cast<void>(sqlite3_reset(handle_));
    static_cast<void>(sqlite3_clear_bindings(handle_));
  }

  bool step() {
    const int result_code = sqlite3_step(handle_);
    if (result_code != SQLITE_ROW && result_code != SQLITE_DONE) fail(result_code);
    return result_code == SQLITE_ROW;
  }
  /// The transaction may be gone even though the statement succeeded.
  void finish() {
    if (sqlite3_get_autocommit(state_.handle) != 0) fail(SQLITE_ABORT_ROLLBACK);
  }
  [[nodiscard]] sqlite3_stmt* handle() const noexcept { return handle_; }

 private:
  int bind(int index, std::monostate) { return sqlite3_bind_null(handle_, index); }
  int bind(int index, std::int64_t number) { return sqlite3_bind_int64(handle_, index, number); }
  int bind(int index, std::uint64_t number) {
    if (!std::in_range<std::int64_t>(number)) {
      throw Error(Errc::invalid_argument, "SQLite's integers end at 2^63 - 1");
    }
    return sqlite3_bind_int64(handle_, index, static_cast<std::int64_t>(number));
  }
  int bind(int index, double number) { return sqlite3_bind_double(handle_, index, number); }
  int bind(int index, std::string_view text) {
    return sqlite3_bind_text64(handle_, index, text.empty() ? "" : text.data(), text.size(),
                               SQLITE_STATIC, SQLITE_UTF8);
  }
  int bind(int index, const SqlBlobView& blob) {
    return sqlite3_bind_blob64(handle_, index, blob.bytes.empty() ? "" : blob.bytes.data(),
                               blob.bytes.size(), SQLITE_STATIC);
  }

  [[noreturn]] void fail(int result_code) {
    const int extended = sqlite3_extended_errcode(state_.handle);
    const int code = (extended & 0xff) == (result_code & 0xff) ? extended : result_code;
    if (sqlite3_get_autocommit(state_.handle) != 0) {
      state_.lost = true;
      const Error told = make_error(state_.handle, code, Stage::handler, "a statement");
      throw Error(Errc::transaction_lost,
                  "the database ended the transaction with a statement; nothing of it is written, "
                  "repeat all of it",
                  told.detail());
    }
    throw make_error(state_.handle, code, Stage::handler, "a statement");
  }

  TransactionState& state_;
  sqlite3_stmt* handle_ = nullptr;
};

SqlValue column_value(sqlite3_stmt* statement, int column) {
  switch (sqlite3_column_type(statement, column)) {
    case SQLITE_INTEGER:
      return SqlValue(std::int64_t{sqlite3_column_int64(statement, column)});
    case SQLITE_FLOAT:
      return SqlValue(sqlite3_column_double(statement, column));
    case SQLITE_TEXT: {
      const unsigned char* text = sqlite3_column_text(statement, column);
      const auto size = static_cast<std::size_t>(sqlite3_column_bytes(statement, column));
      return SqlValue(std::string(reinterpret_cast<const char*>(text), size));
    }
    case SQLITE_BLOB: {
      const void* bytes = sqlite3_column_blob(statement, column);
      const auto size = static_cast<std::size_t>(sqlite3_column_bytes(statement, column));
      if (size == 0) return SqlValue(SqlBlob{});
      return SqlValue(SqlBlob{std::string(static_cast<const char*>(bytes), size)});
    }
    default:
      return SqlValue();
  }
}

}  // namespace

SqliteTransaction::SqliteTransaction(std::unique_ptr<TransactionState> state) noexcept
    : state_(std::move(state)) {}
SqliteTransaction::SqliteTransaction(SqliteTransaction&&) noexcept = default;

SqliteTransaction& SqliteTransaction::operator=(SqliteTransaction&& other) noexcept {
  if (this != &other) {
    if (state_) state_->store->rollback(*state_);
    state_ = std::move(other.state_);
  }
  return *this;
}

SqliteTransaction::~SqliteTransaction() {
  if (state_) state_->store->rollback(*state_);
}

SqlChanges SqliteTransaction::execute_with(std::string_view sql,
                                           std::span<const SqlParameter> parameters) {
  const CancellationShield shield;
  HandlerStatement statement(*state_, sql, parameters);
  const sqlite3_int64 before = sqlite3_total_changes64(state_->handle);
  while (statement.step()) {
  }
  statement.finish();
  if (sqlite3_total_changes64(state_->handle) == before) return {};
  const auto rows = static_cast<std::uint64_t>(sqlite3_changes64(state_->handle));
  return {rows, rows};
}

SqlRows SqliteTransaction::query_with(std::string_view sql,
                                      std::span<const SqlParameter> parameters) {
  const CancellationShield shield;
  HandlerStatement statement(*state_, sql, parameters);
  const int count = sqlite3_column_count(statement.handle());
  auto columns = std::make_shared<std::vector<std::string>>();
  for (int column = 0; column < count; ++column) {
    columns->emplace_back(sqlite3_column_name(statement.handle(), column));
  }
  std::vector<SqlRow> rows;
  while (statement.step()) {
    std::vector<SqlValue> values;
    values.reserve(static_cast<std::size_t>(count));
    for (int column = 0; column < count; ++column) {
      values.push_back(column_value(statement.handle(), column));
    }
    rows.emplace_back(columns, std::move(values));
  }
  statement.finish();
  return SqlRows(std::move(rows));
}

sqlite3* SqliteTransaction::native_handle() noexcept { return state_->handle; }

}  // namespace v0
}  // namespace idempotency
