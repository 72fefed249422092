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

int sqlite_schema_version(const Settings& settings) {
  const std::string path = idem::SqliteOptions::from_address(settings.store).path;
  if (!std::filesystem::exists(path)) {
    throw Ending(Exit::store, "there is no file " + printable(path));
  }
  sqlite3* opened = nullptr;
  const int code = sqlite3_open_v2(path.c_str(), &opened, SQLITE_OPEN_READONLY, nullptr);
  const std::unique_ptr<sqlite3, int (*)(sqlite3*)> connection(opened, sqlite3_close);
  if (code != SQLITE_OK) throw Ending(Exit::store, "the file cannot be opened: " + printable(path));
  int version = 0;
  const auto take = [](void* to, int, char** cells, char**) {
    *static_cast<int*>(to) = cells[0] == nullptr ? 0 : std::atoi(cells[0]);
    return 0;
  };
  const std::string sql =
      "SELECT version FROM \"" + prefix_of(settings) + "schema\" WHERE part = 'record'";
  const int answer = sqlite3_exec(connection.get(), sql.c_str(), take, &version, nullptr);
  if (answer == SQLITE_NOTADB) {
    throw Ending(Exit::store, "the file is no SQLite database: " + printable(path));
  }
  return version;
}
#else
int sqlite_schema_version(const Settings& /*settings*/) { return 0; }
#endif

std::unique_ptr<idem::AnyStore> open(const Settings& settings, idem::Observer* observer,
                                     OnMissingSchema missing) {
  if (settings.store.empty()) {
    throw Ending(Exit::usage,
                 "which store? --store ADDRESS, or IDEMPOTENCY_STORE in the environment");
  }
  const bool makes = missing == OnMissingSchema::make;
#ifdef IDEMPOTENCYCTL_SQLITE
  if (settings.store.starts_with("sqlite:")) {
    if (!makes && sqlite_schema_version(settings) == 0) {
      throw Ending(Exit::store, "the file holds no records: `schema migrate` makes the tables");
    }
    idem::SqliteOptions options = idem::SqliteOptions::from_address(settings.store);
    options.observer = observer;
    options.table_prefix = prefix_of(settings);
    return std::make_unique<idem::AnyStore>(std::in_place_type<idem::SqliteStore>, options);
  }
#endif
#ifdef IDEMPOTENCYCTL_MYSQL
  if (settings.store.starts_with("mysql://")) {
    idem::MySqlOptions options = idem::MySqlOptions::from_address(settings.store);
    options.observer = observer;
    options.schema = makes ? idem::MySqlSchema::create : idem::MySqlSchema::expect;
    if (!settings.table_prefix.empty()) options.table_prefix = settings.table_prefix;
    return std::make_unique<idem::AnyStore>(std::in_place_type<idem::MySqlStore>, options);
  }
#endif
  static_cast<void>(makes);
  if (settings.store == "memory:") {
    throw Ending(Exit::usage, "a store in memory belongs to its process: there is none to look at");
  }
  return std::unique_ptr<idem::AnyStore>(
      new idem::AnyStore(idem::open_store(settings.store, {.observer = observer})));
}

}  // namespace idempotencyctl
