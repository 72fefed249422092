#pragma once

#include <array>
#include <stop_token>
#include <thread>

namespace idempotencyctl {

/// Asks work to stop at the first SIGINT or SIGTERM, whichever thread gets it; the second one ends the process. One at a time.
///
/// Errors: `Ending` (usage) when the system has no pipe left.
class StopAtSignals {
 public:
  StopAtSignals();
  StopAtSignals(const StopAtSignals&) = delete;
  StopAtSignals& operator=(const StopAtSignals&) = delete;
  ~StopAtSignals();

  [[nodiscard]] std::stop_token token() const { return stop_.get_token(); }

 private:
  std::stop_source stop_;
  std::array<int, 2> pipe_{-1, -1};
  std::thread watcher_;
};

}  // namespace idempotencyctl
