#include "sqlite/sqlite_schema.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace idempotency {
inline namespace v0 {
namespace detail::sqlite {

namespace {

// Equal to schema/sqlite.sql, where the default prefix stands for PREFIX.
constexpr std::string_view version_1 =
    R"sql(-- The tables of SqliteStore, version 1. Times are UTC milliseconds since 1970.

CREATE TABLE "PREFIXschema" (
  part TEXT NOT NULL PRIMARY KEY,
  version INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE "PREFIXrecord" (
  type TEXT NOT NULL,
  value BLOB NOT NULL,             -- compared byte by byte
  state INTEGER NOT NULL,          -- 1 processing, 2 success, 3 failed, 4 uncertain, 5 issued
  mode INTEGER NOT NULL,           -- when a lease runs out: 1 take_over, 2 hold
  effect_marked INTEGER NOT NULL,  -- 1: treated as hold from now on
  owner BLOB NOT NULL,             -- 16 bytes
  fence INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  fingerprint BLOB NOT NULL,       -- scheme and digest, 33 bytes; empty: none
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  lease_until INTEGER,             -- processing only; NULL: never stealable
  expires_at INTEGER,              -- finished only; NULL: never
  retryability INTEGER NOT NULL,   -- failed only: 1 retryable, 2 permanent; else 0
  reason BLOB NOT NULL,            -- failed only
  trace BLOB NOT NULL,
  result BLOB,                     -- encoded; NULL: none was kept
  PRIMARY KEY (type, value)
) STRICT, WITHOUT ROWID;

-- What operators look for. Rows enter it only when they become uncertain.
CREATE INDEX "PREFIXuncertain" ON "PREFIXrecord" (type, value) WHERE state = 4;

INSERT INTO "PREFIXschema" (part, version) VALUES ('record', 1);
)sql";

std::string with_prefix(std::string_view sql, std::string_view prefix) {
  constexpr std::string_view placeholder = "PREFIX";
  std::string text(sql);
  for (std::size_t at = text.find(placeholder); at != std::string::npos;
       at = text.find(placeholder, at + prefix.size())) {
    text.replace(at, placeholder.size(), prefix);
  }
  return text;
}

std::string record_name(std::string_view prefix) { return std::string(prefix) + "record"; }
std::string schema_name(std::string_view prefix) { return std::string(prefix) + "schema"; }

[[noreturn]] void refuse(std::string message, std::string detail = {}) {
  throw Error(Errc::store_refused, "sqlite store, checking the schema: " + std::move(message),
              std::move(detail));
}

struct TableKind {
  std::string type;  ///< table, view, virtual
  bool without_rowid = false;
  bool strict = false;
};

std::optional<TableKind> find_table(Connection& connection, const std::string& name) {
  Statement statement(connection.handle(),
                      "SELECT type, wr, strict FROM pragma_table_list "
                      "WHERE schema = 'main' AND name = ?1 COLLATE NOCASE");
  Statement::Use use = statement.use();
  use.bind_text(1, name);
  if (!use.step()) return std::nullopt;
  return TableKind{std::string(use.text(0)), use.integer(1) != 0, use.integer(2) != 0};
}

std::vector<Column> columns_of(Connection& connection, const std::string& name) {
  Statement statement(connection.handle(),
                      "SELECT name, type, \"notnull\", pk FROM pragma_table_xinfo(?1, 'main') "
                      "ORDER BY cid");
  Statement::Use use = statement.use();
  use.bind_text(1, name);
  std::vector<Column> columns;
  while (use.step()) {
    columns.push_back(Column{std::string(use.text(0)), std::string(use.text(1)),
                             use.integer(2) != 0, static_cast<int>(use.integer(3))});
  }
  return columns;
}

void check_shape(Connection& connection, const SchemaPlan& plan, const std::string& name) {
  constexpr const char* remedy = "; choose another table_prefix, or move that table away";
  const std::optional<TableKind> kind = find_table(connection, name);
  if (!kind) refuse("the table of records is missing although its version is recorded");
  const std::vector<Column> found = columns_of(connection, name);
  for (const Column& wanted : plan.columns) {
    const auto same_name = [&](const Column& column) { return column.name == wanted.name; };
    const auto column = std::find_if(found.begin(), found.end(), same_name);
    if (column == found.end()) {
      refuse("the table of records has no column '" + wanted.name + "'" + remedy, name);
    }
    if (*column != wanted) {
      refuse("column '" + wanted.name +
                 "' of the table of records differs in type, NOT NULL or "
                 "place in the primary key" +
                 remedy,
             name);
    }
  }
  if (found.size() != plan.columns.size()) {
    refuse(std::string("the table of records has columns that this version does not know") + remedy,
           name);
  }
  if (kind->type != "table" || !kind->without_rowid || !kind->strict) {
    refuse(std::string("the table of records is not a STRICT, WITHOUT ROWID table") + remedy, name);
  }
}

/// The recorded version; nothing when there is none.
std::optional<int> version_of(Connection& connection, std::string_view prefix) {
  const std::string name = schema_name(prefix);
  if (!find_table(connection, name)) return std::nullopt;
  const std::vector<Column> wanted{{"part", "TEXT", true, 1}, {"version", "INTEGER", true, 0}};
  if (columns_of(connection, name) != wanted) {
    refuse("the table of versions was made by others; choose another table_prefix", name);
  }
  const std::string version =
      connection.ask("SELECT version FROM " + schema_table(prefix) + " WHERE part = 'record'");
  if (version.empty()) refuse("the table of versions is empty; choose another table_prefix", name);
  return std::stoi(version);
}

void refuse_newer(int found, const SchemaPlan& plan) {
  if (found <= plan.version) return;
  refuse("the tables are of version " + std::to_string(found) + " and this library knows up to " +
         std::to_string(plan.version) + "; use a newer library");
}

void migrate(Connection& connection, const SchemaPlan& plan, std::string_view prefix, int from) {
  for (int version = from; version < plan.version; ++version) {
    const auto step =
        std::find_if(plan.migrations.begin(), plan.migrations.end(),
                     [&](const Migration& migration) { return migration.from == version; });
    if (step == plan.migrations.end()) {
      refuse("there is no way up from version " + std::to_string(version));
    }
    connection.run(step->statements(prefix));
  }
  connection.run("UPDATE " + schema_table(prefix) +
                 " SET version = " + std::to_string(plan.version) + " WHERE part = 'record'");
}

void bring_up(Connection& connection, const SchemaPlan& plan, std::string_view prefix) {
  const std::optional<int> version = version_of(connection, prefix);
  if (version) {
    refuse_newer(*version, plan);
    migrate(connection, plan, prefix, *version);
  } else if (find_table(connection, record_name(prefix))) {
    refuse(
        "a table with the name of the table of records was made by others; choose another "
        "table_prefix",
        record_name(prefix));
  } else {
    connection.run(plan.create(prefix));
  }
  check_shape(connection, plan, record_name(prefix));
}

}  // namespace

const SchemaPlan& current_schema() {
  static const SchemaPlan plan{
      .version = 1,
      .create = [](std::string_view prefix) { return with_prefix(version_1, prefix); },
      .migrations = {},
      .columns = {{"type", "TEXT", true, 1},
                  {"value", "BLOB", true, 2},
                  {"state", "INTEGER"},
                  {"mode", "INTEGER"},
                  {"effect_marked", "INTEGER"},
                  {"owner", "BLOB"},
                  {"fence", "INTEGER"},
                  {"attempt", "INTEGER"},
                  {"fingerprint", "BLOB"},
                  {"created_at", "INTEGER"},
                  {"updated_at", "INTEGER"},
                  {"lease_until", "INTEGER", false},
                  {"expires_at", "INTEGER", false},
                  {"retryability", "INTEGER"},
                  {"reason", "BLOB"},
                  {"trace", "BLOB"},
                  {"result", "BLOB", false}}};
  return plan;
}

std::string record_table(std::string_view prefix) { return quoted_name(record_name(prefix)); }
std::string schema_table(std::string_view prefix) { return quoted_name(schema_name(prefix)); }

void prepare_schema(Connection& connection, const SchemaPlan& plan, std::string_view prefix) {
  const std::optional<int> version = version_of(connection, prefix);
  if (version == plan.version) {
    check_shape(connection, plan, record_name(prefix));
    return;
  }
  if (version) refuse_newer(*version, plan);
  connection.run("BEGIN IMMEDIATE");  // another process may be at the same
  try {
    bring_up(connection, plan, prefix);
    connection.run("COMMIT");
  } catch (...) {
    if (connection.in_transaction()) connection.run("ROLLBACK");
    throw;
  }
}

}  // namespace detail::sqlite
}  // namespace v0
}  // namespace idempotency
