#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "idempotency/detail/own_transaction.hpp"
#include "idempotency/patterns/saga_journal.hpp"
#include "idempotency/sql_transaction.hpp"
#include "idempotency/store.hpp"

namespace idempotency {
inline namespace v0 {

struct SqlSagasOptions {
  std::string table = "saga";              ///< may have a database in front
  std::string audit_table = "saga_audit";  ///< the same
};

/// The statements that make the two tables. Run them once, outside of transactions: they end them on MySQL.
[[nodiscard]] std::vector<std::string> saga_schema(const SqlSagasOptions& options,
                                                   SqlDialect dialect);

namespace detail {

/// The statements of one journal. What stands in front of each is what it is given, in order.
class SagaStatements {
 public:
  explicit SagaStatements(const SqlSagasOptions& options);

  /// definition, id, plan, steps, input, note, owner, due in
  [[nodiscard]] std::string insert(SqlDialect dialect) const;
  /// definition, id
  [[nodiscard]] std::string look(SqlDialect dialect) const;
  /// definition, plan, limit
  [[nodiscard]] std::string due(SqlDialect dialect) const;
  /// owner, lease, definition, id, plan
  [[nodiscard]] std::string take(SqlDialect dialect) const;
  /// owner, state, step, attempts, known runs, note, due in, definition, id, fence
  [[nodiscard]] std::string move(SqlDialect dialect) const;
  /// definition, after, limit
  [[nodiscard]] std::string parked(SqlDialect dialect) const;
  /// definition, ended for, limit
  [[nodiscard]] std::string clean(SqlDialect dialect) const;
  /// definition, id, decision, state, step, attempts, known runs, who, why
  [[nodiscard]] std::string remember(SqlDialect dialect) const;
  /// definition, id
  [[nodiscard]] const std::string& history() const noexcept { return history_; }

 private:
  [[nodiscard]] std::string select(SqlDialect dialect) const;

  std::string table_;
  std::string audit_table_;
  std::string history_;
};

[[nodiscard]] SagaRow saga_row(const SqlRow& row);
[[nodiscard]] SagaAudit saga_audit(const SqlRow& row);
[[nodiscard]] std::string_view bytes_of(const OwnerToken& owner) noexcept;

}  // namespace detail

/// Sagas in a table of a database, shared by any number of processes: SQLite, MySQL, MariaDB.
///
/// Each call is a transaction of its own on one of the store's connections, and judged by the server's clock (SQLite: the
/// host's). A worker claims with one conditional UPDATE of the row by its key: no lock is taken on rows of others, none on a row
/// that may not be there, and nothing depends on SKIP LOCKED, CLIENT_FOUND_ROWS or the isolation level. Not to be called within a
/// transaction of the same store.
///
/// Redis cannot carry this: it has no transaction that keeps the decision of a person and its audit together, and no queue by time
/// that its records would follow. The steps' own records may well be there.
///
/// Errors: those of `SagaJournal` and of transactions; `Errc::store_corrupt` for a row that this version cannot read.
/// Thread safety: all members may be called concurrently.
/// Lifetime: borrows the store.
template <class StoreT>
class SqlSagas {
  static_assert(TransactionalStore<StoreT>,
                "idempotency: SqlSagas needs a TransactionalStore, such as SqliteStore or "
                "MySqlStore: progress and audit must be written together.");

 public:
  /// Errors: `Errc::invalid_argument` for names that are none.
  explicit SqlSagas(StoreT& store, const SqlSagasOptions& options = {})
      : store_(&store), statements_(options) {}
  explicit SqlSagas(const StoreT&& store, const SqlSagasOptions& options = {}) = delete;

  SagaRow create(const SagaStart& start) {
    detail::check(start);
    return in_transaction([&](auto& tx) {
      tx.execute(statements_.insert(tx.dialect()), blob(start.name.definition), blob(start.name.id),
                 blob(start.plan), start.steps, blob(start.input), blob({}),
                 blob(detail::bytes_of(OwnerToken{})), std::int64_t{0});
      return look(tx, start.name).value();
    });
  }

  /// Looks and takes in two transactions: what was read before another's commit decides nothing.
  [[nodiscard]] std::optional<SagaRow> claim(const SagaClaim& claim) {
    detail::check(claim);
    while (true) {
      const std::vector<std::string> candidates =
          claim.id ? std::vector<std::string>{*claim.id} : due(claim);
      for (const std::string& id : candidates) {
        if (std::optional<SagaRow> row = take(claim, {claim.definition, id})) return row;
      }
      if (claim.id || candidates.empty()) return std::nullopt;
    }
  }

  [[nodiscard]] std::optional<SagaRow> advance(const SagaRow& seen, const SagaChange& change) {
    return in_transaction([&](auto& tx) -> std::optional<SagaRow> {
      static_cast<void>(move(tx, seen, change, seen.claim.owner));
      std::optional<SagaRow> row = look(tx, seen.name);
      if (!row || row->claim != Ownership{seen.claim.owner, seen.claim.fence + 1}) {
        return std::nullopt;
      }
      return row;
    });
  }

  [[nodiscard]] WriteOutcome decide(const SagaRow& seen, const SagaVerdict& verdict) {
    detail::check(verdict);
    if (!is_parked(seen.progress.state)) return WriteOutcome::lost;
    const SagaChange change = detail::change_of(seen, verdict);
    return in_transaction([&](auto& tx) {
      if (move(tx, seen, change, verdict.by)) {
        const SagaProgress& about = seen.progress;
        tx.execute(statements_.remember(tx.dialect()), blob(seen.name.definition),
                   blob(seen.name.id), static_cast<int>(verdict.decision),
                   static_cast<int>(about.state), about.step, about.attempts, about.known_runs,
                   blob(verdict.who), blob(verdict.why));
        return WriteOutcome::stored;
      }
      const std::optional<SagaRow> row = look(tx, seen.name);
      const bool repeated = row && row->claim == Ownership{verdict.by, seen.claim.fence + 1};
      return repeated ? WriteOutcome::stored : WriteOutcome::lost;
    });
  }

  [[nodiscard]] std::optional<SagaRow> find(const SagaName& name) {
    return in_transaction([&](auto& tx) { return look(tx, name); });
  }

  [[nodiscard]] std::vector<SagaRow> list_parked(std::string_view definition,
                                                 std::string_view after, std::size_t limit) {
    return in_transaction([&](auto& tx) {
      std::vector<SagaRow> rows;
      for (const SqlRow& row : tx.query(statements_.parked(tx.dialect()), blob(definition),
                                        blob(after), static_cast<std::int64_t>(limit)))
        rows.push_back(detail::saga_row(row));
      return rows;
    });
  }

  [[nodiscard]] std::vector<SagaAudit> history(const SagaName& name) {
    return in_transaction([&](auto& tx) {
      std::vector<SagaAudit> lines;
      for (const SqlRow& row :
           tx.query(statements_.history(), blob(name.definition), blob(name.id)))
        lines.push_back(detail::saga_audit(row));
      return lines;
    });
  }

  std::size_t clean(std::string_view definition, std::chrono::milliseconds ended_for,
                    std::size_t limit) {
    return in_transaction([&](auto& tx) {
      return static_cast<std::size_t>(tx.execute(statements_.clean(tx.dialect()), blob(definition),
                                                 std::int64_t{ended_for.count()},
                                                 static_cast<std::int64_t>(limit))
                                          .matched);
    });
  }

 private:
  static SqlBlobView blob(std::string_view bytes) noexcept { return {bytes}; }

  template <class Work>
  auto in_transaction(Work&& work) {
    return detail::in_own_transaction(*store_, std::forward<Work>(work));
  }

  [[nodiscard]] std::vector<std::string> due(const SagaClaim& claim) {
    constexpr int enough_for_rivals = 8;
    return in_transaction([&](auto& tx) {
      std::vector<std::string> ids;
      for (const SqlRow& row : tx.query(statements_.due(tx.dialect()), blob(claim.definition),
                                        blob(claim.plan), enough_for_rivals))
        ids.push_back(row.as<SqlBlob>(0).bytes);
      return ids;
    });
  }

  /// A claim whose answer was lost finds its own token.
  [[nodiscard]] std::optional<SagaRow> take(const SagaClaim& claim, const SagaName& name) {
    return in_transaction([&](auto& tx) -> std::optional<SagaRow> {
      tx.execute(statements_.take(tx.dialect()), blob(detail::bytes_of(claim.worker)),
                 std::int64_t{claim.lease.count()}, blob(name.definition), blob(name.id),
                 blob(claim.plan));
      std::optional<SagaRow> row = look(tx, name);
      if (!row || row->claim.owner != claim.worker) return std::nullopt;
      return row;
    });
  }

  template <class Transaction>
  [[nodiscard]] bool move(Transaction& tx, const SagaRow& seen, const SagaChange& change,
                          const OwnerToken& by) const {
    std::optional<std::int64_t> due_in;
    if (change.due_in) due_in = change.due_in->count();
    const SagaProgress& to = change.to;
    return tx.execute(statements_.move(tx.dialect()), blob(detail::bytes_of(by)),
                      static_cast<int>(to.state), to.step, to.attempts, to.known_runs,
                      blob(detail::cut(change.note)), due_in, blob(seen.name.definition),
                      blob(seen.name.id), seen.claim.fence)
               .matched != 0;
  }

  template <class Transaction>
  [[nodiscard]] std::optional<SagaRow> look(Transaction& tx, const SagaName& name) const {
    const SqlRows rows =
        tx.query(statements_.look(tx.dialect()), blob(name.definition), blob(name.id));
    if (rows.empty()) return std::nullopt;
    return detail::saga_row(rows.at(0));
  }

  StoreT* store_;
  detail::SagaStatements statements_;
};

}  // namespace v0
}  // namespace idempotency
