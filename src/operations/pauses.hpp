#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <random>
#include <stop_token>

namespace idempotency {
inline namespace v0 {
namespace detail {

/// Waits, and wakes when asked to stop.
inline void wait_or_stop_for(const std::stop_token& stop, std::chrono::milliseconds pause) {
  if (pause <= std::chrono::milliseconds{0}) return;
  std::mutex mutex;
  std::condition_variable_any changed;
  std::unique_lock lock(mutex);
  changed.wait_for(lock, stop, pause, [] { return false; });
}

/// `first`, doubled with each time after the first, up to `longest`. Preconditions: both at least 1 ms.
[[nodiscard]] inline std::chrono::milliseconds longest_pause_after(
    std::uint32_t times, std::chrono::milliseconds first,
    std::chrono::milliseconds longest) noexcept {
  std::chrono::milliseconds pause = std::min(first, longest);
  for (std::uint32_t at = 1; at < times && pause < longest; ++at)
    pause = pause > longest / 2 ? longest : pause * 2;
  return pause;
}

/// Any of 0 to `most`, each as likely.
[[nodiscard]] inline std::chrono::milliseconds any_up_to(std::chrono::milliseconds most) {
  thread_local std::minstd_rand random{std::random_device{}()};
  return std::chrono::milliseconds(
      std::uniform_int_distribution<std::chrono::milliseconds::rep>(0, most.count())(random));
}

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
