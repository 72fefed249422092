#include "idempotency/detail/sql_names.hpp"

#include <algorithm>

namespace idempotency {
inline namespace v0 {
namespace detail {

namespace {

constexpr std::size_t longest_name = 64;  // MySQL's; SQLite has none

bool is_name_character(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '$';
}

}  // namespace

std::string quoted_column(std::string_view name) {
  if (name.empty() || name.size() > longest_name ||
      !std::all_of(name.begin(), name.end(), is_name_character)) {
    throw Error(Errc::invalid_argument,
                "a table's or column's name has 1 to 64 letters, digits, '_' and '$'",
                std::string(name));
  }
  return '`' + std::string(name) + '`';
}

std::string quoted_table(std::string_view name) {
  const std::size_t dot = name.find('.');
  if (dot == std::string_view::npos) return quoted_column(name);
  return quoted_column(name.substr(0, dot)) + '.' + quoted_column(name.substr(dot + 1));
}

std::string_view current_read(SqlDialect dialect) noexcept {
  return dialect == SqlDialect::sqlite ? "" : " FOR UPDATE";
}

bool changed_one_row(const SqlChanges& changes) {
  if (changes.matched <= 1) return changes.matched == 1;
  throw Error(Errc::invalid_argument,
              "an id named several rows: roll back; give it in the type of its column (a number is "
              "compared with text as a number), and let the column be unique");
}

std::string text_of(const SqlValue& value) {
  if (std::holds_alternative<SqlBlob>(value.value())) return value.as<SqlBlob>().bytes;
  return value.as<std::string>();
}

std::string_view now_milliseconds(SqlDialect dialect) noexcept {
  if (dialect == SqlDialect::sqlite) {
    return "(CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER))";
  }
  return "(TIMESTAMPDIFF(MICROSECOND, DATE'1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)";
}

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
