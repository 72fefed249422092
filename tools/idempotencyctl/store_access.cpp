#include "store_access.hpp"

#include <filesystem>
#include <utility>
#ifdef IDEMPOTENCYCTL_SQLITE
#include <sqlite3.h>
#include <idempotency/stores/sqlite.hpp>
#endif
#ifdef IDEMPOTENCYCTL_MYSQL
#include <idempotency/stores/mysql.hpp>
#endif
#ifdef IDEMPOTENCYCTL_REDIS
#include <idempotency/stores/redis.hpp>
#endif

namespace idempotencyctl {

void Hazards::on_hazard(std::string_view what) noexcept {
  const std::scoped_lock lock(mutex_);
  all_.emplace_back(what);
}

std::vector<std::string> Hazards::all() const {
  const std::scoped_lock lock(mutex_);
  return all_;
}

std::string without_password(const std::string& address) {
  const std::size_t scheme = address.find("://");
  const std::size_t at = address.rfind('@');
  if (scheme == std::string::npos || at == std::string::npos) return address;
  const std::size_t begin = scheme + 3;
  const std::size_t colon = address.find(':', begin);
  if (at < begin || colon == std::string::npos || colon > at) return address;
  return address.substr(0, colon + 1) + "***" + address.substr(at);
}

SchemaKind schema_of(const std::string& address) {
  if (address.starts_with("sqlite:")) return SchemaKind::sqlite;
  if (address.starts_with("mysql://")) return SchemaKind::mysql;
  return SchemaKind::none;
}

#ifdef IDEMPOTENCYCTL_SQLITE
namespace {

std::string prefix_of(const Settings& settings) {
  return settings.table_prefix.empty() ? idem::SqliteOptions{}.table_prefix : settings.table_prefix;
}

}  // namespace

std::string sqlite_path(const Settings& settings) {
  return idem::SqliteOptions::from_address(settings.store).path;
}

int sqlite_schema_version(const Settings& settings) {
  const std::string path = sqlite_path(settings);
  if (!std::filesystem::exists(path)) {
    throw Ending(Exit::usage, "there is no file " + printable(path));
  }
  sqlite3* opened = nullptr;
  const int code = sqlite3_open_v2(path.c_str(), &opened, SQLITE_OPEN_READONLY, nullptr);
  const std::unique_ptr<sqlite3, int (*)(sqlite3*)> connection(opened, sqlite3_close);
  if (code != SQLITE_OK) throw Ending(Exit::usage, "the file cannot be opened: " + printable(path));
  int version = 0;
  const auto take = [](void* to, int, char** cells, char**) {
    *static_cast<int*>(to) = cells[0] == nullptr ? 0 : std::atoi(cells[0]);
    return 0;
  };
  const std::string sql =
      "SELECT version FROM \"" + prefix_of(settings) + "schema\" WHERE part = 'record'";
  const int answer = sqlite3_exec(connection.get(), sql.c_str(), take, &version, nullptr);
  if (answer == SQLITE_NOTADB) {
    throw Ending(Exit::usage, "the file is no SQLite database: " + printable(path));
  }
  return version;
}
#else
std::string sqlite_path(const Settings& /*settings*/) { return {}; }
int sqlite_schema_version(const Settings& /*settings*/) { return 0; }
#endif

namespace {

idem::Timestamp host_now() { return idem::system_clock().now(); }

#ifdef IDEMPOTENCYCTL_REDIS
OpenedStore open_redis(const Settings& settings, idem::Observer* observer) {
  idem::RedisOptions options = idem::RedisOptions::from_address(settings.store);
  options.observer = observer;
  auto store = std::make_shared<idem::RedisStore>(options);
  const auto now = [behind = store.get()] {
    static const idem::RedisScript ask{
        "local t = redis.call('TIME') return t[1] * 1000 + math.floor(t[2] / 1000)"};
    const idem::RedisReply reply =
        behind->run_script(ask, {}, {}, {.effect = idem::RedisScriptEffect::reads});
    return idem::Timestamp{std::chrono::milliseconds{reply.integer()}};
  };
  return {std::move(store), now};
}
#endif

#ifdef IDEMPOTENCYCTL_MYSQL
OpenedStore open_mysql(const Settings& settings, idem::Observer* observer,
                       OnMissingSchema missing) {
  idem::MySqlOptions options = idem::MySqlOptions::from_address(settings.store);
  options.observer = observer;
  options.schema =
      missing == OnMissingSchema::make ? idem::MySqlSchema::create : idem::MySqlSchema::expect;
  if (!settings.table_prefix.empty()) options.table_prefix = settings.table_prefix;
  auto store = std::make_shared<idem::MySqlStore>(options);
  const auto now = [behind = store.get()] {
    idem::MySqlTransaction transaction = behind->open_transaction();
    const idem::SqlRows rows = transaction.query(
        "SELECT TIMESTAMPDIFF(MICROSECOND, DATE'1970-01-01', UTC_TIMESTAMP(3)) DIV 1000");
    const auto time = rows.at(0).as<std::int64_t>(0);
    behind->rollback(transaction);
    return idem::Timestamp{std::chrono::milliseconds{time}};
  };
  return {std::move(store), now};
}
#endif

}  // namespace

OpenedStore open(const Settings& settings, idem::Observer* observer, OnMissingSchema missing) {
  if (settings.store.empty()) {
    throw Ending(Exit::usage,
                 "which store? --store ADDRESS, or IDEMPOTENCY_STORE in the environment");
  }
#ifdef IDEMPOTENCYCTL_SQLITE
  if (settings.store.starts_with("sqlite:")) {
    if (missing != OnMissingSchema::make && sqlite_schema_version(settings) == 0) {
      throw Ending(Exit::usage, "the file holds no records: `schema migrate` makes the tables");
    }
    idem::SqliteOptions options = idem::SqliteOptions::from_address(settings.store);
    options.observer = observer;
    options.table_prefix = prefix_of(settings);
    return {std::make_shared<idem::SqliteStore>(options), host_now};
  }
#endif
#ifdef IDEMPOTENCYCTL_MYSQL
  if (settings.store.starts_with("mysql://")) return open_mysql(settings, observer, missing);
#endif
#ifdef IDEMPOTENCYCTL_REDIS
  for (const char* scheme : {"redis://", "rediss://", "unix://"})
    if (settings.store.starts_with(scheme)) return open_redis(settings, observer);
#endif
  if (settings.store == "memory:") {
    throw Ending(Exit::usage, "a store in memory belongs to its process: there is none to look at");
  }
  static_cast<void>(missing);
  std::string schemes;
  for (const std::string& scheme : idem::openable_schemes())
    if (scheme != "memory:") schemes += (schemes.empty() ? "" : ", ") + scheme;
  throw Ending(Exit::usage, "no store of this build opens '" +
                                printable(settings.store.substr(0, settings.store.find(':'))) +
                                ":': the address must begin with one of: " + schemes);
}

}  // namespace idempotencyctl
