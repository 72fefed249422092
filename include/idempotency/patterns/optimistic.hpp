#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "idempotency/detail/sql_names.hpp"
#include "idempotency/error.hpp"
#include "idempotency/patterns/retry.hpp"
#include "idempotency/sql_transaction.hpp"

namespace idempotency {
inline namespace v0 {

/// What became of a versioned update.
enum class UpdateStatus : std::uint8_t {
  updated = 1,  ///< it was at the version that was seen, and is one further now
  conflict,     ///< somebody was faster: read again and decide again; nothing was written
  missing,      ///< there is no such row
};

/// The answer of `VersionedTable::update`.
///
/// Thread safety: a value; distinct copies may be used concurrently.
struct [[nodiscard]] UpdateResult {
  UpdateStatus status = UpdateStatus::missing;
  std::uint64_t version = 0;  ///< the row's now; 0 when it is missing
  friend bool operator==(const UpdateResult&, const UpdateResult&) = default;
};

/// Where rows and their versions are.
struct VersionedTableOptions {
  std::string table;  ///< may have a database in front: `shop.account`
  std::string id_column = "id";
  std::string version_column = "version";  ///< an integer that only this changes, from any value on
};

/// Rows that are changed only by who has seen their last version: one UPDATE, no lock between reading and writing.
///
/// A repetition of an update that was made, but whose answer was lost, is a `conflict` like any other: whether the change was
/// one's own only the guard's record tells. Use it inside `run_in_transaction` where that matters.
///
/// Errors of the members: those of the transaction; `Errc::invalid_argument` for an id that named several rows: let it pass, so that the
/// transaction is rolled back.
/// Thread safety: constant after construction; each transaction belongs to one thread.
class VersionedTable {
 public:
  /// Errors: `Errc::invalid_argument` for names that are none.
  explicit VersionedTable(const VersionedTableOptions& options);

  /// Changes one row that is still at `seen`. `assignments` are those of an UPDATE, `cents = ?, note = ?`, with `parameters`
  /// for their `?`.
  template <SqlTransaction Transaction, class Id, class... Parameters>
  UpdateResult update(Transaction& transaction, const Id& id, std::uint64_t seen,
                      std::string_view assignments, const Parameters&... parameters) const {
    if (detail::changed_one_row(
            transaction.execute(statement_for(assignments), parameters..., id, seen))) {
      return {UpdateStatus::updated, seen + 1};
    }
    const std::optional<std::uint64_t> now = version(transaction, id);
    if (!now) return {UpdateStatus::missing, 0};
    return {UpdateStatus::conflict, *now};
  }

  /// The version of a row as it is committed, or as this transaction has written it; nothing when there is none.
  template <SqlTransaction Transaction, class Id>
  [[nodiscard]] std::optional<std::uint64_t> version(Transaction& transaction, const Id& id) const {
    const SqlRows rows =
        transaction.query(look_ + std::string(detail::current_read(transaction.dialect())), id);
    if (rows.empty()) return std::nullopt;
    return rows.at(0).template as<std::uint64_t>(0);
  }

 private:
  [[nodiscard]] std::string statement_for(std::string_view assignments) const;

  std::string update_;  ///< up to SET
  std::string condition_;
  std::string look_;
};

/// Calls `fn`, which reads, decides and updates, until it is no `conflict`, while the policy lasts. The answer is the last one's.
///
/// Each call must read in a transaction of its own: within one under REPEATABLE READ, a second look shows the first snapshot. Conflicts
/// cost no budget: the server answers.
///
/// Errors: those of `fn`; an `Error` that is safe to retry is retried as well, and costs the budget.
template <class Fn>
UpdateResult retry_on_conflict(const RetryPolicy& policy, Fn&& fn, const RetryParts& parts = {}) {
  static_assert(std::is_same_v<std::invoke_result_t<Fn&>, UpdateResult>,
                "idempotency: what retry_on_conflict repeats returns the UpdateResult of its "
                "update.");
  detail::RetryLoop loop(policy, parts);
  while (true) {
    try {
      const UpdateResult result = fn();
      if (result.status != UpdateStatus::conflict || !loop.again_for_nothing()) return result;
    } catch (const Error& error) {
      if (!error.safe_to_retry() || !loop.again()) throw;
    }
  }
}

}  // namespace v0
}  // namespace idempotency
