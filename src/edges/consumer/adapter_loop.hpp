#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <stop_token>
#include <string>
#include <vector>

#include "idempotency/edges/consumer_message.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail {

/// Hands the messages of a batch over one by one.
[[nodiscard]] inline MessageBatchCallback one_by_one(const MessageCallback& handle) {
  return [&handle](MessageBatch& batch) {
    for (std::size_t place = 0; place < batch.messages().size(); ++place) {
      if (!batch.may_be_handled(place)) continue;
      const MessageDisposition disposition = handle(batch.messages()[place]);
      batch.settle(place, disposition);
      if (disposition.flow == MessageFlow::stop) return;
    }
  };
}

/// Refuses to settle what is not there or has been settled.
inline void check_place(std::size_t place, const std::vector<bool>& settled) {
  if (place < settled.size() && !settled[place]) return;
  throw Error(Errc::invalid_argument,
              "a batch of messages has no such place, or that message has been settled",
              std::to_string(place));
}

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
