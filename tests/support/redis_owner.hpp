#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "idempotency/observer.hpp"
#include "idempotency/stores/redis.hpp"

namespace idempotency::testing_support {

/// One caller that asks for a key, and what it does with it.
struct RedisOwner {
  RedisStore& store;
  Key key;
  OwnerToken token = OwnerToken::generate();

  BeginOutcome begin(std::chrono::milliseconds lease = std::chrono::seconds{30}) {
    return store.begin({.key = key, .owner = token, .lease = lease});
  }
  WriteOutcome complete(std::chrono::milliseconds retention = std::chrono::hours{1}) {
    return store.complete(key, {token, 1}, {"result", retention});
  }
  WriteOutcome renew(std::chrono::milliseconds lease = std::chrono::seconds{30}) {
    return store.renew(key, {token, 1}, lease);
  }
};

/// What `begin` answers to the first caller.
inline BeginOutcome first_of_all() { return Acquired{1, 1}; }

/// What Redis calls the record of a key.
inline std::string redis_name(const Key& key) { return "idempotency:{" + key.text() + "}"; }

/// Remembers hazards, and counts failed calls.
class RedisListener : public Observer {
 public:
  void on_hazard(std::string_view what) noexcept override {
    const std::scoped_lock lock(mutex_);
    hazards_.emplace_back(what);
  }
  void on_store_error(const Key&, StoreCall call, const Error&, std::uint32_t) noexcept override {
    if (call == StoreCall::release) ++failed_releases;
    ++failed_calls;
  }
  /// How many hazards say this.
  int heard(std::string_view part) {
    const std::scoped_lock lock(mutex_);
    return static_cast<int>(std::count_if(
        hazards_.begin(), hazards_.end(),
        [&](const std::string& hazard) { return hazard.find(part) != std::string::npos; }));
  }
  std::size_t all() {
    const std::scoped_lock lock(mutex_);
    return hazards_.size();
  }

  std::atomic<int> failed_releases{0};
  std::atomic<int> failed_calls{0};

 private:
  std::mutex mutex_;
  std::vector<std::string> hazards_;
};

}  // namespace idempotency::testing_support
