#include "mysql/mysql_store_impl.hpp"

#include <algorithm>
#include <array>
#include <exception>
#include <utility>

#include "core/fork_generation.hpp"
#include "mysql/mysql_options.hpp"
#include "mysql/mysql_schema.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail::mysql {

namespace {

constexpr int most_conflicts = 10;
constexpr std::uint64_t bytes_around_batch = 1'024;

template <class Batch>
Batch part_of(const Batch& batch, std::size_t begin, std::size_t end) {
  return Batch(batch.begin() + static_cast<std::ptrdiff_t>(begin),
               batch.begin() + static_cast<std::ptrdiff_t>(end));
}

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

template <class Batch>
std::vector<StoreImpl::Range> StoreImpl::cut(const Batch& batch, std::size_t most) const {
  std::vector<Range> parts;
  std::uint64_t bytes = 0;
  for (std::size_t index = 0; index < batch.size(); ++index) {
    const std::uint64_t more = Records::bytes_in_batch(batch[index]);
    bytes += more;
    const bool fits = !parts.empty() && index - parts.back().begin < most &&
                      bytes + bytes_around_batch <= traits_.most_bytes();
    if (!fits) {
      parts.push_back({index, index});
      bytes = more;
    }
    parts.back().end = index + 1;
  }
  return parts;
}

/// The records of a statement are all locked until it is done, so it has no more of them than others can wait for.
std::vector<std::optional<BeginOutcome>> StoreImpl::begin_many(
    const std::vector<BeginRequest>& requests) {
  constexpr std::size_t most_at_once = 256;
  std::vector<std::optional<BeginOutcome>> outcomes(requests.size());
  for (const Range part : cut(requests, most_at_once)) {
    std::vector<std::optional<BeginOutcome>> answers;
    bool asked = false;
    try {
      answers = call([&](Records& records) {
        asked = true;
        return records.begin_many(part_of(requests, part.begin, part.end));
      });
    } catch (const Error& error) {
      if (!asked || error.code() != Errc::store_busy) throw;
      continue;  // another transaction holds one of its rows: each is asked for by itself
    }
    for (std::size_t at = 0; at < answers.size(); ++at) {
      if (answers[at] && !std::holds_alternative<Acquired>(*answers[at])) {
        hot_keys_.add(requests[part.begin + at].key);
      }
      outcomes[part.begin + at] = std::move(answers[at]);
    }
  }
  return outcomes;
}

/// A row that another transaction holds fails its whole statement, which is then cut until that row is alone. It is not
/// waited for: leases are renewed again soon, and waiting would cost those that are not held.
std::vector<WriteOutcome> StoreImpl::renew_many(const std::vector<Renewal>& renewals) {
  constexpr std::size_t most_at_once = 500;
  std::vector<WriteOutcome> outcomes(renewals.size(), WriteOutcome::lost);
  bool stored = false;
  const auto note = [&](std::size_t index, WriteOutcome outcome) {
    outcomes[index] = outcome;
    stored = stored || outcome == WriteOutcome::stored;
  };
  try {
    std::vector<Range> parts = cut(renewals, most_at_once);
    std::exception_ptr held;
    while (!parts.empty()) {
      const Range part = parts.back();
      parts.pop_back();
      bool asked = false;
      try {
        const std::vector<WriteOutcome> answers = call(
            [&](Records& records) {
              asked = true;
              return records.renew_many(part_of(renewals, part.begin, part.end));
            },
            Place::of_renewals);
        for (std::size_t index = part.begin; index < part.end; ++index)
          note(index, answers[index - part.begin]);
      } catch (const Error& error) {
        if (!asked || error.code() != Errc::store_busy) throw;
        const std::size_t size = part.end - part.begin;
        if (size == 1) held = std::current_exception();
        // Where giving up takes a second, halves of halves would take too many.
        const std::size_t step = traits_.sets_for_statement ? (size + 1) / 2 : 1;
        for (std::size_t at = part.begin; size > 1 && at < part.end; at += step)
          parts.push_back({at, std::min(at + step, part.end)});
      }
    }
    if (held) std::rethrow_exception(held);
  } catch (const Error& error) {
    if (!stored || error.effect_possible()) throw;
    throw Error(
        Errc::store_reply_lost,
        "mysql store: some of the leases were renewed, and then this: " + std::string(error.what()),
        error.detail());
  }
  return outcomes;
}

std::size_t StoreImpl::purge(std::size_t limit) {
  constexpr std::size_t most_in_one_commit = 128;      // others wait for it
  constexpr std::size_t rows_in_one_stretch = 10'000;  // a statement reads no more
  const std::scoped_lock lock(purge_mutex_);
  const auto go_on = [&] {
    purge_stretch_ = call([&](Records& records) {
      return records.stretch_behind(purge_stretch_, rows_in_one_stretch);
    });
    return purge_stretch_.has_value();
  };
  std::size_t removed = 0;
  bool from_the_start = !purge_stretch_;
  if (from_the_start && !go_on()) return 0;
  while (removed < limit) {
    const std::size_t wanted = std::min(limit - removed, most_in_one_commit);
    const std::vector<Key> keys =
        call([&](Records& records) { return records.expired_in(*purge_stretch_, wanted); });
    if (!keys.empty()) {
      for (const Range& part : cut(keys, most_in_one_commit)) {
        removed += call([&](Records& records) {
          return records.remove_expired(part_of(keys, part.begin, part.end));
        });
      }
      purge_stretch_->behind = keys.back().value();
    }
    if (keys.size() == wanted || go_on()) continue;
    if (from_the_start || !go_on()) break;  // round the end, once
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
      const auto state = static_cast<RecordState>(to_unsigned(cells[0], "state"));
      statistics.add(state, to_unsigned(cells[1], "count"));
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
