#include <algorithm>
#include <atomic>
#include <cstdio>
#include <string>
#include <utility>

#include "core/transaction_ended.hpp"
#include "mysql/mysql_options.hpp"
#include "mysql/mysql_store_impl.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail::mysql {

namespace {

using std::chrono::milliseconds;
using Kind = TransactionState::Kind;
using Reach = TransactionState::Reach;

constexpr int most_conflicts = 10;
/// A larger completion is not doubled in size as text for the sake of one round trip.
constexpr std::size_t most_bytes_with_commit = 65'536;
constexpr std::size_t most_bytes_around_result = 2'048;  ///< keys and owner as literals

/// For a transaction that is joined; it ends with it. Another store's on the same connection must not take its place.
std::string new_savepoint() {
  static std::atomic<std::uint64_t> number{0};
  return "idempotency_record_" + std::to_string(++number);
}

// Between the completion and the COMMIT: fails, and with it what stands behind it, when the completion found no record.
constexpr std::string_view unless_completed =
    ";SELECT IF(ROW_COUNT() > 0, 0, (SELECT 1 UNION SELECT 2))";
constexpr unsigned subquery_with_two_rows = 1242;
constexpr unsigned no_such_savepoint = 1305;
// On a caller's connection, whatever its `completion_type` is; the store's own begin nothing behind a transaction.
constexpr std::string_view commit_words = "COMMIT AND NO CHAIN";
constexpr std::string_view rollback_words = "ROLLBACK AND NO CHAIN";

bool travels_with_commit(const Connection& connection, const Completion& completion) noexcept {
  const std::size_t bytes = completion.result ? completion.result->size() : 0;
  return bytes <= most_bytes_with_commit && connection.takes(2 * bytes + most_bytes_around_result);
}

[[noreturn]] void throw_ended() {
  throw TransactionEnded(
      "the transaction was ended by a statement, a procedure or the native handle, so what is "
      "written is not known; leave the transaction's end to the guard, and definitions of tables "
      "to "
      "other connections");
}

bool is_finished(const BeginOutcome& outcome) noexcept {
  return std::holds_alternative<Completed>(outcome) || std::holds_alternative<Failed>(outcome);
}

/// What a failed COMMIT means for the whole transaction.
Error as_transaction_error(const Error& error) {
  if (error.code() != Errc::store_busy) return error;
  return Error(Errc::transaction_lost,
               "mysql store: a lock could not be had at the commit; nothing is written, repeat all "
               "of it",
               error.detail());
}

}  // namespace

void TransactionState::check_open() const {
  store->refuse_after_fork();
  if (ended) throw_ended();
  if (open && !lost) return;
  throw Error(lost ? Errc::transaction_lost : Errc::invalid_argument,
              lost
                  ? "the database ended the transaction; nothing of it is written, repeat all of it"
                  : "the transaction has ended; open another");
}

void TransactionState::note(const Error& error) noexcept {
  switch (error.code()) {
    case Errc::transaction_lost:
    case Errc::
        store_busy:  // perhaps only the statement is undone: that depends on the server's settings
      lost = true;
      return;
    case Errc::commit_unknown:
      ended = true;
      return;
    default:
      lost = lost || connection->is_broken();
  }
}

void TransactionState::check_still_in_transaction() {
  if (connection->in_transaction()) {
    touched = true;
    return;
  }
  if (!touched) return;
  ended = true;
  connection->set_broken();
  throw_ended();
}

void TransactionState::write_pending() {
  if (!pending) return;
  const Pending completion = *std::exchange(pending, std::nullopt);
  try {
    if (records.complete(completion.key, completion.by, completion.completion) ==
        WriteOutcome::stored) {
      return;
    }
  } catch (const Error& error) {
    note(error);
    throw;
  }
  ended = true;
  throw_ended();
}

void StoreImpl::refuse_nested() {
  if (!transaction_threads_.contains_this_thread()) return;
  throw Error(Errc::nested_transaction,
              "this thread has a transaction of the same MySQL store open; use that one, or open "
              "another after it");
}

std::string StoreImpl::prefix_for(milliseconds wait, Kind kind) const {
  if (!traits_.sets_for_statement) return {};
  const unsigned whole = lock_wait_seconds(options_, wait);
  const milliseconds bounded =
      std::clamp<milliseconds>(wait, milliseconds{1}, std::chrono::seconds(whole));
  // The session of an own connection waits so long as it is.
  const bool is_whole = bounded == std::chrono::seconds(whole);
  if (kind == Kind::own && is_whole && whole == lock_wait_seconds(options_, options_.lock_wait)) {
    return {};
  }
  std::string prefix = "SET STATEMENT innodb_lock_wait_timeout = ";
  prefix += std::to_string(whole);
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%lld.%03lld",
                static_cast<long long>(bounded.count() / 1000),
                static_cast<long long>(bounded.count() % 1000));
  prefix += ", max_statement_time = ";
  prefix += seconds;
  if (kind != Kind::own) prefix += ", sql_mode = 'STRICT_TRANS_TABLES'";
  return prefix + " FOR ";
}

std::unique_ptr<TransactionState> StoreImpl::open_own(const TransactionOptions& options) {
  const CancellationShield shield;
  refuse_after_fork();
  refuse_nested();
  const SteadyTime deadline = std::chrono::steady_clock::now() + options.wait;
  std::unique_ptr<Connection> connection =
      pool_.take(Autocommit::off, options.wait, Freshness::any, deadline);
  try {
    Connection& lane = *connection;
    const std::string prefix = prefix_for(options.wait, Kind::own);
    auto state = std::make_unique<TransactionState>(
        TransactionState{.store = this,
                         .kind = Kind::own,
                         .connection = nullptr,
                         .records = Records(lane, statements_, Travel::prepared, prefix),
                         .wait = options.wait,
                         .deadline = deadline,
                         .prefix = prefix});
    transaction_threads_.add(state->opener);
    state->connection = std::move(connection);
    return state;
  } catch (...) {
    pool_.give_back(std::move(connection));
    throw;
  }
}

std::unique_ptr<TransactionState> StoreImpl::adopt(MYSQL* handle,
                                                   const TransactionOptions& options) {
  const CancellationShield shield;
  refuse_after_fork();
  refuse_nested();
  if (handle == nullptr) {
    throw Error(Errc::invalid_argument, "mysql store: a null handle is no connection");
  }
  auto connection = std::make_unique<Connection>(handle, traits_);
  const Kind kind = connection->in_transaction() ? Kind::joined : Kind::adopted;
  Connection& lane = *connection;
  const std::string prefix = prefix_for(options.wait, kind);
  auto state = std::make_unique<TransactionState>(
      TransactionState{.store = this,
                       .kind = kind,
                       .connection = std::move(connection),
                       .records = Records(lane, statements_, Travel::text, prefix),
                       .wait = options.wait,
                       .deadline = std::chrono::steady_clock::now() + options.wait,
                       .prefix = prefix});
  begin_adopted(*state);
  transaction_threads_.add(state->opener);
  return state;
}

void StoreImpl::begin_adopted(TransactionState& state) {
  if (state.kind == Kind::adopted) {
    static_cast<void>(state.connection->run("START TRANSACTION", Stage::within));
    state.touched = true;
    return;
  }
  state.savepoint = new_savepoint();
  if (traits_.sets_for_statement) {  // MariaDB takes both in one statement
    state.records.open_with(state.savepoint);
    state.touched = true;
    return;
  }
  // After a deadlock the client still believes in a transaction that the server has ended.
  static_cast<void>(state.connection->run("SAVEPOINT " + state.savepoint, Stage::within));
  if (!state.connection->in_transaction()) {
    throw Error(Errc::transaction_lost,
                "the server has ended the transaction that was to be joined; roll back and begin "
                "all of it anew");
  }
  state.touched = true;
}

/// For an idle connection that turns out to be closed: nothing has been done on it.
void StoreImpl::reconnect(TransactionState& state) {
  state.connection->set_broken();
  pool_.give_back(std::move(state.connection));
  state.connection = pool_.take(Autocommit::off, state.wait, Freshness::fresh, state.deadline);
  state.records = Records(*state.connection, statements_, Travel::prepared, state.prefix);
}

BeginOutcome StoreImpl::begin(TransactionState& state, const BeginRequest& request) {
  const CancellationShield shield;
  state.check_open();
  state.write_pending();
  // The caller's transaction goes on after this, and would keep the gap locked in which a key that nobody issued is not.
  if (state.kind == Kind::joined && request.admission == Admission::issued &&
      !call([&](Records& records) { return records.find(request.key); })) {
    return NotIssued{};
  }
  const bool may_repeat = state.kind == Kind::own && !state.touched;
  const Reach before = std::exchange(state.reach, Reach::changed);
  bool reconnected = false;
  for (int conflicts = 0;;) {
    const bool was_used = state.connection->was_used();
    try {
      BeginOutcome outcome = state.records.begin(request);
      state.check_still_in_transaction();
      if (const auto* acquired = std::get_if<Acquired>(&outcome)) {
        state.turn = TransactionState::Turn{request.key, {request.owner, acquired->fence}};
      } else {
        state.reach = std::max(before, Reach::looked);
        if (is_finished(outcome)) hot_keys_.add(request.key);
      }
      return outcome;
    } catch (const Error& error) {
      const unsigned code = state.connection->last_error();
      const bool conflict = may_repeat && code != 0 && is_worth_repeating(code);
      if (conflict && ++conflicts < most_conflicts &&
          std::chrono::steady_clock::now() < state.deadline) {
        continue;  // nothing but this was in the transaction, which the server has rolled back
      }
      if (may_repeat && !reconnected && was_used && code != 0 && breaks_connection(code)) {
        reconnected = true;
      } else {
        state.note(error);
        throw;
      }
    }
    try {
      reconnect(state);
    } catch (...) {
      state.lost = true;
      throw;
    }
  }
}

void StoreImpl::check_not_ended(const TransactionState& state) {
  if (!state.touched || state.connection->in_transaction()) return;
  throw_ended();
}

WriteOutcome StoreImpl::complete(TransactionState& state, const Key& key, const Ownership& by,
                                 const Completion& completion) {
  const CancellationShield shield;
  state.check_open();
  if (state.pending && state.pending->key == key && state.pending->by == by) {
    return WriteOutcome::stored;  // repeated: the first stays
  }
  state.write_pending();
  if (state.kind == Kind::own && state.turn && state.turn->key == key &&
      state.turn->ownership == by && travels_with_commit(*state.connection, completion)) {
    state.turn.reset();
    state.pending = TransactionState::Pending{key, by, completion};
    return WriteOutcome::stored;
  }
  state.reach = Reach::changed;
  try {
    check_not_ended(state);
    const WriteOutcome outcome = state.records.complete(key, by, completion);
    state.check_still_in_transaction();
    return outcome;
  } catch (const Error& error) {
    state.note(error);
    throw;
  }
}

void StoreImpl::send_commit(TransactionState& state) {
  if (state.kind == Kind::joined) return;
  if (!state.pending) {
    static_cast<void>(
        state.connection->run(state.kind == Kind::own ? "COMMIT" : commit_words, Stage::commit));
    return;
  }
  const TransactionState::Pending completion = *std::exchange(state.pending, std::nullopt);
  std::string text =
      Records::complete_text(statements_, completion.key, completion.by, completion.completion);
  if (state.doubtful) text += unless_completed;
  text += ";COMMIT";
  try {
    if (state.connection->run(text, Stage::commit).front().changes.matched == 0) throw_ended();
  } catch (const TransactionEnded&) {
    throw;
  } catch (const Error&) {
    if (state.connection->last_error() == subquery_with_two_rows) throw_ended();
    throw;
  }
}

void StoreImpl::commit(TransactionState& state) {
  const CancellationShield shield;
  state.check_open();
  try {
    check_not_ended(state);
    send_commit(state);
  } catch (const TransactionEnded&) {
    rollback(state);
    throw;
  } catch (const Error& error) {
    const Error told = as_transaction_error(error);
    rollback(state);
    throw told;
  }
  close(state);
}

void StoreImpl::rollback(TransactionState& state) noexcept {
  if (!state.open) return;
  if (is_inherited()) {  // the parent's: neither used nor closed
    state.open = false;
    if (state.connection) state.connection->abandon();
    return;
  }
  state.pending.reset();
  if (!state.connection || state.connection->is_broken()) {
    close(state);
    return;
  }
  try {
    const ClientUse use;
    send_rollback(state);
  } catch (const std::
               exception&) {  // an own connection is discarded; the owner of another sees its state
    if (state.kind == Kind::own) state.connection->set_broken();
  }
  close(state);
}

/// Without its savepoint the transaction is not the one that was joined: what it holds now has no record and must not be
/// committed with what the caller does next.
void StoreImpl::roll_back_joined(TransactionState& state) {
  if (state.records.owes_savepoint()) return;  // nothing has been done
  try {
    static_cast<void>(
        state.connection->run("ROLLBACK TO SAVEPOINT " + state.savepoint, Stage::read));
  } catch (const Error&) {
    if (state.connection->last_error() != no_such_savepoint) throw;
    static_cast<void>(state.connection->run(rollback_words, Stage::read));
  }
}

/// A duplicate need not wait until the server has let its locks go; who uses the connection next does.
void StoreImpl::send_rollback(TransactionState& state) {
  switch (state.kind) {
    case Kind::own:
      if (state.reach == Reach::looked) {
        state.connection->send_rollback();
      } else if (state.reach == Reach::changed) {
        static_cast<void>(state.connection->run("ROLLBACK", Stage::read));
      }
      return;
    case Kind::adopted:
      static_cast<void>(state.connection->run(rollback_words, Stage::read));
      return;
    case Kind::joined:
      if (state.reach == Reach::changed) roll_back_joined(state);
      return;
  }
}

void StoreImpl::close(TransactionState& state) noexcept {
  state.open = false;
  state.pending.reset();
  state.turn.reset();
  transaction_threads_.remove(state.opener);
  if (state.kind == Kind::own) pool_.give_back(std::move(state.connection));
}

}  // namespace detail::mysql
}  // namespace v0
}  // namespace idempotency
