#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>

#include "idempotency/edges/consumer_message.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail {

/// What all adapters' `run` do: rounds until the end, with growing pauses while the broker cannot be reached.
template <class Poll>
ConsumeEnd poll_until_stopped(const std::stop_token& stop, Poll poll) {
  constexpr std::chrono::milliseconds shortest{50};
  constexpr std::chrono::milliseconds longest{5'000};
  std::chrono::milliseconds pause = shortest;
  while (!stop.stop_requested()) {
    try {
      if (poll().flow == MessageFlow::stop) return ConsumeEnd::refused;
      pause = shortest;
    } catch (const Error& error) {
      if (!error.safe_to_retry()) throw;
      std::mutex mutex;
      std::unique_lock lock(mutex);
      std::condition_variable_any stopped;
      stopped.wait_for(lock, stop, pause, [] { return false; });
      pause = std::min(longest, pause * 2);
    }
  }
  return ConsumeEnd::stop_requested;
}

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
