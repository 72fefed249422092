#include "idempotency/stores/breaker.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "conformance/sqlite_fixture.hpp"
#include "idempotency/guard.hpp"
#include "idempotency/stores/caching.hpp"
#include "idempotency/stores/memory.hpp"
#include "idempotency/testing/faulty_store.hpp"
#include "idempotency/testing/manual_clock.hpp"
#include "idempotency/testing/printers.hpp"
#include "support/error_of.hpp"

namespace idempotency {
namespace {

using namespace std::chrono_literals;
using testing::Fault;
using testing_support::code_of;
using testing_support::ending_of;
using testing_support::error_of;

using Faulty = testing::FaultyStore<MemoryStore>;

/// Writes down what it hears of breakers.
class BreakerLog final : public Observer {
 public:
  void on_breaker_changed(std::string_view name, BreakerState state) noexcept override {
    heard.push_back(std::string(name) + " " + std::string(to_string(state)));
  }
  std::vector<std::string> heard;
};

class BreakerStoreTest : public ::testing::Test {
 protected:
  BeginOutcome begin(const std::string& key, OwnerToken owner = OwnerToken::generate()) {
    return breaker_.begin({.key = {"payment", key}, .owner = owner});
  }
  std::optional<Errc> code_of_begin(const std::string& key) {
    return ending_of([&] { static_cast<void>(begin(key)); });
  }
  void open() {
    faulty_.on(StoreCall::begin).fail_next(3, Fault::request_lost);
    for (int call = 0; call < 3; ++call)
      EXPECT_EQ(code_of_begin("opens"), Errc::store_unavailable);
    ASSERT_EQ(breaker_.state(), BreakerState::open);
  }

  testing::ManualClock clock_;
  BreakerLog log_;
  MemoryStore memory_{MemoryStoreOptions{.clock = &clock_}};
  Faulty faulty_{memory_};
  BreakerStore<Faulty> breaker_{faulty_,
                                {.failure_threshold = 3,
                                 .open_duration = 1s,
                                 .probe_timeout = 5s,
                                 .name = "records",
                                 .observer = &log_,
                                 .clock = &clock_}};
};

TEST_F(BreakerStoreTest, OpensAfterFailuresInARowAndThenAsksNobody) {
  open();

  const std::size_t asked = faulty_.calls(StoreCall::begin);
  const Error error = error_of([&] { static_cast<void>(begin("a")); });
  EXPECT_EQ(error.code(), Errc::store_unavailable);
  EXPECT_TRUE(error.safe_to_retry());
  EXPECT_FALSE(error.effect_possible());
  EXPECT_NE(std::string(error.what()).find("breaker is open"), std::string::npos);
  EXPECT_NE(error.detail().find("breaker records, last failure store_unavailable"),
            std::string::npos);
  EXPECT_NE(error.detail().find("another 1000 ms"), std::string::npos);
  EXPECT_EQ(faulty_.calls(StoreCall::begin), asked);
}

TEST_F(BreakerStoreTest, CountsAnewAfterAnAnswer) {
  for (int round = 0; round < 3; ++round) {
    faulty_.on(StoreCall::begin).fail_next(2, Fault::reply_lost);
    EXPECT_EQ(code_of_begin("a"), Errc::store_reply_lost);
    EXPECT_EQ(code_of_begin("a"), Errc::store_reply_lost);
    static_cast<void>(begin("b"));
  }

  EXPECT_EQ(breaker_.state(), BreakerState::closed);
}

// A probe that fails opens it for another time, one that is answered closes it.
TEST_F(BreakerStoreTest, LetsOneCallTryWhenItsTimeIsOver) {
  open();
  clock_.advance(999ms);
  EXPECT_EQ(code_of_begin("a"), Errc::store_unavailable);
  EXPECT_EQ(breaker_.state(), BreakerState::open);

  clock_.advance(1ms);
  faulty_.on(StoreCall::find).fail_next(1, Fault::timed_out);
  EXPECT_EQ(code_of_begin("a"), Errc::store_reply_lost);
  EXPECT_EQ(breaker_.state(), BreakerState::open);
  clock_.advance(1s);
  EXPECT_TRUE(std::holds_alternative<Acquired>(begin("a")));

  EXPECT_EQ(breaker_.state(), BreakerState::closed);
  EXPECT_EQ(log_.heard,
            (std::vector<std::string>{"records closed", "records open", "records half_open",
                                      "records open", "records half_open", "records closed"}));
}

TEST_F(BreakerStoreTest, LetsAnotherTryWhenTheFirstDoesNotComeBack) {
  open();
  clock_.advance(1s);
  bool is_first = true;
  std::vector<std::optional<Errc>> others;
  faulty_.on(StoreCall::find).before([&] {
    if (!std::exchange(is_first, false)) return;
    others.push_back(code_of_begin("b"));  // while the first hangs
    clock_.advance(4'999ms);
    others.push_back(code_of_begin("c"));
    clock_.advance(1ms);
    others.push_back(code_of_begin("d"));
    faulty_.on(StoreCall::find).fail_next(1, Fault::reply_lost);  // for the first
  });

  EXPECT_EQ(code_of_begin("a"), Errc::store_reply_lost);

  EXPECT_EQ(others, (std::vector<std::optional<Errc>>{Errc::store_unavailable,
                                                      Errc::store_unavailable, std::nullopt}));
  EXPECT_EQ(breaker_.state(), BreakerState::closed) << "what comes late says nothing of now";
}

TEST_F(BreakerStoreTest, IsTriedByTheNextCallWhenOneSaidNothing) {
  open();
  clock_.advance(1s);
  faulty_.on(StoreCall::find).before([] { throw std::bad_alloc(); });
  EXPECT_THROW(static_cast<void>(begin("a")), std::bad_alloc);
  EXPECT_EQ(breaker_.state(), BreakerState::half_open);
  faulty_.heal();
  faulty_.on(StoreCall::find).fail_next(1, Fault::too_large);
  EXPECT_EQ(code_of_begin("a"), Errc::too_large);
  EXPECT_EQ(breaker_.state(), BreakerState::half_open);

  static_cast<void>(begin("a"));

  EXPECT_EQ(breaker_.state(), BreakerState::closed);
}

TEST_F(BreakerStoreTest, TakesARefusalForAnAnswerAndABusyStoreForNone) {
  faulty_.on(StoreCall::begin).fail_next(10, Fault::busy);
  for (int call = 0; call < 10; ++call)
    EXPECT_EQ(code_of_begin("a"), Errc::store_busy);
  EXPECT_EQ(breaker_.state(), BreakerState::closed);

  open();
  clock_.advance(1s);
  faulty_.on(StoreCall::find).fail_next(1, Fault::busy);
  EXPECT_EQ(code_of_begin("a"), Errc::store_busy);
  EXPECT_EQ(breaker_.state(), BreakerState::half_open) << "a server that is loading is not back";
  faulty_.on(StoreCall::find).fail_next(1, Fault::full);
  EXPECT_EQ(code_of_begin("a"), Errc::store_full);
  EXPECT_EQ(breaker_.state(), BreakerState::closed);
}

// A row that another's transaction holds keeps its own callers waiting, and no others.
TEST_F(BreakerStoreTest, ClosesAlsoWhenTheFirstCallerFindsItsRecordBusy) {
  open();
  clock_.advance(1s);
  faulty_.on(StoreCall::begin).fail_next(1, Fault::busy);

  EXPECT_EQ(code_of_begin("hot"), Errc::store_busy);

  EXPECT_EQ(breaker_.state(), BreakerState::closed);
  EXPECT_TRUE(std::holds_alternative<Acquired>(begin("free")));
}

// Its own record may be there: refused now, it would stay until its lease ends, and under hold for ever.
TEST_F(BreakerStoreTest, LetsABeginThroughWhoseFirstAnswerWasLost) {
  BreakerStore hasty{faulty_, {.failure_threshold = 1, .clock = &clock_}};
  IdempotencyGuard guard{hasty};
  faulty_.on(StoreCall::begin).fail_next(1, Fault::reply_lost);

  const auto result = guard.run({.key = {"payment", "a"}}, [&] { return 7; });

  EXPECT_EQ(result.status(), RunStatus::executed);
  EXPECT_EQ(memory_.find({"payment", "a"})->attempt, 1U);
}

TEST_F(BreakerStoreTest, LetsABatchThroughWhoseFirstAnswerWasLost) {
  BreakerStore hasty{faulty_, {.failure_threshold = 1, .clock = &clock_}};
  IdempotencyGuard guard{hasty};
  faulty_.on(StoreCall::begin).fail_next(1, Fault::reply_lost);

  RunBatch batch = guard.begin_many({{.key = {"payment", "a"}}, {.key = {"payment", "b"}}});

  EXPECT_EQ(hasty.state(), BreakerState::open);
  EXPECT_EQ(batch.run(0, [] { return 7; }).status(), RunStatus::executed);
  EXPECT_EQ(batch.run(1, [] { return 8; }).status(), RunStatus::executed);
}

/// Forks in the middle of a change, and lets the child ask.
class Forking final : public Observer {
 public:
  void on_breaker_changed(std::string_view /*name*/, BreakerState state) noexcept override {
    if (state != BreakerState::open) return;
    child = fork();
    if (child != 0) return;
    alarm(30);
    _exit(ask() == Errc::used_after_fork ? 0 : 1);
  }
  std::function<Errc()> ask;
  pid_t child = -1;
};

TEST(BreakerStoreInAFork, DoesNotWaitForALockThatWasItsParents) {
  Forking observer;
  MemoryStore memory;
  testing::FaultyStore<MemoryStore> faulty{memory};
  BreakerStore breaker{faulty, {.failure_threshold = 1, .observer = &observer}};
  const auto begin = [&] {
    return code_of([&] {
      static_cast<void>(breaker.begin({.key = {"payment", "a"}, .owner = {}}));
    });
  };
  observer.ask = begin;
  faulty.on(StoreCall::begin).fail_next(1, Fault::request_lost);

  EXPECT_EQ(begin(), Errc::store_unavailable);

  ASSERT_GT(observer.child, 0);
  int status = -1;
  ASSERT_EQ(waitpid(observer.child, &status, 0), observer.child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

// The breaker opens while a handler runs; its result is recorded all the same.
TEST_F(BreakerStoreTest, NeverRefusesWhatEndsWork) {
  IdempotencyGuard guard{breaker_};
  const Key key("payment", "a");

  const auto result = guard.run({.key = key}, [&] {
    open();
    return 7;
  });

  EXPECT_EQ(result.status(), RunStatus::executed);
  EXPECT_EQ(breaker_.find(key)->state, RecordState::success);
  EXPECT_EQ(breaker_.state(), BreakerState::closed) << "the store has answered";
}

TEST_F(BreakerStoreTest, LetsEveryWriteOfAnOwnerThroughWhileItIsOpen) {
  const OwnerToken owner = OwnerToken::generate();
  for (const char* key : {"a", "b", "c", "d", "e"})
    static_cast<void>(begin(key, owner));
  const Ownership by{owner, 1};
  const auto of = [](const char* key) { return Key("payment", key); };
  std::vector<WriteOutcome> outcomes;
  const auto while_open = [&](auto write) {
    open();
    outcomes.push_back(write());
    EXPECT_EQ(breaker_.state(), BreakerState::closed);
  };

  while_open([&] { return breaker_.renew(of("a"), by, 30s); });
  while_open([&] { return breaker_.renew_many({{of("a"), by, 30s}}).front(); });
  while_open([&] { return breaker_.mark_effect(of("a"), by); });
  while_open([&] { return breaker_.complete(of("a"), by, {.result = "r"}); });
  while_open([&] { return breaker_.fail(of("b"), by, {.reason = "no", .result = {}}, 1h); });
  while_open([&] { return breaker_.doubt(of("c"), by); });
  while_open([&] {
    return breaker_.resolve(*memory_.find(of("c")), {.verdict = Resolution::Verdict::retry});
  });
  open();
  EXPECT_EQ(breaker_.release(of("d"), by, 1h), ReleaseOutcome::released);
  EXPECT_EQ(breaker_.state(), BreakerState::closed);

  EXPECT_EQ(outcomes, std::vector<WriteOutcome>(7, WriteOutcome::stored));
}

TEST_F(BreakerStoreTest, RefusesEverythingThatBegins) {
  open();
  const auto refused = [&](auto call) {
    EXPECT_EQ(code_of(call), Errc::store_unavailable);
    EXPECT_EQ(breaker_.state(), BreakerState::open);
  };

  refused([&] {
    static_cast<void>(breaker_.begin_many({{.key = {"payment", "a"}, .owner = {}}}));
  });
  refused([&] { static_cast<void>(breaker_.issue({.key = {"payment", "a"}, .issuer = {}})); });
  refused([&] { static_cast<void>(breaker_.list({}, "", 10)); });
  refused([&] { breaker_.purge(10); });
  refused([&] { static_cast<void>(breaker_.statistics()); });
  EXPECT_FALSE(memory_.find({"payment", "a"}));
}

TEST_F(BreakerStoreTest, OpensWhenOwnersCannotWrite) {
  const OwnerToken owner = OwnerToken::generate();
  static_cast<void>(begin("a", owner));
  faulty_.on(StoreCall::renew).fail_always(Fault::reply_lost);
  faulty_.on(StoreCall::release).fail_always(Fault::timed_out);
  const Key key("payment", "a");

  for (int call = 0; call < 2; ++call)
    EXPECT_EQ(code_of([&] {
                static_cast<void>(breaker_.renew(key, {owner, 1}, 1s));
              }),
              Errc::store_reply_lost);
  EXPECT_EQ(breaker_.release(key, {owner, 1}, 1h), ReleaseOutcome::unknown);

  EXPECT_EQ(breaker_.state(), BreakerState::open);
}

// A purge has nothing to ask in some stores, and an empty batch in none.
TEST_F(BreakerStoreTest, TakesNothingForAnAnswerThatNeedNotAskTheStore) {
  for (int call = 0; call < 3; ++call) {
    faulty_.on(StoreCall::begin).fail_next(1, Fault::request_lost);
    EXPECT_EQ(code_of_begin("a"), Errc::store_unavailable);
    if (call == 2) break;
    breaker_.purge(10);
    EXPECT_TRUE(breaker_.renew_many({}).empty());
    EXPECT_TRUE(breaker_.begin_many({}).empty());
  }
  EXPECT_EQ(breaker_.state(), BreakerState::open);

  clock_.advance(1s);
  faulty_.on(StoreCall::find).fail_next(1, Fault::request_lost);
  EXPECT_EQ(code_of([&] { breaker_.purge(10); }), Errc::store_unavailable);
  EXPECT_EQ(breaker_.state(), BreakerState::open);
  EXPECT_EQ(faulty_.on(testing::AdminCall::purge).calls(), 2U);
  clock_.advance(1s);
  breaker_.purge(10);
  EXPECT_EQ(breaker_.state(), BreakerState::closed);
}

TEST_F(BreakerStoreTest, LeavesFinishedRecordsToACacheOverIt) {
  CachingStore cache{breaker_, {.clock = &clock_}};
  IdempotencyGuard guard{cache};
  ASSERT_EQ(guard.run({.key = {"payment", "a"}}, [] { return 7; }).value(), 7);
  open();

  EXPECT_EQ(guard.run({.key = {"payment", "a"}}, [] { return 8; }).value(), 7);
  EXPECT_EQ(code_of([&] {
              static_cast<void>(guard.run({.key = {"payment", "b"}}, [] {}));
            }),
            Errc::store_unavailable);
}

TEST_F(BreakerStoreTest, RunsUnprotectedWhereThePolicySaysSo) {
  IdempotencyGuard guard{breaker_};
  open();
  const std::size_t asked = faulty_.calls(StoreCall::begin);

  const auto result = guard.run(
      {.key = {"visit", "a"}, .policy = {.on_store_failure = OnStoreFailure::run_unprotected}},
      [] { return 7; });

  EXPECT_EQ(result.status(), RunStatus::executed_unprotected);
  EXPECT_EQ(faulty_.calls(StoreCall::begin), asked);
}

TEST(BreakerStoreOverSqlite, RefusesTransactionsOfItsOwnAndLeavesTheCallersAlone) {
  testing_support::SqliteFile file;
  testing::FaultyStore<SqliteStore> faulty{file.first()};
  BreakerStore breaker{faulty, {.failure_threshold = 1, .clock = &file.clock()}};
  IdempotencyGuard guard{breaker};
  const auto work = [](SqliteTransaction& transaction) {
    testing_support::SqliteFile::add_business_row(transaction);
    return 7;
  };
  faulty.on(StoreCall::begin).fail_next(1, Fault::request_lost);
  ASSERT_EQ(code_of([&] {
              static_cast<void>(breaker.begin({.key = {"a", "b"}, .owner = {}}));
            }),
            Errc::store_unavailable);

  EXPECT_EQ(code_of([&] {
              static_cast<void>(guard.run_in_transaction({.key = {"transfer", "a"}}, work));
            }),
            Errc::store_unavailable);
  EXPECT_EQ(file.business_rows(), 0U);
  EXPECT_EQ(breaker.state(), BreakerState::open);
  const auto result =
      guard.run_in_transaction({.key = {"transfer", "a"}}, file.application().connection(), work);

  EXPECT_EQ(result.status(), RunStatus::executed);
  EXPECT_EQ(file.business_rows(), 1U);
  EXPECT_EQ(breaker.state(), BreakerState::closed) << "the database has answered";
}

// What opens a transaction need not ask the store yet, nor what looks ahead or completes in it.
TEST(BreakerStoreOverSqlite, OpensWhenNoTransactionCanBegin) {
  testing_support::SqliteFile file;
  testing::FaultyStore<SqliteStore> faulty{file.first()};
  BreakerStore breaker{faulty, {.failure_threshold = 3, .clock = &file.clock()}};
  IdempotencyGuard guard{breaker};
  const auto transact = [&](const std::string& key) {
    return ending_of([&] {
      static_cast<void>(
          guard.run_in_transaction({.key = {"transfer", key}}, [](SqliteTransaction& transaction) {
            testing_support::SqliteFile::add_business_row(transaction);
            return 7;
          }));
    });
  };

  faulty.on(StoreCall::begin).fail_always(Fault::request_lost);
  for (int call = 0; call < 3; ++call)
    EXPECT_EQ(transact("a"), Errc::store_unavailable);
  EXPECT_EQ(breaker.state(), BreakerState::open);

  file.clock().advance(1s);
  faulty.on(StoreCall::find).fail_next(1, Fault::request_lost);
  EXPECT_EQ(transact("a"), Errc::store_unavailable);
  EXPECT_EQ(breaker.state(), BreakerState::open) << "a look has failed";
  file.clock().advance(1s);
  faulty.heal();
  EXPECT_EQ(transact("a"), std::nullopt);
  EXPECT_EQ(breaker.state(), BreakerState::closed);
  EXPECT_EQ(file.business_rows(), 1U);
}

TEST(BreakerStoreOverSqlite, LetsTheSettlementOfAnUnknownCommitThrough) {
  testing_support::SqliteFile file;
  testing::FaultyStore<SqliteStore> faulty{file.first()};
  BreakerStore breaker{faulty, {.failure_threshold = 1, .clock = &file.clock()}};
  IdempotencyGuard guard{breaker};
  faulty.on(StoreCall::commit).fail_next(1, Fault::reply_lost);

  const auto result =
      guard.run_in_transaction({.key = {"transfer", "a"}}, [](SqliteTransaction& transaction) {
        testing_support::SqliteFile::add_business_row(transaction);
        return 7;
      });

  EXPECT_EQ(result.status(), RunStatus::executed);
  EXPECT_EQ(file.business_rows(), 1U);
}

TEST(BreakerStoreOptions, AreCheckedWhenItIsMade) {
  MemoryStore memory;
  const auto code = [&](BreakerOptions options) {
    return ending_of([&] { const BreakerStore<MemoryStore> breaker(memory, std::move(options)); });
  };

  EXPECT_EQ(code({.failure_threshold = 0}), Errc::invalid_argument);
  EXPECT_EQ(code({.failure_threshold = 1'000'001}), Errc::invalid_argument);
  EXPECT_EQ(code({.open_duration = 0ms}), Errc::invalid_argument);
  EXPECT_EQ(code({.open_duration = 24h + 1ms}), Errc::invalid_argument);
  EXPECT_EQ(code({.probe_timeout = 0ms}), Errc::invalid_argument);
  EXPECT_EQ(code({.probe_timeout = -1ms}), Errc::invalid_argument);
  EXPECT_EQ(code({.failure_threshold = 1'000'000, .open_duration = 24h}), std::nullopt);
}

}  // namespace
}  // namespace idempotency
