#include "idempotency/stores/mysql_transaction.hpp"

#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "idempotency/stores/mysql_handle.hpp"
#include "mysql/mysql_store_impl.hpp"
#include "mysql/mysql_text.hpp"

namespace idempotency {
inline namespace v0 {

using detail::mysql::Parameter;
using detail::mysql::Reply;
using detail::mysql::Stage;
using detail::mysql::TransactionState;

namespace {

Reply execute_in(TransactionState& state, std::string_view sql,
                 std::span<const SqlParameter> parameters) {
  const detail::CancellationShield shield;
  state.check_open();
  if (detail::mysql::ends_transaction(sql)) {
    throw Error(
        Errc::invalid_argument,
        "the transaction belongs to the guard: return to commit it, throw to roll it back; "
        "statements that commit by themselves, that hold others (IF, FOR, /*! */), and settings "
        "of autocommit, completion_type and timestamp are refused",
        std::string(sql));
  }
  state.write_pending();
  std::vector<Parameter> values;
  values.reserve(parameters.size());
  for (const SqlParameter& parameter : parameters)
    values.push_back(parameter.value());
  state.reach = TransactionState::Reach::changed;
  state.doubtful = state.doubtful || !detail::mysql::cannot_end_transaction(sql);
  try {
    state.records.set_savepoint();
    Reply reply = state.connection->execute(sql, values, Stage::handler);
    state.check_still_in_transaction();
    return reply;
  } catch (const Error& error) {
    state.doubtful = true;
    state.note(error);
    throw;
  }
}

}  // namespace

MySqlTransaction::MySqlTransaction(std::unique_ptr<TransactionState> state) noexcept
    : state_(std::move(state)) {}
MySqlTransaction::MySqlTransaction(MySqlTransaction&&) noexcept = default;

MySqlTransaction& MySqlTransaction::operator=(MySqlTransaction&& other) noexcept {
  if (this != &other) {
    if (state_) state_->store->rollback(*state_);
    state_ = std::move(other.state_);
  }
  return *this;
}

MySqlTransaction::~MySqlTransaction() {
  if (state_) state_->store->rollback(*state_);
}

SqlChanges MySqlTransaction::execute_with(std::string_view sql,
                                          std::span<const SqlParameter> parameters) {
  return execute_in(*state_, sql, parameters).changes;
}

SqlRows MySqlTransaction::query_with(std::string_view sql,
                                     std::span<const SqlParameter> parameters) {
  Reply reply = execute_in(*state_, sql, parameters);
  std::vector<SqlRow> rows;
  rows.reserve(reply.rows.size());
  for (detail::mysql::Cells& cells : reply.rows) {
    std::vector<SqlValue> values;
    values.reserve(cells.size());
    for (SqlValue::Value& cell : cells)
      values.emplace_back(std::move(cell));
    rows.emplace_back(reply.columns, std::move(values));
  }
  return SqlRows(std::move(rows));
}

SqlDialect MySqlTransaction::dialect() const noexcept { return state_->store->dialect(); }

MySqlConnection MySqlTransaction::native_handle() noexcept {
  state_->reach = TransactionState::Reach::changed;
  state_->doubtful = true;
  try {
    state_->records.set_savepoint();
  } catch (const std::exception&) {
    state_->lost = true;
  }
  return detail::mysql::HandleAccess::wrap(state_->connection->handle());
}

}  // namespace v0
}  // namespace idempotency
