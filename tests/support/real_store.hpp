#pragma once

#include <gtest/gtest.h>
#include <sqlite3.h>

#include <cstdint>
#include <string>

#include "idempotency/key.hpp"
#include "support/mariadb_server.hpp"
#include "support/redis_owner.hpp"
#include "support/redis_server.hpp"
#include "support/temporary_directory.hpp"

namespace idempotency::testing_support {

/// Which records of an SQL store are a key's; `type_column` and `blob_type` are what the two kinds call differently.
inline std::string where_it_is(const Key& key, const std::string& type_column,
                               const std::string& blob_type) {
  return " WHERE " + type_column + " = '" + std::string(key.type()) + "' AND value = CAST('" +
         std::string(key.value()) + "' AS " + blob_type + ")";
}

/// Writes over a record as another program, or a later version, would.
inline void spoil_in_sqlite(const std::string& file, const Key& key) {
  const std::string sql =
      "UPDATE idempotency_record SET mode = 9" + where_it_is(key, "type", "BLOB");
  sqlite3* handle = nullptr;
  ASSERT_EQ(sqlite3_open(file.c_str(), &handle), SQLITE_OK);
  EXPECT_EQ(sqlite3_exec(handle, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK);
  EXPECT_EQ(sqlite3_changes(handle), 1);
  EXPECT_EQ(sqlite3_close(handle), SQLITE_OK);
}
inline void spoil_in_redis(RedisServer& server, const Key& key) {
  server.ask({"DEL", redis_name(key)});
  server.ask({"LPUSH", redis_name(key), "x"});
}

/// The kinds of store that outlive a process.
enum class StoreKind : std::uint8_t { sqlite, redis, mariadb };

/// For the names of tests.
inline std::string name_of(const ::testing::TestParamInfo<StoreKind>& tested) {
  switch (tested.param) {
    case StoreKind::sqlite:
      return "Sqlite";
    case StoreKind::redis:
      return "Redis";
    case StoreKind::mariadb:
      return "MariaDb";
  }
  return "Unknown";
}

/// A store for a test of any kind: a file of its own, or the server that the tests of this program share.
class RealStore {
 public:
  explicit RealStore(StoreKind kind) noexcept : kind_(kind) {}

  /// For `open_store`.
  [[nodiscard]] std::string address() const {
    switch (kind_) {
      case StoreKind::sqlite:
        return "sqlite:" + file();
      case StoreKind::redis:
        return RedisServer::shared().address();
      case StoreKind::mariadb:
        return MariaDbServer::shared().address();
    }
    return {};
  }
  /// Makes a record unreadable.
  void spoil(const Key& key) const {
    switch (kind_) {
      case StoreKind::sqlite:
        return spoil_in_sqlite(file(), key);
      case StoreKind::redis:
        return spoil_in_redis(RedisServer::shared(), key);
      case StoreKind::mariadb:
        return run_sql("UPDATE idempotency_record SET mode = 9" + where_on_mariadb(key));
    }
  }
  /// Removes a record from a server, for the tests behind this one.
  void forget(const Key& key) const {
    if (kind_ == StoreKind::redis) RedisServer::shared().ask({"DEL", redis_name(key)});
    if (kind_ == StoreKind::mariadb) {
      run_sql("DELETE FROM idempotency_record" + where_on_mariadb(key));
    }
  }

 private:
  [[nodiscard]] std::string file() const { return folder_.file("records.db"); }
  static std::string where_on_mariadb(const Key& key) {
    return where_it_is(key, "business_type", "BINARY");
  }
  static void run_sql(const std::string& sql) {
    PlainConnection(MariaDbServer::shared().options()).run(sql);
  }

  StoreKind kind_;
  TemporaryDirectory folder_;
};

}  // namespace idempotency::testing_support
