#include "idempotency/patterns/tcc_barrier.hpp"

#include "idempotency/detail/sql_names.hpp"

namespace idempotency {
inline namespace v0 {

namespace {

constexpr std::size_t longest_global = 128;
constexpr std::size_t longest_branch = 64;
constexpr std::string_view of_branch = " WHERE global_id = ? AND branch_id = ?";

}  // namespace

namespace detail {

TccRows::TccRows(const TccBarrierOptions& options) : table_(quoted_table(options.table)) {}

std::string TccRows::insert(SqlDialect dialect) const {
  const std::string now(now_milliseconds(dialect));
  return "INSERT INTO " + table_ +
         " (global_id, branch_id, state, maker, created_at, updated_at) VALUES (?, ?, ?, ?, " +
         now + ", " + now + ')' +
         (dialect == SqlDialect::sqlite ? " ON CONFLICT DO NOTHING"
                                        : " ON DUPLICATE KEY UPDATE state = state");
}

std::string TccRows::look(SqlDialect dialect) const {
  return "SELECT state, maker FROM " + table_ + std::string(of_branch) +
         std::string(current_read(dialect));
}

std::string TccRows::move(SqlDialect dialect) const {
  return "UPDATE " + table_ +
         " SET state = ?, updated_at = " + std::string(now_milliseconds(dialect)) +
         std::string(of_branch);
}

std::string TccRows::clean(SqlDialect dialect) const {
  const std::string condition =
      " WHERE state IN (3, 4) AND updated_at <= " + std::string(now_milliseconds(dialect)) + " - ?";
  if (dialect == SqlDialect::sqlite) {
    return "DELETE FROM " + table_ + " WHERE rowid IN (SELECT rowid FROM " + table_ + condition +
           " LIMIT ?)";
  }
  return "DELETE FROM " + table_ + condition + " LIMIT ?";
}

void TccRows::check(const TccBranch& branch) {
  if (branch.global.empty() || branch.branch.empty()) {
    throw Error(Errc::invalid_argument,
                "a branch has the name of its global transaction and one of its own");
  }
  if (branch.global.size() > longest_global || branch.branch.size() > longest_branch) {
    throw Error(Errc::too_large,
                "a global transaction's name has at most 128 bytes, a branch's 64");
  }
}

TccState TccRows::state_of(std::int64_t stored) {
  if (stored < static_cast<int>(TccState::init) || stored > static_cast<int>(TccState::cancelled)) {
    throw Error(Errc::store_corrupt,
                "a branch is in a state that this version does not know: was it written by a newer "
                "one, or by hand?",
                std::to_string(stored));
  }
  return static_cast<TccState>(stored);
}

}  // namespace detail

std::string tcc_barrier_schema(std::string_view table, SqlDialect dialect) {
  const std::string name = detail::quoted_table(table);
  if (dialect == SqlDialect::sqlite) {
    return "CREATE TABLE IF NOT EXISTS " + name +
           " (global_id BLOB NOT NULL, branch_id BLOB NOT NULL, state INTEGER NOT NULL, "
           "maker BLOB NOT NULL, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, "
           "PRIMARY KEY (global_id, branch_id))";
  }
  return "CREATE TABLE IF NOT EXISTS " + name +
         " (global_id VARBINARY(128) NOT NULL, branch_id VARBINARY(64) NOT NULL, "
         "state TINYINT UNSIGNED NOT NULL, maker BINARY(16) NOT NULL, created_at BIGINT NOT NULL, "
         "updated_at BIGINT NOT NULL, PRIMARY KEY (global_id, branch_id), "
         "KEY finished (state, updated_at)) ENGINE = InnoDB";
}

TccBarrier::TccBarrier(const TccBarrierOptions& options)
    : rows_(options), retention_(options.retention) {
  if (options.longest_late_try < std::chrono::milliseconds{0} ||
      options.retention <= options.longest_late_try) {
    throw Error(
        Errc::invalid_argument,
        "a branch must be remembered longer than a late try may take: raise retention above "
        "longest_late_try");
  }
}

}  // namespace v0
}  // namespace idempotency
