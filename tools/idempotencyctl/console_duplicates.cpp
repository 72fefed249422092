#include "console_duplicates.hpp"

#include <httplib.h>

#include <charconv>
#include <condition_variable>
#include <cstdlib>

#include "settings.hpp"
#include "store_access.hpp"

namespace idempotencyctl {

using std::chrono::milliseconds;

namespace {

constexpr std::size_t most_bytes = std::size_t{16} * 1024 * 1024;
constexpr std::string_view counter_name = "idempotency_runs_total";

/// The value of a label in `name="value",...`; nothing where there is none.
std::optional<std::string> label_of(std::string_view labels, std::string_view wanted) {
  while (!labels.empty()) {
    const std::size_t equals = labels.find("=\"");
    if (equals == std::string_view::npos) return std::nullopt;
    const std::string_view name = labels.substr(0, equals);
    labels.remove_prefix(equals + 2);
    std::string value;
    std::size_t at = 0;
    for (; at < labels.size() && labels[at] != '"'; ++at) {
      if (labels[at] == '\\' && at + 1 < labels.size()) ++at;
      value += labels[at];
    }
    if (at == labels.size()) return std::nullopt;
    if (name == wanted) return value;
    labels.remove_prefix(at + 1);
    while (!labels.empty() && (labels.front() == ',' || labels.front() == ' '))
      labels.remove_prefix(1);
  }
  return std::nullopt;
}

/// Where the labels of a line end: at the brace that stands in no value.
std::size_t end_of_labels(std::string_view line, std::size_t begin) {
  bool in_value = false;
  for (std::size_t at = begin; at < line.size(); ++at) {
    if (in_value && line[at] == '\\') {
      ++at;
    } else if (line[at] == '"') {
      in_value = !in_value;
    } else if (line[at] == '}' && !in_value) {
      return at;
    }
  }
  return std::string_view::npos;
}

void read_line(std::string_view line, std::map<std::string, Counter>& counters) {
  if (!line.starts_with(counter_name)) return;
  const std::size_t begin = counter_name.size();
  if (begin >= line.size() || line[begin] != '{') return;
  const std::size_t end = end_of_labels(line, begin + 1);
  if (end == std::string_view::npos) return;
  const std::string_view labels = line.substr(begin + 1, end - begin - 1);
  std::optional<std::string> outcome = label_of(labels, "outcome");
  const std::string rest(line.substr(end + 1));
  char* after = nullptr;
  const double value = std::strtod(rest.c_str(), &after);
  if (!outcome || after == rest.c_str() || !(value >= 0) || value > 1e15) return;
  counters.insert_or_assign(std::string(labels), Counter{*std::move(outcome), value});
}

/// The parts of http://host:port/path.
std::pair<std::string, std::string> parts_of(const std::string& url) {
  const bool known = url.starts_with("http://") || url.starts_with("https://");
  const std::size_t host = url.find("://") + 3;
  if (!known || host >= url.size() || url[host] == '/') {
    throw Ending(Exit::usage, "--metrics: '" + printable(without_password(url)) +
                                  "' is no http://HOST:PORT/PATH");
  }
  const std::size_t path = url.find('/', host);
  if (path == std::string::npos) return {url, "/metrics"};
  return {url.substr(0, path), url.substr(path)};
}

/// What `url` gives. Throws `Ending` (store) where that is nothing to read.
std::string fetch(const std::string& origin, const std::string& path, const std::stop_token& stop) {
  httplib::Client client(origin);
  client.set_connection_timeout(std::chrono::seconds{3});
  client.set_read_timeout(std::chrono::seconds{5});
  const std::stop_callback stops(stop, [&client] { client.stop(); });
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds{10};
  std::string body;
  const httplib::Result result = client.Get(path, [&](const char* bytes, std::size_t count) {
    body.append(bytes, count);
    return body.size() <= most_bytes && std::chrono::steady_clock::now() < end &&
           !stop.stop_requested();
  });
  if (body.size() > most_bytes) throw Ending(Exit::store, "more than 16 MiB of metrics");
  if (!result) throw Ending(Exit::store, "no answer (" + httplib::to_string(result.error()) + ")");
  constexpr int ok = 200;
  if (result->status != ok) {
    throw Ending(Exit::store, "answers with status " + std::to_string(result->status));
  }
  return body;
}

/// What each counter grew by.
Calls growth(const std::map<std::string, Counter>& before,
             const std::map<std::string, Counter>& after) {
  Calls calls;
  for (const auto& [labels, counter] : after) {
    const auto old = before.find(labels);
    const double from =
        old == before.end() || old->second.value > counter.value ? 0 : old->second.value;
    calls[counter.outcome] += counter.value - from;
  }
  return calls;
}

}  // namespace

std::map<std::string, Counter> read_counters(std::string_view exposition) {
  std::map<std::string, Counter> counters;
  while (!exposition.empty()) {
    const std::size_t end = exposition.find('\n');
    read_line(exposition.substr(0, end), counters);
    if (end == std::string_view::npos) break;
    exposition.remove_prefix(end + 1);
  }
  return counters;
}

Duplicates::Duplicates(const std::vector<std::string>& urls, milliseconds every) : every_(every) {
  for (const std::string& url : urls) {
    auto [origin, path] = parts_of(url);
    targets_.push_back({std::move(origin), std::move(path), without_password(url)});
  }
}

void Duplicates::run(const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any never;
  while (!targets_.empty() && !stop.stop_requested()) {
    read_all(stop);
    std::unique_lock lock(mutex);
    never.wait_for(lock, stop, every_, [] { return false; });
  }
}

void Duplicates::read_all(const std::stop_token& stop) {
  Point point;
  for (std::size_t index = 0; index < targets_.size() && !stop.stop_requested(); ++index)
    read(index, stop, point);
  point.at = idem::system_clock().now();
  const std::scoped_lock lock(mutex_);
  points_.push_back(std::move(point));
  if (points_.size() > most_points) points_.pop_front();
}

void Duplicates::read(std::size_t index, const std::stop_token& stop, Point& point) {
  Target& target = targets_[index];  // its addresses do not change, and nobody else writes the rest
  std::string problem;
  std::optional<std::map<std::string, Counter>> after;
  try {
    after = read_counters(fetch(target.origin, target.path, stop));
    if (after->empty()) problem = "exposes no idempotency_runs_total yet";
    if (target.before) {
      ++point.targets;
      for (const auto& [outcome, count] : growth(*target.before, *after))
        point.calls[outcome] += count;
    }
  } catch (const std::exception& failed) {
    problem = failed.what();
  }
  const std::scoped_lock lock(mutex_);
  target.before = std::move(after);
  target.problem = problem;
}

Json Duplicates::to_json() const {
  const std::scoped_lock lock(mutex_);
  Json targets = Json::array();
  for (const Target& target : targets_)
    targets.push_back({{"url", target.name}, {"problem", target.problem}});
  Json points = Json::array();
  for (const Point& point : points_) {
    points.push_back(
        {{"at", to_text(point.at)}, {"targets", point.targets}, {"calls", Json(point.calls)}});
  }
  return {{"targets", targets}, {"every_milliseconds", every_.count()}, {"points", points}};
}

}  // namespace idempotencyctl
