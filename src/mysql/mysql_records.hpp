#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "idempotency/store.hpp"
#include "mysql/mysql_connection.hpp"
#include "mysql/mysql_row.hpp"
#include "mysql/mysql_statements.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail::mysql {

/// How statements travel: prepared ones are kept for the next call, text needs no round trip of its own to prepare.
enum class Travel : std::uint8_t { prepared, text };

/// Rows of one type in the order of their values: those behind a value, up to another or to the end of the type. One after the other
/// they are the table, so that no statement reads all of it.
struct Stretch {
  std::string type;
  std::string behind;  ///< empty: from the type's first
  std::optional<std::string> last = std::nullopt;
};

/// The records of one table over one connection, alone or inside a transaction.
class Records {
 public:
  /// Each write commits by itself.
  Records(Connection& connection, const Statements& statements) noexcept
      : connection_(&connection), statements_(&statements) {}
  /// Within a transaction; `prefix` stands before the statement of `begin`.
  Records(Connection& connection, const Statements& statements, Travel travel,
          std::string prefix) noexcept
      : connection_(&connection),
        statements_(&statements),
        prefix_(std::move(prefix)),
        travel_(travel),
        read_(Stage::within),
        write_(Stage::within) {}

  /// Lets the next `begin` set a savepoint in the same statement. Preconditions: `Travel::text`, MariaDB.
  void open_with(const std::string& savepoint);
  /// Whether no `begin` has set the savepoint of `open_with` yet.
  [[nodiscard]] bool owes_savepoint() const noexcept { return !opening_.empty(); }
  /// Sets it in a statement of its own.
  void set_savepoint();

  [[nodiscard]] BeginOutcome begin(const BeginRequest& request);
  /// Outcomes in the order of the requests. Preconditions: not within a transaction.
  [[nodiscard]] std::vector<std::optional<BeginOutcome>> begin_many(
      const std::vector<BeginRequest>& requests);
  [[nodiscard]] WriteOutcome issue(const IssueRequest& request);
  /// The answer to `begin` when nothing has to be written for it.
  [[nodiscard]] std::optional<BeginOutcome> peek(const BeginRequest& request);
  [[nodiscard]] WriteOutcome complete(const Key& key, const Ownership& by,
                                      const Completion& completion);
  [[nodiscard]] WriteOutcome fail(const Key& key, const Ownership& by, const Failure& failure,
                                  std::chrono::milliseconds retention);
  [[nodiscard]] WriteOutcome doubt(const Key& key, const Ownership& by);
  [[nodiscard]] WriteOutcome mark_effect(const Key& key, const Ownership& by);
  [[nodiscard]] WriteOutcome renew(const Key& key, const Ownership& by,
                                   std::chrono::milliseconds lease);
  [[nodiscard]] WriteOutcome release(const Key& key, const Ownership& by,
                                     std::chrono::milliseconds retention);
  [[nodiscard]] WriteOutcome resolve(const Record& seen, const Resolution& resolution);
  [[nodiscard]] std::optional<Record> find(const Key& key);
  /// All or none. Errors: `Errc::store_busy` soon when another transaction holds one of the rows.
  [[nodiscard]] std::vector<WriteOutcome> renew_many(const std::vector<Renewal>& renewals);

  [[nodiscard]] RecordPage list(const RecordFilter& filter, const Key* after, std::size_t limit);
  /// The next stretch behind one of up to `rows` rows, or the first; nothing at the end of the table.
  [[nodiscard]] std::optional<Stretch> stretch_behind(const std::optional<Stretch>& before,
                                                      std::size_t rows);
  [[nodiscard]] std::vector<Key> expired_in(const Stretch& stretch, std::size_t limit);
  [[nodiscard]] std::size_t remove_expired(const std::vector<Key>& keys);

  /// What one of them adds to the statement of `renew_many`, `remove_expired` or `begin_many`, at most.
  [[nodiscard]] static std::uint64_t bytes_in_batch(const Key& key) noexcept;
  [[nodiscard]] static std::uint64_t bytes_in_batch(const Renewal& renewal) noexcept {
    return bytes_in_batch(renewal.key);
  }
  [[nodiscard]] static std::uint64_t bytes_in_batch(const BeginRequest& request) noexcept;
  /// The statement of `complete` with its parameters.
  [[nodiscard]] static std::string complete_text(const Statements& statements, const Key& key,
                                                 const Ownership& by, const Completion& completion);

 private:
  [[nodiscard]] BeginOutcome begin_issued(const BeginRequest& request, Parameter current,
                                          Parameter earlier);
  struct Rows;
  [[nodiscard]] Rows insert_or_look(const std::vector<const BeginRequest*>& requests);
  [[nodiscard]] std::optional<BeginOutcome> insert_or_look(Parameters parameters,
                                                           const BeginRequest& request);
  Reply send(const std::string& sql, Parameters parameters, Stage stage);
  /// The statement of `begin`: behind the prefix, and with the savepoint that is owed.
  Reply send_begin(const std::string& sql, Parameters parameters);
  [[nodiscard]] std::optional<Row> select(const std::string& sql, const Key& key);
  [[nodiscard]] Reply look_up(const std::string& sql, const Key& key);
  WriteOutcome write(const std::string& sql, Parameters parameters, const Key& key,
                     const Ownership& by, Event event);

  Connection* connection_;
  const Statements* statements_;
  std::string prefix_;
  std::string opening_;
  Travel travel_ = Travel::prepared;
  Stage read_ = Stage::read;
  Stage write_ = Stage::write;
};

}  // namespace detail::mysql
}  // namespace v0
}  // namespace idempotency
