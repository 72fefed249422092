#include <iostream>

#include "audit.hpp"
#include "commands.hpp"
#include "schema_text.hpp"
#include "store_access.hpp"
#include "text.hpp"

namespace idempotencyctl {

namespace {

constexpr int newest_version = 1;

SchemaKind kind_of(const Settings& settings, const std::string& dialect) {
  if (dialect == "sqlite") return SchemaKind::sqlite;
  if (dialect == "mysql") return SchemaKind::mysql;
  if (!dialect.empty()) throw Ending(Exit::usage, "the dialects are sqlite and mysql");
  if (settings.store.empty()) throw Ending(Exit::usage, "say --dialect, or --store");
  return schema_of(settings.store);
}

Exit tell(const Settings& settings, const std::string& state, int version) {
  if (settings.json) {
    std::cout << line_of({{"schema", state}, {"version", version}}) << std::endl;
  } else {
    std::cout << "schema: " << state << std::endl;
  }
  return Exit::done;
}

}  // namespace

Exit schema_print(const Settings& settings, const std::string& dialect) {
  switch (kind_of(settings, dialect)) {
    case SchemaKind::sqlite:
      std::cout << sqlite_schema << std::flush;
      return Exit::done;
    case SchemaKind::mysql:
      std::cout << mysql_schema << std::flush;
      return Exit::done;
    case SchemaKind::none:
      break;
  }
  std::cerr << "this kind of store needs no schema\n";
  return Exit::done;
}

Exit schema_check(const Settings& settings) {
  if (schema_of(settings.store) == SchemaKind::none) {
    static_cast<void>(open(settings));
    return tell(settings, "none is needed", 0);
  }
  try {
    if (schema_of(settings.store) == SchemaKind::sqlite && sqlite_schema_version(settings) == 0) {
      throw Ending(Exit::hazards, "the file holds no records: `schema migrate` makes the tables");
    }
    static_cast<void>(open(settings));
  } catch (const idem::Error& error) {
    if (error.code() != idem::Errc::store_refused) throw;
    throw Ending(Exit::hazards,
                 std::string(error.what()) +
                     (error.detail().empty() ? "" : ": " + printable(error.detail())));
  }
  return tell(settings, "as it should be", newest_version);
}

Exit schema_migrate(const Settings& settings) {
  if (schema_of(settings.store) == SchemaKind::none) return tell(settings, "none is needed", 0);
  const Audit audit(settings);
  confirm(settings, "Make the tables of records in " + without_password(settings.store) +
                        " where they are not there?");
  Change change{.command = "schema migrate"};
  audit.announce(change);
  try {
    static_cast<void>(open(settings, nullptr, OnMissingSchema::make));
  } catch (const std::exception& problem) {
    change.outcome = std::string("it failed, and may have made a part: ") + problem.what();
    static_cast<void>(audit.write(change));
    throw;
  }
  change.after = Json{{"version", newest_version}};
  change.outcome = "as it should be";
  audit.write_made(change);
  return tell(settings, "as it should be", newest_version);
}

}  // namespace idempotencyctl
