#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <string>

#include "idempotency/key.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail::mysql {

/// Keys that were found in use lately: for these a SELECT is worth a try, because the INSERT that decides would make all
/// callers of one key wait for each other. Bounded; a wrong answer costs a round trip and nothing else.
///
/// Thread safety: all members may be called concurrently.
class HotKeys {
 public:
  [[nodiscard]] bool contains(const Key& key) const noexcept {
    const std::size_t hash = hash_of(key);
    return slot(hash).load(std::memory_order_relaxed) == hash;
  }
  void add(const Key& key) noexcept {
    const std::size_t hash = hash_of(key);
    slot(hash).store(hash, std::memory_order_relaxed);
  }

 private:
  [[nodiscard]] static std::size_t hash_of(const Key& key) noexcept {
    return std::hash<std::string>{}(key.text()) | 1U;  // 0 is an empty slot
  }
  [[nodiscard]] std::atomic<std::size_t>& slot(std::size_t hash) noexcept {
    return slots_[(hash >> 1U) % slots_.size()];
  }
  [[nodiscard]] const std::atomic<std::size_t>& slot(std::size_t hash) const noexcept {
    return slots_[(hash >> 1U) % slots_.size()];
  }

  std::array<std::atomic<std::size_t>, 1024> slots_{};
};

}  // namespace detail::mysql
}  // namespace v0
}  // namespace idempotency
