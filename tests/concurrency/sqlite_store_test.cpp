#include "idempotency/stores/sqlite.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <latch>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "support/sqlite_file.hpp"

namespace idempotency {
namespace {

using namespace std::chrono_literals;
using testing_support::PlainConnection;
using testing_support::request;
using testing_support::TemporaryFolder;
using testing_support::token;

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

class SqliteStoreRace : public testing::Test {
 protected:
  SqliteOptions options() { return {.path = path, .busy_timeout = 60s}; }

  TemporaryFolder folder;
  std::string path = folder.file("store.db");
};

// ID-37: of 64 callers with one key at one moment, one becomes the owner.
TEST_F(SqliteStoreRace, OneOfManyCallersBecomesTheOwner) {
  SqliteStore store{options()};
  for (int round = 0; round < 10; ++round) {
    const std::string value = std::to_string(round);
    std::atomic<int> acquired{0};
    std::atomic<int> in_progress{0};

    together(64, [&](int index) {
      const BeginOutcome outcome = store.begin(request(value, static_cast<std::uint8_t>(index)));
      if (std::holds_alternative<Acquired>(outcome)) ++acquired;
      if (std::holds_alternative<InProgress>(outcome)) ++in_progress;
    });

    EXPECT_EQ(acquired, 1);
    EXPECT_EQ(in_progress, 63);
  }
}

TEST_F(SqliteStoreRace, EveryWriteOfASharedCommitGetsItsOwnAnswer) {
  constexpr int threads = 16;
  constexpr int rounds = 15;
  SqliteOptions small_batches = options();
  small_batches.max_batch = 5;
  SqliteStore store{small_batches};
  std::atomic<int> wrong{0};

  together(threads, [&](int thread) {
    const auto owner = static_cast<std::uint8_t>(thread);
    for (int round = 0; round < rounds; ++round) {
      const std::string value = std::to_string(thread) + "-" + std::to_string(round);
      const Key key("payment", value);
      wrong += store.begin(request(value, owner)) != BeginOutcome(Acquired{});
      wrong += store.renew(key, {token(owner), 1}, 1min) != WriteOutcome::stored;
      wrong += store.complete(key, {token(200), 1}, {"foreign", 1h}) != WriteOutcome::lost;
      wrong += store.complete(key, {token(owner), 1}, {value, 1h}) != WriteOutcome::stored;
      const auto record = store.find(key);
      wrong += !record || record->result != value;
    }
  });

  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(store.statistics().success, static_cast<std::uint64_t>(threads * rounds));
}

TEST_F(SqliteStoreRace, AnUnreadableRecordFailsItsOwnCallsOnly) {
  SqliteStore store{options()};
  ASSERT_EQ(store.begin(request("broken", 1)), BeginOutcome(Acquired{}));
  PlainConnection(path).run("UPDATE idempotency_record SET owner = x'00'");
  std::atomic<int> corrupt{0};
  std::atomic<int> stored{0};

  together(16, [&](int thread) {
    for (int round = 0; round < 10; ++round) {
      try {
        if (thread % 2 == 0) {
          static_cast<void>(store.doubt(Key("payment", "broken"), {token(1), 1}));
        } else {
          const std::string value = std::to_string(thread) + "-" + std::to_string(round);
          stored += store.begin(request(value, 1)) == BeginOutcome(Acquired{});
        }
      } catch (const Error& error) {
        corrupt += error.code() == Errc::store_corrupt;
      }
    }
  });

  EXPECT_EQ(corrupt, 80);
  EXPECT_EQ(stored, 80);
}

TEST_F(SqliteStoreRace, MoreReadersThanConnectionsAllGetTheirTurn) {
  SqliteOptions two_connections = options();
  two_connections.connections = 2;
  SqliteStore store{two_connections};
  ASSERT_EQ(store.begin(request("a", 1)), BeginOutcome(Acquired{}));
  ASSERT_EQ(store.complete(Key("payment", "a"), {token(1), 1}, {"r", 1h}), WriteOutcome::stored);
  std::atomic<int> replayed{0};

  together(16, [&](int) {
    for (int round = 0; round < 100; ++round) {
      const BeginOutcome outcome = store.begin(request("a", 2));
      const auto* completed = std::get_if<Completed>(&outcome);
      replayed += completed != nullptr && completed->result == "r";
    }
  });

  EXPECT_EQ(replayed, 1600);
}

TEST_F(SqliteStoreRace, ReplaysGoOnWhileATransactionIsOpen) {
  SqliteStore store{options()};
  ASSERT_EQ(store.begin(request("a", 1)), BeginOutcome(Acquired{}));
  ASSERT_EQ(store.complete(Key("payment", "a"), {token(1), 1}, {"r", 1h}), WriteOutcome::stored);
  SqliteTransaction transaction = store.open_transaction();
  static_cast<void>(store.begin(transaction, request("b", 1)));
  std::atomic<int> replayed{0};

  together(
      8, [&](int) { replayed += std::holds_alternative<Completed>(store.begin(request("a", 2))); });
  store.commit(transaction);

  EXPECT_EQ(replayed, 8);
}

TEST_F(SqliteStoreRace, TransactionsAndSharedCommitsLoseNothingOfEachOther) {
  constexpr int threads = 8;
  constexpr int rounds = 15;
  SqliteStore store{options()};
  PlainConnection(path).run("CREATE TABLE ledger (cents INTEGER); INSERT INTO ledger VALUES (0)");

  together(threads, [&](int thread) {
    for (int round = 0; round < rounds; ++round) {
      const std::string value = std::to_string(thread) + "-" + std::to_string(round);
      const Key key("payment", value);
      if (thread % 2 == 0) {
        SqliteTransaction transaction = store.open_transaction({.wait = 60s});
        if (!std::holds_alternative<Acquired>(store.begin(transaction, request(value, 1))))
          continue;
        transaction.execute("UPDATE ledger SET cents = cents + 1");
        if (round % 3 == 0) continue;  // rolled back
        static_cast<void>(store.complete(transaction, key, {token(1), 1}, {"r", 1h}));
        store.commit(transaction);
      } else {
        static_cast<void>(store.begin(request(value, 1)));
        static_cast<void>(store.complete(key, {token(1), 1}, {"r", 1h}));
      }
    }
  });

  const int committed = threads / 2 * rounds * 2 / 3;
  EXPECT_EQ(PlainConnection(path).ask("SELECT cents FROM ledger"), std::to_string(committed));
  EXPECT_EQ(store.statistics().success,
            static_cast<std::uint64_t>(committed + threads / 2 * rounds));
}

// LK-09, ID-29: takeovers, renewals and completions of one key from many threads leave one winner's
// result.
TEST_F(SqliteStoreRace, ALateOwnerNeverOverwritesTheNextOnes) {
  SqliteStore store{options()};
  const Key key("payment", "a");
  std::atomic<int> stored{0};

  together(16, [&](int thread) {
    const auto owner = static_cast<std::uint8_t>(thread);
    BeginRequest wanted = request("a", owner);
    wanted.lease = 1ms;
    for (int round = 0; round < 10; ++round) {
      const BeginOutcome outcome = store.begin(wanted);
      const auto* acquired = std::get_if<Acquired>(&outcome);
      if (acquired == nullptr) continue;
      static_cast<void>(store.renew(key, {token(owner), acquired->fence}, 1ms));
      const std::string result = std::to_string(thread);
      stored += store.complete(key, {token(owner), acquired->fence}, {result, 1h}) ==
                WriteOutcome::stored;
    }
  });
  const auto record = store.find(key);

  EXPECT_EQ(stored, 1);
  ASSERT_TRUE(record);
  ASSERT_EQ(record->state, RecordState::success);
  EXPECT_EQ(record->ownership.owner, token(static_cast<std::uint8_t>(std::stoi(*record->result))));
}

// CP-01: a cancelled thread leaves no lock behind and no half of a write.
TEST_F(SqliteStoreRace, CancelledThreadsLeaveTheStoreUsable) {
  SqliteStore store{options()};
  for (int round = 0; round < 20; ++round) {
    std::latch started(1);
    std::thread cancelled([&] {
      started.count_down();
      for (int index = 0; index < 1000; ++index) {
        const std::string value = std::to_string(round) + "-" + std::to_string(index);
        static_cast<void>(store.begin(request(value, 1)));
        pthread_testcancel();
      }
    });
    started.wait();
    EXPECT_EQ(pthread_cancel(cancelled.native_handle()), 0);
    cancelled.join();

    EXPECT_EQ(store.begin(request("after-" + std::to_string(round), 1)), BeginOutcome(Acquired{}));
  }
  EXPECT_EQ(PlainConnection(path).ask("PRAGMA integrity_check"), "ok");
}

}  // namespace
}  // namespace idempotency
