#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "idempotency/detail/lock_row.hpp"
#include "idempotency/detail/own_transaction.hpp"
#include "idempotency/patterns/lock_carrier.hpp"
#include "idempotency/sql_transaction.hpp"
#include "idempotency/store.hpp"

namespace idempotency {
inline namespace v0 {

struct SqlLocksOptions {
  std::string table = "idempotency_lock";  ///< may have a database in front
};

/// The statement that makes the table of locks. Run it once, outside of transactions: it ends them on MySQL.
[[nodiscard]] std::string locks_schema(std::string_view table, SqlDialect dialect);

namespace detail {

/// The statements of one table.
class SqlLockRows {
 public:
  explicit SqlLockRows(const SqlLocksOptions& options);

  [[nodiscard]] std::string make(SqlDialect dialect) const;     ///< name, owner
  [[nodiscard]] std::string look(SqlDialect dialect) const;     ///< name
  [[nodiscard]] std::string look_at(SqlDialect dialect) const;  ///< name; the row stays locked
  [[nodiscard]] std::string write(SqlDialect dialect) const;    ///< owner, fence, until, name
  [[nodiscard]] std::string renew(SqlDialect dialect) const;    ///< lease, name, owner, fence
  [[nodiscard]] std::string release(SqlDialect dialect) const;  ///< name, owner
  [[nodiscard]] std::string clean(SqlDialect dialect) const;    ///< age, age, limit

 private:
  [[nodiscard]] std::string update(SqlDialect dialect, std::string_view assignments) const;

  std::string table_;
};

[[nodiscard]] inline SqlBlobView blob_of(const OwnerToken& owner) noexcept {
  return {{reinterpret_cast<const char*>(owner.bytes().data()), owner.bytes().size()}};
}
/// Errors: `Errc::invalid_argument` for one below a second.
void check_lock_age(std::chrono::milliseconds age);
/// Errors: `Errc::store_corrupt` for bytes that are no owner.
[[nodiscard]] OwnerToken owner_of(const SqlValue& value);

}  // namespace detail

/// Locks in a table of a SQL database, one row for each name, judged by the server's clock (SQLite: the host's). Each call is a
/// transaction of its own on one of the store's connections. SQLite has one writer: while a transaction of the caller's is open,
/// locks in the same file are neither acquired nor renewed, so keep it short beside the lease.
///
/// Depends neither on CLIENT_FOUND_ROWS nor on the isolation level. A row stays when its lock is released, so that no fence falls;
/// `clean` removes rows that are long out of use.
///
/// Errors: those of the store and its transactions.
/// Thread safety: all members may be called concurrently.
/// Lifetime: refers to the store.
template <TransactionalStore StoreT>
class SqlLocks {
 public:
  /// Errors: `Errc::invalid_argument` for a table's name that is none.
  explicit SqlLocks(StoreT& store, const SqlLocksOptions& options = {})
      : store_(&store), rows_(options) {}
  explicit SqlLocks(const StoreT&& store, const SqlLocksOptions& options = {}) = delete;

  [[nodiscard]] LockOutcome acquire(const Key& key, const OwnerToken& owner,
                                    std::chrono::milliseconds lease) {
    detail::check_lock_lease(lease);
    return detail::in_own_transaction(*store_, [&](auto& transaction) {
      auto [row, now] = take(transaction, key);
      const LockOutcome outcome = detail::acquire_in(row, owner, now, lease);
      if (std::holds_alternative<LockAcquired>(outcome)) write(transaction, key, row);
      return outcome;
    });
  }
  [[nodiscard]] WriteOutcome renew(const Key& key, const Ownership& by,
                                   std::chrono::milliseconds lease) {
    detail::check_lock_lease(lease);
    return changed([&](auto& transaction) {
      return transaction.execute(rows_.renew(transaction.dialect()), std::int64_t{lease.count()},
                                 SqlBlobView{key.text()}, detail::blob_of(by.owner), by.fence);
    });
  }
  WriteOutcome release(const Key& key, const OwnerToken& owner) {
    return changed([&](auto& transaction) {
      return transaction.execute(rows_.release(transaction.dialect()), SqlBlobView{key.text()},
                                 detail::blob_of(owner));
    });
  }
  std::uint64_t force_release(const Key& key) {
    return detail::in_own_transaction(*store_, [&](auto& transaction) {
      auto [row, now] = take(transaction, key);
      detail::force_release_in(row, now);
      write(transaction, key, row);
      return row.fence;
    });
  }
  [[nodiscard]] std::optional<LockView> look(const Key& key) {
    return detail::in_own_transaction(*store_, [&](auto& transaction) {
      const SqlRows rows =
          transaction.query(rows_.look(transaction.dialect()), SqlBlobView{key.text()});
      if (rows.empty()) return std::optional<LockView>();
      const auto [row, now] = read(rows.at(0));
      return std::optional<LockView>({row.fence, detail::remaining_of(row, now)});
    });
  }
  /// Removes up to `limit` rows of locks that nobody has held for an `age`; says how many. The fences of a lock that is removed go on from
  /// the server's clock, so the age is longer than that may be set back.
  ///
  /// Errors: `Errc::invalid_argument` for an age below a second.
  std::uint64_t clean(std::uint32_t limit, std::chrono::milliseconds age = std::chrono::hours{24}) {
    detail::check_lock_age(age);
    return detail::in_own_transaction(*store_, [&](auto& transaction) {
      return transaction
          .execute(rows_.clean(transaction.dialect()), std::int64_t{age.count()},
                   std::int64_t{age.count()}, limit)
          .matched;
    });
  }

 private:
  struct Found {
    detail::LockRow row;
    std::int64_t now;
  };

  static Found read(const SqlRow& row) {
    return {{detail::owner_of(row.at(0)), row.as<std::uint64_t>(1), row.as<std::int64_t>(2)},
            row.as<std::int64_t>(3)};
  }
  /// The row, locked. It is made first: there is no lock on a row that is not there.
  template <class Transaction>
  Found take(Transaction& transaction, const Key& key) {
    const SqlBlobView name{key.text()};
    transaction.execute(rows_.make(transaction.dialect()), name, detail::blob_of(OwnerToken{}));
    return read(transaction.query(rows_.look_at(transaction.dialect()), name).at(0));
  }
  template <class Transaction>
  void write(Transaction& transaction, const Key& key, const detail::LockRow& row) {
    transaction.execute(rows_.write(transaction.dialect()), detail::blob_of(row.owner), row.fence,
                        row.held_until, SqlBlobView{key.text()});
  }
  template <class Statement>
  WriteOutcome changed(Statement statement) {
    return detail::in_own_transaction(*store_, [&](auto& transaction) {
      return statement(transaction).matched != 0 ? WriteOutcome::stored : WriteOutcome::lost;
    });
  }

  StoreT* store_;
  detail::SqlLockRows rows_;
};

}  // namespace v0
}  // namespace idempotency
