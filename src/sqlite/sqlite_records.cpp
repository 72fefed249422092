#include "sqlite/sqlite_records.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

namespace idempotency {
inline namespace v0 {
namespace detail::sqlite {

namespace {

using std::chrono::milliseconds;

[[noreturn]] void throw_corrupt(const char* column) {
  throw Error(Errc::store_corrupt,
              "a stored record cannot be read; look at it with an operator's tool",
              std::string("column ") + column);
}

template <class Enum>
Enum to_enum(std::int64_t number, std::int64_t largest, const char* column) {
  if (number < 1 || number > largest) throw_corrupt(column);
  return static_cast<Enum>(number);
}

Timestamp to_time(std::int64_t number) noexcept { return Timestamp{milliseconds{number}}; }

OwnerToken to_owner(std::string_view bytes) {
  OwnerToken::Bytes owner{};
  if (bytes.size() != owner.size()) throw_corrupt("owner");
  std::copy(bytes.begin(), bytes.end(), owner.begin());
  return OwnerToken(owner);
}

std::optional<Fingerprint::Part> to_fingerprint(std::string_view bytes) {
  if (bytes.empty()) return std::nullopt;
  Fingerprint::Part part;
  if (bytes.size() != part.digest.size() + 1) throw_corrupt("fingerprint");
  part.scheme = static_cast<std::uint8_t>(bytes.front());
  std::copy(bytes.begin() + 1, bytes.end(), part.digest.begin());
  return part;
}

constexpr std::size_t fingerprint_bytes = sizeof(Fingerprint::Digest) + 1;

std::string_view as_bytes(const std::optional<Fingerprint::Part>& fingerprint,
                          std::array<char, fingerprint_bytes>& buffer) noexcept {
  if (!fingerprint) return {};
  buffer.front() = static_cast<char>(fingerprint->scheme);
  std::copy(fingerprint->digest.begin(), fingerprint->digest.end(), buffer.begin() + 1);
  return {buffer.data(), buffer.size()};
}

std::string_view as_bytes(const OwnerToken& owner) noexcept {
  return {reinterpret_cast<const char*>(owner.bytes().data()), owner.bytes().size()};
}

void bind_key(Statement::Use& use, const Key& key) {
  use.bind_text(1, key.type());
  use.bind_blob(2, key.value());
}

constexpr const char* of_key = " WHERE type = ?1 AND value = ?2";

}  // namespace

const std::string& row_columns() {
  static const std::string columns =
      "state, mode, effect_marked, owner, fence, attempt, fingerprint, created_at, updated_at, "
      "lease_until, expires_at, retryability, reason, trace, result";
  return columns;
}

std::optional<std::int64_t> to_column(Timestamp time) noexcept {
  if (time == never) return std::nullopt;
  return time.time_since_epoch().count();
}

Row read_row(const Statement::Use& use, int first) {
  Row row;
  RecordFacts& facts = row.facts;
  facts.state = to_enum<RecordState>(use.integer(first), 5, "state");
  facts.mode = to_enum<RecordMode>(use.integer(first + 1), 2, "mode");
  facts.effect_marked = use.integer(first + 2) != 0;
  facts.ownership.owner = to_owner(use.bytes(first + 3));
  facts.ownership.fence = static_cast<std::uint64_t>(use.integer(first + 4));
  row.attempt = static_cast<std::uint32_t>(use.integer(first + 5));
  facts.fingerprint = to_fingerprint(use.bytes(first + 6));
  row.facts.created_at = to_time(use.integer(first + 7));
  row.updated_at = to_time(use.integer(first + 8));
  if (!use.is_null(first + 9)) facts.lease_until = to_time(use.integer(first + 9));
  if (!use.is_null(first + 10)) facts.expires_at = to_time(use.integer(first + 10));
  if (facts.state == RecordState::failed) {
    facts.retryability = to_enum<Retryability>(use.integer(first + 11), 2, "retryability");
  }
  row.reason = use.bytes(first + 12);
  row.trace = use.bytes(first + 13);
  if (!use.is_null(first + 14)) row.result.emplace(use.bytes(first + 14));
  return row;
}

Records::Records(sqlite3* database, const std::string& table)
    : select_(database, "SELECT " + row_columns() + " FROM " + table + of_key),
      select_success_(database, "SELECT owner, fence, fingerprint, expires_at, result FROM " +
                                    table + of_key + " AND state = 2"),
      replace_(database, "INSERT OR REPLACE INTO " + table + " (type, value, " + row_columns() +
                             ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, "
                             "?14, ?15, ?16, ?17)"),
      delete_(database, "DELETE FROM " + table + of_key),
      lock_(database, "DELETE FROM " + table + " WHERE 0") {}

std::optional<Row> Records::load(const Key& key) {
  Statement::Use use = select_.use();
  bind_key(use, key);
  if (!use.step()) return std::nullopt;
  return read_row(use, 0);
}

void Records::save(const Key& key, const Row& row) {
  const RecordFacts& facts = row.facts;
  std::array<char, fingerprint_bytes> fingerprint{};
  Statement::Use use = replace_.use();
  bind_key(use, key);
  use.bind(3, static_cast<std::int64_t>(facts.state));
  use.bind(4, static_cast<std::int64_t>(facts.mode));
  use.bind(5, std::int64_t{facts.effect_marked ? 1 : 0});
  use.bind_blob(6, as_bytes(facts.ownership.owner));
  use.bind(7, static_cast<std::int64_t>(facts.ownership.fence));
  use.bind(8, std::int64_t{row.attempt});
  use.bind_blob(9, as_bytes(facts.fingerprint, fingerprint));
  use.bind(10, row.facts.created_at.time_since_epoch().count());
  use.bind(11, row.updated_at.time_since_epoch().count());
  use.bind(12, to_column(facts.lease_until));
  use.bind(13, to_column(facts.expires_at));
  use.bind(14, facts.state == RecordState::failed ? static_cast<std::int64_t>(facts.retryability)
                                                  : std::int64_t{0});
  use.bind_blob(15, row.reason);
  use.bind_blob(16, row.trace);
  if (row.result) {
    use.bind_blob(17, *row.result);
  } else {
    use.bind_null(17);
  }
  use.run();
}

bool Records::remove_expired(const Key& key, Timestamp now) {
  const std::optional<Row> row = load(key);
  if (!row || phase_of(row->facts, now) != Phase::absent) return false;
  Statement::Use use = delete_.use();
  bind_key(use, key);
  use.run();
  return true;
}

/// What a replay needs and no more: each column costs, and most reads are replays.
std::optional<Row> Records::load_success(const Key& key) {
  Statement::Use use = select_success_.use();
  bind_key(use, key);
  if (!use.step()) return std::nullopt;
  Row row;
  row.facts.state = RecordState::success;
  row.facts.ownership.owner = to_owner(use.bytes(0));
  row.facts.ownership.fence = static_cast<std::uint64_t>(use.integer(1));
  row.facts.fingerprint = to_fingerprint(use.bytes(2));
  if (!use.is_null(3)) row.facts.expires_at = to_time(use.integer(3));
  if (!use.is_null(4)) row.result.emplace(use.bytes(4));
  return row;
}

std::optional<BeginOutcome> Records::peek(const BeginRequest& request, Timestamp now) {
  std::optional<Row> row = load_success(request.key);
  if (!row) row = load(request.key);
  if (!row && request.admission == Admission::any) return std::nullopt;
  BeginDecision decision = decide_begin(row, request, now);
  if (decision.change == RowChange::changed) return std::nullopt;
  return std::move(decision.outcome);
}

BeginOutcome Records::begin(const BeginRequest& request, Timestamp now) {
  std::optional<Row> row = load(request.key);
  BeginDecision decision = decide_begin(row, request, now);
  if (decision.change == RowChange::changed) save(request.key, *row);
  return std::move(decision.outcome);
}

void Records::lock() { lock_.use().run(); }

}  // namespace detail::sqlite
}  // namespace v0
}  // namespace idempotency
