#include "core/fork_generation.hpp"

#include <pthread.h>

#include <atomic>

namespace idempotency {
inline namespace v0 {
namespace detail {

namespace {

std::atomic<std::uint64_t> generation{1};

const int registered =
    pthread_atfork(nullptr, nullptr, [] { generation.fetch_add(1, std::memory_order_relaxed); });

}  // namespace

std::uint64_t fork_generation() noexcept {
  static_cast<void>(registered);
  return generation.load(std::memory_order_relaxed);
}

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
