#include "idempotency/patterns/sql_sagas.hpp"

#include <algorithm>

#include "idempotency/detail/sql_names.hpp"
#include "idempotency/error.hpp"

namespace idempotency {
inline namespace v0 {

namespace {

constexpr std::string_view named = " WHERE definition = ? AND id = ?";
constexpr std::string_view first_columns =
    "definition, id, plan, steps, input, state, step, attempts, known_runs, note, owner, fence, "
    "claims, created_at, updated_at, due_at";

[[noreturn]] void throw_unreadable() {
  throw Error(Errc::store_corrupt,
              "a saga's row cannot be read: was it written by a newer version, or by hand?");
}

SagaState state_of(int stored) {
  if (stored < static_cast<int>(SagaState::running) ||
      stored > static_cast<int>(SagaState::parked_compensating)) {
    throw_unreadable();
  }
  return static_cast<SagaState>(stored);
}

Timestamp time_of(const SqlValue& value) {
  return Timestamp{std::chrono::milliseconds{value.as<std::int64_t>()}};
}

OwnerToken owner_of(const SqlValue& value) {
  const std::string bytes = value.as<SqlBlob>().bytes;
  OwnerToken::Bytes owner{};
  if (bytes.size() != owner.size()) throw_unreadable();
  std::transform(bytes.begin(), bytes.end(), owner.begin(),
                 [](char byte) { return static_cast<std::uint8_t>(byte); });
  return OwnerToken(owner);
}

/// SQLite names the database of an index before the index, and not before the table.
std::string index_on(std::string_view table) {
  const std::size_t dot = table.find('.');
  const std::string name(dot == std::string_view::npos ? table : table.substr(dot + 1));
  const std::string database(table.substr(0, table.size() - name.size()));
  return "CREATE INDEX IF NOT EXISTS " + detail::quoted_table(database + name + "_due") + " ON " +
         detail::quoted_column(name) + " (definition, plan, due_at)";
}

}  // namespace

namespace detail {

SagaStatements::SagaStatements(const SqlSagasOptions& options)
    : table_(quoted_table(options.table)),
      audit_table_(quoted_table(options.audit_table)),
      history_("SELECT decision, state, step, attempts, known_runs, who, why, at FROM " +
               audit_table_ + std::string(named) + " ORDER BY serial") {}

std::string SagaStatements::insert(SqlDialect dialect) const {
  const std::string now(now_milliseconds(dialect));
  return "INSERT INTO " + table_ + " (" + std::string(first_columns) +
         ") VALUES (?, ?, ?, ?, ?, 1, 0, 0, 0, ?, ?, 1, 0, " + now + ", " + now + ", " + now +
         " + ?)" +
         (dialect == SqlDialect::sqlite ? " ON CONFLICT DO NOTHING"
                                        : " ON DUPLICATE KEY UPDATE state = state");
}

std::string SagaStatements::select(SqlDialect dialect) const {
  return "SELECT " + std::string(first_columns) + ", " + std::string(now_milliseconds(dialect)) +
         " FROM " + table_;
}

std::string SagaStatements::look(SqlDialect dialect) const {
  return select(dialect) + std::string(named);
}

std::string SagaStatements::due(SqlDialect dialect) const {
  return "SELECT id FROM " + table_ + " WHERE definition = ? AND plan = ? AND due_at <= " +
         std::string(now_milliseconds(dialect)) +
         " AND state IN (1, 2, 5, 6) ORDER BY due_at LIMIT ?";
}

std::string SagaStatements::take(SqlDialect dialect) const {
  const std::string now(now_milliseconds(dialect));
  return "UPDATE " + table_ +
         " SET owner = ?, fence = fence + 1, claims = claims + 1, due_at = " + now + " + ?" +
         std::string(named) + " AND plan = ? AND due_at <= " + now;
}

std::string SagaStatements::move(SqlDialect dialect) const {
  const std::string now(now_milliseconds(dialect));
  return "UPDATE " + table_ +
         " SET owner = ?, state = ?, step = ?, attempts = ?, known_runs = ?, note = ?, "
         "fence = fence + 1, claims = 0, updated_at = " +
         now + ", due_at = " + now + " + ?" + std::string(named) + " AND fence = ?";
}

std::string SagaStatements::parked(SqlDialect dialect) const {
  return select(dialect) +
         " WHERE definition = ? AND state IN (5, 6) AND id > ? ORDER BY id LIMIT ?";
}

std::string SagaStatements::clean(SqlDialect dialect) const {
  const std::string condition = " WHERE definition = ? AND state IN (3, 4) AND updated_at <= " +
                                std::string(now_milliseconds(dialect)) + " - ?";
  if (dialect == SqlDialect::sqlite) {
    return "DELETE FROM " + table_ + " WHERE rowid IN (SELECT rowid FROM " + table_ + condition +
           " LIMIT ?)";
  }
  return "DELETE FROM " + table_ + condition + " LIMIT ?";
}

std::string SagaStatements::remember(SqlDialect dialect) const {
  return "INSERT INTO " + audit_table_ +
         " (definition, id, decision, state, step, attempts, known_runs, who, why, at) VALUES "
         "(?, ?, ?, ?, ?, ?, ?, ?, ?, " +
         std::string(now_milliseconds(dialect)) + ')';
}

SagaRow saga_row(const SqlRow& row) {
  SagaRow saga;
  std::size_t at = 0;
  saga.name.definition = row.as<SqlBlob>(at++).bytes;
  saga.name.id = row.as<SqlBlob>(at++).bytes;
  saga.plan = row.as<SqlBlob>(at++).bytes;
  saga.steps = row.as<std::uint32_t>(at++);
  saga.input = row.as<SqlBlob>(at++).bytes;
  saga.progress.state = state_of(row.as<int>(at++));
  saga.progress.step = row.as<std::uint32_t>(at++);
  saga.progress.attempts = row.as<std::uint32_t>(at++);
  saga.progress.known_runs = row.as<std::uint32_t>(at++);
  saga.note = row.as<SqlBlob>(at++).bytes;
  saga.claim.owner = owner_of(row.at(at++));
  saga.claim.fence = row.as<std::uint64_t>(at++);
  saga.claims = row.as<std::uint32_t>(at++);
  saga.created_at = time_of(row.at(at++));
  saga.updated_at = time_of(row.at(at++));
  if (!row.at(at).is_null()) saga.due_at = time_of(row.at(at));
  ++at;
  saga.read_at = time_of(row.at(at));
  return saga;
}

SagaAudit saga_audit(const SqlRow& row) {
  SagaAudit line;
  const int decision = row.as<int>(std::size_t{0});
  if (decision < static_cast<int>(SagaDecision::resume) ||
      decision > static_cast<int>(SagaDecision::give_up)) {
    throw_unreadable();
  }
  std::size_t at = 0;
  line.decision = static_cast<SagaDecision>(row.as<int>(at++));
  line.about.state = state_of(row.as<int>(at++));
  line.about.step = row.as<std::uint32_t>(at++);
  line.about.attempts = row.as<std::uint32_t>(at++);
  line.about.known_runs = row.as<std::uint32_t>(at++);
  line.who = row.as<SqlBlob>(at++).bytes;
  line.why = row.as<SqlBlob>(at++).bytes;
  line.at = time_of(row.at(at));
  return line;
}

std::string_view bytes_of(const OwnerToken& owner) noexcept {
  return {reinterpret_cast<const char*>(owner.bytes().data()), owner.bytes().size()};
}

}  // namespace detail

std::vector<std::string> saga_schema(const SqlSagasOptions& options, SqlDialect dialect) {
  const std::string table = "CREATE TABLE IF NOT EXISTS " + detail::quoted_table(options.table);
  const std::string audit =
      "CREATE TABLE IF NOT EXISTS " + detail::quoted_table(options.audit_table);
  if (dialect == SqlDialect::sqlite) {
    return {table +
                " (definition BLOB NOT NULL, id BLOB NOT NULL, plan BLOB NOT NULL, "
                "steps INTEGER NOT NULL, input BLOB NOT NULL, state INTEGER NOT NULL, "
                "step INTEGER NOT NULL, attempts INTEGER NOT NULL, known_runs INTEGER NOT NULL, "
                "note BLOB NOT NULL, owner BLOB NOT NULL, fence INTEGER NOT NULL, "
                "claims INTEGER NOT NULL, created_at INTEGER NOT NULL, updated_at INTEGER NOT "
                "NULL, due_at INTEGER, "
                "PRIMARY KEY (definition, id))",
            index_on(options.table),
            audit +
                " (serial INTEGER PRIMARY KEY AUTOINCREMENT, definition BLOB NOT NULL, "
                "id BLOB NOT NULL, decision INTEGER NOT NULL, state INTEGER NOT NULL, "
                "step INTEGER NOT NULL, attempts INTEGER NOT NULL, known_runs INTEGER NOT NULL, "
                "who BLOB NOT NULL, why BLOB NOT NULL, at INTEGER NOT NULL)"};
  }
  return {table +
              " (definition VARBINARY(64) NOT NULL, id VARBINARY(128) NOT NULL, "
              "plan VARBINARY(64) NOT NULL, steps INT UNSIGNED NOT NULL, "
              "input MEDIUMBLOB NOT NULL, state TINYINT UNSIGNED NOT NULL, "
              "step INT UNSIGNED NOT NULL, attempts INT UNSIGNED NOT NULL, "
              "known_runs INT UNSIGNED NOT NULL, note VARBINARY(1024) NOT NULL, "
              "owner BINARY(16) NOT NULL, fence BIGINT UNSIGNED NOT NULL, "
              "claims INT UNSIGNED NOT NULL, "
              "created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL, due_at BIGINT NULL, "
              "PRIMARY KEY (definition, id), KEY due (definition, plan, due_at), "
              "KEY ended (definition, state, updated_at)) ENGINE = InnoDB",
          audit +
              " (serial BIGINT AUTO_INCREMENT PRIMARY KEY, definition VARBINARY(64) NOT NULL, "
              "id VARBINARY(128) NOT NULL, decision TINYINT UNSIGNED NOT NULL, "
              "state TINYINT UNSIGNED NOT NULL, step INT UNSIGNED NOT NULL, "
              "attempts INT UNSIGNED NOT NULL, known_runs INT UNSIGNED NOT NULL, "
              "who VARBINARY(255) NOT NULL, why VARBINARY(1024) NOT NULL, at BIGINT NOT NULL, "
              "KEY saga (definition, id)) ENGINE = InnoDB"};
}

}  // namespace v0
}  // namespace idempotency
