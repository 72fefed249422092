#include "sqlite/sqlite_connection.hpp"

#include <sqlite3.h>

#include <algorithm>
#include <thread>

namespace idempotency {
inline namespace v0 {
namespace detail::sqlite {

namespace {

using std::chrono::microseconds;

constexpr int oldest_usable_version = 3037000;  // STRICT tables
constexpr microseconds longest_pause{1'000};
constexpr microseconds shortest_pause{200};
constexpr std::uint32_t pauses_until_shortest = 64;

/// Cheap jitter; nothing secret hangs on it.
std::uint32_t next_random() noexcept {
  thread_local std::uint32_t state =
      static_cast<std::uint32_t>(std::chrono::steady_clock::now().time_since_epoch().count() | 1);
  state ^= state << 13U;
  state ^= state >> 17U;
  state ^= state << 5U;
  return state;
}

/// The extended code where the connection has one: adopted connections may give the plain one.
int extended(sqlite3* database, int result_code) noexcept {
  const int code = sqlite3_extended_errcode(database);
  return (code & 0xff) == (result_code & 0xff) ? code : result_code;
}

}  // namespace

bool Patience::pause() noexcept {
  const SteadyTime now = std::chrono::steady_clock::now();
  if (now >= deadline_) return false;
  const std::uint32_t step = std::min(pauses_++, pauses_until_shortest);
  const auto span = longest_pause - (longest_pause - shortest_pause) * step / pauses_until_shortest;
  const auto jittered = span / 2 + microseconds{next_random() % 1024U} * span.count() / 1024;
  std::this_thread::sleep_until(
      std::min(deadline_, now + std::chrono::duration_cast<std::chrono::nanoseconds>(jittered)));
  return true;
}

Statement::~Statement() { static_cast<void>(sqlite3_finalize(handle_)); }

Statement::Use::Use(Statement& statement) : database_(statement.database_) {
  if (statement.handle_ == nullptr) {
    check(sqlite3_prepare_v3(database_, statement.sql_.data(),
                             static_cast<int>(statement.sql_.size()), SQLITE_PREPARE_PERSISTENT,
                             &statement.handle_, nullptr));
  }
  handle_ = statement.handle_;
}

Statement::Use::~Use() {
  static_cast<void>(sqlite3_reset(handle_));  // repeats the error that step() gave
}

void Statement::Use::check(int result_code) {
  if (result_code == SQLITE_OK) return;
  throw make_error(database_, extended(database_, result_code), Stage::statement, "a statement");
}

void Statement::Use::bind(int index, std::int64_t number) {
  check(sqlite3_bind_int64(handle_, index, number));
}

void Statement::Use::bind(int index, const std::optional<std::int64_t>& number) {
  if (number) {
    bind(index, *number);
  } else {
    bind_null(index);
  }
}

void Statement::Use::bind_text(int index, std::string_view text) {
  const char* data = text.empty() ? "" : text.data();  // a null pointer would bind NULL
  check(sqlite3_bind_text64(handle_, index, data, text.size(), SQLITE_STATIC, SQLITE_UTF8));
}

void Statement::Use::bind_blob(int index, std::string_view bytes) {
  const char* data = bytes.empty() ? "" : bytes.data();
  check(sqlite3_bind_blob64(handle_, index, data, bytes.size(), SQLITE_STATIC));
}

void Statement::Use::bind_null(int index) { check(sqlite3_bind_null(handle_, index)); }

bool Statement::Use::step() {
  const int result_code = sqlite3_step(handle_);
  if (result_code == SQLITE_ROW) return true;
  if (result_code == SQLITE_DONE) return false;
  throw make_error(database_, extended(database_, result_code), Stage::statement, "a statement");
}

void Statement::Use::run() {
  while (step()) {
  }
}

std::int64_t Statement::Use::integer(int column) const noexcept {
  return sqlite3_column_int64(handle_, column);
}

bool Statement::Use::is_null(int column) const noexcept {
  return sqlite3_column_type(handle_, column) == SQLITE_NULL;
}

std::string_view Statement::Use::bytes(int column) const noexcept {
  const void* data = sqlite3_column_blob(handle_, column);
  const int size = sqlite3_column_bytes(handle_, column);
  if (data == nullptr || size <= 0) return {};
  return {static_cast<const char*>(data), static_cast<std::size_t>(size)};
}

std::string_view Statement::Use::text(int column) const noexcept {
  const unsigned char* data = sqlite3_column_text(handle_, column);
  const int size = sqlite3_column_bytes(handle_, column);
  if (data == nullptr || size <= 0) return {};
  return {reinterpret_cast<const char*>(data), static_cast<std::size_t>(size)};
}

Connection::Connection(const SqliteOptions& options, Purpose purpose)
    : busy_timeout_(options.busy_timeout) {
  if (sqlite3_libversion_number() < oldest_usable_version || sqlite3_threadsafe() == 0) {
    throw Error(Errc::store_refused,
                "the SQLite in use is older than 3.37 or built without threads; use another",
                sqlite3_libversion());
  }
  const int flags =
      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
  const int opened = sqlite3_open_v2(options.path.c_str(), &handle_, flags,
                                     options.vfs.empty() ? nullptr : options.vfs.c_str());
  try {
    if (opened != SQLITE_OK) throw make_error(handle_, opened, Stage::open, "opening the file");
    set_up(options, purpose);
  } catch (...) {
    static_cast<void>(sqlite3_close_v2(handle_));
    throw;
  }
}

Connection::~Connection() { static_cast<void>(sqlite3_close_v2(handle_)); }

void Connection::set_up(const SqliteOptions& options, Purpose purpose) {
  static_cast<void>(sqlite3_busy_handler(handle_, &Connection::on_busy, this));
  switch_to_wal();
  run(options.durability == SqliteDurability::full ? "PRAGMA synchronous=FULL"
                                                   : "PRAGMA synchronous=NORMAL");
  if (purpose == Purpose::reading) {
    run("PRAGMA query_only=ON");
    return;
  }
  run(options.foreign_keys == SqliteForeignKeys::enforced ? "PRAGMA foreign_keys=ON"
                                                          : "PRAGMA foreign_keys=OFF");
}

/// SQLite answers "locked" at once, without asking the busy handler, when several want to make the
/// switch.
void Connection::switch_to_wal() {
  Patience patience(std::chrono::steady_clock::now() + busy_timeout_);
  while (true) {
    try {
      if (ask("PRAGMA main.journal_mode") == "wal") return;
      const std::string mode = ask("PRAGMA main.journal_mode=WAL");
      if (mode == "wal") return;
      throw Error(
          Errc::store_refused,
          "the database cannot be used in WAL mode; keep it in an ordinary file on a local disk",
          "journal_mode is " + mode);
    } catch (const Error& error) {
      if (error.code() != Errc::store_busy || !patience.pause()) throw;
    }
  }
}

int Connection::on_busy(void* self, int attempt) noexcept {
  auto& connection = *static_cast<Connection*>(self);
  if (attempt == 0 || !connection.patience_) {
    connection.patience_.emplace(
        connection.deadline_.value_or(std::chrono::steady_clock::now() + connection.busy_timeout_));
  }
  return connection.patience_->pause() ? 1 : 0;
}

bool Connection::in_transaction() const noexcept { return sqlite3_get_autocommit(handle_) == 0; }

void Connection::run(const std::string& sql) {
  if (sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) {
    throw make_error(handle_, sqlite3_extended_errcode(handle_), Stage::open, "setting up");
  }
}

std::string Connection::ask(const std::string& sql) {
  Statement statement(handle_, sql);
  Statement::Use use = statement.use();
  if (!use.step()) return {};
  return std::string(use.text(0));
}

std::string quoted_name(std::string_view name) {
  std::string identifier = "main.\"";
  for (const char c : name) {
    if (c == '"') identifier += '"';
    identifier += c;
  }
  return identifier + '"';
}

}  // namespace detail::sqlite
}  // namespace v0
}  // namespace idempotency
