#include "sqlite/sqlite_store_impl.hpp"

#include <sqlite3.h>

#include <algorithm>

#include "core/fork_generation.hpp"
#include "sqlite/sqlite_options.hpp"
#include "sqlite/sqlite_schema.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail::sqlite {

namespace {

SqliteOptions checked(SqliteOptions options) {
  check_options(options);
  OpenFile::check(options.path);
  return options;
}

const Clock* clock_of(const SqliteOptions& options) noexcept {
  return options.clock != nullptr ? options.clock : &system_clock();
}

}  // namespace

void TransactionThreads::add(std::thread::id thread) {
  const std::scoped_lock lock(mutex_);
  threads_.push_back(thread);
  count_.store(threads_.size());
}

void TransactionThreads::remove(std::thread::id thread) noexcept {
  const std::scoped_lock lock(mutex_);
  const auto found = std::find(threads_.begin(), threads_.end(), thread);
  if (found != threads_.end()) threads_.erase(found);
  count_.store(threads_.size());
}

bool TransactionThreads::contains_this_thread() noexcept {
  if (count_.load() == 0) return false;  // this thread's own additions are always seen
  const std::scoped_lock lock(mutex_);
  return std::find(threads_.begin(), threads_.end(), std::this_thread::get_id()) != threads_.end();
}

StoreImpl::StoreImpl(SqliteOptions options)
    : shared_{.options = checked(std::move(options)),
              .record_table = {},
              .schema_table = {},
              .clock = nullptr},
      generation_(fork_generation()),
      writer_(shared_, turn_),
      readers_(shared_) {
  const CancellationShield shield;
  shared_.record_table = record_table(shared_.options.table_prefix);
  shared_.schema_table = schema_table(shared_.options.table_prefix);
  shared_.clock = clock_of(shared_.options);
  transaction_lane_ = std::make_unique<Lane>(shared_);
  Connection& connection = transaction_lane_->connection();
  open_file_.emplace(sqlite3_db_filename(connection.handle(), "main"));
  prepare_schema(connection, current_schema(), shared_.options.table_prefix);
  if (shared_.options.durability == SqliteDurability::normal && observer() != nullptr) {
    observer()->on_hazard(
        "SqliteDurability::normal: the last commits may be lost at a power failure, and their "
        "operations then run again; use SqliteDurability::full where that must not happen");
  }
}

bool StoreImpl::is_inherited() const noexcept { return generation_ != fork_generation(); }

void StoreImpl::refuse_after_fork() const {
  if (!is_inherited()) return;
  throw Error(
      Errc::used_after_fork,
      "this SQLite store was opened before fork(); exec a program that opens its own, or fork "
      "before opening");
}

void StoreImpl::refuse_nested() {
  if (!transaction_threads_.contains_this_thread()) return;
  throw Error(
      Errc::nested_transaction,
      "this thread has a transaction of the same SQLite store open and would wait for itself; "
      "use the transaction, or make the call after it");
}

std::vector<Key> StoreImpl::expired_after(const KeyParts& position, std::size_t limit) {
  return read([&](Reader& reader) {
    Statement statement(reader.connection.handle(),
                        "SELECT type, value FROM " + shared_.record_table +
                            " WHERE (type, value) > (?1, ?2) AND expires_at <= ?3"
                            " ORDER BY type, value LIMIT ?4");
    Statement::Use use = statement.use();
    use.bind_text(1, position.first);
    use.bind_blob(2, position.second);
    use.bind(3, now().time_since_epoch().count());
    use.bind(4, static_cast<std::int64_t>(limit));
    std::vector<Key> keys;
    while (use.step())
      keys.emplace_back(use.text(0), use.bytes(1));
    return keys;
  });
}

std::size_t StoreImpl::purge(std::size_t limit) {
  constexpr std::size_t most_in_one_commit = 512;  // others wait for it
  const std::scoped_lock lock(purge_mutex_);
  std::size_t removed = 0;
  bool from_the_start = purge_position_ == KeyParts{};
  while (removed < limit) {
    const std::size_t wanted = std::min(limit - removed, most_in_one_commit);
    const std::vector<Key> keys = expired_after(purge_position_, wanted);
    if (!keys.empty()) {
      removed += write([&](Records& records, Timestamp now) {
        return static_cast<std::size_t>(
            std::count_if(keys.begin(), keys.end(),
                          [&](const Key& key) { return records.remove_expired(key, now); }));
      });
      purge_position_ = KeyParts{keys.back().type(), keys.back().value()};
    }
    if (keys.size() == wanted) continue;
    purge_position_ = KeyParts{};
    if (from_the_start) break;
    from_the_start = true;
  }
  return removed;
}

}  // namespace detail::sqlite
}  // namespace v0
}  // namespace idempotency
