#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "settings.hpp"

// What each command does. All throw `Ending` and the errors of the store.
namespace idempotencyctl {

struct GetOptions {
  std::string key;
  std::string result_file;  ///< where the result's bytes are written; empty: nowhere
};
[[nodiscard]] Exit get(const Settings& settings, const GetOptions& options);

struct ListOptions {
  std::string type;
  std::string state;
  std::string older_than;
  std::string after;        ///< a cursor that a listing gave
  std::size_t limit = 100;  ///< 0: all
};
[[nodiscard]] Exit list(const Settings& settings, const ListOptions& options);

[[nodiscard]] Exit stats(const Settings& settings);

struct WatchOptions {
  std::string every = "2s";
  std::uint64_t times = 0;  ///< 0: until it is stopped
};
[[nodiscard]] Exit watch(const Settings& settings, const WatchOptions& options);

struct KeyOptions {
  std::string type;
  std::vector<std::string> parts;
  bool digested = false;
  std::vector<std::string> derived;  ///< names of which the derived keys are wanted
};
[[nodiscard]] Exit key(const Settings& settings, const KeyOptions& options);

[[nodiscard]] Exit doctor(const Settings& settings);

struct ResolveOptions {
  std::string key;
  bool success = false;
  bool retry = false;
  std::optional<std::string> failed;  ///< the text that later calls get; empty: a neutral one
  std::string result_file;
  std::optional<std::string> result_text;
  std::vector<std::string> result_json;   ///< the codec's name, and a file
  std::optional<int> http_status;         ///< the result is a response
  std::vector<std::string> http_headers;  ///< "Name: value"
  std::string http_body;                  ///< a file
  std::string retention;
  std::string policies;  ///< a file
  std::uint64_t fence = 0;
  std::string margin;  ///< empty: `default_margin`
  bool force = false;  ///< `retry` before it can be believed
  std::string reason;
};
[[nodiscard]] Exit resolve(const Settings& settings, const ResolveOptions& options);

struct ReleaseOptions {
  std::string key;
  std::string reason;
  std::string policies;  ///< a file
  bool force = false;
};
[[nodiscard]] Exit release(const Settings& settings, const ReleaseOptions& options);

struct PurgeOptions {
  std::size_t batch = 1'000;
  std::string pause = "20ms";
  std::string reason;
};
[[nodiscard]] Exit purge(const Settings& settings, const PurgeOptions& options);

struct ServeOptions {
  std::string listen = "127.0.0.1:8642";  ///< port 0: any free one
  std::string token_file;                 ///< empty: IDEMPOTENCY_CONSOLE_TOKEN
  std::vector<std::string> allowed_hosts;
  std::vector<std::string> metrics;  ///< addresses that expose idempotency_runs_total
  std::string every = "5s";
  std::string metrics_every = "10s";
  std::string margin;    ///< empty: `default_margin`
  std::string policies;  ///< a file
  bool show_results = false;
  bool insecure = false;  ///< beyond the loopback without encryption
};
[[nodiscard]] Exit serve(const Settings& settings, const ServeOptions& options);

[[nodiscard]] Exit schema_print(const Settings& settings, const std::string& dialect);
[[nodiscard]] Exit schema_check(const Settings& settings);
[[nodiscard]] Exit schema_migrate(const Settings& settings);

}  // namespace idempotencyctl
