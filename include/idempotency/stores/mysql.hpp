#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "idempotency/observer.hpp"
#include "idempotency/store.hpp"
#include "idempotency/stores/mysql_transaction.hpp"

namespace idempotency {
inline namespace v0 {

/// How connections to the server are protected.
enum class MySqlTls : std::uint8_t {
  off,       ///< for a server on this host or on a network that is trusted
  required,  ///< encrypted, but anybody may be at the other end
  verified,  ///< encrypted, and the server's certificate and name are checked
};

/// What a store does about its table when it is opened.
enum class MySqlSchema : std::uint8_t {
  create,  ///< make the table when it is not there
  expect,  ///< refuse when it is not there: for those who run schema/mysql.sql themselves
};

/// How a `MySqlStore` is set up. Time-outs that the client counts in seconds are rounded up.
struct MySqlOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 3306;
  /// The path of a local socket; takes the place of host and port.
  std::string unix_socket = {};
  std::string user = {};
  std::string password = {};
  /// The database that holds the table of records.
  std::string database = {};

  MySqlTls tls = MySqlTls::off;
  std::string tls_ca = {};           ///< file of trusted certificates; empty: the client's default
  std::string tls_certificate = {};  ///< file of the client's own
  std::string tls_key = {};

  /// Connections open at once, at most; opened when needed.
  std::size_t connections = 16;
  std::chrono::milliseconds connect_timeout{5'000};
  /// How long a statement's answer may take, from one part of it to the next. At least two
  /// seconds, since the client must wait longer than the server waits for a lock.
  std::chrono::milliseconds read_timeout{30'000};
  std::chrono::milliseconds write_timeout{30'000};
  /// How long a call waits for a free connection before `Errc::store_busy`.
  std::chrono::milliseconds pool_wait{5'000};
  /// How long a call waits for a record that another's transaction holds before `Errc::store_busy`: whole seconds, and
  /// less than `read_timeout`.
  std::chrono::milliseconds lock_wait{5'000};

  /// Begins the name of the store's table: letters, digits and '_', at most 32.
  std::string table_prefix = "idempotency_";
  MySqlSchema schema = MySqlSchema::create;
  /// Hears of hazards in the set-up. May be null.
  Observer* observer = nullptr;

  /// Options from `mysql://USER:PASSWORD@HOST:PORT/DATABASE`, each part percent-encoded where needed, with
  /// `?tls=off|required|verified`, `&socket=PATH`, `&connections=N` as wished.
  ///
  /// Errors: `Errc::invalid_argument` for another form; never shows the password.
  [[nodiscard]] static MySqlOptions from_address(std::string_view address);
};

namespace detail::mysql {
class StoreImpl;
}  // namespace detail::mysql

/// Records in one InnoDB table of a MariaDB (10.5 or later) or MySQL (5.7 or later) server, shared by any number of
/// processes.
///
/// Leases and retentions are judged by the server's clock. On MariaDB a first `begin` and a duplicate are one round
/// trip each; on MySQL, which cannot return what an INSERT found, a duplicate's first is two. A first run costs two
/// commits, a run in a transaction none beyond the handler's own, a duplicate none. The store's own connections have the
/// server's sql_mode, but strict, and without SIMULTANEOUS_ASSIGNMENT, EMPTY_STRING_IS_NULL and ORACLE.
///
/// Errors: those of `Store`; when opening, `Errc::store_refused` for a table that differs (the difference is named)
/// or has a trigger, for a wrong password or an unknown database, `Errc::store_unavailable` when the server cannot be
/// reached, `Errc::invalid_argument` for unusable options.
/// Thread safety: all members may be called concurrently.
/// Lifetime: must outlive its transactions. In the child of a `fork()` every call throws `Errc::used_after_fork`.
class MySqlStore {
 public:
  using Transaction = MySqlTransaction;
  using Connection = MySqlConnection;

  explicit MySqlStore(MySqlOptions options);
  template <detail::TextLike Address>
  explicit MySqlStore(const Address& address)
      : MySqlStore(MySqlOptions::from_address(std::string_view(address))) {}
  MySqlStore(const MySqlStore&) = delete;
  MySqlStore& operator=(const MySqlStore&) = delete;
  ~MySqlStore();

  /// Makes the table when it is not there, and checks it when it is. Never on a connection that the application lends.
  void create_schema();

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
  /// Looks only for a key that was found finished lately: its duplicates then take no lock.
  [[nodiscard]] std::optional<Record> peek(const Key& key);

  [[nodiscard]] RecordPage list(const RecordFilter& filter, const std::string& cursor,
                                std::size_t limit);
  [[nodiscard]] WriteOutcome resolve(const Record& seen, const Resolution& resolution);
  /// Goes on where the last call ended; reads the whole table when it finds fewer than `limit`.
  std::size_t purge(std::size_t limit);
  [[nodiscard]] StoreStatistics statistics();

  /// 500 in one statement and one commit. Rows that another's transaction holds are renewed after all others, one by one.
  ///
  /// Errors: `Errc::store_reply_lost` also when some are renewed and others are not.
  [[nodiscard]] std::vector<WriteOutcome> renew_many(const std::vector<Renewal>& renewals);

  /// A transaction on a connection of the store's own, under the server's isolation level, but at least READ COMMITTED.
  ///
  /// Errors: `Errc::store_busy` when no connection is free for `options.wait`; `Errc::nested_transaction` on a thread
  /// that has one open.
  [[nodiscard]] MySqlTransaction open_transaction(const TransactionOptions& options = {});
  /// A transaction on the application's connection, which must be one to the same server.
  ///
  /// Outside a transaction one is begun and will be committed; inside one, it is joined through a savepoint.
  ///
  /// Errors: also `Errc::transaction_lost` when the server has ended the transaction to be joined.
  [[nodiscard]] MySqlTransaction open_transaction(MySqlConnection connection,
                                                  const TransactionOptions& options = {});
  /// Waits no longer than the transaction's options allow for another transaction that holds the record, and then sees
  /// what that one committed, whatever the isolation level.
  ///
  /// Errors: `Errc::transaction_lost` also for a joined transaction under REPEATABLE READ whose snapshot is older than the
  /// record, where the server has `innodb_snapshot_isolation = ON` (the default from MariaDB 11.6 on).
  [[nodiscard]] BeginOutcome begin(MySqlTransaction& transaction, const BeginRequest& request);
  [[nodiscard]] WriteOutcome complete(MySqlTransaction& transaction, const Key& key,
                                      const Ownership& by, const Completion& completion);
  [[nodiscard]] bool is_joined(const MySqlTransaction& transaction) const noexcept;
  /// Ends the transaction, also when it throws.
  void commit(MySqlTransaction& transaction);
  void rollback(MySqlTransaction& transaction) noexcept;

 private:
  std::unique_ptr<detail::mysql::StoreImpl> impl_;
};
static_assert(Store<MySqlStore>);
static_assert(IssuingStore<MySqlStore>);
static_assert(AdminStore<MySqlStore>);
static_assert(BatchStore<MySqlStore>);
static_assert(BatchBeginStore<MySqlStore>);
static_assert(TransactionalStore<MySqlStore>);

}  // namespace v0
}  // namespace idempotency
