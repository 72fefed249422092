#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "settings.hpp"
#include "store_access.hpp"
#include "text.hpp"

namespace idempotencyctl {

/// What an unfinished record is waiting for.
enum class Situation {
  running,    ///< its owner is alive
  uncertain,  ///< nobody knows whether it took effect
  silent,     ///< its owner fell silent under `hold`, or behind its point of no return
  abandoned,  ///< its owner fell silent, and the next call takes over by itself
  finished,   ///< or issued
};
[[nodiscard]] std::string_view to_string(Situation situation) noexcept;
/// `now` is the store's.
[[nodiscard]] Situation situation_of(const idem::Record& record, idem::Timestamp now) noexcept;
/// Since when it is in this situation.
[[nodiscard]] idem::Timestamp since(const idem::Record& record, Situation situation) noexcept;

/// One look at all unfinished records of a store, but for the reconciler's own.
struct Look {
  /// How many of one business type there are.
  struct Counts {
    std::size_t running = 0;
    std::size_t uncertain = 0;
    std::size_t silent = 0;
    std::size_t abandoned = 0;
  };

  idem::Timestamp at{};  ///< by the store's clock, when it began
  std::chrono::steady_clock::time_point began{};
  std::chrono::milliseconds took{0};
  idem::StoreStatistics statistics = {};
  std::map<std::string, Counts> by_type;
  std::size_t reconciling = 0;        ///< records of a reconciler about its own work
  std::vector<idem::Record> stuck;    ///< those that need somebody first, then the oldest first
  std::vector<idem::Record> running;  ///< the oldest first
  std::map<std::string, std::string> unreadable;  ///< by key: why; of `most_unreadable` at most

  [[nodiscard]] Counts counts() const noexcept;
};

/// Looks at the store again and again, once for all browsers: often while somebody watches, once a minute otherwise, and never for more than
/// a tenth of the time. Keeps the last hour's counts.
///
/// Thread safety: all members may be called concurrently.
class Watch {
 public:
  static constexpr std::size_t most_kept = 5'000;  ///< records of each list; the oldest
  static constexpr std::size_t most_unreadable = 100;

  /// Counts at a time, for a chart.
  struct Point {
    idem::Timestamp at;
    std::size_t running;
    std::size_t stuck;
  };
  /// What is known at the moment.
  struct State {
    std::shared_ptr<const Look> look;              ///< null before the first
    std::string problem;                           ///< why the last look failed; empty: it did not
    std::optional<idem::Timestamp> failing_since;  ///< by this host's clock
    std::vector<Point> history;
  };

  Watch(const Settings& settings, std::chrono::milliseconds every)
      : settings_(settings), every_(every) {}

  /// Until it is asked to stop.
  void run(const std::stop_token& stop);
  /// Also says that somebody watches.
  [[nodiscard]] State state();
  /// A record has been changed: the looks that do not know it leave it out, and the next one comes at once.
  void note_change(const idem::Key& key);
  /// The store. It is opened by `run`, again and again until that succeeds.
  ///
  /// Errors: `Ending` (store) before.
  [[nodiscard]] std::shared_ptr<OpenedStore> store() const;

 private:
  void look(const std::stop_token& stop);
  void publish(std::shared_ptr<Look> look);
  void note_problem(const std::string& problem);
  void leave_out_changed(Look& look);
  [[nodiscard]] std::chrono::milliseconds pause_after(std::chrono::milliseconds took) const;

  const Settings settings_;
  const std::chrono::milliseconds every_;
  mutable std::mutex mutex_;
  std::condition_variable_any woken_;
  bool wakes_ = false;
  std::shared_ptr<OpenedStore> store_;
  State state_;
  std::deque<Point> history_;
  std::map<std::string, std::chrono::steady_clock::time_point> changed_;  ///< by key
  std::chrono::steady_clock::time_point watched_at_{};
};

}  // namespace idempotencyctl
