#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <variant>
#include <vector>

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

/// Runs `body(index)` on many threads that start together; waits for all.
template <class Body>
void together(int threads, Body body) {
  std::barrier start(threads);
  std::vector<std::jthread> running;
  for (int index = 0; index < threads; ++index) {
    running.emplace_back([&, index] {
      start.arrive_and_wait();
      body(index);
    });
  }
}

OwnerToken token(int number) {
  OwnerToken::Bytes bytes{};
  bytes[0] = static_cast<std::uint8_t>(number);
  bytes[1] = static_cast<std::uint8_t>(number >> 8);
  return OwnerToken(bytes);
}

BeginRequest request(const Key& key, int owner) {
  return {.key = key, .owner = token(owner), .fingerprint = std::nullopt, .lease = 10s};
}

// ID-37: look-up and creation are one step, so that of 64 callers one becomes the owner.
TEST(MemoryStoreRace, LetsOneOfManyCallersAcquireANewKey) {
  MemoryStore store;
  for (int round = 0; round < 20; ++round) {
    const Key key{"payment", std::to_string(round)};
    std::atomic<int> acquired{0};
    std::atomic<int> refused{0};

    together(64, [&](int index) {
      const BeginOutcome outcome = store.begin(request(key, index));
      if (std::holds_alternative<Acquired>(outcome)) ++acquired;
      if (std::holds_alternative<InProgress>(outcome)) ++refused;
    });

    ASSERT_EQ(acquired, 1);
    ASSERT_EQ(refused, 63);
  }
}

TEST(MemoryStoreRace, LetsOneOfManyCallersTakeOverAnEndedLease) {
  SharedClock clock;
  MemoryStore store{MemoryStoreOptions{.clock = &clock}};
  const Key key{"job", "1"};
  static_cast<void>(store.begin(request(key, 0)));
  for (std::uint64_t fence = 2; fence < 40; ++fence) {
    clock.advance(11s);
    std::atomic<int> acquired{0};
    std::atomic<std::uint64_t> seen{0};

    together(32, [&](int index) {
      const int owner = static_cast<int>(fence) * 32 + index;
      const BeginOutcome outcome = store.begin(request(key, owner));
      if (const auto* mine = std::get_if<Acquired>(&outcome)) {
        ++acquired;
        seen = mine->fence;
      }
    });

    ASSERT_EQ(acquired, 1);
    ASSERT_EQ(seen, fence);
  }
}

TEST(MemoryStoreRace, StoresTheResultOfOneOwnerHoweverManyCompleteAtOnce) {
  MemoryStore store;
  for (int round = 0; round < 20; ++round) {
    const Key key{"payment", std::to_string(round)};
    static_cast<void>(store.begin(request(key, 5)));
    std::atomic<int> stored{0};

    together(16, [&](int index) {
      const Ownership by{token(index), 1};
      if (store.complete(key, by, {.result = std::to_string(index)}) == WriteOutcome::stored) {
        ++stored;
      }
    });

    ASSERT_EQ(stored, 1);
    ASSERT_EQ(store.find(key)->result, "5");
  }
}

// Growth, expiry, purge and listing go on beside calls of every kind.
TEST(MemoryStoreRace, KeepsItsRecordsRightWhileEverythingHappensAtOnce) {
  constexpr int writers = 6;
  constexpr int records = 3'000;
  SharedClock clock;
  MemoryStore store{MemoryStoreOptions{.clock = &clock}};
  std::atomic<bool> stop{false};
  std::jthread gardener([&] {
    while (!stop) {
      clock.advance(1ms);
      store.purge(50);
      static_cast<void>(store.statistics());
      static_cast<void>(store.list({.state = RecordState::processing}, "", 5));
    }
  });

  together(writers, [&](int writer) {
    for (int number = 0; number < records; ++number) {
      const Key key("payment", std::to_string(writer) + "-" + std::to_string(number));
      const bool lasts = number % 2 == 0;
      const BeginOutcome begun = store.begin(request(key, writer));
      ASSERT_TRUE(std::holds_alternative<Acquired>(begun));
      ASSERT_EQ(store.renew(key, {token(writer), 1}, 24h), WriteOutcome::stored);
      ASSERT_EQ(store.complete(key, {token(writer), 1},
                               {.result = key.text(), .retention = lasts ? 24h * 365 : 1ms}),
                WriteOutcome::stored);
    }
  });
  stop = true;
  gardener.join();
  clock.advance(1s);
  store.purge(writers * records);

  EXPECT_EQ(store.statistics().success, static_cast<std::uint64_t>(writers) * records / 2);
  for (int writer = 0; writer < writers; ++writer) {
    for (int number = 0; number < records; number += 2) {
      const Key key("payment", std::to_string(writer) + "-" + std::to_string(number));
      const BeginOutcome outcome = store.begin(request(key, 99));
      ASSERT_EQ(std::get<Completed>(outcome).result, key.text());
    }
  }
}

TEST(MemoryStoreRace, StaysWithinItsBoundUnderManyWriters) {
  constexpr std::size_t max_bytes = 500'000;
  MemoryStore store{MemoryStoreOptions{.max_bytes = max_bytes}};
  std::atomic<std::uint64_t> begun{0};
  std::atomic<int> refused{0};

  together(8, [&](int writer) {
    for (int number = 0; number < 2'000; ++number) {
      try {
        static_cast<void>(store.begin(
            request(Key("payment", std::to_string(writer) + "-" + std::to_string(number)), 1)));
        ++begun;
      } catch (const Error& error) {
        ASSERT_EQ(error.code(), Errc::store_full);
        ++refused;
      }
    }
  });

  EXPECT_GT(refused, 0);
  EXPECT_EQ(store.statistics().processing, begun);
  EXPECT_LE(store.statistics().bytes, max_bytes);
}

}  // namespace
}  // namespace idempotency
