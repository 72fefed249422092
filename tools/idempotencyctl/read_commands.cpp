#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <fstream>
#include <idempotency/execution.hpp>
#include <iostream>
#include <set>

#include "commands.hpp"
#include "store_access.hpp"
#include "text.hpp"

namespace idempotencyctl {

using std::chrono::milliseconds;

namespace {

constexpr std::size_t page_size = 500;

/// When it ends: a lease or a retention, from `now`, which is the store's.
std::string end_of(const idem::Record& record, idem::Timestamp now) {
  if (record.lease_until) {
    const milliseconds left = *record.lease_until - now;
    return left.count() > 0 ? "lease " + to_text(left) : "lease over since " + to_text(-left);
  }
  if (record.expires_at) return "kept " + to_text(*record.expires_at - now);
  return "stays";
}

void print_record(const idem::Record& record, idem::Timestamp now) {
  Table table({"key", printable(record.key.text())});
  table.add({"state", std::string(idem::to_string(record.state))});
  table.add({"mode", std::string(idem::to_string(record.mode)) +
                         (record.effect_marked ? ", effect marked" : "")});
  table.add({"fence", std::to_string(record.ownership.fence)});
  table.add({"attempts", std::to_string(record.attempt)});
  table.add({"created", to_text(record.created_at)});
  table.add(
      {"changed", to_text(record.updated_at) + ", " + to_text(now - record.updated_at) + " ago"});
  if (record.lease_until) table.add({"lease until", to_text(*record.lease_until)});
  if (record.expires_at) table.add({"kept until", to_text(*record.expires_at)});
  if (record.state == idem::RecordState::success) {
    table.add(
        {"result", record.result ? std::to_string(record.result->size()) + " bytes" : "not kept"});
  }
  if (record.failure) {
    const bool retryable = record.failure->retryability == idem::Retryability::retryable;
    table.add({retryable ? "failed, to be tried again" : "failed for good",
               printable(record.failure->reason)});
  }
  if (!record.trace.empty()) table.add({"trace", printable(record.trace)});
  table.print();
}

void add_row(Table& table, const idem::Record& record, idem::Timestamp now) {
  table.add({printable(record.key.text()), std::string(idem::to_string(record.state)),
             std::string(idem::to_string(record.mode)), std::to_string(record.ownership.fence),
             std::to_string(record.attempt), to_text(now - record.updated_at) + " ago",
             end_of(record, now), printable(record.trace)});
}

/// Set by SIGINT and SIGTERM.
volatile std::sig_atomic_t stopped = 0;

void stop_at_signals() {
  struct sigaction action {};
  action.sa_handler = [](int) { stopped = 1; };
  for (const int signal : {SIGINT, SIGTERM})
    ::sigaction(signal, &action, nullptr);
}

}  // namespace

Exit get(const Settings& settings, const GetOptions& options) {
  const idem::Key key = parse_key(options.key);
  const auto store = open(settings);
  const std::optional<idem::Record> record = store->find(key);
  if (!record) throw Ending(Exit::absent, "there is no record of " + printable(key.text()));
  if (!options.result_file.empty()) {
    if (!record->result) throw Ending(Exit::absent, "the record holds no result");
    std::ofstream file(options.result_file, std::ios::binary);
    file << *record->result << std::flush;
    if (!file) throw Ending(Exit::usage, "cannot write " + printable(options.result_file));
  }
  if (settings.json) {
    std::cout << line_of(to_json(*record)) << std::endl;
  } else {
    print_record(*record, store.now());
  }
  return Exit::done;
}

Exit list(const Settings& settings, const ListOptions& options) {
  idem::RecordFilter filter;
  if (!options.type.empty()) filter.type = std::string(idem::Key(options.type, "any").type());
  filter.state = parse_state(options.state);
  if (!options.older_than.empty()) filter.unchanged_for = parse_duration(options.older_than);
  const auto store = open(settings);
  Table table({"KEY", "STATE", "MODE", "FENCE", "ATTEMPTS", "CHANGED", "END", "TRACE"});
  const idem::Timestamp now = store.now();
  Json records = Json::array();
  Json unreadable = Json::array();
  std::set<std::string> named;
  std::string cursor = options.after;
  std::size_t shown = 0;
  do {
    const std::size_t wanted =
        options.limit == 0 ? page_size : std::min(page_size, options.limit - shown);
    const idem::RecordPage page = store->admin()->list(filter, cursor, wanted);
    shown += page.records.size();
    for (const idem::Record& record : page.records) {
      if (settings.json) {
        records.push_back(to_json(record));
      } else {
        add_row(table, record, now);
      }
    }
    for (const idem::RecordPage::Unreadable& one : page.unreadable) {
      if (!named.insert(one.key.text()).second) continue;  // a store may name it in several pages
      if (settings.json) unreadable.push_back(to_json(one));
      std::cerr << "cannot be read: " << printable(one.key.text()) << ": " << printable(one.why)
                << '\n';
    }
    cursor = page.cursor;
  } while (!cursor.empty() && (options.limit == 0 || shown < options.limit));
  if (settings.json) {
    std::cout << line_of({{"records", records}, {"unreadable", unreadable}, {"cursor", cursor}})
              << std::endl;
    return Exit::done;
  }
  table.print();
  if (!cursor.empty()) std::cerr << "there are more: --after '" << printable(cursor) << "'\n";
  return Exit::done;
}

Exit stats(const Settings& settings) {
  const auto store = open(settings);
  const idem::StoreStatistics counts = store->admin()->statistics();
  if (settings.json) {
    std::cout << line_of(to_json(counts)) << std::endl;
    return Exit::done;
  }
  Table table({"STATE", "RECORDS"});
  table.add({"processing", std::to_string(counts.processing)});
  table.add({"success", std::to_string(counts.success)});
  table.add({"failed", std::to_string(counts.failed)});
  table.add({"uncertain", std::to_string(counts.uncertain)});
  table.add({"issued", std::to_string(counts.issued)});
  table.print();
  std::cout << counts.bytes << " bytes" << std::endl;
  return Exit::done;
}

Exit watch(const Settings& settings, const WatchOptions& options) {
  const milliseconds every = std::clamp<milliseconds>(parse_duration(options.every),
                                                      milliseconds{10}, std::chrono::hours{24});
  const auto store = open(settings);
  const bool redraws = !settings.json && ::isatty(STDOUT_FILENO) != 0;
  stop_at_signals();
  if (!settings.json) {
    std::cout
        << "TIME                      PROCESSING     SUCCESS      FAILED   UNCERTAIN      ISSUED\n";
  }
  for (std::uint64_t round = 0;
       stopped == 0 && std::cout && (options.times == 0 || round < options.times); ++round) {
    if (round > 0)
      static_cast<void>(::poll(nullptr, 0, static_cast<int>(every.count())));  // until a signal
    if (stopped != 0) break;
    const idem::StoreStatistics counts = store->admin()->statistics();
    const std::string time = to_text(idem::system_clock().now());
    if (settings.json) {
      Json json = to_json(counts);
      json["at"] = time;
      std::cout << line_of(json) << std::endl;
      continue;
    }
    std::array<char, 120> line{};
    std::snprintf(line.data(), line.size(), "%-24s %11llu %11llu %11llu %11llu %11llu",
                  time.c_str(), static_cast<unsigned long long>(counts.processing),
                  static_cast<unsigned long long>(counts.success),
                  static_cast<unsigned long long>(counts.failed),
                  static_cast<unsigned long long>(counts.uncertain),
                  static_cast<unsigned long long>(counts.issued));
    std::cout << (redraws ? "\r" : "") << line.data() << (redraws ? "" : "\n") << std::flush;
  }
  if (redraws) std::cout << std::endl;
  return Exit::done;
}

Exit key(const Settings& settings, const KeyOptions& options) {
  const auto make = [&]() -> idem::Key {
    if (options.digested) {
      if (options.parts.size() != 1) {
        throw Ending(Exit::usage, "a digested key has one value, of any length");
      }
      return idem::Key::digested(options.type, options.parts.front());
    }
    if (options.parts.size() == 1) return {options.type, options.parts.front()};
    idem::detail::KeyParts parts(options.type, idem::Key::max_value_bytes);
    for (const std::string& part : options.parts)
      parts.add(part);
    return std::move(parts).take();
  };
  const idem::Key made = make();
  Json derived = Json::object();
  for (const std::string& name : options.derived)
    derived[name] = idem::derived_key(made, name);
  if (settings.json) {
    std::cout << line_of({{"key", made.text()},
                          {"type", std::string(made.type())},
                          {"value", std::string(made.value())},
                          {"derived", derived}})
              << std::endl;
    return Exit::done;
  }
  std::cout << printable(made.text()) << std::endl;
  for (const auto& [name, value] : derived.items())
    std::cout << value.get<std::string>() << std::endl;
  return Exit::done;
}

}  // namespace idempotencyctl
