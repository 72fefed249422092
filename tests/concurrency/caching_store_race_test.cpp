#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "idempotency/stores/caching.hpp"
#include "idempotency/stores/memory.hpp"

namespace idempotency {
namespace {

using namespace std::chrono_literals;

class SharedClock final : public Clock {
 public:
  [[nodiscard]] Timestamp now() const noexcept override {
    return Timestamp(std::chrono::milliseconds(now_.load(std::memory_order_relaxed)));
  }
  void advance(std::chrono::milliseconds span) {
    now_.fetch_add(span.count(), std::memory_order_relaxed);
  }

 private:
  std::atomic<std::int64_t> now_{1'000'000'000};
};

OwnerToken token(int number) {
  OwnerToken::Bytes bytes{};
  bytes[0] = static_cast<std::uint8_t>(number);
  return OwnerToken(bytes);
}

// Evictions, ends of retention and first calls go on beside hits; what is replayed is always what was recorded.
TEST(CachingStoreRace, ReplaysOnlyWhatTheStoreRecorded) {
  constexpr int threads = 8;
  constexpr int keys = 200;
  SharedClock clock;
  MemoryStore store{MemoryStoreOptions{.clock = &clock}};
  CachingStore<MemoryStore> cache{store, {.max_bytes = 8'000, .clock = &clock}};
  std::atomic<std::uint64_t> replays{0};
  std::barrier start(threads);
  std::vector<std::jthread> running;

  for (int thread = 0; thread < threads; ++thread) {
    running.emplace_back([&, thread] {
      start.arrive_and_wait();
      for (int turn = 0; turn < 4'000; ++turn) {
        const int number = (turn * (thread + 1)) % (turn % 2 == 0 ? keys : keys / 20);
        const Key key("payment", std::to_string(number));
        const Fingerprint fingerprint = Fingerprint::of(number);
        const BeginOutcome outcome =
            cache.begin({.key = key, .owner = token(thread), .fingerprint = fingerprint});
        if (const auto* completed = std::get_if<Completed>(&outcome)) {
          ASSERT_EQ(completed->result, key.text());
          ASSERT_EQ(completed->fingerprint, fingerprint.current());
          ++replays;
        } else if (const auto* acquired = std::get_if<Acquired>(&outcome)) {
          ASSERT_EQ(cache.complete(key, {token(thread), acquired->fence},
                                   {.result = key.text(), .retention = 50ms}),
                    WriteOutcome::stored);
        } else {
          // another owner, or (its record had just ended) one that asked with the other fingerprint
          ASSERT_TRUE(std::holds_alternative<InProgress>(outcome) ||
                      std::holds_alternative<Mismatch>(outcome));
        }
        const BeginOutcome other = cache.begin(
            {.key = key, .owner = token(thread), .fingerprint = Fingerprint::of("other")});
        ASSERT_FALSE(std::holds_alternative<Completed>(other));
        if (const auto* acquired = std::get_if<Acquired>(&other)) {  // it had just ended
          static_cast<void>(cache.release(key, {token(thread), acquired->fence}, 0ms));
        }
        if (turn % 64 == 0) clock.advance(1ms);
      }
    });
  }
  running.clear();

  EXPECT_GT(replays, 0U);
  EXPECT_GT(cache.cache_statistics().hits, 0U);
  EXPECT_GT(cache.cache_statistics().evictions, 0U);
  EXPECT_LE(cache.cache_statistics().bytes, 8'000U);
}

}  // namespace
}  // namespace idempotency
