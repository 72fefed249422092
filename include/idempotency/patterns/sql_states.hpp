#pragma once

#include <concepts>
#include <optional>
#include <string>
#include <string_view>

#include "idempotency/detail/own_transaction.hpp"
#include "idempotency/detail/sql_names.hpp"
#include "idempotency/error.hpp"
#include "idempotency/patterns/state_machine.hpp"
#include "idempotency/sql_transaction.hpp"
#include "idempotency/store.hpp"

namespace idempotency {
inline namespace v0 {

/// Which table holds the objects and their states.
struct SqlStatesOptions {
  std::string table;  ///< may have a database in front: `shop.orders`
  std::string id_column = "id";
  std::string state_column = "state";  ///< text that compares byte by byte: the states' names
  /// Where each move leaves a row; empty: nowhere. See `history_schema`.
  std::string history_table = {};
};

namespace detail {

/// The statements of one carrier.
struct SqlStatesStatements {
  explicit SqlStatesStatements(const SqlStatesOptions& options);

  std::string move;  ///< to, id, from
  std::string look;  ///< id
  std::string history_insert;
  bool has_history;

  [[nodiscard]] std::string look_now(SqlDialect dialect) const;
  /// object, from, to, who, why, key
  [[nodiscard]] std::string remember(SqlDialect dialect) const;
};

}  // namespace detail

/// The statement that makes a table for histories. Run it once, outside of transactions: it ends them on MySQL.
[[nodiscard]] std::string history_schema(std::string_view table, SqlDialect dialect);

/// Moves objects of a SQL table through their states: one compare-and-set UPDATE a move.
///
/// Inside a transaction (the guard's: the move, the record and the business rows commit together) or alone, in a
/// transaction of its own on a store's connection. Depends neither on CLIENT_FOUND_ROWS nor on the isolation level: what
/// is told of an object that was not moved is what is committed, or the transaction's own.
///
/// Errors of every `transition`: those of the transaction; `Errc::store_corrupt` for a stored text that is no state of the
/// machine; `Errc::invalid_argument` for a state that the machine does not list, before anything is sent, and for an id that named
/// several rows (a number for a column of text, a column that is not unique): let it pass, so that the transaction is rolled back.
/// Thread safety: constant after construction; each transaction belongs to one thread.
/// Lifetime: refers to the machine.
template <class State>
class SqlStates {
 public:
  /// Errors: `Errc::invalid_argument` for names that are none.
  SqlStates(const StateMachine<State>& machine, const SqlStatesOptions& options)
      : machine_(&machine), statements_(options) {}
  SqlStates(const StateMachine<State>&& machine, const SqlStatesOptions& options) = delete;

  /// Within `transaction`.
  template <SqlTransaction Transaction, class Id>
  TransitionResult<State> transition(Transaction& transaction, const Id& id, State from, State to,
                                     const TransitionNote& note = {}) const {
    const std::string_view from_name = detail::listed_name(*machine_, from);
    const std::string_view to_name = detail::listed_name(*machine_, to);
    if (!machine_->allows(from, to)) {
      return TransitionResult<State>(TransitionStatus::forbidden);
    }
    if (detail::changed_one_row(transaction.execute(statements_.move, to_name, id, from_name))) {
      if (statements_.has_history) {
        transaction.execute(statements_.remember(transaction.dialect()), id, from_name, to_name,
                            note.who, note.why, note.key);
      }
      return TransitionResult<State>(TransitionStatus::moved, to);
    }
    const std::optional<State> actual = look(transaction, id);
    if (!actual) return TransitionResult<State>(TransitionStatus::missing);
    return detail::not_moved(*actual, to);
  }

  /// In a transaction of its own.
  template <TransactionalStore StoreT, class Id>
  TransitionResult<State> transition(StoreT& store, const Id& id, State from, State to,
                                     const TransitionNote& note = {}) const {
    return detail::in_own_transaction(
        store, [&](auto& transaction) { return transition(transaction, id, from, to, note); });
  }

  /// The state of an object now; nothing when there is none.
  template <SqlTransaction Transaction, class Id>
  [[nodiscard]] std::optional<State> look(Transaction& transaction, const Id& id) const {
    const SqlRows rows = transaction.query(statements_.look_now(transaction.dialect()), id);
    if (rows.empty()) return std::nullopt;
    return detail::state_of(*machine_, detail::text_of(rows.at(0).at(0)));
  }

 private:
  const StateMachine<State>* machine_;
  detail::SqlStatesStatements statements_;
};

}  // namespace v0
}  // namespace idempotency
