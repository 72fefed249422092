// Reconcilers on every kind of store, by the stores' own clocks, and killed for real.

#include "idempotency/operations/reconciler.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <map>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "idempotency/idempotency.hpp"
#include "idempotency/stores/open.hpp"
#include "support/child_process.hpp"
#include "support/real_store.hpp"

namespace idempotency {
namespace {

using namespace std::chrono_literals;
using testing_support::ChildProcess;
using testing_support::RealStore;
using testing_support::StoreKind;

class ReconcilersOnStores : public ::testing::TestWithParam<StoreKind> {
 protected:
  static std::string name_of_test() {
    std::string name = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    return name.substr(0, name.find('/'));
  }
  std::string address() const { return real_.address(); }
  /// A type of the test's own, of which another test has left nothing.
  std::string type() const { return name_of_test(); }
  Key key(int number) const { return {type(), std::to_string(100 + number)}; }

  void leave_uncertain(AnyStore& store, const Key& key) const {
    const BeginRequest request{
        .key = key, .owner = OwnerToken::generate(), .mode = RecordMode::hold};
    const auto acquired = std::get<Acquired>(store.begin(request));
    ASSERT_EQ(store.doubt(key, {request.owner, acquired.fence}), WriteOutcome::stored);
  }
  ReconcilerOptions options() const {
    ReconcilerOptions options;
    options.types = {type()};
    options.margin = 0ms;
    options.lease = 500ms;
    options.first_pause = 1ms;
    options.longest_pause = 5ms;
    options.every = 1ms;
    return options;
  }
  /// Passes until nothing is open any more.
  static void settle_all(AnyStore& store, const Reconciler::Resolve& resolve,
                         ReconcilerOptions options) {
    std::stop_source stop;
    options.on_pass = [&](const ReconcileReport& report) {
      if (report.unsettled == 0) stop.request_stop();
    };
    Reconciler(store, resolve, options).run(stop.get_token());
  }

  const RealStore real_{GetParam()};
};

TEST_P(ReconcilersOnStores, SettleWithEveryAnswer) {
  AnyStore store = open_store(address());
  for (int number = 0; number < 4; ++number)
    leave_uncertain(store, key(number));
  std::map<std::string, int> asked;
  const auto bank = [&](const Record& record) {
    const std::string value(record.key.value());
    const int times = ++asked[value];
    if (value == "100") return Finding::succeeded(42);
    if (value == "101") return Finding::failed("refused");
    if (value == "102") return Finding::retry();
    return times < 5 ? Finding::still_unknown() : Finding::succeeded(7);
  };

  settle_all(store, bank, options());

  IdempotencyGuard guard{store};
  const auto pay = [&](int number) { return guard.run({.key = key(number)}, [] { return 1; }); };
  EXPECT_EQ(pay(0).value(), 42);
  EXPECT_EQ(pay(1).failure(), "refused");
  EXPECT_EQ(pay(2).status(), RunStatus::executed);
  EXPECT_EQ(pay(3).value(), 7);
  EXPECT_EQ(asked["103"], 5);
}

TEST_P(ReconcilersOnStores, FindARunUnderHoldWhenItsLeaseHasRunOutByTheStoresClock) {
  AnyStore store = open_store(address());
  const BeginRequest request{
      .key = key(0), .owner = OwnerToken::generate(), .mode = RecordMode::hold, .lease = 150ms};
  static_cast<void>(store.begin(request));
  int asked = 0;
  std::optional<Record> seen;
  std::stop_source stop;
  ReconcilerOptions asked_for = options();
  asked_for.margin = 100ms;
  asked_for.on_record = [&](const ReconcileEvent& event) {
    if (event.step == ReconcileStep::released) stop.request_stop();
  };
  Reconciler reconciler(
      store,
      [&](const Record& record) {
        ++asked;
        seen = record;
        return Finding::retry();
      },
      asked_for);

  reconciler.run(stop.get_token());

  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->state, RecordState::processing);
  const std::optional<Record> settled = store.find(key(0));
  ASSERT_TRUE(settled);
  EXPECT_EQ(settled->state, RecordState::failed);
  EXPECT_EQ(settled->ownership.fence, 2U);
  EXPECT_GE(settled->updated_at, *seen->lease_until + 100ms) << "by the store's clock";
}

TEST_P(ReconcilersOnStores, ParkOnceForAllProcesses) {
  AnyStore store = open_store(address());
  AnyStore same = open_store(address());
  leave_uncertain(store, key(0));
  std::atomic<int> asked{0};
  int alerts = 0;
  ReconcilerOptions asked_for = options();
  asked_for.max_questions = 3;
  asked_for.alert = [&](const ReconcileEvent&) { ++alerts; };
  const auto bank = [&](const Record&) {
    ++asked;
    return Finding::still_unknown("closed");
  };
  Reconciler here(store, bank, asked_for);
  Reconciler there(same, bank, asked_for);

  while (alerts == 0) {
    static_cast<void>(here.run_once());
    static_cast<void>(there.run_once());
  }
  const ReconcileReport after = there.run_once();

  EXPECT_EQ(asked, 3);
  EXPECT_EQ(alerts, 1);
  EXPECT_EQ(after.asked, 0U);
  EXPECT_EQ(after.resting, 1U);
}

TEST_P(ReconcilersOnStores, AskOneProcessAtATimeAboutEachRecord) {
  constexpr int records = 40;
  AnyStore store = open_store(address());
  for (int number = 0; number < records; ++number)
    leave_uncertain(store, key(number));
  std::atomic<int> asked{0};
  ReconcilerOptions asked_for = options();
  asked_for.lease = 60s;
  const auto bank = [&](const Record&) {
    ++asked;
    return Finding::succeeded(42);
  };

  {
    std::vector<std::jthread> crowd;
    for (int number = 0; number < 4; ++number) {
      crowd.emplace_back([&] {
        AnyStore own = open_store(address());
        static_cast<void>(Reconciler(own, bank, asked_for).run_once());
      });
    }
  }

  EXPECT_EQ(asked, records);
  for (int number = 0; number < records; ++number)
    EXPECT_EQ(store.find(key(number))->ownership.fence, 2U);
}

// Every other process is killed while it waits for the bank, the others wherever they are after so and so many questions.
TEST_P(ReconcilersOnStores, SurviveToBeKilledAtAnyPoint) {
  constexpr int records = 30;
  constexpr int kills = 6;
  const std::string where = address();
  {
    AnyStore store = open_store(where);
    for (int number = 0; number < records; ++number)
      leave_uncertain(store, key(number));
  }
  ReconcilerOptions asked_for = options();
  asked_for.max_questions = 50;

  std::map<std::string, int> asked;
  for (int kill = 0; kill < kills; ++kill) {
    ChildProcess child = ChildProcess::fork([&](const ChildProcess::ToParent& parent) {
      AnyStore store = open_store(where);
      int questions = 0;
      Reconciler reconciler(
          store,
          [&](const Record& record) {
            parent.say(record.key.value());
            while (kill % 2 == 0 && questions == kill)
              ::pause();  // the bank does not answer
            return ++questions % 3 == 0 ? Finding::still_unknown() : Finding::succeeded(42);
          },
          asked_for);
      reconciler.run({});
      return 0;
    });
    for (int line = 0; line <= kill; ++line) {
      const std::optional<std::string> value = child.next_line();
      ASSERT_TRUE(value);
      ++asked[*value];
    }
    child.kill();
    for (const std::string& value : child.remaining_lines())
      ++asked[value];
  }
  AnyStore store = open_store(where);
  settle_all(
      store,
      [&](const Record& record) {
        ++asked[std::string(record.key.value())];
        return Finding::succeeded(42);
      },
      asked_for);

  for (int number = 0; number < records; ++number) {
    const std::optional<Record> record = store.find(key(number));
    ASSERT_TRUE(record);
    EXPECT_EQ(record->state, RecordState::success);
    EXPECT_EQ(record->ownership.fence, 2U) << "settled once";
    EXPECT_EQ(record->result, encode_result(42));
    EXPECT_GE(asked[std::string(record->key.value())], 1);
  }
}

TEST_P(ReconcilersOnStores, SettleOthersBesideARecordThatCannotBeRead) {
  AnyStore store = open_store(address());
  for (const int number : {1, 2, 3})
    leave_uncertain(store, key(number));
  real_.spoil(key(2));

  const ReconcileReport report =
      Reconciler(
          store, [](const Record&) { return Finding::succeeded(1); }, options())
          .run_once();

  EXPECT_EQ(report.succeeded, 2U);
  EXPECT_EQ(report.unreadable, 1U);
  ASSERT_EQ(report.notes.size(), 1U);
  EXPECT_EQ(report.notes.front().key, key(2));
  EXPECT_EQ(report.notes.front().step, ReconcileStep::unreadable);
  EXPECT_EQ(store.find(key(1))->state, RecordState::success);
  EXPECT_EQ(store.find(key(3))->state, RecordState::success);
  real_.forget(key(2));
}

TEST_P(ReconcilersOnStores, ListEveryRecordOnceBesideOneThatCannotBeRead) {
  AnyStore store = open_store(address());
  for (const int number : {1, 2, 3, 4})
    leave_uncertain(store, key(number));
  real_.spoil(key(2));
  std::vector<std::string> listed;
  std::vector<std::string> unreadable;
  std::string cursor;

  do {
    const RecordPage page =
        store.admin()->list({.type = type(), .state = RecordState::uncertain}, cursor, 1);
    for (const Record& record : page.records)
      listed.emplace_back(record.key.value());
    for (const RecordPage::Unreadable& one : page.unreadable)
      unreadable.emplace_back(one.key.value());
    cursor = page.cursor;
  } while (!cursor.empty());

  EXPECT_EQ(listed, (std::vector<std::string>{"101", "103", "104"}));
  EXPECT_FALSE(unreadable.empty());
  EXPECT_EQ(unreadable.front(), "102");
  EXPECT_GE(store.admin()->statistics().uncertain, 3U);
  real_.forget(key(2));
}

INSTANTIATE_TEST_SUITE_P(Stores, ReconcilersOnStores,
                         ::testing::Values(StoreKind::sqlite, StoreKind::redis, StoreKind::mariadb),
                         testing_support::name_of);

}  // namespace
}  // namespace idempotency
