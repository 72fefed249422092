#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sqlite/sqlite_connection.hpp"
#include "sqlite/sqlite_row.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail::sqlite {

/// The statements on the table of records, on one connection.
///
/// Writing members are called inside a write transaction, so that what they judge cannot change
/// under them.
class Records {
 public:
  Records(sqlite3* database, const std::string& table);

  [[nodiscard]] std::optional<Row> load(const Key& key);
  void save(const Key& key, const Row& row);
  /// Removes the record when it is past its retention.
  [[nodiscard]] bool remove_expired(const Key& key, Timestamp now);

  /// The answer when reading settles it: the record says no, and nothing has to be written.
  [[nodiscard]] std::optional<BeginOutcome> peek(const BeginRequest& request, Timestamp now);

  [[nodiscard]] BeginOutcome begin(const BeginRequest& request, Timestamp now);

  /// Loads, lets `decide(row)` judge, and saves what changed.
  template <class Decide>
  [[nodiscard]] WriteOutcome write(const Key& key, Decide decide) {
    std::optional<Row> row = load(key);
    const WriteDecision decision = decide(row);
    if (decision.change == RowChange::changed) save(key, *row);
    return decision.outcome;
  }

  /// Takes the write lock without writing.
  void lock();

 private:
  [[nodiscard]] std::optional<Row> load_success(const Key& key);

  Statement select_;
  Statement select_success_;
  Statement replace_;
  Statement delete_;
  Statement lock_;
};

/// The columns that `read_row` reads, in its order.
[[nodiscard]] const std::string& row_columns();

/// Reads a row whose columns begin at `first`.
///
/// Errors: `Errc::store_corrupt` for values that this library cannot have written.
[[nodiscard]] Row read_row(const Statement::Use& use, int first);

/// Milliseconds for a column; nothing for `never`.
[[nodiscard]] std::optional<std::int64_t> to_column(Timestamp time) noexcept;

}  // namespace detail::sqlite
}  // namespace v0
}  // namespace idempotency
