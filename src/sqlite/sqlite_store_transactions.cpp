#include <sqlite3.h>

#include <utility>

#include "sqlite/sqlite_store_impl.hpp"

namespace idempotency {
inline namespace v0 {

namespace detail::sqlite {

namespace {

constexpr AdoptedParts::Ends own_ends{"BEGIN IMMEDIATE", "COMMIT", "ROLLBACK", ""};
constexpr AdoptedParts::Ends savepoint_ends{
    "SAVEPOINT idempotency_record", "RELEASE idempotency_record", "ROLLBACK TO idempotency_record",
    "RELEASE idempotency_record"};

bool in_transaction(sqlite3* handle) noexcept { return sqlite3_get_autocommit(handle) == 0; }

/// Repeats `work` while others hold the lock: an adopted connection need not have a busy handler.
template <class Work>
void wait_for_lock(SteadyTime deadline, Work work) {
  Patience patience(deadline);
  while (true) {
    try {
      work();
      return;
    } catch (const Error& error) {
      if (error.code() != Errc::store_busy || !patience.pause()) throw;
    }
  }
}

/// What a failed COMMIT means for the whole transaction.
Error as_transaction_error(const Error& error) {
  if (error.code() != Errc::store_busy) return error;
  return Error(Errc::transaction_lost,
               "the database was locked at the commit; nothing is written, repeat all of it",
               error.detail());
}

}  // namespace

AdoptedParts::AdoptedParts(sqlite3* database, const std::string& table, const Ends& ends)
    : records(database, table),
      cache(database),
      begin(database, ends.begin),
      commit(database, ends.commit),
      rollback(database, ends.rollback),
      after_rollback(database, ends.after_rollback) {}

void TransactionState::check_open() const {
  store->refuse_after_fork();
  if (open && !lost) return;
  throw Error(lost ? Errc::transaction_lost : Errc::invalid_argument,
              lost
                  ? "the database ended the transaction; nothing of it is written, repeat all of it"
                  : "the transaction has ended; open another");
}

void StoreImpl::take_turn(SteadyTime deadline) {
  if (turn_.acquire(deadline)) return;
  throw Error(
      Errc::store_busy,
      "sqlite store: another transaction of this process holds the write lock for too long; "
      "repeat the call, or allow a longer wait");
}

std::unique_ptr<TransactionState> StoreImpl::open_own(const TransactionOptions& options) {
  const CancellationShield shield;
  refuse_after_fork();
  refuse_nested();
  const SteadyTime deadline = std::chrono::steady_clock::now() + options.wait;
  take_turn(deadline);
  try {
    if (!transaction_lane_) transaction_lane_ = std::make_unique<Lane>(shared_);
    transaction_lane_->begin(deadline);
    auto state = std::make_unique<TransactionState>(
        TransactionState{.store = this,
                         .kind = TransactionState::Kind::own,
                         .handle = transaction_lane_->connection().handle(),
                         .adopted = nullptr,
                         .records = &transaction_lane_->records(),
                         .cache = &transaction_lane_->cache()});
    transaction_threads_.add(state->opener);
    return state;
  } catch (...) {
    if (transaction_lane_) transaction_lane_->rollback();
    turn_.release();
    throw;
  }
}

void StoreImpl::check_same_file(sqlite3* handle) const {
  const char* file = handle == nullptr ? nullptr : sqlite3_db_filename(handle, "main");
  if (file == nullptr || *file == '\0' || identity_of(file) != open_file_->identity()) {
    throw Error(Errc::invalid_argument,
                "the connection's main database is not this store's file; records and business can "
                "commit together only in one file");
  }
}

std::unique_ptr<TransactionState> StoreImpl::adopt(sqlite3* handle,
                                                   const TransactionOptions& options) {
  const CancellationShield shield;
  refuse_after_fork();
  refuse_nested();
  check_same_file(handle);
  const bool joined = in_transaction(handle);
  const SteadyTime deadline = std::chrono::steady_clock::now() + options.wait;
  auto parts = std::make_unique<AdoptedParts>(handle, shared_.record_table,
                                              joined ? savepoint_ends : own_ends);
  auto state = std::make_unique<TransactionState>(TransactionState{
      .store = this,
      .kind = joined ? TransactionState::Kind::joined : TransactionState::Kind::adopted,
      .handle = handle,
      .adopted = std::move(parts),
      .records = nullptr,
      .cache = nullptr});
  state->records = &state->adopted->records;
  state->cache = &state->adopted->cache;
  if (!joined) take_turn(deadline);  // a joined transaction may hold SQLite's lock already
  try {
    begin_adopted(*state, deadline);
    transaction_threads_.add(state->opener);
  } catch (...) {
    if (!joined) turn_.release();
    throw;
  }
  return state;
}

/// A joined transaction may have read before, and then cannot write once others have: that is found
/// out here, before the handler runs, by taking the write lock.
void StoreImpl::begin_adopted(TransactionState& state, SteadyTime deadline) {
  AdoptedParts& parts = *state.adopted;
  if (state.kind == TransactionState::Kind::adopted) {
    wait_for_lock(deadline, [&] { parts.begin.use().run(); });
    return;
  }
  parts.begin.use().run();
  try {
    wait_for_lock(deadline, [&] { parts.records.lock(); });
  } catch (...) {
    if (in_transaction(state.handle)) {
      parts.rollback.use().run();
      parts.after_rollback.use().run();
    }
    throw;
  }
}

void StoreImpl::write_pending(TransactionState& state) {
  if (!state.pending) return;
  state.records->save(state.pending->key, *state.pending->row);
  state.pending.reset();
}

void StoreImpl::commit(TransactionState& state) {
  const CancellationShield shield;
  state.check_open();
  try {
    if (!in_transaction(state.handle)) {
      throw Error(
          Errc::commit_unknown,
          "the handler ended the transaction through the native handle, so what is written is "
          "not known; leave the transaction's end to the guard");
    }
    write_pending(state);
    switch (state.kind) {
      case TransactionState::Kind::own:
        transaction_lane_->commit();
        break;
      case TransactionState::Kind::adopted:
        commit_on(state.handle, state.adopted->commit, shared_);
        break;
      case TransactionState::Kind::joined:
        state.adopted->commit.use().run();
        break;
    }
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
    static_cast<void>(state.adopted.release());
    return;
  }
  const CancellationShield shield;
  try {
    if (state.kind == TransactionState::Kind::own) {
      transaction_lane_->rollback();
    } else if (in_transaction(state.handle)) {
      state.adopted->rollback.use().run();
      if (state.kind == TransactionState::Kind::joined) state.adopted->after_rollback.use().run();
    }
  } catch (const std::exception&) {
    close(state);  // an own connection is discarded; the owner of another sees its state
    return;
  }
  close(state);
}

void StoreImpl::close(TransactionState& state) noexcept {
  state.open = false;
  state.pending.reset();
  state.adopted.reset();
  transaction_threads_.remove(state.opener);
  if (state.kind == TransactionState::Kind::joined) return;
  if (state.kind == TransactionState::Kind::own &&
      (transaction_lane_->in_transaction() || shared_.commit_in_doubt.load())) {
    transaction_lane_.reset();
  }
  turn_.release();
}

}  // namespace detail::sqlite

using detail::sqlite::Row;
using detail::sqlite::TransactionState;

namespace {

/// What a store's own statement met inside a transaction.
template <class Work>
auto within(TransactionState& state, Work work) {
  const detail::CancellationShield shield;
  state.check_open();
  try {
    return work();
  } catch (const Error& error) {
    if (sqlite3_get_autocommit(state.handle) == 0) throw;
    state.lost = true;
    throw Error(Errc::transaction_lost,
                "the database ended the transaction; nothing of it is written, repeat all of it",
                error.detail());
  }
}

bool is_pending(const TransactionState& state, const Key& key) {
  return state.pending && state.pending->key == key;
}

}  // namespace

SqliteTransaction SqliteStore::open_transaction(const TransactionOptions& options) {
  return SqliteTransaction(impl_->open_own(options));
}

SqliteTransaction SqliteStore::open_transaction(SqliteConnection connection,
                                                const TransactionOptions& options) {
  return SqliteTransaction(impl_->adopt(connection.handle(), options));
}

BeginOutcome SqliteStore::begin(SqliteTransaction& transaction, const BeginRequest& request) {
  TransactionState& state = *transaction.state_;
  return within(state, [&] {
    std::optional<Row> row =
        is_pending(state, request.key) ? state.pending->row : state.records->load(request.key);
    detail::sqlite::BeginDecision decision =
        detail::sqlite::decide_begin(row, request, impl_->now());
    if (decision.change == detail::sqlite::RowChange::changed) {
      if (state.pending && !is_pending(state, request.key)) {
        state.records->save(state.pending->key, *state.pending->row);
      }
      state.pending = TransactionState::Pending{request.key, std::move(row)};
    }
    return std::move(decision.outcome);
  });
}

WriteOutcome SqliteStore::complete(SqliteTransaction& transaction, const Key& key,
                                   const Ownership& by, const Completion& completion) {
  TransactionState& state = *transaction.state_;
  return within(state, [&] {
    const auto decide = [&](std::optional<Row>& row) {
      return detail::sqlite::decide_complete(row, by, completion, impl_->now());
    };
    if (!is_pending(state, key)) return state.records->write(key, decide);
    const detail::sqlite::WriteDecision decision = decide(state.pending->row);
    if (decision.change == detail::sqlite::RowChange::changed) {
      state.records->save(key, *state.pending->row);
      state.pending.reset();
    }
    return decision.outcome;
  });
}

std::optional<Record> SqliteStore::find(SqliteTransaction& transaction, const Key& key) {
  TransactionState& state = *transaction.state_;
  return within(state, [&] {
    std::optional<Row> row = is_pending(state, key) ? state.pending->row : state.records->load(key);
    return detail::sqlite::to_record(key, std::move(row), impl_->now());
  });
}

bool SqliteStore::is_joined(const SqliteTransaction& transaction) const noexcept {
  return transaction.state_->kind == TransactionState::Kind::joined;
}

void SqliteStore::commit(SqliteTransaction& transaction) { impl_->commit(*transaction.state_); }

void SqliteStore::rollback(SqliteTransaction& transaction) noexcept {
  if (transaction.state_) impl_->rollback(*transaction.state_);
}

}  // namespace v0
}  // namespace idempotency
