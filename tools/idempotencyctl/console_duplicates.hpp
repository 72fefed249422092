#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "text.hpp"

namespace idempotencyctl {

/// Calls of `run` by their outcome.
using Calls = std::map<std::string, double>;

/// The counters `idempotency_runs_total` in a Prometheus exposition, by all their labels.
///
/// Source: Prometheus, "Exposition formats", text format 0.0.4.
struct Counter {
  std::string outcome;
  double value = 0;
};
[[nodiscard]] std::map<std::string, Counter> read_counters(std::string_view exposition);

/// Reads the counters of services that expose them, and keeps how they grew: records hold no count of the duplicates that they answered.
///
/// What a service counted is known only between two readings that both succeeded, and of which the second is not smaller; a counter that
/// begins anew counts from 0. Keeps the last `most_points` readings in memory.
///
/// Thread safety: all members may be called concurrently.
class Duplicates {
 public:
  static constexpr std::size_t most_points = 360;

  /// Errors: `Ending` (usage) for what is no http:// or https:// address.
  Duplicates(const std::vector<std::string>& urls, std::chrono::milliseconds every);

  /// Until it is asked to stop.
  void run(const std::stop_token& stop);
  [[nodiscard]] Json to_json() const;

 private:
  struct Target {
    std::string origin;  ///< scheme, host and port
    std::string path;
    std::string name;  ///< for people: without a password
    std::string problem = "not read yet";
    std::optional<std::map<std::string, Counter>> before = std::nullopt;
  };
  /// What was counted since the reading before.
  struct Point {
    idem::Timestamp at;
    std::size_t targets = 0;  ///< that count: 0 where nothing is known
    Calls calls;
  };

  void read_all(const std::stop_token& stop);
  void read(std::size_t index, const std::stop_token& stop, Point& point);

  const std::chrono::milliseconds every_;
  mutable std::mutex mutex_;
  std::vector<Target> targets_;
  std::deque<Point> points_;
};

}  // namespace idempotencyctl
