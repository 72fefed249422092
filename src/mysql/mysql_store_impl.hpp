#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/cancellation.hpp"
#include "mysql/mysql_hot_keys.hpp"
#include "mysql/mysql_pool.hpp"
#include "mysql/mysql_records.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail::mysql {

/// Which threads have a transaction of this store open.
class TransactionThreads {
 public:
  void add(std::thread::id thread);
  void remove(std::thread::id thread) noexcept;
  [[nodiscard]] bool contains_this_thread();

 private:
  std::atomic<std::size_t> count_{0};
  std::mutex mutex_;
  std::vector<std::thread::id> threads_;
};

/// A transaction that shares its fate with a record.
struct TransactionState {
  enum class Kind : std::uint8_t { own, adopted, joined };
  /// How far it has gone, and so how it has to be ended.
  enum class Reach : std::uint8_t {
    untouched,  ///< nothing was sent
    looked,     ///< a begin that acquired nothing: only locks are held
    changed,    ///< anything else
  };
  /// A turn that was begun in this transaction: nobody else can have touched it since.
  struct Turn {
    Key key;
    Ownership ownership;
  };
  /// A completion that travels with the COMMIT.
  struct Pending {
    Key key;
    Ownership by;
    Completion completion;
  };

  StoreImpl* store;
  Kind kind;
  std::unique_ptr<Connection> connection;
  Records records;
  std::chrono::milliseconds wait;
  SteadyTime deadline;
  std::string prefix;
  std::string savepoint = {};
  std::optional<Turn> turn = std::nullopt;
  std::optional<Pending> pending = std::nullopt;
  std::thread::id opener = std::this_thread::get_id();
  Reach reach = Reach::untouched;
  bool open = true;
  bool lost = false;      ///< the server ended it, or may have
  bool doubtful = false;  ///< something has been done that may have ended it unseen
  bool ended = false;     ///< somebody else ended it, and what was done before may be written
  bool touched = false;   ///< a statement of it has been executed

  /// Errors: when the transaction has ended, or belongs to the parent of a fork.
  void check_open() const;
  /// Sends a completion that was to travel with the COMMIT, because something else comes first.
  void write_pending();
  /// After an error: whether anything may still be done here.
  void note(const Error& error) noexcept;
  /// After every statement. Errors: when the handler's statement has ended the transaction.
  void check_still_in_transaction();
};

class StoreImpl {
 public:
  explicit StoreImpl(MySqlOptions options);
  StoreImpl(const StoreImpl&) = delete;
  StoreImpl& operator=(const StoreImpl&) = delete;
  ~StoreImpl();

  [[nodiscard]] bool is_inherited() const noexcept;
  void refuse_after_fork() const;
  void create_schema();

  [[nodiscard]] Observer* observer() const noexcept { return options_.observer; }
  [[nodiscard]] const MySqlOptions& options() const noexcept { return options_; }
  [[nodiscard]] const std::string& table_name() const noexcept { return table_name_; }
  [[nodiscard]] SqlDialect dialect() const noexcept { return traits_.dialect; }
  [[nodiscard]] HotKeys& hot_keys() noexcept { return hot_keys_; }

  /// `work(records)` on a pooled connection. Repeats it after a deadlock, and once on a new connection when an idle one turns
  /// out to be closed: every call may be repeated with the same token.
  template <class Work>
  auto call(Work work, Place place = Place::usual) {
    return with_connection(
        [&](Connection& connection) {
          Records records(connection, statements_);
          return work(records);
        },
        place);
  }
  template <class Work>
  auto with_connection(Work work, Place place = Place::usual) {
    const CancellationShield shield;
    refuse_after_fork();
    const SteadyTime deadline = std::chrono::steady_clock::now() + options_.pool_wait;
    Repetition repetition;
    while (true) {
      repetition.error = 0;
      try {
        PooledConnection connection(pool_, pool_.take(Autocommit::on, options_.lock_wait,
                                                      repetition.freshness, deadline, place));
        repetition.was_used = connection->was_used();
        try {
          return work(*connection);
        } catch (const Error&) {
          repetition.error = connection->last_error();
          throw;
        }
      } catch (const Error& error) {
        repetition.judge(error);
      }
    }
  }

  [[nodiscard]] std::vector<std::optional<BeginOutcome>> begin_many(
      const std::vector<BeginRequest>& requests);
  [[nodiscard]] std::vector<WriteOutcome> renew_many(const std::vector<Renewal>& renewals);
  [[nodiscard]] std::size_t purge(std::size_t limit);
  [[nodiscard]] StoreStatistics statistics();

  [[nodiscard]] std::unique_ptr<TransactionState> open_own(const TransactionOptions& options);
  [[nodiscard]] std::unique_ptr<TransactionState> adopt(MYSQL* handle,
                                                        const TransactionOptions& options);
  [[nodiscard]] BeginOutcome begin(TransactionState& state, const BeginRequest& request);
  [[nodiscard]] WriteOutcome complete(TransactionState& state, const Key& key, const Ownership& by,
                                      const Completion& completion);
  void commit(TransactionState& state);
  void rollback(TransactionState& state) noexcept;

 private:
  /// What became of the tries of one call so far.
  struct Repetition {
    Freshness freshness = Freshness::any;
    bool was_used = false;
    bool may_be_written = false;
    unsigned error = 0;
    int conflicts = 0;

    /// Called in a handler of `error`; returns when the call is to be tried again.
    void judge(const Error& error);
  };

  /// Part of a batch: [begin, end).
  struct Range {
    std::size_t begin;
    std::size_t end;
  };
  /// As many at once as the server takes in one statement, and no more than `most`.
  template <class Batch>
  [[nodiscard]] std::vector<Range> cut(const Batch& batch, std::size_t most) const;
  void refuse_nested();
  [[nodiscard]] std::string prefix_for(std::chrono::milliseconds wait,
                                       TransactionState::Kind kind) const;
  void close(TransactionState& state) noexcept;
  /// Errors: when the handler has ended the transaction behind the store's back.
  static void check_not_ended(const TransactionState& state);
  void send_commit(TransactionState& state);
  void reconnect(TransactionState& state);
  /// What an adopted connection has to be told first.
  void begin_adopted(TransactionState& state);
  void send_rollback(TransactionState& state);
  void roll_back_joined(TransactionState& state);

  MySqlOptions options_;
  std::uint64_t generation_;
  std::string table_name_;
  Statements statements_;
  Pool pool_;
  ServerTraits traits_;
  HotKeys hot_keys_;
  TransactionThreads transaction_threads_;
  std::mutex purge_mutex_;
  std::optional<Stretch> purge_stretch_;  ///< what is left of the one that was looked at last
};

}  // namespace detail::mysql
}  // namespace v0
}  // namespace idempotency
