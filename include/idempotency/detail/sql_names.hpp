#pragma once

#include <string>
#include <string_view>

#include "idempotency/sql_transaction.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail {

/// A table's or column's name in statements, quoted so that both SQLite and MySQL read it: letters, digits, `_` and `$`, and for
/// a table a database in front, with a dot.
///
/// Errors: `Errc::invalid_argument` for anything else, before a statement is made of it.
[[nodiscard]] std::string quoted_table(std::string_view name);
[[nodiscard]] std::string quoted_column(std::string_view name);

/// A look at a row that shows what is committed, not what an old snapshot shows: for behind an UPDATE that found nothing to do.
[[nodiscard]] std::string_view current_read(SqlDialect dialect) noexcept;

/// Whether an UPDATE by id has found its row.
///
/// Errors: `Errc::invalid_argument` when it found several; they are written when the transaction is committed all the same.
[[nodiscard]] bool changed_one_row(const SqlChanges& changes);

/// A column that holds text, whether it is declared as text or as bytes.
///
/// Errors: `Errc::invalid_argument` for NULL and for what is neither.
[[nodiscard]] std::string text_of(const SqlValue& value);

/// UTC milliseconds since 1970 by the server's clock.
[[nodiscard]] std::string_view now_milliseconds(SqlDialect dialect) noexcept;

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
