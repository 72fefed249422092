#include "idempotency/testing/faulty_store.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "idempotency/stores/memory.hpp"
#include "idempotency/stores/sqlite.hpp"
#include "idempotency/testing/printers.hpp"
#include "support/error_of.hpp"
#include "support/event.hpp"

namespace idempotency {
namespace {

using namespace std::chrono_literals;
using testing::AdminCall;
using testing::Fault;
using testing::FaultScript;
using testing::FaultyStore;
using testing_support::code_of;
using testing_support::Event;

static_assert(AdminStore<FaultyStore<MemoryStore>>);
static_assert(BatchStore<FaultyStore<MemoryStore>>);
static_assert(!TransactionalStore<FaultyStore<MemoryStore>>);
static_assert(TransactionalStore<FaultyStore<SqliteStore>>);
static_assert(Store<FaultyStore<FaultyStore<MemoryStore>>>);

class FaultyStoreTest : public ::testing::Test {
 protected:
  [[nodiscard]] BeginRequest request() const {
    return {.key = key, .owner = owner, .fingerprint = {}};
  }
  [[nodiscard]] WriteOutcome complete() {
    return faulty.complete(key, {owner, 1}, {.result = "result"});
  }
  [[nodiscard]] bool is_known() { return inner.find(key).has_value(); }

  Key key{"payment", "order-1"};
  OwnerToken owner = OwnerToken::generate();
  MemoryStore inner;
  FaultyStore<MemoryStore> faulty{inner};
};

TEST_F(FaultyStoreTest, DoesWhatTheInnerStoreDoesWithoutAScript) {
  const BeginOutcome outcome = faulty.begin(request());

  EXPECT_EQ(outcome, BeginOutcome(Acquired{1, 1}));
  EXPECT_EQ(complete(), WriteOutcome::stored);
  EXPECT_EQ(faulty.calls(StoreCall::begin), 1U);
  EXPECT_EQ(faulty.calls(StoreCall::complete), 1U);
  EXPECT_EQ(faulty.calls(StoreCall::fail), 0U);
  EXPECT_EQ(faulty.faults(StoreCall::begin), 0U);
}

TEST_F(FaultyStoreTest, LosesARequestBeforeItArrives) {
  faulty.on(StoreCall::begin).fail_next(1, Fault::request_lost);

  EXPECT_EQ(code_of([&] { static_cast<void>(faulty.begin(request())); }), Errc::store_unavailable);

  EXPECT_FALSE(is_known());
  EXPECT_EQ(faulty.faults(StoreCall::begin), 1U);
}

TEST_F(FaultyStoreTest, LosesAReplyAfterTheRequestArrived) {
  faulty.on(StoreCall::begin).fail_next(1, Fault::reply_lost);

  EXPECT_EQ(code_of([&] { static_cast<void>(faulty.begin(request())); }), Errc::store_reply_lost);

  EXPECT_TRUE(is_known());
  EXPECT_EQ(faulty.begin(request()), BeginOutcome(Acquired{1, 1}));
}

TEST_F(FaultyStoreTest, LetsARequestThatTimedOutArriveLater) {
  faulty.on(StoreCall::begin).fail_next(1, Fault::timed_out);
  EXPECT_EQ(code_of([&] { static_cast<void>(faulty.begin(request())); }), Errc::store_reply_lost);
  EXPECT_FALSE(is_known());

  EXPECT_EQ(faulty.deliver_held(), 1U);

  EXPECT_TRUE(is_known());
  EXPECT_EQ(faulty.deliver_held(), 0U);
}

TEST_F(FaultyStoreTest, CanDropARequestThatTimedOut) {
  faulty.on(StoreCall::begin).fail_next(1, Fault::timed_out);
  EXPECT_EQ(code_of([&] { static_cast<void>(faulty.begin(request())); }), Errc::store_reply_lost);

  faulty.drop_held();

  EXPECT_EQ(faulty.deliver_held(), 0U);
  EXPECT_FALSE(is_known());
}

TEST_F(FaultyStoreTest, RefusesWithTheErrorThatItIsTold) {
  const std::vector<std::pair<Fault, Errc>> refusals{{Fault::busy, Errc::store_busy},
                                                     {Fault::full, Errc::store_full},
                                                     {Fault::refused, Errc::store_refused},
                                                     {Fault::too_large, Errc::too_large}};
  for (const auto& [fault, code] : refusals) {
    faulty.on(StoreCall::begin).fail_next(1, fault);

    EXPECT_EQ(code_of([&] { static_cast<void>(faulty.begin(request())); }), code);
    EXPECT_FALSE(is_known());
  }
}

TEST_F(FaultyStoreTest, FollowsItsScriptInOrderAndThenTheRule) {
  faulty.on(StoreCall::find)
      .pass_next(1)
      .fail_next(2, Fault::busy)
      .pass_next(1)
      .fail_always(Fault::request_lost);
  std::string history;

  for (int call = 0; call < 6; ++call) {
    try {
      static_cast<void>(faulty.find(key));
      history += 'p';
    } catch (const Error& error) {
      history += error.code() == Errc::store_busy ? 'b' : 'l';
    }
  }

  EXPECT_EQ(history, "pbbpll");
  EXPECT_EQ(faulty.calls(StoreCall::find), 6U);
  EXPECT_EQ(faulty.faults(StoreCall::find), 4U);
}

TEST_F(FaultyStoreTest, WorksAgainWhenItIsHealed) {
  faulty.on(StoreCall::begin).fail_always(Fault::request_lost);
  faulty.on(StoreCall::begin).before([] { FAIL() << "a hook that was forgotten"; });

  faulty.heal();

  EXPECT_EQ(faulty.begin(request()), BeginOutcome(Acquired{1, 1}));
}

TEST_F(FaultyStoreTest, AnswersUnknownWhenAReleaseGoesWrong) {
  ASSERT_EQ(faulty.begin(request()), BeginOutcome(Acquired{1, 1}));
  faulty.on(StoreCall::release).fail_next(1, Fault::reply_lost);

  EXPECT_EQ(faulty.release(key, {owner, 1}, 1h), ReleaseOutcome::unknown);

  EXPECT_EQ(inner.find(key)->state, RecordState::failed);
}

TEST_F(FaultyStoreTest, CallsItsHooksAroundTheInnerStore) {
  std::string history;
  faulty.on(StoreCall::begin)
      .before([&] { history += is_known() ? "known " : "unknown "; })
      .after([&] { history += is_known() ? "known" : "unknown"; });

  static_cast<void>(faulty.begin(request()));

  EXPECT_EQ(history, "unknown known");
}

TEST_F(FaultyStoreTest, DelaysARequestWhileAHookBlocks) {
  Event asked;
  Event go_on;
  faulty.on(StoreCall::begin).before([&] {
    asked.set();
    EXPECT_TRUE(go_on.wait());
  });

  std::jthread slow([&] { static_cast<void>(faulty.begin(request())); });
  ASSERT_TRUE(asked.wait());
  EXPECT_FALSE(is_known());
  go_on.set();
  slow.join();

  EXPECT_TRUE(is_known());
}

TEST_F(FaultyStoreTest, ScriptsTheCallsOfOperatorsToo) {
  ASSERT_EQ(faulty.begin(request()), BeginOutcome(Acquired{1, 1}));
  ASSERT_EQ(faulty.doubt(key, {owner, 1}), WriteOutcome::stored);
  faulty.on(AdminCall::resolve).fail_next(1, Fault::reply_lost);
  const Resolution resolution{.verdict = Resolution::Verdict::retry,
                              .resolver = OwnerToken::generate()};

  const Record seen = *faulty.find(key);

  EXPECT_EQ(code_of([&] { static_cast<void>(faulty.resolve(seen, resolution)); }),
            Errc::store_reply_lost);

  EXPECT_EQ(faulty.resolve(seen, resolution), WriteOutcome::stored);
  EXPECT_EQ(faulty.on(AdminCall::resolve).calls(), 2U);
}

TEST_F(FaultyStoreTest, CountsABatchOfRenewalsAsOneCall) {
  ASSERT_EQ(faulty.begin(request()), BeginOutcome(Acquired{1, 1}));
  const std::vector<Renewal> renewals(3, Renewal{key, {owner, 1}, 1h});

  EXPECT_EQ(faulty.renew_many(renewals), std::vector<WriteOutcome>(3, WriteOutcome::stored));

  EXPECT_EQ(faulty.calls(StoreCall::renew), 1U);
}

/// What becomes of many calls, as text.
std::string history_of(std::uint64_t seed) {
  MemoryStore inner;
  FaultyStore<MemoryStore> faulty{inner};
  faulty.fail_randomly(seed,
                       {.request_lost = 0.2, .reply_lost = 0.2, .timed_out = 0.1, .busy = 0.1});
  std::string history;
  for (int call = 0; call < 200; ++call) {
    try {
      static_cast<void>(faulty.find(Key("order", "1")));
      history += '.';
    } catch (const Error& error) {
      history += error.code() == Errc::store_reply_lost ? 'r' : 'q';
    }
  }
  return history;
}

TEST(FaultyStoreByChance, RepeatsItsFaultsForTheSameSeed) {
  const std::string first = history_of(42);

  EXPECT_EQ(history_of(42), first);
  EXPECT_NE(history_of(43), first);
  for (const char kind : {'.', 'r', 'q'}) {
    EXPECT_GT(std::count(first.begin(), first.end(), kind), 20) << kind;
  }
}

TEST(FaultyStoreByChance, NeverFailsWithoutProbability) {
  FaultScript script;
  script.fail_randomly(7, {});

  for (int call = 0; call < 1'000; ++call)
    EXPECT_FALSE(script.enter());

  EXPECT_EQ(script.faults(), 0U);
}

}  // namespace
}  // namespace idempotency
