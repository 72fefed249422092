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

/// A SQLite file of a test's own, with two stores open on it as two processes would have them, and a plain
/// connection beside them.
class SqliteFile {
 public:
  SqliteFile() { execute("CREATE TABLE business (id INTEGER PRIMARY KEY) STRICT"); }
  SqliteFile(const SqliteFile&) = delete;
  SqliteFile& operator=(const SqliteFile&) = delete;

  testing::ManualClock& clock() noexcept { return clock_; }
  SqliteStore& first() noexcept { return first_; }
  SqliteStore& second() noexcept { return second_; }

  void remove_all_deadlines() { execute("UPDATE idempotency_record SET lease_until = NULL"); }
  static void add_business_row(SqliteTransaction& transaction) {
    transaction.execute("INSERT INTO business DEFAULT VALUES");
  }
  /// How many business rows are committed.
  std::size_t business_rows() {
    std::size_t rows = 0;
    execute(
        "SELECT id FROM business",
        [](void* count, int, char**, char**) {
          ++*static_cast<std::size_t*>(count);
          return 0;
        },
        &rows);
    return rows;
  }

 private:
  /// Opened before the stores and closed after them.
  struct Connection {
    explicit Connection(const std::string& path) {
      if (sqlite3_open(path.c_str(), &handle) != SQLITE_OK) {
        throw std::runtime_error("the test's own connection cannot be opened");
      }
      sqlite3_busy_timeout(handle, 5'000);
    }
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;
    ~Connection() { sqlite3_close(handle); }

    sqlite3* handle = nullptr;
  };

  void execute(const char* sql, int (*on_row)(void*, int, char**, char**) = nullptr,
               void* argument = nullptr) {
    if (sqlite3_exec(plain_.handle, sql, on_row, argument, nullptr) != SQLITE_OK) {
      throw std::runtime_error(sqlite3_errmsg(plain_.handle));
    }
  }
  [[nodiscard]] SqliteOptions options() {
    return {.path = directory_.file("records.db"),
            .durability = SqliteDurability::normal,
            .clock = &clock_};
  }

  TemporaryDirectory directory_;
  testing::ManualClock clock_;
  Connection plain_{directory_.file("records.db")};
  SqliteStore first_{options()};
  SqliteStore second_{options()};
};

}  // namespace idempotency::testing_support
