#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sqlite/sqlite_connection.hpp"
#include "sqlite/sqlite_records.hpp"

struct sqlite3_stmt;

namespace idempotency {
inline namespace v0 {
namespace detail::sqlite {

/// What all parts of one store share.
struct Shared {
  SqliteOptions options;
  std::string record_table;
  std::string schema_table;
  const Clock* clock;
  /// Set when a COMMIT failed in a way that may have left its pages in the log. They are
  /// overwritten before anything else is judged, so that no recovery can bring back what was since
  /// found absent.
  std::atomic<bool> commit_in_doubt{false};

  [[nodiscard]] SteadyTime deadline() const {
    return std::chrono::steady_clock::now() + options.busy_timeout;
  }
};

/// Ends a transaction on `database` with `sql`; when it fails, rolls it back.
///
/// Errors: see `Stage::commit`.
void commit_on(sqlite3* database, Statement& commit, Shared& shared);

/// The application's statements, prepared once for as long as their connection is used.
class StatementCache {
 public:
  explicit StatementCache(sqlite3* database) noexcept : database_(database) {}
  StatementCache(const StatementCache&) = delete;
  StatementCache& operator=(const StatementCache&) = delete;
  ~StatementCache();

  /// Errors: `Errc::statement_failed`; `Errc::invalid_argument` for text that is not one statement.
  [[nodiscard]] sqlite3_stmt* prepare(std::string_view sql);

 private:
  struct Entry {
    std::string sql;
    sqlite3_stmt* handle;
  };

  sqlite3* database_;
  std::vector<Entry> entries_;  ///< the one used last at the end
};

/// A writing connection of the store's own with its statements.
///
/// Thread safety: belongs to the holder of the write turn.
class Lane {
 public:
  explicit Lane(Shared& shared);

  /// BEGIN IMMEDIATE, waiting for other processes until `deadline`.
  void begin(SteadyTime deadline);
  void commit();
  void rollback() noexcept;
  [[nodiscard]] bool in_transaction() const noexcept { return connection_.in_transaction(); }
  [[nodiscard]] Records& records() noexcept { return records_; }
  [[nodiscard]] StatementCache& cache() noexcept { return cache_; }
  [[nodiscard]] Connection& connection() noexcept { return connection_; }

 private:
  void overwrite_doubtful_pages();

  Shared& shared_;
  Connection connection_;
  Records records_;
  StatementCache cache_;
  Statement begin_;
  Statement commit_;
  Statement rollback_;
};

}  // namespace detail::sqlite
}  // namespace v0
}  // namespace idempotency
