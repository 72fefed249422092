#include "idempotency/patterns/sql_locks.hpp"

#include <algorithm>

#include "idempotency/detail/sql_names.hpp"

namespace idempotency {
inline namespace v0 {

namespace detail {

namespace {

constexpr std::string_view of_owner = " WHERE name = ? AND owner = ?";

std::string now_in(SqlDialect dialect) { return std::string(now_milliseconds(dialect)); }

}  // namespace

SqlLockRows::SqlLockRows(const SqlLocksOptions& options) : table_(quoted_table(options.table)) {}

std::string SqlLockRows::make(SqlDialect dialect) const {
  return "INSERT INTO " + table_ +
         " (name, owner, fence, held_until, changed_at) VALUES (?, ?, 0, 0, " + now_in(dialect) +
         ')' +
         (dialect == SqlDialect::sqlite ? " ON CONFLICT DO NOTHING"
                                        : " ON DUPLICATE KEY UPDATE fence = fence");
}

std::string SqlLockRows::look(SqlDialect dialect) const {
  return "SELECT owner, fence, held_until, " + now_in(dialect) + " FROM " + table_ +
         " WHERE name = ?";
}

std::string SqlLockRows::look_at(SqlDialect dialect) const {
  return look(dialect) + std::string(current_read(dialect));
}

std::string SqlLockRows::update(SqlDialect dialect, std::string_view assignments) const {
  return "UPDATE " + table_ + " SET changed_at = " + now_in(dialect) + ", " +
         std::string(assignments);
}

std::string SqlLockRows::write(SqlDialect dialect) const {
  return update(dialect, "owner = ?, fence = ?, held_until = ? WHERE name = ?");
}

std::string SqlLockRows::renew(SqlDialect dialect) const {
  return update(dialect, "held_until = ? + " + now_in(dialect)) + std::string(of_owner) +
         " AND fence = ? AND held_until > " + now_in(dialect);
}

std::string SqlLockRows::release(SqlDialect dialect) const {
  return update(dialect, "held_until = 0") + std::string(of_owner);
}

std::string SqlLockRows::clean(SqlDialect dialect) const {
  const std::string condition = " WHERE changed_at <= " + now_in(dialect) +
                                " - ? AND held_until <= " + now_in(dialect) + " - ?";
  if (dialect == SqlDialect::sqlite) {
    return "DELETE FROM " + table_ + " WHERE rowid IN (SELECT rowid FROM " + table_ + condition +
           " LIMIT ?)";
  }
  return "DELETE FROM " + table_ + condition + " LIMIT ?";
}

void check_lock_age(std::chrono::milliseconds age) {
  if (age >= std::chrono::seconds{1}) return;
  throw Error(
      Errc::invalid_argument,
      "a lock's row is cleaned when nobody has held it for a second at least: its fence goes "
      "on from the clock");
}

OwnerToken owner_of(const SqlValue& value) {
  const std::string bytes = text_of(value);
  OwnerToken::Bytes owner{};
  if (bytes.size() != owner.size()) {
    throw Error(Errc::store_corrupt,
                "a lock's owner is no 16 bytes: was the row written by something else?");
  }
  std::copy(bytes.begin(), bytes.end(), owner.begin());
  return OwnerToken(owner);
}

}  // namespace detail

std::string locks_schema(std::string_view table, SqlDialect dialect) {
  const std::string name = detail::quoted_table(table);
  if (dialect == SqlDialect::sqlite) {
    return "CREATE TABLE IF NOT EXISTS " + name +
           " (name BLOB NOT NULL PRIMARY KEY, owner BLOB NOT NULL, fence INTEGER NOT NULL, "
           "held_until INTEGER NOT NULL, changed_at INTEGER NOT NULL)";
  }
  return "CREATE TABLE IF NOT EXISTS " + name +
         " (name VARBINARY(320) NOT NULL PRIMARY KEY, owner BINARY(16) NOT NULL, "
         "fence BIGINT UNSIGNED NOT NULL, held_until BIGINT NOT NULL, changed_at BIGINT NOT NULL, "
         "KEY unused (changed_at)) ENGINE = InnoDB";
}

}  // namespace v0
}  // namespace idempotency
