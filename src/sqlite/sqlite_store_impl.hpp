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
#include "sqlite/sqlite_lane.hpp"
#include "sqlite/sqlite_open_files.hpp"
#include "sqlite/sqlite_readers.hpp"
#include "sqlite/sqlite_writer.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail::sqlite {

/// Which threads have a transaction of this store open.
class TransactionThreads {
 public:
  void add(std::thread::id thread);
  void remove(std::thread::id thread) noexcept;
  [[nodiscard]] bool contains_this_thread() noexcept;

 private:
  std::atomic<std::size_t> count_{0};
  std::mutex mutex_;
  std::vector<std::thread::id> threads_;
};

/// Statements and records on a connection of the application's, for one transaction.
struct AdoptedParts {
  struct Ends {
    const char* begin;
    const char* commit;
    const char* rollback;
    const char* after_rollback;
  };
  AdoptedParts(sqlite3* database, const std::string& table, const Ends& ends);

  Records records;
  StatementCache cache;
  Statement begin;
  Statement commit;
  Statement rollback;
  Statement after_rollback;
};

/// A transaction that shares its fate with a record.
struct TransactionState {
  enum class Kind : std::uint8_t { own, adopted, joined };
  /// A begin whose row is written with its result, or at the commit.
  struct Pending {
    Key key;
    std::optional<Row> row;
  };

  StoreImpl* store;
  Kind kind;
  sqlite3* handle;
  std::unique_ptr<AdoptedParts> adopted;
  Records* records;
  StatementCache* cache;
  std::optional<Pending> pending = std::nullopt;
  std::thread::id opener = std::this_thread::get_id();
  bool open = true;
  bool lost = false;  ///< SQLite was seen to end it

  /// Errors: when the transaction has ended, or belongs to the parent of a fork.
  void check_open() const;
};

class StoreImpl {
 public:
  explicit StoreImpl(SqliteOptions options);

  /// Whether the store was opened before a `fork()` and this is the child.
  [[nodiscard]] bool is_inherited() const noexcept;
  void refuse_after_fork() const;
  /// What every writing call asks first: a thread with a transaction would wait for itself.
  void refuse_nested();

  [[nodiscard]] Timestamp now() const noexcept { return shared_.clock->now(); }
  [[nodiscard]] Observer* observer() const noexcept { return shared_.options.observer; }
  [[nodiscard]] Shared& shared() noexcept { return shared_; }
  [[nodiscard]] Readers& readers() noexcept { return readers_; }

  template <class Perform>
  auto write(Perform perform) {
    const CancellationShield shield;
    refuse_after_fork();
    refuse_nested();
    return writer_.write(std::move(perform));
  }
  /// A write that loads one record, judges it with `decide(row, now)` and saves it.
  template <class Decide>
  WriteOutcome write_record(const Key& key, Decide decide) {
    return write([&](Records& records, Timestamp now) {
      return records.write(key, [&](std::optional<Row>& row) { return decide(row, now); });
    });
  }
  template <class Work>
  auto read(Work work) {
    const CancellationShield shield;
    refuse_after_fork();
    return readers_.read(std::move(work));
  }

  [[nodiscard]] std::size_t purge(std::size_t limit);

  [[nodiscard]] std::unique_ptr<TransactionState> open_own(const TransactionOptions& options);
  [[nodiscard]] std::unique_ptr<TransactionState> adopt(sqlite3* handle,
                                                        const TransactionOptions& options);
  void commit(TransactionState& state);
  void rollback(TransactionState& state) noexcept;

 private:
  using KeyParts = std::pair<std::string, std::string>;

  void take_turn(SteadyTime deadline);
  void begin_adopted(TransactionState& state, SteadyTime deadline);
  void check_same_file(sqlite3* handle) const;
  void write_pending(TransactionState& state);
  void close(TransactionState& state) noexcept;
  [[nodiscard]] std::vector<Key> expired_after(const KeyParts& position, std::size_t limit);

  Shared shared_;
  std::uint64_t generation_;
  std::string file_;  ///< the path as SQLite resolved it
  std::optional<OpenFile> open_file_;
  WriteTurn turn_;
  GroupWriter writer_;
  Readers readers_;
  TransactionThreads transaction_threads_;
  std::unique_ptr<Lane> transaction_lane_;  ///< of the holder of the turn
  std::mutex purge_mutex_;
  KeyParts purge_position_;
};

}  // namespace detail::sqlite
}  // namespace v0
}  // namespace idempotency
