#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "core/verdict.hpp"
#include "idempotency/detail/key_order.hpp"
#include "redis/redis_store_impl.hpp"

namespace idempotency {
inline namespace v0 {

using detail::redis::as_text;
using detail::redis::Commands;
using detail::redis::Connection;
using detail::redis::element;
using detail::redis::ErrorReply;
using detail::redis::is_error;
using detail::redis::meaning_of;
using detail::redis::ReplyPtr;
using detail::redis::ScriptName;
using detail::redis::state_of;
using detail::redis::StoreImpl;
using detail::redis::throw_if_error;
using std::chrono::milliseconds;

namespace {

/// How many keys one SCAN looks at; others' commands wait for it.
constexpr const char* scan_count = "1000";
/// How many keys a listing keeps of one pass over the database.
constexpr std::size_t most_keys_of_a_pass = 10'000;
constexpr std::size_t most_in_flight = 200;

struct InListingOrder {
  bool operator()(const Key& a, const Key& b) const noexcept {
    return detail::KeyOrder{}(a.text(), b.text());
  }
};
using OrderedKeys = std::set<Key, InListingOrder>;

/// Calls `visit(names)` with the keys of the records of one type, or of all, as SCAN gives them: some perhaps more than
/// once. Each step is a call of its own, so that a long scan holds no connection.
template <class Visit>
void scan(StoreImpl& impl, const std::optional<std::string>& type, Visit visit) {
  const std::string pattern = impl.scan_pattern(type);
  std::string position = "0";
  do {
    const auto [next, names] = impl.call(StoreImpl::Effect::reads, [&](Connection& connection) {
      const ReplyPtr reply =
          connection.ask(Commands({"SCAN", position, "MATCH", pattern, "COUNT", scan_count}));
      std::vector<std::string> found;
      const redisReply& list = element(*reply, 1);
      for (std::size_t i = 0; i < list.elements; ++i)
        found.emplace_back(as_text(element(list, i)).value_or(""));
      return std::pair(std::string(as_text(element(*reply, 0)).value_or("0")), std::move(found));
    });
    visit(names);
    position = next;
  } while (position != "0");
}

/// The first keys after a cursor, in order.
OrderedKeys keys_after(StoreImpl& impl, const std::optional<std::string>& type,
                       const std::string& after) {
  OrderedKeys keys;
  scan(impl, type, [&](const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      std::optional<Key> key = impl.to_key(name);
      if (!key || (!after.empty() && !detail::KeyOrder{}(after, key->text()))) continue;
      keys.insert(*std::move(key));
      if (keys.size() > most_keys_of_a_pass) keys.erase(std::prev(keys.end()));
    }
  });
  return keys;
}

/// What stands under a key: a record, nothing, or what is none.
struct Loaded {
  Key key;
  std::optional<StoreImpl::Found> found = std::nullopt;
  std::optional<std::string> unreadable = std::nullopt;  ///< why
};

Loaded loaded(const Key& key, const redisReply& reply) {
  try {
    throw_if_error(reply);
    return {.key = key, .found = StoreImpl::found(reply)};
  } catch (const ErrorReply& error) {
    if (error.meaning.code != Errc::store_corrupt) throw;
    return {.key = key, .unreadable = error.words};
  } catch (const Error& error) {
    if (error.code() != Errc::store_corrupt) throw;
    return {.key = key, .unreadable = error.what()};
  }
}

/// The records of up to `most_in_flight` keys, in one exchange.
std::vector<Loaded> load(StoreImpl& impl, const std::vector<Key>& keys) {
  return impl.call(StoreImpl::Effect::reads, [&](Connection& connection) {
    const auto add = [&](Commands& commands, const Key& key, Connection::Naming naming) {
      connection.add_run(commands, ScriptName::find, impl.key_of(key), {}, naming);
    };
    Commands commands;
    for (std::size_t i = 0; i < keys.size(); ++i)  // the first brings the script along
      add(commands, keys[i], i == 0 ? Connection::Naming::text : Connection::Naming::sha1);
    const std::vector<ReplyPtr> replies = connection.exchange(commands);
    std::vector<Loaded> records;
    records.reserve(keys.size());
    for (std::size_t i = 0; i < keys.size(); ++i)
      records.push_back(loaded(keys[i], *replies[i]));
    return records;
  });
}

bool passes(const RecordFilter& filter, const Record& record, Timestamp now) {
  if (filter.state && record.state != *filter.state) return false;
  return !filter.unchanged_for || now - record.updated_at >= *filter.unchanged_for;
}

/// Whether a key holds what can be no record, such as a list.
bool is_foreign(const redisReply& reply) {
  return is_error(reply) && meaning_of({reply.str, reply.len}).code == Errc::store_corrupt;
}

/// A type that no key can have: nothing is listed, and nothing of it reaches the server as a pattern.
bool is_type(const std::string& type) {
  try {
    static_cast<void>(Key(type, "x"));
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

RecordPage RedisStore::list(const RecordFilter& filter, const std::string& cursor,
                            std::size_t limit) {
  detail::check_cursor(cursor);
  std::string after = cursor;
  if (filter.type && !is_type(*filter.type)) return {};
  const std::size_t wanted = std::max<std::size_t>(limit, 1);
  RecordPage page;
  while (true) {
    const OrderedKeys keys = keys_after(*impl_, filter.type, after);
    for (auto next = keys.begin(); next != keys.end();) {
      std::vector<Key> batch;
      // One more than the page still takes, to know whether anything follows.
      const std::size_t most = std::min(most_in_flight, wanted - page.records.size() + 1);
      for (; next != keys.end() && batch.size() < most; ++next)
        batch.push_back(*next);
      for (auto& [key, found, unreadable] : load(*impl_, batch)) {
        if (unreadable) page.unreadable.push_back({key, *std::move(unreadable)});
        if (!found) continue;
        const Timestamp now = found->now;
        Record record = to_record(key, std::move(found->record), found->end);
        if (!passes(filter, record, now)) continue;
        if (page.records.size() == wanted) {
          page.cursor = page.records.back().key.text();
          return page;
        }
        page.records.push_back(std::move(record));
      }
    }
    if (keys.size() < most_keys_of_a_pass) return page;
    after = std::prev(keys.end())->text();
  }
}

WriteOutcome RedisStore::resolve(const Record& seen, const Resolution& resolution) {
  const WriteOutcome outcome = impl_->resolve(seen, resolution);
  if (outcome == WriteOutcome::stored && impl_->observer() != nullptr) {
    impl_->observer()->on_resolved(seen.key, detail::name_of(resolution.verdict));
  }
  return outcome;
}

std::size_t RedisStore::purge(std::size_t /*limit*/) { return 0; }

StoreStatistics RedisStore::statistics() {
  std::set<std::string> seen;  // SCAN may give a key twice
  StoreStatistics statistics;
  scan(*impl_, std::nullopt, [&](const std::vector<std::string>& names) {
    for (std::size_t first = 0; first < names.size(); first += most_in_flight) {
      Commands commands;
      std::vector<const std::string*> asked;
      for (std::size_t i = first; i < std::min(names.size(), first + most_in_flight); ++i) {
        if (!impl_->to_key(names[i]) || !seen.insert(names[i]).second) continue;
        asked.push_back(&names[i]);
        commands.add({"GETRANGE", names[i], "0", "0"});
        commands.add({"MEMORY", "USAGE", names[i]});
      }
      if (asked.empty()) continue;
      impl_->call(StoreImpl::Effect::reads, [&](Connection& connection) {
        const std::vector<ReplyPtr> replies = connection.exchange(commands);
        for (std::size_t i = 0; i < asked.size(); ++i) {
          const redisReply& head = *replies[2 * i];
          const redisReply& memory = *replies[2 * i + 1];
          if (is_foreign(head)) continue;
          throw_if_error(head);
          const std::string_view bytes = as_text(head).value_or("");
          if (bytes.empty()) continue;  // gone meanwhile
          if (const std::optional<RecordState> state = state_of(bytes)) statistics.add(*state);
          statistics.bytes += memory.type == REDIS_REPLY_INTEGER
                                  ? static_cast<std::uint64_t>(memory.integer)
                                  : asked[i]->size();  // MEMORY is not allowed: a lower bound
        }
        return 0;
      });
    }
  });
  return statistics;
}

}  // namespace v0
}  // namespace idempotency
