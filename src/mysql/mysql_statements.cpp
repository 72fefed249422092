#include "mysql/mysql_statements.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail::mysql {

namespace {

std::string quoted(std::string_view name) {
  std::string text = "`";
  for (const char c : name) {
    text += c;
    if (c == '`') text += c;
  }
  return text + '`';
}

std::string replaced(std::string_view sql, std::string_view word, std::string_view by) {
  std::string text(sql);
  for (std::size_t at = text.find(word); at != std::string::npos;
       at = text.find(word, at + by.size())) {
    text.replace(at, word.size(), by);
  }
  return text;
}

std::string with_now(std::string_view sql) { return replaced(sql, "NOW_MS", now_expression); }

// The columns that are left out are NULL. A value may name a column to its left: the time is reckoned once.
constexpr std::string_view first_columns =
    " (business_type, value, state, mode, effect_marked, retryability, owner, fence, attempt, "
    "fingerprint, created_at, updated_at, lease_until, trace) VALUES ";
constexpr std::string_view first_values =
    "(?, ?, 1, ?, 0, 0, ?, 1, 1, ?, NOW_MS, created_at, created_at + ?, ?)";

// Assignments are made in order and see the new values of those before. So the verdict over the record, judged by its old columns, is
// put into `state` first, the other columns follow it, and `state` takes its real value last; nobody else sees the verdict:
//   11  a finished record past its retention: a new life
//   12  acquired by another owner within the same life
//   13  a lease that ran out under hold: uncertain
//   14  repeated by the owner: the lease starts anew
// Everything else keeps its state and all columns, and then the server writes nothing. VALUES(created_at) is now. Where only issued
// keys are admitted there is nothing to insert: it is an UPDATE, an absent record stays absent, and an issued one begins a life.
constexpr std::string_view begin_changes =
    "state = CASE "
    "WHEN state IN (2, 3, 5) AND expires_at <= VALUES(created_at) THEN ABSENT "
    "WHEN fingerprint <> VALUES(fingerprint) AND COALESCE(fingerprint <> ?, 1) THEN state "
    "ISSUED"
    "WHEN state = 1 AND owner = VALUES(owner) THEN 14 "
    "WHEN state = 1 AND lease_until <= VALUES(created_at) THEN "
    "IF(mode = 1 AND effect_marked = 0, 12, 13) "
    "WHEN state = 3 AND retryability = 1 AND owner <> VALUES(owner) THEN 12 "
    "ELSE state END, "
    "mode = IF(state IN (11, 12), VALUES(mode), mode), "
    "effect_marked = IF(state IN (11, 12), 0, effect_marked), "
    "retryability = IF(state IN (11, 12), 0, retryability), "
    "owner = IF(state IN (11, 12), VALUES(owner), owner), "
    "fence = CASE state WHEN 11 THEN 1 WHEN 12 THEN fence + 1 ELSE fence END, "
    "attempt = CASE state WHEN 11 THEN 1 WHEN 12 THEN attempt + 1 ELSE attempt END, "
    "fingerprint = CASE state WHEN 11 THEN VALUES(fingerprint) "
    "WHEN 12 THEN COALESCE(fingerprint, VALUES(fingerprint)) ELSE fingerprint END, "
    "updated_at = IF(state IN (11, 12, 13), VALUES(created_at), updated_at), "
    "created_at = IF(state = 11, VALUES(created_at), created_at), "
    "lease_until = CASE WHEN state IN (11, 12, 14) THEN VALUES(lease_until) "
    "WHEN state = 13 THEN NULL ELSE lease_until END, "
    "expires_at = IF(state IN (11, 12), NULL, expires_at), "
    "reason = IF(state IN (11, 12), NULL, reason), "
    "trace = IF(state = 11, VALUES(trace), trace), "
    "result = IF(state IN (11, 12), NULL, result), "
    "state = CASE WHEN state IN (11, 12, 14) THEN 1 WHEN state = 13 THEN 4 ELSE state END";

constexpr std::string_view of_key = " WHERE business_type = ? AND value = ?";
constexpr std::string_view of_owner =
    " WHERE business_type = ? AND value = ? AND owner = ? AND fence = ?";

/// Changes of a row that an INSERT met.
std::string changes_of_insert() {
  return replaced(replaced(begin_changes, "ABSENT", "11"), "ISSUED", "");
}

/// The same of a row that is there, in the order of their parameters: fingerprint, earlier fingerprint, owner, owner, mode, owner,
/// fingerprint, fingerprint, lease, trace.
std::string changes_of_existing() {
  std::string sql = replaced(begin_changes, "ABSENT", "state");
  sql = replaced(sql, "ISSUED", "WHEN state = 5 THEN 11 ");
  sql = replaced(sql, "VALUES(created_at)", "NOW_MS");
  sql = replaced(sql, "VALUES(lease_until)", "NOW_MS + ?");
  for (const char* column : {"mode", "owner", "fingerprint", "trace"}) {
    sql = replaced(sql, "VALUES(" + std::string(column) + ")", "?");
  }
  return sql;
}

}  // namespace

const std::string& answer_columns() {
  static const std::string columns = with_now(
      "state, owner, fence, fingerprint, updated_at, lease_until, expires_at, retryability, "
      "reason, result, NOW_MS");
  return columns;
}

const std::string& row_columns() {
  static const std::string columns =
      answer_columns() + ", mode, effect_marked, attempt, created_at, trace";
  return columns;
}

Statements::Statements(const std::string& name) : table(name) {
  // The name comes last: it may hold the word that stands for the time.
  const auto update = [this](std::string_view changes) {
    return "UPDATE " + table + " SET " + with_now(changes);
  };
  const std::string owner(of_owner);
  insert_into = "INSERT INTO " + table + std::string(first_columns);
  inserted_row = with_now(first_values);
  const std::string first = insert_into + inserted_row;
  insert_returning = first + " ON DUPLICATE KEY UPDATE state = state RETURNING " + answer_columns();
  answer = "SELECT " + answer_columns() + " FROM " + table + std::string(of_key);
  begin = first + " ON DUPLICATE KEY UPDATE " + changes_of_insert();
  begin_issued = update(changes_of_existing() + std::string(of_key));
  issue = "INSERT INTO " + table +
          with_now(
              " (business_type, value, state, mode, effect_marked, retryability, owner, fence, "
              "attempt, created_at, updated_at, expires_at) VALUES (?, ?, 5, 1, 0, 0, ?, 0, 0, "
              "NOW_MS, created_at, created_at + ?) ON DUPLICATE KEY UPDATE state = state");
  begin_returning = begin + " RETURNING " + row_columns();
  select = "SELECT " + row_columns() + " FROM " + table + std::string(of_key);
  select_locking = select + " FOR UPDATE";
  complete = update(
      "state = 2, lease_until = NULL, expires_at = NOW_MS + ?, updated_at = NOW_MS, "
      "result = ?" +
      owner + " AND state IN (1, 4)");
  fail = update(
      "state = 3, retryability = ?, reason = ?, result = ?, lease_until = NULL, "
      "expires_at = NOW_MS + ?, updated_at = NOW_MS" +
      owner + " AND state IN (1, 4)");
  doubt = update("state = 4, lease_until = NULL, updated_at = NOW_MS" + owner + " AND state = 1");
  mark_effect = update("effect_marked = 1" + owner + " AND state = 1");
  renew = update("lease_until = NOW_MS + ?" + owner + " AND state = 1");
  release = update(
      "state = 3, retryability = 1, lease_until = NULL, expires_at = NOW_MS + ?, "
      "updated_at = NOW_MS" +
      owner + " AND state = 1");
  resolve = update(
      "state = ?, retryability = ?, reason = ?, result = ?, owner = ?, fence = fence + 1, "
      "lease_until = NULL, expires_at = NOW_MS + ?, updated_at = NOW_MS" +
      owner +
      " AND created_at = ? AND state = ? AND mode = ? AND effect_marked = ? AND (state = 4 OR "
      "(state = 1 AND lease_until = ? AND lease_until <= NOW_MS))");
}

std::string quoted_table(std::string_view database, std::string_view name) {
  return quoted(database) + '.' + quoted(name);
}

}  // namespace detail::mysql
}  // namespace v0
}  // namespace idempotency
