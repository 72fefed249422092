#include "sqlite/sqlite_lane.hpp"

#include <sqlite3.h>

#include <algorithm>
#include <utility>

namespace idempotency {
inline namespace v0 {
namespace detail::sqlite {

namespace {

constexpr std::size_t most_cached_statements = 32;

/// Whether nothing but space and comments is left: SQLite makes no statement of it.
bool is_blank(sqlite3* database, std::string_view sql) {
  sqlite3_stmt* handle = nullptr;
  const int prepared =
      sqlite3_prepare_v3(database, sql.data(), static_cast<int>(sql.size()), 0, &handle, nullptr);
  static_cast<void>(sqlite3_finalize(handle));
  return prepared == SQLITE_OK && handle == nullptr;
}

}  // namespace

void commit_on(sqlite3* database, Statement& commit, Shared& shared) {
  try {
    commit.use().run();
  } catch (const Error&) {
    const int code = sqlite3_extended_errcode(database);
    const Error error = make_error(database, code, Stage::commit, "COMMIT");
    if (leaves_commit_in_doubt(code)) shared.commit_in_doubt.store(true);
    if (sqlite3_get_autocommit(database) == 0) {
      static_cast<void>(sqlite3_exec(database, "ROLLBACK", nullptr, nullptr, nullptr));
    }
    throw error;
  }
}

StatementCache::~StatementCache() {
  for (const Entry& entry : entries_)
    static_cast<void>(sqlite3_finalize(entry.handle));
}

sqlite3_stmt* StatementCache::prepare(std::string_view sql) {
  const auto same = [&](const Entry& entry) { return entry.sql == sql; };
  const auto found = std::find_if(entries_.rbegin(), entries_.rend(), same);
  if (found != entries_.rend()) {
    std::rotate(found.base() - 1, found.base(), entries_.end());
    return entries_.back().handle;
  }
  sqlite3_stmt* handle = nullptr;
  const char* tail = nullptr;
  const int prepared = sqlite3_prepare_v3(database_, sql.data(), static_cast<int>(sql.size()),
                                          SQLITE_PREPARE_PERSISTENT, &handle, &tail);
  if (prepared != SQLITE_OK) {
    throw make_error(database_, prepared, Stage::handler, "preparing a statement");
  }
  const std::string_view rest(tail, sql.size() - static_cast<std::size_t>(tail - sql.data()));
  if (handle == nullptr || !is_blank(database_, rest)) {
    static_cast<void>(sqlite3_finalize(handle));
    throw Error(Errc::invalid_argument, "give one SQL statement a call, with nothing after it");
  }
  if (entries_.size() == most_cached_statements) {
    static_cast<void>(sqlite3_finalize(entries_.front().handle));
    entries_.erase(entries_.begin());
  }
  entries_.push_back(Entry{std::string(sql), handle});
  return handle;
}

Lane::Lane(Shared& shared)
    : shared_(shared),
      connection_(shared.options, Purpose::writing),
      records_(connection_.handle(), shared.record_table),
      cache_(connection_.handle()),
      begin_(connection_.handle(), "BEGIN IMMEDIATE"),
      commit_(connection_.handle(), "COMMIT"),
      rollback_(connection_.handle(), "ROLLBACK") {}

void Lane::begin(SteadyTime deadline) {
  connection_.wait_until(deadline);
  begin_.use().run();
  if (!shared_.commit_in_doubt.load()) return;
  try {
    overwrite_doubtful_pages();
  } catch (...) {
    rollback();
    throw;
  }
  begin_.use().run();
}

/// A page written anew is a frame at the place where the doubtful ones begin; the log's running
/// checksum then ends before them. An UPDATE to the same value would write no page.
void Lane::overwrite_doubtful_pages() {
  const std::string version =
      connection_.ask("SELECT version FROM " + shared_.schema_table + " WHERE part = 'record'");
  connection_.run("DELETE FROM " + shared_.schema_table + " WHERE part = 'record'");
  connection_.run("INSERT INTO " + shared_.schema_table + " (part, version) VALUES ('record', " +
                  version + ")");
  commit_on(connection_.handle(), commit_, shared_);
  shared_.commit_in_doubt.store(false);
}

void Lane::commit() { commit_on(connection_.handle(), commit_, shared_); }

void Lane::rollback() noexcept {
  if (!in_transaction()) return;
  try {
    rollback_.use().run();
  } catch (const Error&) {
    return;  // whoever looks at in_transaction() discards the connection
  }
}

}  // namespace detail::sqlite
}  // namespace v0
}  // namespace idempotency
