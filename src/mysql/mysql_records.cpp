#include "mysql/mysql_records.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <utility>

namespace idempotency {
inline namespace v0 {
namespace detail::mysql {

namespace {

using std::chrono::milliseconds;

constexpr int most_rounds = 4;
constexpr std::string_view setting = "SET STATEMENT ";
/// Before what is sent on a connection that the application lends: its sql_mode can make NULL of an empty result.
constexpr std::string_view usual_meaning = "SET STATEMENT sql_mode = 'STRICT_TRANS_TABLES' FOR ";
constexpr std::size_t most_blob_bytes = 65'535;

[[noreturn]] void throw_moving() {
  throw Error(Errc::store_busy,
              "mysql store: the record changes faster than it can be judged; repeat the call");
}

void check_blob(std::string_view text, const char* what) {
  if (text.size() <= most_blob_bytes) return;
  throw Error(Errc::too_large, std::string("mysql store: a record's ") + what +
                                   " has at most 65535 bytes; nothing was written");
}

/// Whether `event` would do something to the row as it is; otherwise it has been done before.
bool would_change(const Transition& step, const Row& row, Event event) noexcept {
  if (event == Event::mark_effect) return !row.facts.effect_marked;
  return step.to != phase_of(row.facts, row.now);
}

/// A lease has run out: what comes of it depends on columns that an answer does not have.
bool may_change_hands(const Row& row) noexcept {
  return row.facts.state == RecordState::processing && row.facts.lease_until <= row.now;
}

void add_condition(std::string& sql, const Key& key) {
  const std::array<Parameter, 2> parts{bytes_parameter(key.type()), bytes_parameter(key.value())};
  sql += sql.empty() ? "" : " OR ";
  sql += with_literals("(business_type = ? AND value = ?)", parts);
}

std::string condition_of(const std::vector<Key>& keys) {
  std::string sql;
  for (const Key& key : keys)
    add_condition(sql, key);
  return sql;
}

/// What one statement, made at `since` or later, has found in a row; nothing when another statement has to decide.
std::optional<BeginOutcome> outcome_of_insert(Row&& row, const BeginRequest& request,
                                              Timestamp since) {
  // The caller's own: new if it was made at this statement's time, else repeated, and its lease has to be renewed. Judged all the
  // same: it may have been repeated within the millisecond, with another fingerprint.
  const bool is_own = row.facts.ownership.owner == request.owner;
  const bool is_new = row.facts.state == RecordState::processing &&
                      row.facts.ownership.fence == 1 && row.updated_at >= since;
  if (is_own && !is_new) return std::nullopt;
  if (may_change_hands(row)) return std::nullopt;
  return outcome_of(std::move(row), request);
}

/// A batch locks its rows together, so nobody's open transaction may keep it from the others for long.
constexpr unsigned longest_wait_of_batch = 1;  // second

/// `read()`, or nothing where the error is that of one record: it cannot be read, or another transaction holds it.
template <class Read>
auto unless_of_this_record(Read read) -> std::optional<decltype(read())> {
  try {
    return read();
  } catch (const Error& error) {
    if (error.code() != Errc::store_corrupt && error.code() != Errc::store_busy) throw;
    return std::nullopt;
  }
}

Parameter trace_parameter(const BeginRequest& request) {
  return request.trace.empty() ? Parameter{std::monostate{}} : bytes_parameter(request.trace);
}

/// "(business_type, value) > (?, ?)" in the form that both servers look up in the key: as a comparison of rows, and as
/// "business_type >= ? AND (business_type > ? OR value > ?)", every page reads its type from the beginning.
constexpr std::string_view behind_position =
    " WHERE ((business_type = ? AND value > ?) OR business_type > ?)";

struct Position {
  explicit Position(const Key* key)
      : type(key == nullptr ? std::string_view() : key->type()),
        value(key == nullptr ? std::string_view() : key->value()) {}
  std::string_view type;
  std::string_view value;
};

Key take_key(Cells& cells) {
  const std::string type = take_bytes(cells[0], "business_type");
  const std::string value = take_bytes(cells[1], "value");
  return Key(type, value);
}

}  // namespace

Reply Records::send(const std::string& sql, Parameters parameters, Stage stage) {
  if (travel_ == Travel::prepared) return connection_->execute(sql, parameters, stage);
  std::string text = with_literals(sql, parameters);
  if (connection_->traits().sets_for_statement && !text.starts_with(setting)) {
    text.insert(0, usual_meaning);
  }
  return std::move(connection_->run(text, stage).front());
}

Reply Records::send_begin(const std::string& sql, Parameters parameters) {
  if (opening_.empty()) {
    return prefix_.empty() ? send(sql, parameters, write_)
                           : send(prefix_ + sql, parameters, write_);
  }
  Reply reply = send(prefix_ + opening_ + sql + ";END", parameters, write_);
  opening_.clear();
  return reply;
}

// The client may still believe in a transaction that the server has ended by a deadlock. Outside of one the INSERT would commit
// by itself, so its absence is the same deadlock again.
void Records::open_with(const std::string& savepoint) {
  opening_ =
      "BEGIN NOT ATOMIC IF @@in_transaction = 0 THEN SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = "
      "1213, MESSAGE_TEXT = 'the transaction has ended'; END IF; SAVEPOINT " +
      savepoint + ';';
}

void Records::set_savepoint() {
  if (opening_.empty()) return;
  static_cast<void>(connection_->run(opening_ + "END", Stage::within));
  opening_.clear();
}

Reply Records::look_up(const std::string& sql, const Key& key) {
  const std::array<Parameter, 2> parameters{bytes_parameter(key.type()),
                                            bytes_parameter(key.value())};
  return send(sql, parameters, read_);
}

std::optional<Row> Records::select(const std::string& sql, const Key& key) {
  Reply reply = look_up(sql, key);
  if (reply.rows.empty()) return std::nullopt;
  return read_row(reply.rows.front());
}

BeginOutcome Records::begin(const BeginRequest& request) {
  check_blob(request.trace, "trace");
  const auto current = request.fingerprint ? std::optional(request.fingerprint->current())
                                           : std::optional<Fingerprint::Part>();
  const auto earlier =
      request.fingerprint ? request.fingerprint->earlier() : std::optional<Fingerprint::Part>();
  const FingerprintBytes current_bytes(current);
  const FingerprintBytes earlier_bytes(earlier);
  if (request.admission == Admission::issued) {
    return begin_issued(request, current_bytes.parameter(), earlier_bytes.parameter());
  }
  const std::array parameters{bytes_parameter(request.key.type()),
                              bytes_parameter(request.key.value()),
                              number(static_cast<std::uint64_t>(request.mode)),
                              owner_parameter(request.owner),
                              current_bytes.parameter(),
                              span_parameter(request.lease),
                              trace_parameter(request),
                              earlier_bytes.parameter()};
  const bool returning = connection_->traits().returns_rows_of_insert;
  if (returning) {
    const Parameters first = Parameters(parameters).first(parameters.size() - 1);
    if (std::optional<BeginOutcome> outcome = insert_or_look(first, request)) {
      return *std::move(outcome);
    }
  }
  const std::string& statement = returning ? statements_->begin_returning : statements_->begin;
  for (int round = 0; round < most_rounds; ++round) {
    Reply reply = send_begin(statement, parameters);
    std::optional<Row> row;
    if (returning) {
      row = read_row(reply.rows.at(0));
    } else {
      // An unchanged row counts as 1 as well under CLIENT_FOUND_ROWS, which the application may have set on its own.
      const bool counts_changes = travel_ == Travel::prepared;
      if (reply.changes.changed == 1 && counts_changes) return Acquired{1, 1};
      row = select(write_ == Stage::within ? statements_->select_locking : statements_->select,
                   request.key);
    }
    if (!row) continue;  // purged meanwhile
    std::optional<BeginOutcome> outcome = outcome_of(*std::move(row), request);
    if (outcome) return *std::move(outcome);
  }
  throw_moving();
}

/// What one INSERT of many rows has met.
struct Records::Rows {
  std::map<std::string, std::optional<Row>> by_key;  ///< nothing for one that cannot be read
  std::optional<Timestamp> since;  ///< a moment before the INSERT; nothing: each row tells it
};

/// In one round trip. A server without RETURNING is asked what time it is first, so that rows that were made now can be told from
/// those that an earlier try of the same call has made.
Records::Rows Records::insert_or_look(const std::vector<const BeginRequest*>& requests) {
  const bool returning = connection_->traits().returns_rows_of_insert;
  std::string values;
  std::string keys;
  for (const BeginRequest* request : requests) {
    const FingerprintBytes fingerprint(request->fingerprint
                                           ? std::optional(request->fingerprint->current())
                                           : std::optional<Fingerprint::Part>());
    const std::array parameters{bytes_parameter(request->key.type()),
                                bytes_parameter(request->key.value()),
                                number(static_cast<std::uint64_t>(request->mode)),
                                owner_parameter(request->owner),
                                fingerprint.parameter(),
                                span_parameter(request->lease),
                                trace_parameter(*request)};
    values += values.empty() ? "" : ", ";
    values += with_literals(statements_->inserted_row, parameters);
    if (!returning) add_condition(keys, request->key);
  }
  const std::string insert =
      statements_->insert_into + values + " ON DUPLICATE KEY UPDATE state = state";
  const std::string columns = "business_type, value, " + answer_columns();
  const std::string sql = returning ? insert + " RETURNING " + columns
                                    : "SELECT " + std::string(now_expression) + ';' + insert +
                                          ";SELECT " + columns + " FROM " + statements_->table +
                                          " WHERE " + keys;
  std::vector<Reply> replies = connection_->run_waiting(sql, write_, longest_wait_of_batch);
  Rows rows;
  if (!returning) {
    const std::uint64_t now = to_unsigned(replies.front().rows.at(0).at(0), "now");
    rows.since = Timestamp{milliseconds{static_cast<std::int64_t>(now)}};
  }
  for (Cells& cells : replies.back().rows) {
    const std::string key = take_key(cells).text();
    const std::optional<Row> row = unless_of_this_record([&] { return read_answer(cells, 2); });
    rows.by_key.insert_or_assign(key, row);
  }
  return rows;
}

std::vector<std::optional<BeginOutcome>> Records::begin_many(
    const std::vector<BeginRequest>& requests) {
  std::vector<std::size_t> order(requests.size());  // locked in one order by all
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const Key& left = requests[a].key;
    const Key& right = requests[b].key;
    return std::pair(left.type(), left.value()) < std::pair(right.type(), right.value());
  });
  std::vector<const BeginRequest*> inserted;
  for (const std::size_t at : order) {
    check_blob(requests[at].trace, "trace");
    if (requests[at].admission == Admission::any) inserted.push_back(&requests[at]);
  }
  Rows rows;
  if (!inserted.empty()) rows = insert_or_look(inserted);
  std::vector<std::optional<BeginOutcome>> answers(requests.size());
  for (const std::size_t at : order) {
    const auto found = rows.by_key.find(requests[at].key.text());
    if (requests[at].admission == Admission::any && found != rows.by_key.end()) {
      if (!found->second) continue;  // it cannot be read
      Row row = *found->second;      // not moved: the same key may have been asked for twice
      const Timestamp since = rows.since.value_or(row.now);
      answers[at] = outcome_of_insert(std::move(row), requests[at], since);
    }
    if (!answers[at]) answers[at] = unless_of_this_record([&] { return begin(requests[at]); });
  }
  return answers;
}

/// An UPDATE that decides and a SELECT that tells, in one round trip where the connection takes both at once.
BeginOutcome Records::begin_issued(const BeginRequest& request, Parameter current,
                                   Parameter earlier) {
  const Parameter owner = owner_parameter(request.owner);
  const Parameter type = bytes_parameter(request.key.type());
  const Parameter value = bytes_parameter(request.key.value());
  const std::array changes{current,
                           earlier,
                           owner,
                           owner,
                           number(static_cast<std::uint64_t>(request.mode)),
                           owner,
                           current,
                           current,
                           span_parameter(request.lease),
                           trace_parameter(request),
                           type,
                           value};
  const std::array key{type, value};
  const std::string& look =
      write_ == Stage::within ? statements_->select_locking : statements_->select;
  for (int round = 0; round < most_rounds; ++round) {
    Reply reply;
    if (connection_->takes_several()) {
      reply = std::move(connection_
                            ->run(with_literals(prefix_ + statements_->begin_issued, changes) +
                                      ';' + with_literals(look, key),
                                  write_)
                            .back());
    } else {
      static_cast<void>(send_begin(statements_->begin_issued, changes));
      reply = send(look, key, read_);
    }
    if (reply.rows.empty()) return NotIssued{};
    std::optional<BeginOutcome> outcome = outcome_of(read_row(reply.rows.front()), request);
    if (outcome) return *std::move(outcome);
  }
  throw_moving();
}

WriteOutcome Records::issue(const IssueRequest& request) {
  check_issue(request);
  const std::array parameters{bytes_parameter(request.key.type()),
                              bytes_parameter(request.key.value()), owner_parameter(request.issuer),
                              span_parameter(request.lifetime)};
  for (int round = 0; round < most_rounds; ++round) {
    if (send(statements_->issue, parameters, write_).changes.changed == 1) {
      return WriteOutcome::stored;
    }
    const std::optional<Row> row = select(statements_->select, request.key);
    if (!row) continue;  // purged meanwhile
    const Transition step = judge_issue(&row->facts, request.issuer, row->now);
    if (step.answer != v0::Answer::stored) return WriteOutcome::lost;
    if (step.owner == OwnerStep::keep) return WriteOutcome::stored;  // a repeated one
    static_cast<void>(remove_expired({request.key}));
  }
  throw_moving();
}

/// What nearly every call comes to: the record is new, or is not changed by this call. Nothing otherwise, and then
/// the statement that decides does so anew.
std::optional<BeginOutcome> Records::insert_or_look(Parameters parameters,
                                                    const BeginRequest& request) {
  const std::string& statement = statements_->insert_returning;
  Reply reply = send_begin(statement, parameters);
  Row row = read_answer(reply.rows.at(0));
  const Timestamp now = row.now;
  return outcome_of_insert(std::move(row), request, now);
}

std::optional<BeginOutcome> Records::peek(const BeginRequest& request) {
  Reply reply = look_up(statements_->answer, request.key);
  if (reply.rows.empty()) return std::nullopt;
  Row row = read_answer(reply.rows.front());
  if (row.facts.ownership.owner == request.owner || may_change_hands(row)) return std::nullopt;
  return outcome_of(std::move(row), request);
}

WriteOutcome Records::write(const std::string& sql, Parameters parameters, const Key& key,
                            const Ownership& by, Event event) {
  for (int round = 0; round < most_rounds; ++round) {
    if (send(sql, parameters, write_).changes.matched != 0) return WriteOutcome::stored;
    const std::optional<Row> row = select(statements_->select, key);
    if (!row) return WriteOutcome::lost;
    const Transition step = judge_write(&row->facts, event, by, row->now);
    if (step.answer != v0::Answer::stored) return WriteOutcome::lost;
    if (!would_change(step, *row, event)) return WriteOutcome::stored;
  }
  throw_moving();
}

WriteOutcome Records::complete(const Key& key, const Ownership& by, const Completion& completion) {
  const std::array parameters{span_parameter(completion.retention),
                              optional_bytes(completion.result),
                              bytes_parameter(key.type()),
                              bytes_parameter(key.value()),
                              owner_parameter(by.owner),
                              number(by.fence)};
  return write(statements_->complete, parameters, key, by, Event::complete);
}

std::string Records::complete_text(const Statements& statements, const Key& key,
                                   const Ownership& by, const Completion& completion) {
  const std::array parameters{span_parameter(completion.retention),
                              optional_bytes(completion.result),
                              bytes_parameter(key.type()),
                              bytes_parameter(key.value()),
                              owner_parameter(by.owner),
                              number(by.fence)};
  return with_literals(statements.complete, parameters);
}

WriteOutcome Records::fail(const Key& key, const Ownership& by, const Failure& failure,
                           milliseconds retention) {
  check_blob(failure.reason, "reason");
  const std::array parameters{number(static_cast<std::uint64_t>(failure.retryability)),
                              bytes_parameter(std::string_view(failure.reason)),
                              optional_bytes(failure.result),
                              span_parameter(retention),
                              bytes_parameter(key.type()),
                              bytes_parameter(key.value()),
                              owner_parameter(by.owner),
                              number(by.fence)};
  return write(statements_->fail, parameters, key, by, event_of(failure.retryability));
}

WriteOutcome Records::doubt(const Key& key, const Ownership& by) {
  const std::array parameters{bytes_parameter(key.type()), bytes_parameter(key.value()),
                              owner_parameter(by.owner), number(by.fence)};
  return write(statements_->doubt, parameters, key, by, Event::doubt);
}

WriteOutcome Records::mark_effect(const Key& key, const Ownership& by) {
  const std::array parameters{bytes_parameter(key.type()), bytes_parameter(key.value()),
                              owner_parameter(by.owner), number(by.fence)};
  return write(statements_->mark_effect, parameters, key, by, Event::mark_effect);
}

WriteOutcome Records::renew(const Key& key, const Ownership& by, milliseconds lease) {
  const std::array parameters{span_parameter(lease), bytes_parameter(key.type()),
                              bytes_parameter(key.value()), owner_parameter(by.owner),
                              number(by.fence)};
  return write(statements_->renew, parameters, key, by, Event::renew);
}

WriteOutcome Records::release(const Key& key, const Ownership& by, milliseconds retention) {
  const std::array parameters{span_parameter(retention), bytes_parameter(key.type()),
                              bytes_parameter(key.value()), owner_parameter(by.owner),
                              number(by.fence)};
  return write(statements_->release, parameters, key, by, Event::release);
}

WriteOutcome Records::resolve(const Record& seen, const Resolution& resolution) {
  check_blob(resolution.reason, "reason");
  const bool succeeded = resolution.verdict == Resolution::Verdict::succeeded;
  const bool retry = resolution.verdict == Resolution::Verdict::retry;
  const auto milliseconds_of = [](Timestamp time) { return time.time_since_epoch().count(); };
  const Parameter lease_until = seen.lease_until
                                    ? Parameter{std::int64_t{milliseconds_of(*seen.lease_until)}}
                                    : Parameter{std::monostate{}};
  const std::array parameters{
      number(static_cast<std::uint64_t>(succeeded ? RecordState::success : RecordState::failed)),
      number(succeeded ? 0U
                       : static_cast<std::uint64_t>(retry ? Retryability::retryable
                                                          : Retryability::permanent)),
      succeeded ? Parameter{std::monostate{}}
                : bytes_parameter(std::string_view(resolution.reason)),
      succeeded ? optional_bytes(resolution.result) : Parameter{std::monostate{}},
      owner_parameter(resolution.resolver),
      span_parameter(resolution.retention),
      bytes_parameter(seen.key.type()),
      bytes_parameter(seen.key.value()),
      owner_parameter(seen.ownership.owner),
      number(seen.ownership.fence),
      Parameter{std::int64_t{milliseconds_of(seen.created_at)}},
      number(static_cast<std::uint64_t>(seen.state)),
      number(static_cast<std::uint64_t>(seen.mode)),
      number(seen.effect_marked ? 1U : 0U),
      lease_until};
  for (int round = 0; round < most_rounds; ++round) {
    if (send(statements_->resolve, parameters, write_).changes.matched != 0) {
      return WriteOutcome::stored;
    }
    const std::optional<Row> row = select(statements_->select, seen.key);
    if (!row) return WriteOutcome::lost;
    const Transition step = judge_resolve(&row->facts, seen, resolution, row->now);
    if (step.answer != v0::Answer::stored) return WriteOutcome::lost;
    if (step.owner == OwnerStep::keep) return WriteOutcome::stored;  // a repeated one
  }
  throw_moving();
}

std::optional<Record> Records::find(const Key& key) {
  std::optional<Row> row = select(statements_->select, key);
  if (!row) return std::nullopt;
  return to_record(key, *std::move(row));
}

std::vector<WriteOutcome> Records::renew_many(const std::vector<Renewal>& renewals) {
  std::vector<const Renewal*> ordered;  // locked in one order by all
  ordered.reserve(renewals.size());
  for (const Renewal& renewal : renewals)
    ordered.push_back(&renewal);
  std::sort(ordered.begin(), ordered.end(), [](const Renewal* a, const Renewal* b) {
    return std::pair(a->key.type(), a->key.value()) < std::pair(b->key.type(), b->key.value());
  });
  std::string wanted;
  std::vector<Key> keys;
  keys.reserve(renewals.size());
  for (const Renewal* renewal : ordered) {
    const std::array parameters{bytes_parameter(renewal->key.type()),
                                bytes_parameter(renewal->key.value()),
                                owner_parameter(renewal->ownership.owner),
                                number(renewal->ownership.fence), span_parameter(renewal->lease)};
    wanted += with_literals(wanted.empty() ? "SELECT ? AS t, ? AS v, ? AS o, ? AS f, ? AS l"
                                           : " UNION ALL SELECT ?, ?, ?, ?, ?",
                            parameters);
    keys.push_back(renewal->key);
  }
  std::string sql = "UPDATE (" + wanted + ") AS w STRAIGHT_JOIN " + statements_->table +
                    " AS r ON r.business_type = w.t AND r.value = w.v SET r.lease_until = ";
  sql += now_expression;
  sql += " + w.l WHERE r.owner = w.o AND r.fence = w.f AND r.state = 1";
  const Reply reply = std::move(connection_->run_waiting(sql, write_, 0).front());
  if (reply.changes.matched == renewals.size()) {
    return std::vector<WriteOutcome>(renewals.size(), WriteOutcome::stored);
  }
  // One that is its owner's and processing now was so a moment ago, and renewed.
  std::vector<Reply> found =
      connection_->run("SELECT business_type, value, " + row_columns() + " FROM " +
                           statements_->table + " WHERE " + condition_of(keys),
                       read_);
  std::map<std::string, Row> rows;
  for (Cells& cells : found.front().rows) {
    Row row = read_row(cells, 2);
    rows.emplace(take_key(cells).text(), std::move(row));
  }
  std::vector<WriteOutcome> outcomes;
  outcomes.reserve(renewals.size());
  for (const Renewal& renewal : renewals) {
    const auto row = rows.find(renewal.key.text());
    const RecordFacts* facts = row == rows.end() ? nullptr : &row->second.facts;
    const Timestamp now = row == rows.end() ? Timestamp{} : row->second.now;
    const Transition step = judge_write(facts, Event::renew, renewal.ownership, now);
    outcomes.push_back(step.answer == v0::Answer::stored ? WriteOutcome::stored
                                                         : WriteOutcome::lost);
  }
  return outcomes;
}

std::uint64_t Records::bytes_in_batch(const Key& key) noexcept {
  constexpr std::uint64_t around_key = 180;  // its owner, numbers and words
  return 2 * (key.type().size() + key.value().size()) + around_key;
}

std::uint64_t Records::bytes_in_batch(const BeginRequest& request) noexcept {
  constexpr std::uint64_t around_key = 640;  // owner, fingerprint, numbers and words
  return 4 * (request.key.type().size() + request.key.value().size()) + 2 * request.trace.size() +
         around_key;
}

RecordPage Records::list(const RecordFilter& filter, const Key* after, std::size_t limit) {
  const Position position(after);
  std::string sql = "SELECT business_type, value, " + row_columns() + " FROM " + statements_->table;
  std::vector<Parameter> parameters;
  if (filter.type) {  // sorted by both columns, the server would read and sort the rest of the type
    if (position.type > *filter.type) return {};
    sql += " WHERE business_type = ? AND value > ?";
    const bool is_within = position.type == *filter.type;
    parameters = {bytes_parameter(std::string_view(*filter.type)),
                  bytes_parameter(is_within ? position.value : std::string_view())};
  } else {
    sql += behind_position;
    parameters = {bytes_parameter(position.type), bytes_parameter(position.value),
                  bytes_parameter(position.type)};
  }
  sql += " AND (expires_at IS NULL OR expires_at > " + std::string(now_expression) + ")";
  if (filter.state) {
    sql += " AND state = ?";
    parameters.push_back(number(static_cast<std::uint64_t>(*filter.state)));
  }
  if (filter.unchanged_for) {
    sql += " AND updated_at <= " + std::string(now_expression) + " - ?";
    parameters.push_back(Parameter{std::int64_t{filter.unchanged_for->count()}});
  }
  sql += filter.type ? " ORDER BY value" : " ORDER BY business_type, value";
  sql += " LIMIT " + std::to_string(limit + 1);
  Reply reply = send(sql, parameters, read_);
  RecordPage page;
  std::string last;
  for (std::size_t at = 0; at < reply.rows.size(); ++at) {
    if (at == limit) {
      page.cursor = last;
      break;
    }
    const Key key = take_key(reply.rows[at]);
    last = key.text();
    try {
      std::optional<Record> record = to_record(key, read_row(reply.rows[at], 2));
      if (record) page.records.push_back(*std::move(record));
    } catch (const Error& error) {
      if (error.code() != Errc::store_corrupt) throw;
      page.unreadable.push_back({key, error.what()});
    }
  }
  return page;
}

std::optional<Stretch> Records::stretch_behind(const std::optional<Stretch>& before,
                                               std::size_t rows) {
  Stretch next;
  if (before && before->last) {
    next = {before->type, *before->last};
  } else {
    const std::array type{bytes_parameter(before ? std::string_view(before->type) : "")};
    Reply reply = send("SELECT business_type FROM " + statements_->table +
                           " WHERE business_type > ? ORDER BY business_type LIMIT 1",
                       type, read_);
    if (reply.rows.empty()) return std::nullopt;
    next.type = take_bytes(reply.rows.front()[0], "business_type");
  }
  const std::array from{bytes_parameter(std::string_view(next.type)),
                        bytes_parameter(std::string_view(next.behind))};
  Reply reply = send("SELECT value FROM " + statements_->table +
                         " WHERE business_type = ? AND value > ? ORDER BY value LIMIT 1 OFFSET " +
                         std::to_string(rows - 1),
                     from, read_);
  if (!reply.rows.empty()) next.last = take_bytes(reply.rows.front()[0], "value");
  return next;
}

std::vector<Key> Records::expired_in(const Stretch& stretch, std::size_t limit) {
  std::vector<Parameter> parameters{bytes_parameter(std::string_view(stretch.type)),
                                    bytes_parameter(std::string_view(stretch.behind))};
  std::string sql = "SELECT business_type, value FROM " + statements_->table +
                    " WHERE business_type = ? AND value > ?";
  if (stretch.last) {
    sql += " AND value <= ?";
    parameters.push_back(bytes_parameter(std::string_view(*stretch.last)));
  }
  sql += " AND expires_at <= " + std::string(now_expression) + " ORDER BY value LIMIT " +
         std::to_string(limit);
  Reply reply = send(sql, parameters, read_);
  std::vector<Key> keys;
  for (Cells& cells : reply.rows)
    keys.push_back(take_key(cells));
  return keys;
}

std::size_t Records::remove_expired(const std::vector<Key>& keys) {
  const std::string sql = "DELETE FROM " + statements_->table + " WHERE (" + condition_of(keys) +
                          ") AND expires_at <= " + std::string(now_expression);
  return static_cast<std::size_t>(connection_->run(sql, write_).front().changes.changed);
}

}  // namespace detail::mysql
}  // namespace v0
}  // namespace idempotency
