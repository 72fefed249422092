#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace idempotency::testing_support {

/// Something that happens once in a test and that other threads wait for.
///
/// Thread safety: all members may be called concurrently.
class Event {
 public:
  void set() {
    const std::scoped_lock lock(mutex_);
    happened_ = true;
    changed_.notify_all();
  }
  [[nodiscard]] bool has_happened() const {
    const std::scoped_lock lock(mutex_);
    return happened_;
  }
  /// Whether it happened in time. The limit only ends tests that hang.
  [[nodiscard]] bool wait(std::chrono::milliseconds limit = std::chrono::seconds{30}) const {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, [this] { return happened_; });
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool happened_ = false;
};

}  // namespace idempotency::testing_support
