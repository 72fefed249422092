#include "idempotency/stores/memory.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "support/error_of.hpp"

namespace idempotency {
namespace {

using namespace std::chrono_literals;
using testing_support::code_of;

class HandClock final : public Clock {
 public:
  [[nodiscard]] Timestamp now() const noexcept override { return now_; }
  void advance(std::chrono::milliseconds span) { now_ += span; }

 private:
  Timestamp now_{std::chrono::hours{24 * 365 * 50}};
};

class RecordingObserver final : public Observer {
 public:
  void on_hazard(std::string_view /*what*/) noexcept override { ++hazards; }
  void on_resolved(const Key& key, std::string_view verdict) noexcept override {
    resolved.push_back(key.text() + "=" + std::string(verdict));
  }
  int hazards = 0;
  std::vector<std::string> resolved;
};

OwnerToken token(std::uint8_t number) {
  OwnerToken::Bytes bytes{};
  bytes[0] = number;
  bytes[15] = number;
  return OwnerToken(bytes);
}

BeginRequest request(const Key& key, std::uint8_t owner) {
  return {.key = key, .owner = token(owner), .fingerprint = std::nullopt, .lease = 10s};
}

/// Begins and completes; the record is kept for `retention`.
void finish(MemoryStore& store, const Key& key, const std::string& result,
            std::chrono::milliseconds retention = 1h) {
  const BeginOutcome begun = store.begin(request(key, 1));
  const Ownership by{token(1), std::get<Acquired>(begun).fence};
  ASSERT_EQ(store.complete(key, by, {.result = result, .retention = retention}),
            WriteOutcome::stored);
}

Key numbered(int number) { return Key("payment", "order-" + std::to_string(number)); }

TEST(MemoryStore, KeepsEveryFieldOfARecord) {
  HandClock clock;
  MemoryStore store{MemoryStoreOptions{.clock = &clock}};
  const Timestamp begun_at = clock.now();
  const Key key{"payment", "order-1"};
  const Fingerprint fingerprint = Fingerprint::of_bytes("100 cents");
  ASSERT_TRUE(std::holds_alternative<Acquired>(store.begin({.key = key,
                                                            .owner = token(7),
                                                            .fingerprint = fingerprint,
                                                            .mode = RecordMode::hold,
                                                            .lease = 10s,
                                                            .trace = "trace-1"})));
  clock.advance(1s);

  ASSERT_EQ(store.mark_effect(key, {token(7), 1}), WriteOutcome::stored);
  const std::optional<Record> running = store.find(key);
  ASSERT_EQ(store.complete(key, {token(7), 1}, {.result = std::string("a\0b", 3), .retention = 2h}),
            WriteOutcome::stored);
  const std::optional<Record> finished = store.find(key);

  ASSERT_TRUE(running);
  EXPECT_EQ(running->key, key);
  EXPECT_EQ(running->state, RecordState::processing);
  EXPECT_EQ(running->mode, RecordMode::hold);
  EXPECT_TRUE(running->effect_marked);
  EXPECT_EQ(running->ownership, (Ownership{token(7), 1}));
  EXPECT_EQ(running->attempt, 1U);
  EXPECT_EQ(running->fingerprint, fingerprint.current());
  EXPECT_EQ(running->lease_until, begun_at + 10s);
  EXPECT_EQ(running->expires_at, std::nullopt);
  EXPECT_EQ(running->trace, "trace-1");
  ASSERT_TRUE(finished);
  EXPECT_EQ(finished->key.type(), "payment");
  EXPECT_EQ(finished->state, RecordState::success);
  EXPECT_EQ(finished->ownership, (Ownership{token(7), 1}));
  EXPECT_EQ(finished->fingerprint, fingerprint.current());
  EXPECT_EQ(finished->created_at, begun_at);
  EXPECT_EQ(finished->updated_at, begun_at + 1s);
  EXPECT_EQ(finished->lease_until, std::nullopt);
  EXPECT_EQ(finished->expires_at, begun_at + 1s + 2h);
  EXPECT_EQ(finished->result, std::string("a\0b", 3));
  EXPECT_EQ(finished->trace, "trace-1");
}

TEST(MemoryStore, KeepsAReturnedFailureWithItsReasonAndResult) {
  MemoryStore store;
  const Key key{"payment", "order-1"};
  ASSERT_TRUE(std::holds_alternative<Acquired>(store.begin(request(key, 1))));
  const Failure failure{Retryability::permanent, std::string(1'000, 'r'), std::string(300, 'v')};

  ASSERT_EQ(store.fail(key, {token(1), 1}, failure, 1h), WriteOutcome::stored);

  const BeginOutcome outcome = store.begin(request(key, 2));
  EXPECT_EQ(std::get<Failed>(outcome).failure, failure);
  EXPECT_EQ(store.find(key)->failure, failure);
}

TEST(MemoryStore, CountsFenceAndAttemptsThroughManyOwners) {
  HandClock clock;
  MemoryStore store{MemoryStoreOptions{.clock = &clock}};
  const Key key{"job", "1"};
  BeginOutcome outcome = store.begin(request(key, 0));
  for (std::uint8_t owner = 1; owner < 250; ++owner) {
    clock.advance(11s);
    outcome = store.begin(request(key, owner));
  }

  EXPECT_EQ(std::get<Acquired>(outcome), (Acquired{.fence = 250, .attempt = 250}));
  EXPECT_EQ(store.find(key)->ownership, (Ownership{token(249), 250}));
}

TEST(MemoryStore, ReplaysTheFirstCompletionAndItsRetentionAfterARepeatedOne) {
  HandClock clock;
  MemoryStore store{MemoryStoreOptions{.clock = &clock}};
  const Key key{"payment", "order-1"};
  finish(store, key, "first", 1h);
  clock.advance(10min);

  EXPECT_EQ(store.complete(key, {token(1), 1}, {.result = "second", .retention = 5h}),
            WriteOutcome::stored);

  const BeginOutcome outcome = store.begin(request(key, 2));
  EXPECT_EQ(std::get<Completed>(outcome).result, "first");
  EXPECT_EQ(std::get<Completed>(outcome).retention_remaining, 50min);
}

TEST(MemoryStore, ForgetsAFinishedRecordAtTheEndOfItsRetention) {
  HandClock clock;
  MemoryStore store{MemoryStoreOptions{.clock = &clock}};
  const Key key{"payment", "order-1"};
  finish(store, key, "result", 1h);

  clock.advance(1h - 1ms);
  EXPECT_TRUE(store.find(key));
  clock.advance(1ms);

  EXPECT_FALSE(store.find(key));
  EXPECT_EQ(store.statistics().success, 0U);
  EXPECT_EQ(std::get<Acquired>(store.begin(request(key, 2))).fence, 1U);
}

TEST(MemoryStore, RefusesNewKeysWhenFullAndForgetsNothing) {
  MemoryStore store{MemoryStoreOptions{.max_bytes = 200'000}};
  int kept = 0;
  Errc refusal{};
  for (; refusal == Errc{} && kept < 100'000; ++kept) {
    try {
      finish(store, numbered(kept), "result");
    } catch (const Error& error) {
      refusal = error.code();
      --kept;
    }
  }

  EXPECT_EQ(refusal, Errc::store_full);
  EXPECT_GT(kept, 1'000);
  EXPECT_LE(store.statistics().bytes, 200'000U);
  for (int number = 0; number < kept; ++number) {
    ASSERT_TRUE(std::holds_alternative<Completed>(store.begin(request(numbered(number), 2))));
  }
}

TEST(MemoryStore, KeepsUnfinishedRecordsWhenFull) {
  HandClock clock;
  MemoryStore store{MemoryStoreOptions{.max_bytes = 50'000, .clock = &clock}};
  int begun = 0;
  try {
    for (;; ++begun)
      static_cast<void>(store.begin(request(numbered(begun), 1)));
  } catch (const Error& error) {
    ASSERT_EQ(error.code(), Errc::store_full);
  }
  ASSERT_EQ(store.doubt(numbered(0), {token(1), 1}), WriteOutcome::stored);

  clock.advance(std::chrono::hours{24 * 365});

  EXPECT_EQ(code_of([&] { static_cast<void>(store.begin(request(numbered(begun), 1))); }),
            Errc::store_full);
  EXPECT_EQ(store.purge(1'000), 0U);
  EXPECT_EQ(store.statistics().processing, static_cast<std::uint64_t>(begun) - 1);
  EXPECT_EQ(store.statistics().uncertain, 1U);
}

TEST(MemoryStore, RecordsWhatWasRunningWhenItBecameFull) {
  MemoryStore store{MemoryStoreOptions{.max_bytes = 50'000}};
  int begun = 0;
  try {
    for (;; ++begun)
      static_cast<void>(store.begin(request(numbered(begun), 1)));
  } catch (const Error& error) {
    ASSERT_EQ(error.code(), Errc::store_full);
  }

  for (int number = 0; number < begun; ++number) {
    ASSERT_EQ(store.complete(numbered(number), {token(1), 1}, {.result = std::string(500, 'r')}),
              WriteOutcome::stored);
  }

  EXPECT_EQ(store.statistics().success, static_cast<std::uint64_t>(begun));
  EXPECT_GT(store.statistics().bytes, 50'000U);
  EXPECT_EQ(code_of([&] { static_cast<void>(store.begin(request(numbered(begun), 1))); }),
            Errc::store_full);
}

TEST(MemoryStore, TakesExpiredRecordsBackWhenFull) {
  HandClock clock;
  MemoryStore store{MemoryStoreOptions{.max_bytes = 100'000, .clock = &clock}};
  int kept = 0;
  try {
    for (;; ++kept)
      finish(store, numbered(kept), "result", 1h);
  } catch (const Error& error) {
    ASSERT_EQ(error.code(), Errc::store_full);
  }

  const int fewer = kept * 9 / 10;  // other keys fall differently into the tables
  clock.advance(2h);
  for (int number = 0; number < fewer; ++number) {
    ASSERT_NO_THROW(finish(store, numbered(1'000'000 + number), "result", 1h)) << number;
  }

  EXPECT_GT(kept, 500);
  EXPECT_EQ(store.statistics().success, static_cast<std::uint64_t>(fewer));
}

TEST(MemoryStore, StaysSmallUnderAStreamOfExpiringRecordsWithoutAnyPurge) {
  HandClock clock;
  MemoryStore store{MemoryStoreOptions{.clock = &clock}};
  std::uint64_t most = 0;

  for (int number = 0; number < 200'000; ++number) {
    finish(store, numbered(number), "result", 10s);
    clock.advance(1ms);
    if (number % 10'000 == 0) most = std::max(most, store.statistics().bytes);
  }

  EXPECT_LT(most, 10'000U * 300U);  // ten thousand live ones at any moment
  EXPECT_EQ(store.statistics().success, 9'999U);
}

TEST(MemoryStore, PurgesNoMoreThanAskedForAndGivesTheBytesBack) {
  HandClock clock;
  MemoryStore store{MemoryStoreOptions{.clock = &clock}};
  for (int number = 0; number < 100; ++number)
    finish(store, numbered(number), "result", 1h);
  for (int number = 100; number < 150; ++number)
    finish(store, numbered(number), "result", 3h);
  const std::uint64_t before = store.statistics().bytes;
  clock.advance(2h);

  const std::size_t first = store.purge(30);
  const std::size_t second = store.purge(1'000);
  const std::size_t third = store.purge(1'000);

  EXPECT_EQ(first, 30U);
  EXPECT_EQ(second, 70U);
  EXPECT_EQ(third, 0U);
  EXPECT_LT(store.statistics().bytes, before);
  for (int number = 100; number < 150; ++number)
    EXPECT_TRUE(store.find(numbered(number)));
}

TEST(MemoryStore, FindsEveryRecordAfterManyWereRemovedFromTheMiddle) {
  HandClock clock;
  MemoryStore store{MemoryStoreOptions{.clock = &clock}};
  for (int number = 0; number < 20'000; ++number) {
    finish(store, numbered(number), std::to_string(number), number % 3 == 0 ? 1h : 9h);
  }
  clock.advance(2h);

  EXPECT_EQ(store.purge(20'000), 6'667U);

  for (int number = 0; number < 20'000; ++number) {
    const std::optional<Record> record = store.find(numbered(number));
    ASSERT_EQ(record.has_value(), number % 3 != 0) << number;
    if (record) {
      ASSERT_EQ(record->result, std::to_string(number));
    }
  }
}

TEST(MemoryStore, ListsInTheOrderOfKeysPageByPage) {
  MemoryStore store;
  std::set<std::string> expected;
  for (int number = 0; number < 95; ++number) {
    finish(store, numbered(number), "result");
    expected.insert(numbered(number).text());
  }
  static_cast<void>(store.begin(request({"order", "running"}, 1)));

  std::vector<std::string> listed;
  std::size_t pages = 0;
  std::string cursor;
  do {
    const RecordPage page = store.list({.state = RecordState::success}, cursor, 10);
    for (const Record& record : page.records)
      listed.push_back(record.key.text());
    cursor = page.cursor;
    ++pages;
  } while (!cursor.empty());

  EXPECT_EQ(listed, std::vector<std::string>(expected.begin(), expected.end()));
  EXPECT_EQ(pages, 10U);
}

TEST(MemoryStore, ListsByTypeAndByTimeWithoutAChange) {
  HandClock clock;
  MemoryStore store{MemoryStoreOptions{.clock = &clock}};
  static_cast<void>(store.begin(request({"order", "old"}, 1)));
  static_cast<void>(store.begin(request({"orders", "old"}, 1)));
  clock.advance(1h);
  static_cast<void>(store.begin(request({"order", "new"}, 1)));

  const RecordPage by_type = store.list({.type = "order"}, "", 10);
  const RecordPage by_age = store.list({.type = "order", .unchanged_for = 30min}, "", 10);

  ASSERT_EQ(by_type.records.size(), 2U);
  EXPECT_EQ(by_type.records[0].key.text(), "order:new");
  EXPECT_EQ(by_type.records[1].key.text(), "order:old");
  ASSERT_EQ(by_age.records.size(), 1U);
  EXPECT_EQ(by_age.records[0].key.text(), "order:old");
}

TEST(MemoryStore, RefusesACursorThatNoListingGave) {
  MemoryStore store;

  EXPECT_EQ(code_of([&] { static_cast<void>(store.list({}, "not a cursor", 1)); }),
            Errc::invalid_argument);
}

TEST(MemoryStore, TellsTheObserverOnceOfAResolution) {
  RecordingObserver observer;
  MemoryStore store{MemoryStoreOptions{.observer = &observer}};
  const Key key{"payment", "order-1"};
  static_cast<void>(store.begin(request(key, 1)));
  ASSERT_EQ(store.doubt(key, {token(1), 1}), WriteOutcome::stored);
  const Resolution resolution{.verdict = Resolution::Verdict::succeeded,
                              .result = "receipt",
                              .resolver = token(9),
                              .retention = 1h};

  const Record seen = *store.find(key);
  Record at_another_fence = seen;
  at_another_fence.ownership.fence = 7;

  EXPECT_EQ(store.resolve(at_another_fence, resolution), WriteOutcome::lost);
  EXPECT_EQ(store.resolve(seen, resolution), WriteOutcome::stored);
  EXPECT_EQ(store.resolve(seen, resolution), WriteOutcome::stored);

  EXPECT_EQ(observer.hazards, 1);
  EXPECT_EQ(observer.resolved, std::vector<std::string>{"payment:order-1=succeeded"});
  const BeginOutcome outcome = store.begin(request(key, 2));
  EXPECT_EQ(std::get<Completed>(outcome).result, "receipt");
  EXPECT_EQ(store.find(key)->ownership, (Ownership{token(9), 2}));
}

TEST(MemoryStore, RenewsManyLeasesInTheOrderOfTheRequests) {
  HandClock clock;
  MemoryStore store{MemoryStoreOptions{.clock = &clock}};
  const Key first{"job", "1"};
  const Key second{"job", "2"};
  static_cast<void>(store.begin(request(first, 1)));
  static_cast<void>(store.begin(request(second, 1)));
  const std::vector<Renewal> renewals{
      {first, {token(1), 1}, 1min}, {second, {token(2), 1}, 1min}, {second, {token(1), 1}, 1min}};

  const std::vector<WriteOutcome> outcomes = store.renew_many(renewals);

  EXPECT_EQ(outcomes,
            (std::vector{WriteOutcome::stored, WriteOutcome::lost, WriteOutcome::stored}));
  EXPECT_EQ(store.find(first)->lease_until, clock.now() + 1min);
}

TEST(MemoryStore, LivesWithinAHundredAndThirtyBytesARecord) {
  constexpr int records = 100'000;
  MemoryStore store;
  for (int number = 0; number < records; ++number) {
    std::string suffix = std::to_string(number);
    suffix.insert(0, 16 - suffix.size(), '0');
    finish(store, Key("payment", suffix), std::string(16, 'r'));
  }

  EXPECT_LE(store.statistics().bytes, std::uint64_t{records} * 130);
}

TEST(MemoryStore, KeepsALeaseWithoutEndAndARetentionWithoutEnd) {
  HandClock clock;
  MemoryStore store{MemoryStoreOptions{.clock = &clock}};
  const Key key{"job", "1"};
  BeginRequest endless = request(key, 1);
  endless.lease = std::chrono::milliseconds::max();
  static_cast<void>(store.begin(endless));
  clock.advance(std::chrono::hours{24 * 3650});

  EXPECT_TRUE(std::holds_alternative<InProgress>(store.begin(request(key, 2))));
  EXPECT_EQ(store.find(key)->lease_until, std::nullopt);
  EXPECT_EQ(store.complete(key, {token(1), 1},
                           {.result = "r", .retention = std::chrono::milliseconds::max()}),
            WriteOutcome::stored);
  clock.advance(std::chrono::hours{24 * 3650});
  EXPECT_TRUE(std::holds_alternative<Completed>(store.begin(request(key, 2))));
}

TEST(MemoryStore, RefusesToBeUsedInAChildOfFork) {
  MemoryStore store;
  finish(store, numbered(1), "result");

  const pid_t child = fork();
  ASSERT_NE(child, -1);
  if (child == 0) {
    bool refused = false;
    try {
      static_cast<void>(store.begin(request(numbered(1), 2)));
    } catch (const Error& error) {
      refused = error.code() == Errc::used_after_fork;
    }
    const bool released = store.release(numbered(1), {token(1), 1}, 1h) == ReleaseOutcome::unknown;
    _exit(refused && released ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);

  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(std::holds_alternative<Completed>(store.begin(request(numbered(1), 2))));
}

TEST(MemoryStore, RefusesABoundOfNothing) {
  EXPECT_EQ(code_of([] { const MemoryStore store{MemoryStoreOptions{.max_bytes = 0}}; }),
            Errc::invalid_argument);
}

}  // namespace
}  // namespace idempotency
