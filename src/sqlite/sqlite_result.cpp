#include "sqlite/sqlite_result.hpp"

#include <sqlite3.h>

#include <string>

namespace idempotency {
inline namespace v0 {
namespace detail::sqlite {

namespace {

constexpr int primary(int result_code) noexcept { return result_code & 0xff; }

Errc errc_before_commit(int result_code) noexcept {
  if (result_code == SQLITE_BUSY_SNAPSHOT || result_code == SQLITE_ABORT_ROLLBACK) {
    return Errc::transaction_lost;
  }
  switch (primary(result_code)) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_PROTOCOL:
    case SQLITE_SCHEMA:
    case SQLITE_INTERRUPT:
    case SQLITE_NOMEM:
    case SQLITE_ABORT:
      return Errc::store_busy;
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
      return Errc::store_unavailable;
    case SQLITE_FULL:
      return Errc::store_full;
    case SQLITE_TOOBIG:
      return Errc::too_large;
    case SQLITE_CORRUPT:
      return Errc::store_corrupt;
    default:
      return Errc::store_refused;
  }
}

Errc errc_of_commit(int result_code) noexcept {
  switch (primary(result_code)) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return Errc::store_busy;
    case SQLITE_CONSTRAINT:  // a deferred foreign key
      return Errc::statement_failed;
    case SQLITE_FULL:
      return Errc::store_full;
    default:
      return Errc::commit_unknown;
  }
}

Errc errc_of_handler(int result_code) noexcept {
  const Errc code = errc_before_commit(result_code);
  if (code == Errc::transaction_lost || code == Errc::store_full || code == Errc::too_large) {
    return code;
  }
  return Errc::statement_failed;
}

/// What a user can do about it.
std::string_view advice(Errc code) noexcept {
  switch (code) {
    case Errc::store_busy:
      return "the database is locked by others; repeat the call, or allow a longer wait";
    case Errc::store_unavailable:
      return "the database file cannot be read or written; look at disk, path and rights";
    case Errc::store_full:
      return "the disk is full; make room, then repeat the call";
    case Errc::too_large:
      return "the value is larger than SQLite can hold";
    case Errc::store_corrupt:
      return "the database file is damaged; stop using it and restore it";
    case Errc::transaction_lost:
      return "the database ended the transaction; nothing of it is written, repeat all of it";
    case Errc::commit_unknown:
      return "the commit was not confirmed; run the same operation again to settle it";
    case Errc::store_reply_lost:
      return "the commit was not confirmed; repeat the call with the same token";
    case Errc::statement_failed:
      return "the database refused a statement; see the detail";
    default:
      return "the database refuses; look at rights, file and schema";
  }
}

}  // namespace

Errc errc_of(int result_code, Stage stage) noexcept {
  switch (stage) {
    case Stage::open:
    case Stage::statement:
      return errc_before_commit(result_code);
    case Stage::commit:
      return errc_of_commit(result_code);
    case Stage::handler:
      return errc_of_handler(result_code);
  }
  return Errc::store_refused;
}

bool leaves_commit_in_doubt(int result_code) noexcept {
  switch (primary(result_code)) {
    case SQLITE_OK:
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_CONSTRAINT:
      return false;
    default:
      return true;
  }
}

Error make_error(sqlite3* database, int result_code, Stage stage, std::string_view doing) {
  const Errc code = errc_of(result_code, stage);
  std::string message = "sqlite store, ";
  message += doing;
  message += ": ";
  message += advice(code);
  std::string words = sqlite3_errstr(result_code);
  words += " (SQLite result code " + std::to_string(result_code) + ")";
  if (database != nullptr && sqlite3_errcode(database) != SQLITE_OK) {
    words += ": ";
    words += sqlite3_errmsg(database);
  }
  return Error(code, std::move(message), std::move(words));
}

}  // namespace detail::sqlite
}  // namespace v0
}  // namespace idempotency
