#include "mysql/mysql_schema.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "mysql/mysql_row.hpp"
#include "mysql/mysql_statements.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail::mysql {

namespace {

// Equal to schema/mysql.sql, where the default name stands for TABLE_NAME.
constexpr std::string_view create_table = R"sql(CREATE TABLE IF NOT EXISTS TABLE_NAME (
  business_type VARBINARY(64) NOT NULL,
  value VARBINARY(255) NOT NULL,            -- compared byte by byte
  state TINYINT UNSIGNED NOT NULL,          -- 1 processing, 2 success, 3 failed, 4 uncertain, 5 issued
  mode TINYINT UNSIGNED NOT NULL,           -- when a lease runs out: 1 take_over, 2 hold
  effect_marked TINYINT UNSIGNED NOT NULL,  -- 1: treated as hold from now on
  retryability TINYINT UNSIGNED NOT NULL,   -- failed only: 1 retryable, 2 permanent; else 0
  owner BINARY(16) NOT NULL,
  fence BIGINT UNSIGNED NOT NULL,
  attempt INT UNSIGNED NOT NULL,
  fingerprint VARBINARY(33) NULL,           -- scheme and digest; NULL: none
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  lease_until BIGINT NULL,                  -- processing only; NULL: never stealable
  expires_at BIGINT NULL,                   -- finished only; NULL: never
  reason BLOB NULL,                         -- failed only
  trace BLOB NULL,
  result LONGBLOB NULL,                     -- encoded; NULL: none was kept
  PRIMARY KEY (business_type, value)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC COMMENT = 'idempotency records, version 1')sql";

struct Column {
  std::string_view name;
  std::string_view type;
  bool may_be_null = false;
};

constexpr std::array columns{
    Column{"business_type", "varbinary(64)"},
    Column{"value", "varbinary(255)"},
    Column{"state", "tinyint unsigned"},
    Column{"mode", "tinyint unsigned"},
    Column{"effect_marked", "tinyint unsigned"},
    Column{"retryability", "tinyint unsigned"},
    Column{"owner", "binary(16)"},
    Column{"fence", "bigint unsigned"},
    Column{"attempt", "int unsigned"},
    Column{"fingerprint", "varbinary(33)", true},
    Column{"created_at", "bigint"},
    Column{"updated_at", "bigint"},
    Column{"lease_until", "bigint", true},
    Column{"expires_at", "bigint", true},
    Column{"reason", "blob", true},
    Column{"trace", "blob", true},
    Column{"result", "longblob", true},
};

/// "column 'NAME' of the table of records" and what is wrong with it.
std::string of_column(const std::string& name, std::string_view what) {
  std::string text = "column '";
  text += name;
  text += "' of the table of records ";
  text += what;
  text += "; choose another table_prefix, or move that table away";
  return text;
}

[[noreturn]] void refuse(const std::string& message, std::string_view table) {
  throw Error(Errc::store_refused, "mysql store, checking the schema: " + message,
              std::string(table));
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return text;
}

/// "bigint(20) unsigned" and "bigint unsigned" are the same; MySQL 8 shows no display width.
std::string without_width(std::string type) {
  type = lower(std::move(type));
  if (type.find("int") == std::string::npos) return type;
  const std::size_t open = type.find('(');
  const std::size_t close = type.find(')');
  if (open == std::string::npos || close == std::string::npos) return type;
  return type.erase(open, close - open + 1);
}

Reply ask(Connection& connection, std::string_view sql, std::string_view database,
          std::string_view table) {
  const std::array<Parameter, 2> parameters{Parameter{database}, Parameter{table}};
  return connection.execute(sql, parameters, Stage::read);
}

/// False when the table is not there.
bool check_table(Connection& connection, std::string_view database, std::string_view table) {
  Reply found = ask(connection,
                    "SELECT engine, table_comment, table_type FROM information_schema.tables "
                    "WHERE table_schema = ? AND table_name = ?",
                    database, table);
  if (found.rows.empty()) return false;
  Cells& cells = found.rows.front();
  if (lower(take_bytes(cells[2], "type")) != "base table") {
    refuse(
        "the name of the table of records is that of a view; drop it, or choose another "
        "table_prefix",
        table);
  }
  if (lower(take_bytes(cells[0], "engine")) != "innodb") {
    refuse(
        "the table of records is not an InnoDB table, so that what is acknowledged can be lost; "
        "convert it with ALTER TABLE ... ENGINE = InnoDB",
        table);
  }
  const std::string comment = take_bytes(cells[1], "comment");
  constexpr std::string_view mark = "idempotency records, version ";
  if (comment.starts_with(mark) && comment.substr(mark.size()) != "1") {
    refuse("the table is of version " + comment.substr(mark.size()) +
               " and this library knows up to 1; use a newer library",
           table);
  }
  return true;
}

void check_columns(Connection& connection, std::string_view database, std::string_view table) {
  Reply found = ask(connection,
                    "SELECT column_name, column_type, is_nullable, extra, column_default "
                    "FROM information_schema.columns "
                    "WHERE table_schema = ? AND table_name = ? ORDER BY ordinal_position",
                    database, table);
  for (const Column& wanted : columns) {
    const auto row = std::find_if(found.rows.begin(), found.rows.end(), [&](Cells& cells) {
      std::string name = take_bytes(cells[0], "name");
      const bool same = lower(name) == wanted.name;
      cells[0] = std::move(name);
      return same;
    });
    const std::string name(wanted.name);
    if (row == found.rows.end()) refuse(of_column(name, "is missing"), table);
    const std::string type = without_width(take_bytes((*row)[1], "type"));
    if (type != wanted.type) {
      std::string difference = "is " + type + " and not ";
      difference += wanted.type;
      refuse(of_column(name, difference), table);
    }
    if ((lower(take_bytes((*row)[2], "nullable")) == "yes") != wanted.may_be_null) {
      refuse(of_column(name, wanted.may_be_null ? "must allow NULL" : "must be NOT NULL"), table);
    }
    if (const std::string extra = lower(take_bytes((*row)[3], "extra")); !extra.empty()) {
      refuse(of_column(name, "is " + extra), table);
    }
  }
  for (Cells& cells : found.rows) {  // others are welcome as long as an INSERT need not name them
    const std::string name = lower(take_bytes(cells[0], "name"));
    const bool ours = std::any_of(columns.begin(), columns.end(),
                                  [&](const Column& column) { return column.name == name; });
    if (ours || std::holds_alternative<std::string>(cells[4])) continue;
    if (lower(take_bytes(cells[2], "nullable")) == "no" &&
        std::holds_alternative<std::monostate>(cells[4]) &&
        lower(take_bytes(cells[3], "extra")).find("generated") == std::string::npos) {
      refuse(of_column(name, "is unknown and has no default"), table);
    }
  }
}

void check_keys(Connection& connection, std::string_view database, std::string_view table) {
  Reply found = ask(connection,
                    "SELECT index_name, column_name, sub_part FROM information_schema.statistics "
                    "WHERE table_schema = ? AND table_name = ? AND non_unique = 0 "
                    "ORDER BY index_name, seq_in_index",
                    database, table);
  std::vector<std::string> primary;
  for (Cells& cells : found.rows) {
    if (lower(take_bytes(cells[0], "index")) != "primary") {
      refuse("the table of records has a second unique key; drop it", table);
    }
    if (!std::holds_alternative<std::monostate>(cells[2])) {
      refuse("the primary key of the table of records holds only a part of a column", table);
    }
    primary.push_back(lower(take_bytes(cells[1], "column")));
  }
  if (primary != std::vector<std::string>{"business_type", "value"}) {
    refuse("the primary key of the table of records is not (business_type, value)", table);
  }
}

/// What a trigger does to a row, or to the rest of the transaction, the store cannot know.
void check_triggers(Connection& connection, std::string_view database, std::string_view table) {
  Reply found =
      ask(connection,
          "SELECT trigger_name, action_timing, event_manipulation "
          "FROM information_schema.triggers "
          "WHERE event_object_schema = ? AND event_object_table = ? ORDER BY trigger_name",
          database, table);
  if (found.rows.empty()) return;
  Cells& cells = found.rows.front();
  std::string text = "the table of records has a trigger, '";
  text += take_bytes(cells[0], "name");
  text += "' (";
  text += take_bytes(cells[1], "timing");
  text += ' ';
  text += take_bytes(cells[2], "event");
  text += "), which could change or refuse what is recorded; drop it";
  refuse(text, table);
}

}  // namespace

std::string create_table_statement(std::string_view quoted_table) {
  constexpr std::string_view placeholder = "TABLE_NAME";
  std::string text(create_table);
  return text.replace(text.find(placeholder), placeholder.size(), quoted_table);
}

void prepare_schema(Connection& connection, std::string_view database, std::string_view table,
                    MySqlSchema schema) {
  if (!check_table(connection, database, table)) {
    if (schema == MySqlSchema::expect) {
      refuse(
          "the table of records is missing; make it with `idempotencyctl schema migrate`, "
          "schema/mysql.sql or create_schema()",
          table);
    }
    const std::string name = quoted_table(database, table);
    static_cast<void>(connection.run(create_table_statement(name), Stage::write));
    if (!check_table(connection, database, table)) {
      refuse("the table of records was made and cannot be seen; look at the rights", table);
    }
  }
  check_columns(connection, database, table);
  check_keys(connection, database, table);
  check_triggers(connection, database, table);
}

void report_hazards(Connection& connection, Observer& observer) {
  std::vector<Reply> replies = connection.run(
      "SELECT @@global.sql_mode, @@innodb_flush_log_at_trx_commit, @@global.read_only",
      Stage::read);
  Cells& cells = replies.at(0).rows.at(0);
  const std::string mode = take_bytes(cells[0], "sql_mode");
  if (mode.find("STRICT_TRANS_TABLES") == std::string::npos &&
      mode.find("STRICT_ALL_TABLES") == std::string::npos) {
    observer.on_hazard(
        "the MySQL server's sql_mode is not strict: statements of the application can cut values "
        "silently; add STRICT_TRANS_TABLES to it (the store's own sessions have it)");
  }
  if (to_unsigned(cells[1], "innodb_flush_log_at_trx_commit") != 1) {
    observer.on_hazard(
        "innodb_flush_log_at_trx_commit is not 1: a crash can lose records that were acknowledged, "
        "and their operations then run again; set it to 1");
  }
  if (to_unsigned(cells[2], "read_only") != 0) {
    observer.on_hazard(
        "the MySQL server is read-only, perhaps a replica: no operation can begin; name the "
        "primary server");
  }
}

}  // namespace detail::mysql
}  // namespace v0
}  // namespace idempotency
