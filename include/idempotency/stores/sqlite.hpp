#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "idempotency/clock.hpp"
#include "idempotency/observer.hpp"
#include "idempotency/store.hpp"
#include "idempotency/stores/sqlite_transaction.hpp"

namespace idempotency {
inline namespace v0 {

/// When SQLite asks the disk to keep what was committed.
enum class SqliteDurability : std::uint8_t {
  full,    ///< at every commit: what was acknowledged survives a power failure
  normal,  ///< at checkpoints only: a power failure may lose the last commits, a crash does not
};

/// Whether foreign keys are enforced for the handler's statements in transactions on the store's
/// own connection.
enum class SqliteForeignKeys : std::uint8_t { not_enforced, enforced };

/// How a `SqliteStore` is set up.
struct SqliteOptions {
  /// The database file, made when it is not there. Must be a file: each connection to ":memory:"
  /// has a database of its own.
  std::string path = {};
  SqliteDurability durability = SqliteDurability::full;
  /// How long a call waits for others' transactions before `Errc::store_busy`.
  std::chrono::milliseconds busy_timeout{5'000};
  /// Connections that read, at most; opened when needed.
  std::size_t connections = 8;
  /// Begins the names of the store's tables: letters, digits and '_', at most 32.
  std::string table_prefix = "idempotency_";
  /// Writes that share one commit, at most.
  std::size_t max_batch = 256;
  SqliteForeignKeys foreign_keys = SqliteForeignKeys::not_enforced;
  /// The name of a registered SQLite VFS; empty: SQLite's default.
  std::string vfs = {};
  /// Judges leases and retentions. Null: the host's clock, so all processes on one file must run on
  /// one host (which WAL requires anyway) and the host's clock must be kept right.
  const Clock* clock = nullptr;
  /// Hears of hazards in the set-up. May be null.
  Observer* observer = nullptr;

  /// Options from `sqlite:PATH`.
  ///
  /// Errors: `Errc::invalid_argument` for another form.
  [[nodiscard]] static SqliteOptions from_address(std::string_view address);
};

namespace detail::sqlite {
class StoreImpl;
}  // namespace detail::sqlite

/// Records in a table of one SQLite file, in WAL mode, shared by any number of processes on one
/// host.
///
/// A duplicate is one prepared SELECT on a pooled connection, concurrent with others and with a
/// writer. Writes of many threads share commits: a thread whose write is alone commits at once,
/// without a background thread. Under `SqliteDurability::full` a first run costs two flushes
/// (begin, complete), a transaction one, a duplicate none.
///
/// SQLite lets one transaction write at a time: while a handler is in `run_in_transaction`, every
/// other write on the file waits, renewals too, so handlers in transactions should be short against
/// the leases in use.
///
/// Errors: those of `Store`; when opening, `Errc::store_refused` for a table of another shape or a
/// newer version and for a database that cannot be used in WAL mode, `Errc::store_unavailable` for
/// a file that cannot be opened, `Errc::invalid_argument` for unusable options.
/// Thread safety: all members may be called concurrently. A thread with an open transaction cannot
/// write past it: `Errc::nested_transaction`, at once.
/// Lifetime: must outlive its transactions. In the child of a `fork()` every call throws
/// `Errc::used_after_fork`, and the child cannot open the same file while it runs the same program:
/// SQLite forbids it. Fork before opening, or exec.
class SqliteStore {
 public:
  using Transaction = SqliteTransaction;
  using Connection = SqliteConnection;

  explicit SqliteStore(SqliteOptions options);
  template <detail::TextLike Address>
  explicit SqliteStore(const Address& address)
      : SqliteStore(SqliteOptions::from_address(std::string_view(address))) {}
  SqliteStore(const SqliteStore&) = delete;
  SqliteStore& operator=(const SqliteStore&) = delete;
  ~SqliteStore();

  [[nodiscard]] BeginOutcome begin(const BeginRequest& request);
  [[nodiscard]] std::vector<std::optional<BeginOutcome>> begin_many(
      const std::vector<BeginRequest>& requests);
  [[nodiscard]] WriteOutcome issue(const IssueRequest& request);
  [[nodiscard]] WriteOutcome complete(const Key& key, const Ownership& by,
                                      const Completion& completion);
  [[nodiscard]] WriteOutcome fail(const Key& key, const Ownership& by, const Failure& failure,
                                  std::chrono::milliseconds retention);
  [[nodiscard]] WriteOutcome doubt(const Key& key, const Ownership& by);
  [[nodiscard]] WriteOutcome mark_effect(const Key& key, const Ownership& by);
  [[nodiscard]] WriteOutcome renew(const Key& key, const Ownership& by,
                                   std::chrono::milliseconds lease);
  [[nodiscard]] ReleaseOutcome release(const Key& key, const Ownership& by,
                                       std::chrono::milliseconds retention) noexcept;
  [[nodiscard]] std::optional<Record> find(const Key& key);
  /// A duplicate found here needs no place in the writers' line.
  [[nodiscard]] std::optional<Record> peek(const Key& key) { return find(key); }

  [[nodiscard]] RecordPage list(const RecordFilter& filter, const std::string& cursor,
                                std::size_t limit);
  [[nodiscard]] WriteOutcome resolve(const Record& seen, const Resolution& resolution);
  /// Goes on where the last call ended, so that a large table is not read from its start each time;
  /// reads all of it when it finds fewer than `limit`.
  std::size_t purge(std::size_t limit);
  [[nodiscard]] StoreStatistics statistics();

  /// All in one commit.
  [[nodiscard]] std::vector<WriteOutcome> renew_many(const std::vector<Renewal>& renewals);

  /// A transaction on the store's own connection, in its turn: first come, first served.
  ///
  /// Errors: `Errc::store_busy` after `options.wait`; `Errc::nested_transaction` on a thread that
  /// has one open.
  [[nodiscard]] SqliteTransaction open_transaction(const TransactionOptions& options = {});
  /// A transaction on the application's connection, whose main database must be this store's file.
  ///
  /// Outside a transaction one is begun (BEGIN IMMEDIATE) and will be committed; inside one, it is
  /// joined through a savepoint.
  ///
  /// Errors: also `Errc::transaction_lost`, at once, when the transaction to be joined has read
  /// from a state of the database that others have changed since: roll it back and start anew.
  /// `Errc::invalid_argument` for a connection to another database. The connection's own busy
  /// handler may add to `options.wait`.
  [[nodiscard]] SqliteTransaction open_transaction(SqliteConnection connection,
                                                   const TransactionOptions& options = {});
  [[nodiscard]] BeginOutcome begin(SqliteTransaction& transaction, const BeginRequest& request);
  [[nodiscard]] WriteOutcome complete(SqliteTransaction& transaction, const Key& key,
                                      const Ownership& by, const Completion& completion);
  [[nodiscard]] std::optional<Record> find(SqliteTransaction& transaction, const Key& key);
  [[nodiscard]] bool is_joined(const SqliteTransaction& transaction) const noexcept;
  /// Ends the transaction, also when it throws.
  void commit(SqliteTransaction& transaction);
  void rollback(SqliteTransaction& transaction) noexcept;

 private:
  std::unique_ptr<detail::sqlite::StoreImpl> impl_;
};
static_assert(Store<SqliteStore>);
static_assert(IssuingStore<SqliteStore>);
static_assert(AdminStore<SqliteStore>);
static_assert(BatchStore<SqliteStore>);
static_assert(BatchBeginStore<SqliteStore>);
static_assert(TransactionalStore<SqliteStore>);

}  // namespace v0
}  // namespace idempotency
