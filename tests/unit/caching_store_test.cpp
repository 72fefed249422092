#include "idempotency/stores/caching.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "idempotency/stores/memory.hpp"
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
  Timestamp now_{std::chrono::hours{24}};
};

OwnerToken token(std::uint8_t number) {
  OwnerToken::Bytes bytes{};
  bytes[3] = number;
  return OwnerToken(bytes);
}

/// A `MemoryStore` that counts what it is asked and can lose requests and replies.
class WatchedStore {
 public:
  enum class Fault : std::uint8_t { none, lose_request, lose_reply };

  explicit WatchedStore(const Clock& clock) : store_(MemoryStoreOptions{.clock = &clock}) {}

  int begins = 0;
  Fault fault = Fault::none;

  [[nodiscard]] BeginOutcome begin(const BeginRequest& request) {
    ++begins;
    return with_fault([&] { return store_.begin(request); });
  }
  [[nodiscard]] WriteOutcome complete(const Key& key, const Ownership& by,
                                      const Completion& completion) {
    return with_fault([&] { return store_.complete(key, by, completion); });
  }
  [[nodiscard]] WriteOutcome fail(const Key& key, const Ownership& by, const Failure& failure,
                                  std::chrono::milliseconds retention) {
    return with_fault([&] { return store_.fail(key, by, failure, retention); });
  }
  [[nodiscard]] WriteOutcome doubt(const Key& key, const Ownership& by) {
    return store_.doubt(key, by);
  }
  [[nodiscard]] WriteOutcome mark_effect(const Key& key, const Ownership& by) {
    return store_.mark_effect(key, by);
  }
  [[nodiscard]] WriteOutcome renew(const Key& key, const Ownership& by,
                                   std::chrono::milliseconds lease) {
    return store_.renew(key, by, lease);
  }
  ReleaseOutcome release(const Key& key, const Ownership& by,
                         std::chrono::milliseconds retention) noexcept {
    return store_.release(key, by, retention);
  }
  [[nodiscard]] std::optional<Record> find(const Key& key) { return store_.find(key); }

 private:
  template <class Call>
  std::invoke_result_t<Call&> with_fault(Call call) {
    const Fault now = std::exchange(fault, Fault::none);
    if (now == Fault::lose_request) throw Error(Errc::store_unavailable, "the store is down");
    std::invoke_result_t<Call&> outcome = call();
    if (now == Fault::lose_reply) throw Error(Errc::store_reply_lost, "the reply was lost");
    return outcome;
  }

  MemoryStore store_;
};

static_assert(Store<CachingStore<WatchedStore>>);
static_assert(!AdminStore<CachingStore<WatchedStore>>);
static_assert(!BatchStore<CachingStore<WatchedStore>>);
static_assert(!TransactionalStore<CachingStore<WatchedStore>>);
static_assert(AdminStore<CachingStore<MemoryStore>>);
static_assert(BatchStore<CachingStore<MemoryStore>>);
static_assert(AdminStore<CachingStore<CachingStore<MemoryStore>>>);
static_assert(!std::is_constructible_v<CachingStore<MemoryStore>, MemoryStore>);
static_assert(
    !std::is_constructible_v<CachingStore<MemoryStore>, MemoryStore, CachingStoreOptions>);

class CachingStoreTest : public ::testing::Test {
 protected:
  [[nodiscard]] static BeginRequest request(std::uint8_t owner,
                                            std::optional<Fingerprint> fingerprint = {}) {
    return {.key = {"payment", "order-1"},
            .owner = token(owner),
            .fingerprint = std::move(fingerprint),
            .lease = 10s};
  }
  /// The first call: begins and completes through the cache.
  void finish(std::optional<Fingerprint> fingerprint = {}) {
    const BeginOutcome begun = cache.begin(request(1, std::move(fingerprint)));
    const Ownership by{token(1), std::get<Acquired>(begun).fence};
    ASSERT_EQ(cache.complete(key, by, {.result = "receipt", .retention = 1h}),
              WriteOutcome::stored);
    inner.begins = 0;
  }

  const Key key{"payment", "order-1"};
  const Fingerprint cents_100 = Fingerprint::of(100);
  const Fingerprint cents_200 = Fingerprint::of(200);
  HandClock clock;
  WatchedStore inner{clock};
  CachingStore<WatchedStore> cache{inner, {.max_bytes = 1 << 20, .clock = &clock}};
};

TEST_F(CachingStoreTest, AnswersDuplicatesOfAFinishedRecordWithoutTheStore) {
  finish();

  const BeginOutcome first = cache.begin(request(2));
  clock.advance(10min);
  const BeginOutcome second = cache.begin(request(3));

  EXPECT_EQ(std::get<Completed>(first).result, "receipt");
  EXPECT_EQ(std::get<Completed>(first).fence, 1U);
  EXPECT_EQ(std::get<Completed>(first).retention_remaining, 1h);
  EXPECT_EQ(std::get<Completed>(second).retention_remaining, 50min);
  EXPECT_EQ(inner.begins, 0);
  EXPECT_EQ(cache.cache_statistics().hits, 2U);
}

// ID-07: the fingerprint is compared on the cached route as well as on the store's.
TEST_F(CachingStoreTest, ReportsAMismatchOnTheCachedAndOnTheStoredRoute) {
  finish(cents_100);

  const BeginOutcome cached = cache.begin(request(2, cents_200));
  const int asked = inner.begins;
  CachingStore<WatchedStore> empty{inner, {.max_bytes = 1 << 20, .clock = &clock}};
  const BeginOutcome stored = empty.begin(request(2, cents_200));

  EXPECT_EQ(cached, stored);
  EXPECT_EQ(std::get<Mismatch>(cached).match, FingerprintMatch::different);
  EXPECT_EQ(asked, 0);
  EXPECT_TRUE(std::holds_alternative<Completed>(cache.begin(request(3, cents_100))));
}

// KF-03: a cached record is compared under the scheme it was made with.
TEST_F(CachingStoreTest, ComparesUnderTheSchemeOfTheCachedRecord) {
  finish(cents_100);
  const Fingerprint upgraded = Fingerprint::of("new form", 100).as_scheme(2);

  const BeginOutcome same = cache.begin(request(2, upgraded.or_earlier(cents_100)));
  const BeginOutcome different = cache.begin(request(2, upgraded.or_earlier(cents_200)));
  const BeginOutcome unknown = cache.begin(request(2, upgraded));

  EXPECT_TRUE(std::holds_alternative<Completed>(same));
  EXPECT_EQ(std::get<Mismatch>(different), (Mismatch{FingerprintMatch::different, 1}));
  EXPECT_EQ(std::get<Mismatch>(unknown), (Mismatch{FingerprintMatch::not_comparable, 1}));
  EXPECT_EQ(inner.begins, 0);
}

// KF-03: a record begun again by an upgraded caller keeps its own scheme, which the cache does not guess.
TEST_F(CachingStoreTest, AsksTheStoreWhenTheRecordsFingerprintIsNotKnown) {
  ASSERT_TRUE(std::holds_alternative<Acquired>(cache.begin(request(1, cents_100))));
  ASSERT_EQ(cache.fail(key, {token(1), 1}, {Retryability::retryable, "later", {}}, 1h),
            WriteOutcome::stored);
  const Fingerprint upgraded = Fingerprint::of("new form", 100).as_scheme(2).or_earlier(cents_100);
  ASSERT_TRUE(std::holds_alternative<Acquired>(cache.begin(request(2, upgraded))));
  ASSERT_EQ(cache.complete(key, {token(2), 2}, {.result = "receipt", .retention = 1h}),
            WriteOutcome::stored);
  inner.begins = 0;

  const BeginOutcome first = cache.begin(request(3, cents_100));
  const int asked_once = inner.begins;
  const BeginOutcome second = cache.begin(request(3, cents_200));

  EXPECT_TRUE(std::holds_alternative<Completed>(first));
  EXPECT_EQ(asked_once, 1);
  EXPECT_TRUE(std::holds_alternative<Mismatch>(second));
  EXPECT_EQ(inner.begins, 1);
}

// ID-08: a hit is a replay, and so is the answer after the entry is gone and the record is not.
TEST_F(CachingStoreTest, ReplaysFromTheEntryAndFromTheRecordBehindIt) {
  HandClock fast;  // the entry ends before the record
  CachingStore<WatchedStore> early{inner, {.max_bytes = 1 << 20, .clock = &fast}};
  ASSERT_TRUE(std::holds_alternative<Acquired>(early.begin(request(1))));
  ASSERT_EQ(early.complete(key, {token(1), 1}, {.result = "receipt", .retention = 1h}),
            WriteOutcome::stored);
  inner.begins = 0;

  const BeginOutcome from_entry = early.begin(request(2));
  fast.advance(2h);
  const BeginOutcome from_record = early.begin(request(2));

  EXPECT_EQ(std::get<Completed>(from_entry).result, "receipt");
  EXPECT_EQ(std::get<Completed>(from_record).result, "receipt");
  EXPECT_EQ(inner.begins, 1);
}

// TC-19: a write that the store did not confirm leaves nothing in the cache.
TEST_F(CachingStoreTest, KeepsNothingOfACompletionThatDidNotReachTheStore) {
  ASSERT_TRUE(std::holds_alternative<Acquired>(cache.begin(request(1))));
  inner.fault = WatchedStore::Fault::lose_request;

  EXPECT_EQ(code_of([&] {
              static_cast<void>(
                  cache.complete(key, {token(1), 1}, {.result = "receipt", .retention = 1h}));
            }),
            Errc::store_unavailable);
  clock.advance(11s);  // the owner is gone and its lease with it
  const BeginOutcome outcome = cache.begin(request(2));

  EXPECT_EQ(std::get<Acquired>(outcome).fence, 2U);
}

TEST_F(CachingStoreTest, KeepsNothingOfALateCompletionThatTheStoreRefused) {
  ASSERT_TRUE(std::holds_alternative<Acquired>(cache.begin(request(1))));
  clock.advance(11s);
  CachingStore<WatchedStore> other{inner, {.max_bytes = 1 << 20, .clock = &clock}};
  ASSERT_TRUE(std::holds_alternative<Acquired>(other.begin(request(2))));

  EXPECT_EQ(cache.complete(key, {token(1), 1}, {.result = "late", .retention = 1h}),
            WriteOutcome::lost);

  EXPECT_TRUE(std::holds_alternative<InProgress>(cache.begin(request(3))));
}

// A repeated completion can tell neither what the first one left nor since when.
TEST_F(CachingStoreTest, FillsFromTheRecordAfterALostReply) {
  ASSERT_TRUE(std::holds_alternative<Acquired>(cache.begin(request(1))));
  inner.fault = WatchedStore::Fault::lose_reply;
  EXPECT_EQ(
      code_of([&] {
        static_cast<void>(cache.complete(key, {token(1), 1}, {.result = "first", .retention = 1h}));
      }),
      Errc::store_reply_lost);
  clock.advance(10min);

  EXPECT_EQ(cache.complete(key, {token(1), 1}, {.result = "second", .retention = 1h}),
            WriteOutcome::stored);
  const BeginOutcome from_record = cache.begin(request(2));
  const int asked = std::exchange(inner.begins, 0);
  const BeginOutcome from_entry = cache.begin(request(2));

  EXPECT_EQ(std::get<Completed>(from_record).result, "first");
  EXPECT_EQ(asked, 2);
  EXPECT_EQ(from_entry, from_record);
  EXPECT_EQ(std::get<Completed>(from_entry).retention_remaining, 50min);
  EXPECT_EQ(inner.begins, 0);
}

TEST_F(CachingStoreTest, EndsAnEntryWithTheRetentionThatTheStoreSaidRemains) {
  finish();
  clock.advance(40min);
  CachingStore<WatchedStore> late{inner, {.max_bytes = 1 << 20, .clock = &clock}};
  ASSERT_TRUE(std::holds_alternative<Completed>(late.begin(request(2))));

  clock.advance(20min - 1ms);
  EXPECT_TRUE(std::holds_alternative<Completed>(late.begin(request(2))));
  clock.advance(1ms);

  EXPECT_TRUE(std::holds_alternative<Acquired>(late.begin(request(2))));
  EXPECT_TRUE(std::holds_alternative<InProgress>(cache.begin(request(3))));
}

TEST_F(CachingStoreTest, ReplaysPermanentFailuresAndAsksTheStoreAboutRetryableOnes) {
  ASSERT_TRUE(std::holds_alternative<Acquired>(cache.begin(request(1))));
  const Failure retryable{Retryability::retryable, "try later", std::nullopt};
  ASSERT_EQ(cache.fail(key, {token(1), 1}, retryable, 1h), WriteOutcome::stored);
  ASSERT_EQ(std::get<Acquired>(cache.begin(request(2))).fence, 2U);
  const Failure permanent{Retryability::permanent, "card refused", "encoded"};
  ASSERT_EQ(cache.fail(key, {token(2), 2}, permanent, 1h), WriteOutcome::stored);
  BeginRequest another = request(1);
  another.key = Key("payment", "order-2");
  ASSERT_TRUE(std::holds_alternative<Acquired>(cache.begin(another)));
  ASSERT_EQ(cache.fail(another.key, {token(1), 1}, permanent, 1h), WriteOutcome::stored);
  inner.begins = 0;

  const BeginOutcome second_attempt = cache.begin(request(3));
  const int asked = std::exchange(inner.begins, 0);
  const BeginOutcome again = cache.begin(request(3));
  const BeginOutcome first_attempt = cache.begin(another);

  EXPECT_EQ(std::get<Failed>(second_attempt).failure, permanent);
  EXPECT_EQ(std::get<Failed>(second_attempt).fence, 2U);
  EXPECT_EQ(asked,
            1);  // the entry comes from the record, whose fingerprint the first answer brings
  EXPECT_EQ(again, second_attempt);
  EXPECT_EQ(std::get<Failed>(first_attempt).failure, permanent);
  EXPECT_EQ(inner.begins, 0);
}

TEST_F(CachingStoreTest, KeepsASuccessWithoutAResultApartFromAnEmptyResult) {
  ASSERT_TRUE(std::holds_alternative<Acquired>(cache.begin(request(1))));
  ASSERT_EQ(cache.complete(key, {token(1), 1}, {.result = std::nullopt}), WriteOutcome::stored);
  BeginRequest empty = request(1);
  empty.key = Key("payment", "empty");
  ASSERT_TRUE(std::holds_alternative<Acquired>(cache.begin(empty)));
  ASSERT_EQ(cache.complete(empty.key, {token(1), 1}, {.result = ""}), WriteOutcome::stored);
  inner.begins = 0;

  const BeginOutcome without = cache.begin(request(2));
  const BeginOutcome with_empty = cache.begin(empty);

  EXPECT_EQ(std::get<Completed>(without).result, std::nullopt);
  EXPECT_EQ(std::get<Completed>(with_empty).result, "");
  EXPECT_EQ(inner.begins, 0);
}

TEST_F(CachingStoreTest, NeverKeepsAnUncertainRecordAndReplaysItsResolution) {
  MemoryStore store{MemoryStoreOptions{.clock = &clock}};
  CachingStore<MemoryStore> whole{store, {.clock = &clock}};
  ASSERT_TRUE(std::holds_alternative<Acquired>(whole.begin(request(1))));
  ASSERT_EQ(whole.doubt(key, {token(1), 1}), WriteOutcome::stored);
  ASSERT_TRUE(std::holds_alternative<Uncertain>(whole.begin(request(2))));

  ASSERT_EQ(whole.resolve(*whole.find(key), {.verdict = Resolution::Verdict::succeeded,
                                             .result = "settled",
                                             .resolver = token(9),
                                             .retention = 1h}),
            WriteOutcome::stored);

  EXPECT_EQ(std::get<Completed>(whole.begin(request(2))).result, "settled");
  EXPECT_EQ(whole.list({}, "", 10).records.size(), 1U);
  EXPECT_EQ(whole.statistics().success, 1U);
  clock.advance(2h);
  EXPECT_EQ(whole.purge(10), 1U);
  EXPECT_TRUE(std::holds_alternative<Acquired>(whole.begin(request(3))));
}

TEST_F(CachingStoreTest, StaysWithinItsBytesAndKeepsWhatIsAskedFor) {
  constexpr std::size_t max_bytes = 64 * 1024;
  CachingStore<WatchedStore> small{inner, {.max_bytes = max_bytes, .clock = &clock}};
  const auto run = [&](int number) {
    BeginRequest one = request(1);
    one.key = Key("payment", std::to_string(number));
    if (const BeginOutcome begun = small.begin(one); std::holds_alternative<Acquired>(begun)) {
      ASSERT_EQ(small.complete(one.key, {one.owner, 1}, {.result = std::string(50, 'r')}),
                WriteOutcome::stored);
    }
  };
  run(0);

  std::uint64_t most = 0;
  for (int number = 1; number < 10'000; ++number) {
    run(number);
    run(0);
    most = std::max(most, small.cache_statistics().bytes);
  }
  const int asked = std::exchange(inner.begins, 0);
  run(0);

  EXPECT_LE(most, max_bytes);
  EXPECT_GT(most, max_bytes / 2);
  EXPECT_GT(small.cache_statistics().evictions, 5'000U);
  EXPECT_LT(asked, 10'000 + 20);  // the one that is asked for was almost always there
  EXPECT_EQ(inner.begins, 0);
}

TEST_F(CachingStoreTest, DoesNotKeepWhatIsTooLargeForIt) {
  CachingStore<WatchedStore> small{inner, {.max_bytes = 10'000, .clock = &clock}};
  ASSERT_TRUE(std::holds_alternative<Acquired>(small.begin(request(1))));
  ASSERT_EQ(small.complete(key, {token(1), 1}, {.result = std::string(9'000, 'r')}),
            WriteOutcome::stored);

  const BeginOutcome outcome = small.begin(request(2));

  EXPECT_EQ(std::get<Completed>(outcome).result, std::string(9'000, 'r'));
  EXPECT_EQ(small.cache_statistics().entries, 0U);
}

TEST_F(CachingStoreTest, LeavesTheAnswerToTheStoreInAChildOfFork) {
  finish();

  const pid_t child = fork();
  ASSERT_NE(child, -1);
  if (child == 0) {
    bool refused = false;
    try {
      static_cast<void>(cache.begin(request(2)));
    } catch (const Error& error) {
      refused = error.code() == Errc::used_after_fork;
    }
    _exit(refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);

  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(CachingStoreTest, RefusesABoundOfNothing) {
  EXPECT_EQ(code_of([&] {
              const CachingStore none{inner, {.max_bytes = 0}};
            }),
            Errc::invalid_argument);
}

/// A store whose transactions are numbers; it answers inside them as told.
class TransactingStore : public WatchedStore {
 public:
  using WatchedStore::WatchedStore;
  struct Transaction {
    int number;
  };
  using Connection = int;

  using WatchedStore::begin;
  using WatchedStore::complete;
  [[nodiscard]] Transaction open_transaction(const TransactionOptions& /*options*/) { return {1}; }
  [[nodiscard]] Transaction open_transaction(int connection,
                                             const TransactionOptions& /*options*/) {
    return {connection};
  }
  [[nodiscard]] BeginOutcome begin(Transaction& /*transaction*/, const BeginRequest& request) {
    return WatchedStore::begin(request);
  }
  [[nodiscard]] WriteOutcome complete(Transaction& /*transaction*/, const Key& key,
                                      const Ownership& by, const Completion& completion) {
    return WatchedStore::complete(key, by, completion);
  }
  [[nodiscard]] bool is_joined(Transaction& transaction) { return transaction.number > 1; }
  void commit(Transaction& /*transaction*/) {}
  void rollback(Transaction& /*transaction*/) noexcept {}
};
static_assert(TransactionalStore<CachingStore<TransactingStore>>);

TEST_F(CachingStoreTest, KeepsNothingOfATransactionThatMayStillRollBack) {
  TransactingStore store{clock};
  CachingStore<TransactingStore> whole{store, {.clock = &clock}};
  TransactingStore::Transaction transaction = whole.open_transaction(7, {});
  ASSERT_TRUE(whole.is_joined(transaction));
  ASSERT_TRUE(std::holds_alternative<Acquired>(whole.begin(transaction, request(1))));
  ASSERT_EQ(whole.complete(transaction, key, {token(1), 1}, {.result = "receipt"}),
            WriteOutcome::stored);
  ASSERT_TRUE(std::holds_alternative<Completed>(whole.begin(transaction, request(2))));

  EXPECT_EQ(whole.cache_statistics().entries, 0U);
  EXPECT_TRUE(std::holds_alternative<Completed>(whole.begin(request(2))));
  store.begins = 0;
  EXPECT_TRUE(std::holds_alternative<Completed>(whole.begin(transaction, request(2))));
  EXPECT_EQ(store.begins, 0);
}

}  // namespace
}  // namespace idempotency
