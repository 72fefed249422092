#pragma once

#include <string>
#include <string_view>

namespace idempotency {
inline namespace v0 {
namespace detail::mysql {

/// UTC milliseconds of the server's clock at the start of the statement; the session's time zone does not matter.
inline constexpr std::string_view now_expression =
    "(TIMESTAMPDIFF(MICROSECOND, DATE'1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)";

/// The columns that `read_answer` reads, the server's now as the last: what a record that is not changed answers.
[[nodiscard]] const std::string& answer_columns();
/// The columns that `read_row` reads: those of `answer_columns`, and the others behind them.
[[nodiscard]] const std::string& row_columns();

/// The store's statements for one table.
///
/// Every write compares owner and fence, so that 0 changed rows mean: not in the position to write, or written already.
/// None depends on sql_mode, time zone, character set or CLIENT_FOUND_ROWS.
struct Statements {
  explicit Statements(const std::string& table);

  std::string table;
  /// Makes the record, or gives what it answers without writing anything. It costs the server half of `begin_returning`.
  std::string insert_returning;
  /// The beginning of the same statement, and one row of it: for many records at once.
  std::string insert_into;
  std::string inserted_row;
  /// What a record answers, if there is one.
  std::string answer;
  /// One INSERT that decides after the table of transitions; see the comment at its text.
  std::string begin;
  std::string begin_returning;
  /// The same decision about a record that is there; makes none.
  std::string begin_issued;
  std::string issue;
  std::string select;
  /// The same of a row that is known to be there: what is committed, not what an old snapshot shows.
  std::string select_locking;
  std::string complete;
  std::string fail;
  std::string doubt;
  std::string mark_effect;
  std::string renew;
  std::string release;
  std::string resolve;
};

/// A table's name in a database, quoted.
[[nodiscard]] std::string quoted_table(std::string_view database, std::string_view name);

}  // namespace detail::mysql
}  // namespace v0
}  // namespace idempotency
