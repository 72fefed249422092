#include "mysql/mysql_store_impl.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "core/fork_generation.hpp"
#include "mysql/mysql_options.hpp"
#include "mysql/mysql_schema.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail::mysql {

namespace {

constexpr int most_conflicts = 10;

MySqlOptions checked(MySqlOptions options) {
  check_options(options);
  return options;
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

bool TransactionThreads::contains_this_thread() {
  if (count_.load() == 0) return false;  // this thread's own additions are always seen
  const std::scoped_lock lock(mutex_);
  return std::find(threads_.begin(), threads_.end(), std::this_thread::get_id()) != threads_.end();
}

StoreImpl::StoreImpl(MySqlOptions options)
    : options_(checked(std::move(options))),
      generation_(fork_generation()),
      table_name_(options_.table_prefix + "record"),
      statements_(quoted_table(options_.database, table_name_)),
      pool_(options_) {
  with_connection([&](Connection& connection) {
    traits_ = connection.traits();
    prepare_schema(connection, options_.database, table_name_, options_.schema);
    if (observer() != nullptr) report_hazards(connection, *observer());
  });
}

StoreImpl::~StoreImpl() {
  if (is_inherited()) {
    pool_.abandon();
  } else {
    pool_.close();
  }
}

bool StoreImpl::is_inherited() const noexcept { return generation_ != fork_generation(); }

void StoreImpl::refuse_after_fork() const {
  if (!is_inherited()) return;
  throw Error(Errc::used_after_fork,
              "this MySQL store was opened before fork(); its connections belong to the parent, "
              "open another in the child");
}

void StoreImpl::create_schema() {
  with_connection([&](Connection& connection) {
    prepare_schema(connection, options_.database, table_name_, MySqlSchema::create);
  });
}

void StoreImpl::Repetition::judge(const Error& told) {
  const bool lost = error != 0 && breaks_connection(error);
  may_be_written = may_be_written || told.code() == Errc::store_reply_lost;
  if (lost && was_used && freshness == Freshness::any) {
    freshness = Freshness::fresh;
    return;
  }
  if (error != 0 && is_worth_repeating(error) && ++conflicts < most_conflicts) return;
  if (may_be_written && !told.effect_possible()) {
    throw Error(Errc::store_reply_lost, told.what(), told.detail());
  }
  throw;
}

std::size_t StoreImpl::purge(std::size_t limit) {
  constexpr std::size_t most_in_one_commit = 128;  // others wait for it
  const std::scoped_lock lock(purge_mutex_);
  std::size_t removed = 0;
  bool from_the_start = !purge_position_;
  while (removed < limit) {
    const std::size_t wanted = std::min(limit - removed, most_in_one_commit);
    const std::vector<Key> keys = call([&](Records& records) {
      return records.expired_after(purge_position_ ? &*purge_position_ : nullptr, wanted);
    });
    if (!keys.empty()) {
      removed += call([&](Records& records) { return records.remove_expired(keys); });
      purge_position_ = keys.back();
    }
    if (keys.size() == wanted) continue;
    purge_position_.reset();
    if (from_the_start) break;
    from_the_start = true;
  }
  return removed;
}

StoreStatistics StoreImpl::statistics() {
  return with_connection([&](Connection& connection) {
    std::string sql = "SELECT state, COUNT(*) FROM " + statements_.table +
                      " WHERE expires_at IS NULL OR expires_at > ";
    sql += now_expression;
    sql += " GROUP BY state";
    StoreStatistics statistics;
    Reply counts = connection.execute(sql, {}, Stage::read);
    for (const Cells& cells : counts.rows) {
      const std::uint64_t rows = to_unsigned(cells[1], "count");
      switch (static_cast<RecordState>(to_unsigned(cells[0], "state"))) {
        case RecordState::processing:
          statistics.processing = rows;
          break;
        case RecordState::success:
          statistics.success = rows;
          break;
        case RecordState::failed:
          statistics.failed = rows;
          break;
        case RecordState::uncertain:
          statistics.uncertain = rows;
          break;
        case RecordState::issued:
          break;
      }
    }
    const std::array<Parameter, 2> name{Parameter{std::string_view(options_.database)},
                                        Parameter{std::string_view(table_name_)}};
    Reply size = connection.execute(
        "SELECT CAST(COALESCE(data_length + index_length, 0) AS UNSIGNED) "
        "FROM information_schema.tables WHERE table_schema = ? AND table_name = ?",
        name, Stage::read);
    if (!size.rows.empty()) statistics.bytes = to_unsigned(size.rows.front()[0], "size");
    return statistics;
  });
}

}  // namespace detail::mysql
}  // namespace v0
}  // namespace idempotency
