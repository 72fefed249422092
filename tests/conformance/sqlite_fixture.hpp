#pragma once

#include <sqlite3.h>

#include <chrono>
#include <cstddef>
#include <stdexcept>
#include <string>

#include "idempotency/stores/sqlite.hpp"
#include "idempotency/testing/manual_clock.hpp"
#include "support/temporary_directory.hpp"

namespace idempotency::testing_support {

/// An application with a connection of its own.
class SqliteApplication {
 public:
  explicit SqliteApplication(const std::string& path) {
    if (sqlite3_open(path.c_str(), &handle_) != SQLITE_OK) {
      throw std::runtime_error("the application's connection cannot be opened");
    }
    sqlite3_busy_timeout(handle_, 5'000);
  }
  SqliteApplication(const SqliteApplication&) = delete;
  SqliteApplication& operator=(const SqliteApplication&) = delete;
  ~SqliteApplication() { sqlite3_close(handle_); }

  [[nodiscard]] SqliteConnection connection() noexcept { return SqliteConnection{handle_}; }
  void begin() { execute("BEGIN"); }
  void add_business_row() { execute("INSERT INTO business DEFAULT VALUES"); }
  void commit() { execute("COMMIT"); }
  void rollback() { execute("ROLLBACK"); }

  void execute(const char* sql, int (*on_row)(void*, int, char**, char**) = nullptr,
               void* argument = nullptr) {
    if (sqlite3_exec(handle_, sql, on_row, argument, nullptr) != SQLITE_OK) {
      throw std::runtime_error(sqlite3_errmsg(handle_));
    }
  }

 private:
  sqlite3* handle_ = nullptr;
};

/// A SQLite file of a test's own, with two stores open on it as two processes would have them, and an application's
/// connections beside them.
class SqliteFile {
 public:
  SqliteFile() { plain_.execute("CREATE TABLE business (id INTEGER PRIMARY KEY) STRICT"); }
  SqliteFile(const SqliteFile&) = delete;
  SqliteFile& operator=(const SqliteFile&) = delete;

  testing::ManualClock& clock() noexcept { return clock_; }
  SqliteStore& first() noexcept { return first_; }
  SqliteStore& second() noexcept { return second_; }
  SqliteApplication& application() noexcept { return application_; }

  void remove_all_deadlines() {
    plain_.execute("UPDATE idempotency_record SET lease_until = NULL");
  }
  static void add_business_row(SqliteTransaction& transaction) {
    transaction.execute("INSERT INTO business DEFAULT VALUES");
  }
  /// How many business rows are committed.
  std::size_t business_rows() {
    std::size_t rows = 0;
    plain_.execute(
        "SELECT id FROM business",
        [](void* count, int, char**, char**) {
          ++*static_cast<std::size_t*>(count);
          return 0;
        },
        &rows);
    return rows;
  }

 private:
  [[nodiscard]] SqliteOptions options() {
    return {.path = directory_.file("records.db"),
            .durability = SqliteDurability::normal,
            .clock = &clock_};
  }

  TemporaryDirectory directory_;
  testing::ManualClock clock_;
  // Opened before the stores and closed after them.
  SqliteApplication plain_{directory_.file("records.db")};
  SqliteApplication application_{directory_.file("records.db")};
  SqliteStore first_{options()};
  SqliteStore second_{options()};
};

/// What the conformance suites ask of a fixture over a `SqliteFile`, but for its stores.
class SqliteFileFixture {
 public:
  void advance(std::chrono::milliseconds span) { file_.clock().advance(span); }
  void remove_deadline(const Key& /*key*/) { file_.remove_all_deadlines(); }
  static void add_business_row(SqliteTransaction& transaction) {
    SqliteFile::add_business_row(transaction);
  }
  std::size_t business_rows() { return file_.business_rows(); }
  SqliteApplication& application() { return file_.application(); }

 protected:
  SqliteFile file_;
};

}  // namespace idempotency::testing_support
