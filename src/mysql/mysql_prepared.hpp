#pragma once

#include <deque>

#include "mysql/mysql_connection.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail::mysql {

/// One prepared statement. Its functions answer false when the client has an error to tell.
class Connection::Prepared {
 public:
  explicit Prepared(MYSQL* handle) noexcept
      : handle_(handle), statement_(mysql_stmt_init(handle)) {}
  Prepared(const Prepared&) = delete;
  Prepared& operator=(const Prepared&) = delete;
  ~Prepared() {
    if (statement_ != nullptr) static_cast<void>(mysql_stmt_close(statement_));
  }

  [[nodiscard]] bool prepare(std::string_view sql);
  [[nodiscard]] bool execute(Parameters parameters);
  /// All rows of the answer, if it has any.
  [[nodiscard]] bool fetch(Reply& answer);
  /// Leaves the connection ready for the next statement.
  void finish() noexcept;

  [[nodiscard]] std::size_t parameter_count() const noexcept {
    return mysql_stmt_param_count(statement_);
  }
  [[nodiscard]] std::uint64_t affected_rows() const noexcept {
    return mysql_stmt_affected_rows(statement_);
  }
  /// libmariadb tells errors among the rows at the connection only.
  [[nodiscard]] unsigned error() const noexcept {
    if (statement_ == nullptr) return 2008;
    const unsigned code = mysql_stmt_errno(statement_);
    return code != 0 ? code : mysql_errno(handle_);
  }
  [[nodiscard]] std::string words() const {
    if (statement_ == nullptr) return "out of memory";
    return mysql_stmt_errno(statement_) != 0 ? mysql_stmt_error(statement_) : mysql_error(handle_);
  }

 private:
  enum class Kind : std::uint8_t { integer, unsigned_integer, real, text, bytes };
  struct Column {
    Kind kind = Kind::bytes;
    std::int64_t number = 0;
    double real = 0;
    std::string buffer;
    unsigned long length = 0;
    ClientBool is_null = 0;
    ClientBool is_cut = 0;
  };

  [[nodiscard]] static Kind kind_of(const MYSQL_FIELD& field) noexcept;
  [[nodiscard]] bool read_columns();
  [[nodiscard]] bool read_cell(unsigned index, SqlValue::Value& cell);

  MYSQL* handle_;
  MYSQL_STMT* statement_;
  std::vector<MYSQL_BIND> binds_;  ///< of the parameters; kept for its room
  std::vector<Column> columns_;
  std::vector<MYSQL_BIND> results_;
  SqlRow::Columns names_;
};

/// Types whose text is a number, as they come in answers to text statements.
[[nodiscard]] SqlValue::Value text_cell(const MYSQL_FIELD& field, std::string_view text);

}  // namespace detail::mysql
}  // namespace v0
}  // namespace idempotency
