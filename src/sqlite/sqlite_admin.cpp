#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "core/verdict.hpp"
#include "idempotency/detail/key_order.hpp"
#include "sqlite/sqlite_store_impl.hpp"

namespace idempotency {
inline namespace v0 {

using detail::sqlite::Reader;
using detail::sqlite::Row;
using detail::sqlite::Statement;

namespace {

/// The state stands in the text as a number, so that SQLite can see that an index holds just those
/// rows.
std::string list_statement(const std::string& table, const RecordFilter& filter) {
  std::string sql = "SELECT type, value, " + detail::sqlite::row_columns() + " FROM " + table +
                    " WHERE (type, value) > (?1, ?2) AND (expires_at IS NULL OR expires_at > ?3)";
  if (filter.type) sql += " AND type = ?4";
  if (filter.state) sql += " AND state = " + std::to_string(static_cast<int>(*filter.state));
  if (filter.unchanged_for) sql += " AND updated_at <= ?5";
  return sql + " ORDER BY type, value LIMIT ?6";
}

std::int64_t to_number(Timestamp time) noexcept { return time.time_since_epoch().count(); }

std::pair<std::string_view, std::string_view> key_parts(const std::string& cursor) {
  detail::check_cursor(cursor);
  if (cursor.empty()) return {};
  const std::size_t colon = cursor.find(':');
  const std::string_view text(cursor);
  return {text.substr(0, colon), text.substr(colon + 1)};
}

}  // namespace

RecordPage SqliteStore::list(const RecordFilter& filter, const std::string& cursor,
                             std::size_t limit) {
  const auto [type, value] = key_parts(cursor);
  const std::size_t wanted = std::clamp<std::size_t>(limit, 1, 1'000'000);
  return impl_->read([&, after_type = type, after_value = value](Reader& reader) {
    const Timestamp now = impl_->now();
    Statement statement(reader.connection.handle(),
                        list_statement(impl_->shared().record_table, filter));
    Statement::Use use = statement.use();
    use.bind_text(1, after_type);
    use.bind_blob(2, after_value);
    use.bind(3, to_number(now));
    if (filter.type) use.bind_text(4, *filter.type);
    if (filter.unchanged_for) use.bind(5, to_number(now) - filter.unchanged_for->count());
    use.bind(6, static_cast<std::int64_t>(wanted) + 1);
    RecordPage page;
    std::string last;
    for (std::size_t rows = 0; use.step(); ++rows) {
      if (rows == wanted) {
        page.cursor = last;
        break;
      }
      const Key key(use.text(0), use.bytes(1));
      last = key.text();
      try {
        std::optional<Record> record =
            detail::sqlite::to_record(key, detail::sqlite::read_row(use, 2), now);
        if (record) page.records.push_back(*std::move(record));
      } catch (const Error& error) {
        if (error.code() != Errc::store_corrupt) throw;
        page.unreadable.push_back({key, error.what()});
      }
    }
    return page;
  });
}

WriteOutcome SqliteStore::resolve(const Record& seen, const Resolution& resolution) {
  bool settled_now = false;  // and not by an earlier call of the same resolution
  const WriteOutcome outcome =
      impl_->write_record(seen.key, [&](std::optional<Row>& row, Timestamp now) {
        const detail::sqlite::WriteDecision decision = decide_resolve(row, seen, resolution, now);
        settled_now = decision.change == detail::sqlite::RowChange::changed;
        return decision;
      });
  if (settled_now && impl_->observer() != nullptr) {
    impl_->observer()->on_resolved(seen.key, detail::name_of(resolution.verdict));
  }
  return outcome;
}

std::size_t SqliteStore::purge(std::size_t limit) { return impl_->purge(limit); }

StoreStatistics SqliteStore::statistics() {
  return impl_->read([&](Reader& reader) {
    StoreStatistics statistics;
    Statement states(reader.connection.handle(),
                     "SELECT state, count(*) FROM " + impl_->shared().record_table +
                         " WHERE expires_at IS NULL OR expires_at > ?1 GROUP BY state");
    Statement::Use use = states.use();
    use.bind(1, to_number(impl_->now()));
    while (use.step()) {
      statistics.add(static_cast<RecordState>(use.integer(0)),
                     static_cast<std::uint64_t>(use.integer(1)));
    }
    Statement size(reader.connection.handle(),
                   "SELECT page_count * page_size FROM pragma_page_count('main'), "
                   "pragma_page_size('main')");
    Statement::Use size_use = size.use();
    if (size_use.step()) statistics.bytes = static_cast<std::uint64_t>(size_use.integer(0));
    return statistics;
  });
}

}  // namespace v0
}  // namespace idempotency
