#include "idempotency/patterns/saga_runner.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "idempotency/idempotency.hpp"
#include "idempotency/patterns/memory_sagas.hpp"
#include "idempotency/patterns/saga_desk.hpp"
#include "idempotency/stores/memory.hpp"
#include "idempotency/testing/faulty_store.hpp"
#include "idempotency/testing/manual_clock.hpp"
#include "idempotency/testing/printers.hpp"
#include "idempotency/testing/saga_printers.hpp"
#include "support/error_of.hpp"

namespace idempotency {
namespace {

using namespace std::chrono_literals;
using testing::ManualClock;
using testing_support::code_of;
using Guard = IdempotencyGuard<MemoryStore>;
using Runner = SagaRunner<Guard, MemorySagas>;

/// An order of three steps; what each does is up to the test.
class Sagas : public ::testing::Test {
 protected:
  using Handler = std::function<void(SagaCall&)>;

  Saga definition() {
    const auto action = [this](const std::string& name) {
      return [this, name](SagaCall& call) {
        log.push_back(name);
        if (actions[name]) actions[name](call);
        return name + " of " + call.id();
      };
    };
    const auto undo = [this](const std::string& name) {
      return [this, name](SagaCall& call) {
        log.push_back("undo " + call.result<std::string>(name));
        if (compensations[name]) compensations[name](call);
      };
    };
    return Saga("order", {{"reserve", action("reserve"), undo("reserve")},
                          {"charge", action("charge"), undo("charge")},
                          {"ship", action("ship"), undo("ship")}});
  }
  SagaOptions options() {
    SagaOptions asked;
    asked.max_attempts = 3;
    asked.first_pause = 100ms;
    asked.longest_pause = 1s;
    asked.alert = [this](const SagaRow& row) {
      alerts.push_back(row.note);
      if (on_alert) on_alert();
    };
    return asked;
  }
  /// Lets time pass and workers work until the saga has ended or is parked.
  SagaReport settle(Runner& by) {
    SagaReport last = by.start("7", "input");
    for (int round = 0; round < 50 && last.row.due_at; ++round) {
      clock.advance(1s);
      if (std::optional<SagaReport> report = by.work_once()) last = *std::move(report);
    }
    return last;
  }
  Record record(const std::string& step, SagaPart part = SagaPart::action) {
    return store.find(saga_key({"order", "7"}, step, part)).value();
  }
  void resolve(const std::string& step, Resolution resolution) {
    resolution.retention = std::chrono::hours{24 * 365};
    ASSERT_EQ(store.resolve(record(step), resolution), WriteOutcome::stored);
  }

  ManualClock clock;
  MemoryStore store{MemoryStoreOptions{.clock = &clock}};
  Guard guard{store};
  MemorySagas journal{clock};
  SagaDesk<MemorySagas> desk{journal, "order"};
  std::vector<std::string> log;
  std::map<std::string, Handler> actions;
  std::map<std::string, Handler> compensations;
  std::vector<std::string> alerts;
  std::function<void()> on_alert;
};

TEST_F(Sagas, RunTheirActionsInOrderAndHandTheResultsOn) {
  std::string seen;
  actions["ship"] = [&](SagaCall& call) {
    seen = call.input() + ", " + call.result<std::string>("reserve") + ", " +
           call.result<std::string>("charge");
  };
  Runner runner(guard, journal, definition(), options());

  const SagaReport report = runner.run("7", "input");

  EXPECT_EQ(report.status, SagaStatus::finished);
  EXPECT_EQ(log, (std::vector<std::string>{"reserve", "charge", "ship"}));
  EXPECT_EQ(seen, "input, reserve of 7, charge of 7");
  EXPECT_EQ(journal.find({"order", "7"})->due_at, std::nullopt);
}

TEST_F(Sagas, RunNothingAgainForASagaThatIsKnown) {
  Runner runner(guard, journal, definition(), options());
  static_cast<void>(runner.run("7", "input"));

  const SagaReport again = runner.run("7", "input");
  const SagaReport other = runner.run("7", "another input");

  EXPECT_EQ(again.status, SagaStatus::finished);
  EXPECT_EQ(other.status, SagaStatus::mismatch);
  EXPECT_EQ(other.row.input, "");
  EXPECT_EQ(log.size(), 3U);
}

TEST_F(Sagas, UndoWhatWasDoneLastFirstAfterAPermanentFailure) {
  actions["ship"] = [](SagaCall&) { throw PermanentFailure("no such address"); };
  Runner runner(guard, journal, definition(), options());

  const SagaReport report = runner.run("7", "input");

  EXPECT_EQ(report.status, SagaStatus::compensated);
  EXPECT_EQ(report.row.note, "no such address");
  EXPECT_EQ(log, (std::vector<std::string>{"reserve", "charge", "ship", "undo charge of 7",
                                           "undo reserve of 7"}));
  EXPECT_TRUE(alerts.empty());
}

// TC-15
TEST_F(Sagas, TryARetryableActionAgainWhenItsPauseHasPassed) {
  actions["charge"] = [](SagaCall& call) {
    if (call.execution().attempt() < 3) throw RetryableFailure("the bank is closed");
  };
  Runner runner(guard, journal, definition(), options());

  const SagaReport first = runner.run("7", "input");
  const auto too_early = runner.work_once();
  clock.advance(100ms);
  const auto second = runner.work_once();
  clock.advance(200ms);
  const auto third = runner.work_once();

  EXPECT_EQ(first.status, SagaStatus::waiting);
  EXPECT_EQ(first.row.note, "the bank is closed");
  EXPECT_FALSE(too_early.has_value());
  EXPECT_EQ(second.value().row.progress, (SagaProgress{SagaState::running, 1, 2, 2}));
  EXPECT_EQ(third.value().status, SagaStatus::finished);
  EXPECT_EQ(log, (std::vector<std::string>{"reserve", "charge", "charge", "charge", "ship"}));
}

// The worker that comes late finds the action sealed.
TEST_F(Sagas, GiveAnActionUpAfterItsLastTryAndLetItStartNoMore) {
  actions["charge"] = [](SagaCall&) { throw RetryableFailure("the bank is closed"); };
  Runner runner(guard, journal, definition(), options());

  const SagaReport report = settle(runner);

  EXPECT_EQ(report.status, SagaStatus::compensated);
  EXPECT_EQ(log, (std::vector<std::string>{"reserve", "charge", "charge", "charge",
                                           "undo reserve of 7"}));
  const auto late = guard.run({.key = saga_key({"order", "7"}, "charge", SagaPart::action)},
                              [] { return std::string("late"); });
  EXPECT_EQ(late.status(), RunStatus::failed);
}

TEST_F(Sagas, GoNowhereWhileAnActionIsUncertainAndParkIt) {
  actions["charge"] = [](SagaCall&) { throw OutcomeUnknown("no answer from the bank"); };
  Runner runner(guard, journal, definition(), options());

  const SagaReport report = settle(runner);

  EXPECT_EQ(report.status, SagaStatus::parked);
  EXPECT_EQ(report.row.progress.state, SagaState::parked_running);
  EXPECT_EQ(log, (std::vector<std::string>{"reserve", "charge"}));
  EXPECT_EQ(alerts.size(), 1U);
  EXPECT_EQ(desk.list_parked(10).size(), 1U);
  clock.advance(std::chrono::hours{24});
  EXPECT_FALSE(runner.work_once().has_value());
}

TEST_F(Sagas, GoOnBehindAnActionThatIsSettledAsDone) {
  actions["charge"] = [](SagaCall&) { throw OutcomeUnknown("no answer from the bank"); };
  std::string receipt;
  actions["ship"] = [&](SagaCall& call) { receipt = call.result<std::string>("charge"); };
  Runner runner(guard, journal, definition(), options());
  ASSERT_EQ(settle(runner).status, SagaStatus::parked);

  resolve("charge", {.verdict = Resolution::Verdict::succeeded,
                     .result = encode_saga_result(std::string("receipt-1"))});
  ASSERT_EQ(desk.resume(*desk.find("7"), "ann", "the bank says it is paid"), WriteOutcome::stored);
  const auto report = runner.work_once();

  EXPECT_EQ(report.value().status, SagaStatus::finished);
  EXPECT_EQ(receipt, "receipt-1");
  EXPECT_EQ(log, (std::vector<std::string>{"reserve", "charge", "ship"}));
}

TEST_F(Sagas, UndoWhatIsBeforeAnActionThatIsSettledAsFailed) {
  actions["charge"] = [](SagaCall&) { throw OutcomeUnknown("no answer from the bank"); };
  Runner runner(guard, journal, definition(), options());
  ASSERT_EQ(settle(runner).status, SagaStatus::parked);

  resolve("charge", {.verdict = Resolution::Verdict::failed, .reason = "refused"});
  ASSERT_EQ(desk.resume(*desk.find("7"), "ann", "the bank refused"), WriteOutcome::stored);
  const auto report = runner.work_once();

  EXPECT_EQ(report.value().status, SagaStatus::compensated);
  EXPECT_EQ(log, (std::vector<std::string>{"reserve", "charge", "undo reserve of 7"}));
}

// The last try turns out uncertain only when its record is looked at.
TEST_F(Sagas, UndoNothingBeforeTheActionThatWasGivenUpIsSettled) {
  actions["charge"] = [](SagaCall& call) {
    if (call.execution().attempt() == 3) call.execution().point_of_no_return();
    throw std::runtime_error("connection reset");
  };
  Runner runner(guard, journal, definition(), options());

  const SagaReport report = settle(runner);

  EXPECT_EQ(report.row.progress.state, SagaState::parked_compensating);
  EXPECT_EQ(report.row.progress.step, 1U);
  EXPECT_EQ(log, (std::vector<std::string>{"reserve", "charge", "charge", "charge"}));
  resolve("charge", {.verdict = Resolution::Verdict::succeeded,
                     .result = encode_saga_result(std::string("charge of 7"))});
  ASSERT_EQ(desk.resume(*desk.find("7"), "ann", "it is paid"), WriteOutcome::stored);
  EXPECT_EQ(runner.work_once().value().status, SagaStatus::compensated);
  EXPECT_EQ(log.back(), "undo reserve of 7");
  EXPECT_EQ(log[4], "undo charge of 7");
}

// Run 1 died with its effect perhaps done; that the later ones had none says nothing about it.
TEST_F(Sagas, ParkAnActionThatFailsAfterOneOfItsRunsFellSilent) {
  actions["charge"] = [](SagaCall&) { throw RetryableFailure("the bank is closed"); };
  const auto begun = store.begin({.key = saga_key({"order", "7"}, "charge", SagaPart::action),
                                  .owner = OwnerToken::generate(),
                                  .fingerprint = Fingerprint::of_bytes("input"),
                                  .lease = 10ms});
  ASSERT_TRUE(std::holds_alternative<Acquired>(begun));
  clock.advance(20ms);
  Runner runner(guard, journal, definition(), options());

  const SagaReport report = settle(runner);

  EXPECT_EQ(report.row.progress.state, SagaState::parked_running);
  EXPECT_EQ(log, (std::vector<std::string>{"reserve", "charge", "charge", "charge"}));
  ASSERT_EQ(desk.give_up(report.row, "ann", "the bank knows nothing of it"), WriteOutcome::stored);
  EXPECT_EQ(runner.work_once().value().status, SagaStatus::compensated);
  EXPECT_EQ(log.back(), "undo reserve of 7");
  EXPECT_EQ(record("charge").state, RecordState::failed);
}

TEST_F(Sagas, RunNoActionWhileTheResultsBeforeItCannotBeHad) {
  std::vector<std::string> seen;
  actions["charge"] = [&](SagaCall& call) {
    seen.push_back(call.result<std::string>("reserve"));
    if (seen.size() == 1) throw RetryableFailure("the bank is closed");
  };
  testing::FaultyStore faulty{store};
  IdempotencyGuard faulty_guard{faulty, {.begin_attempts = 1}};
  SagaRunner runner(faulty_guard, journal, definition(), options());
  static_cast<void>(runner.run("7", "input"));
  clock.advance(1s);
  faulty.on(StoreCall::begin).fail_next(1, testing::Fault::request_lost);

  EXPECT_EQ(runner.work_once().value().status, SagaStatus::waiting);
  EXPECT_EQ(seen.size(), 1U);

  clock.advance(1s);
  EXPECT_EQ(runner.work_once().value().status, SagaStatus::finished);
  EXPECT_EQ(seen, (std::vector<std::string>{"reserve of 7", "reserve of 7"}));
}

// A later try of a compensation, or another process, has run none of the actions.
TEST_F(Sagas, HandAllResultsToACompensationThatIsTriedAgain) {
  std::vector<std::string> seen;
  actions["ship"] = [](SagaCall&) { throw PermanentFailure("no such street"); };
  compensations["reserve"] = [&](SagaCall& call) {
    seen.push_back(call.result<std::string>("charge"));
    if (seen.size() == 1) throw RetryableFailure("closed");
  };
  Runner runner(guard, journal, definition(), options());
  ASSERT_EQ(runner.run("7", "input").status, SagaStatus::waiting);
  clock.advance(1s);
  Runner another(guard, journal, definition(), options());

  EXPECT_EQ(another.work_once().value().status, SagaStatus::compensated);

  EXPECT_EQ(seen, (std::vector<std::string>{"charge of 7", "charge of 7"}));
}

// The other worker claims the saga, finds the step busy and writes that; the first one's try counts all the same.
TEST_F(Sagas, CountATryThatOutlastsItsWorkersLease) {
  SagaOptions asked = options();
  asked.lease = 1s;
  Runner rival(guard, journal, definition(), asked);
  const auto outlast = [&] {
    clock.advance(2s);
    EXPECT_EQ(rival.work_once().value().status, SagaStatus::waiting);
    throw RetryableFailure("too slow");
  };
  actions["charge"] = [&](SagaCall&) { outlast(); };
  compensations["reserve"] = [&](SagaCall&) { outlast(); };
  Runner runner(guard, journal, definition(), asked);

  const SagaReport report = settle(runner);

  EXPECT_EQ(std::count(log.begin(), log.end(), "charge"), 3);
  EXPECT_EQ(std::count(log.begin(), log.end(), "undo reserve of 7"), 3);
  EXPECT_EQ(report.row.progress.state, SagaState::parked_compensating);
}

TEST_F(Sagas, CallAnAlertAgainThatThrewWhatIsNoException) {
  actions["charge"] = [](SagaCall&) { throw OutcomeUnknown("no answer"); };
  bool first = true;
  on_alert = [&] {
    if (std::exchange(first, false)) throw 7;
  };
  Runner runner(guard, journal, definition(), options());

  const SagaReport report = settle(runner);

  EXPECT_EQ(report.status, SagaStatus::parked);
  EXPECT_EQ(alerts.size(), 2U);
}

// A worker that was asleep began the action behind the last try and died; what was given up may have an effect after all.
TEST_F(Sagas, UndoNothingAroundAnActionThatSomebodyBeganAfterItWasGivenUp) {
  Runner runner(guard, journal, definition(), options());
  const SagaReport started = runner.start("7", "input");
  const auto own = journal.claim({.definition = "order",
                                  .plan = started.row.plan,
                                  .worker = OwnerToken::generate(),
                                  .lease = 1s});
  ASSERT_TRUE(
      journal.advance(own.value(), {.to = {SagaState::compensating, 1, 0, 0}, .due_in = 0ms})
          .has_value());
  static_cast<void>(store.begin({.key = saga_key({"order", "7"}, "charge", SagaPart::action),
                                 .owner = OwnerToken::generate(),
                                 .fingerprint = Fingerprint::of_bytes("input"),
                                 .lease = 10ms}));

  const SagaReport report = settle(runner);

  EXPECT_EQ(report.row.progress.state, SagaState::parked_compensating);
  EXPECT_EQ(report.row.progress.step, 1U);
  EXPECT_TRUE(log.empty());
}

// What was done is not known to be undone because nothing is known of it.
TEST_F(Sagas, ParkWhereTheRecordOfAnActionHasGone) {
  actions["ship"] = [](SagaCall&) { throw RetryableFailure("closed"); };
  Runner runner(guard, journal, definition(), options());
  ASSERT_EQ(runner.run("7", "input").row.progress.step, 2U);
  MemoryStore forgetful{MemoryStoreOptions{.clock = &clock}};
  Guard other(forgetful);
  Runner next(other, journal, definition(), options());
  actions["ship"] = [](SagaCall&) { throw PermanentFailure("no such address"); };

  const SagaReport report = settle(next);

  EXPECT_EQ(report.row.progress.state, SagaState::parked_compensating);
  EXPECT_EQ(report.row.progress.step, 1U);
  EXPECT_EQ(report.row.note, "the action's record has gone, or the action was skipped");
  EXPECT_EQ(std::count(log.begin(), log.end(), "undo reserve of 7"), 0);
}

TEST_F(Sagas, GoOnOnlyWhenTheRecordOfAnActionIsStored) {
  testing::FaultyStore<MemoryStore> faulty(store);
  IdempotencyGuard<testing::FaultyStore<MemoryStore>> other(faulty, {.write_budget = 1ms});
  SagaRunner runner(other, journal, definition(), options());
  faulty.on(StoreCall::complete).fail_always(testing::Fault::request_lost);

  const SagaReport unrecorded = runner.run("7", "input");
  faulty.heal();
  while (record("reserve").state != RecordState::success)  // by a thread of the guard's
    std::this_thread::yield();
  clock.advance(1s);
  const auto last = runner.work_once();

  EXPECT_EQ(unrecorded.status, SagaStatus::waiting);
  EXPECT_EQ(unrecorded.row.progress.step, 0U);
  EXPECT_EQ(last.value().status, SagaStatus::finished);
  EXPECT_EQ(log, (std::vector<std::string>{"reserve", "charge", "ship"}));
}

/// Its answers take longer than a lease lasts.
class SlowSagas : public MemorySagas {
 public:
  using MemorySagas::MemorySagas;
  [[nodiscard]] std::optional<SagaRow> claim(const SagaClaim& claim) {
    std::optional<SagaRow> row = MemorySagas::claim(claim);
    std::this_thread::sleep_for(claim.lease);
    return row;
  }
};

TEST_F(Sagas, RunNothingWhenTheirLeaseEndedBeforeTheWorkerWasTold) {
  SlowSagas slow(clock);
  SagaOptions asked = options();
  asked.lease = 2ms;
  SagaRunner runner(guard, slow, definition(), asked);

  const SagaReport report = runner.run("7", "input");

  EXPECT_EQ(report.status, SagaStatus::waiting);
  EXPECT_TRUE(log.empty());
}

TEST_F(Sagas, WaitForAnotherWorkersRunWithoutCountingIt) {
  const Key key = saga_key({"order", "7"}, "charge", SagaPart::action);
  const OwnerToken other = OwnerToken::generate();
  const auto begun = store.begin({.key = key,
                                  .owner = other,
                                  .fingerprint = Fingerprint::of_bytes("input"),
                                  .lease = std::chrono::hours{1}});
  ASSERT_TRUE(std::holds_alternative<Acquired>(begun));
  Runner runner(guard, journal, definition(), options());

  for (int round = 0; round < 10; ++round) {
    static_cast<void>(runner.run("7", "input"));
    clock.advance(1s);
  }
  const SagaProgress waiting = journal.find({"order", "7"})->progress;
  ASSERT_EQ(store.complete(key, {other, 1}, {encode_saga_result(std::string("other's")), 10'000h}),
            WriteOutcome::stored);
  const SagaReport report = runner.run("7", "input");

  EXPECT_EQ(waiting, (SagaProgress{SagaState::running, 1, 0, 0}));
  EXPECT_EQ(report.status, SagaStatus::finished);
  EXPECT_EQ(log, (std::vector<std::string>{"reserve", "ship"}));
}

TEST_F(Sagas, TryACompensationAgainAndParkItAfterItsLastTry) {
  actions["ship"] = [](SagaCall&) { throw PermanentFailure("no such address"); };
  bool bank_is_open = false;
  compensations["charge"] = [&](SagaCall&) {
    if (!bank_is_open) throw RetryableFailure("the bank is closed");
  };
  Runner runner(guard, journal, definition(), options());

  const SagaReport parked = settle(runner);
  bank_is_open = true;
  ASSERT_EQ(desk.resume(parked.row, "ann", "the bank is open"), WriteOutcome::stored);
  const auto report = runner.work_once();

  EXPECT_EQ(parked.row.progress,
            (SagaProgress{SagaState::parked_compensating, 1, 3, SagaProgress::record_must_tell}));
  EXPECT_EQ(alerts, (std::vector<std::string>{"the bank is closed"}));
  EXPECT_EQ(report.value().status, SagaStatus::compensated);
  EXPECT_EQ(std::count(log.begin(), log.end(), "undo charge of 7"), 4);
  EXPECT_EQ(std::count(log.begin(), log.end(), "undo reserve of 7"), 1);
}

TEST_F(Sagas, ParkACompensationThatSaysItWillNeverSucceedUntilAPersonWantsItAgain) {
  actions["charge"] = [](SagaCall&) { throw PermanentFailure("no money"); };
  bool is_possible = false;
  compensations["reserve"] = [&](SagaCall&) {
    if (!is_possible) throw PermanentFailure("the shop has closed");
  };
  Runner runner(guard, journal, definition(), options());

  const SagaReport parked = runner.run("7", "input");
  is_possible = true;
  ASSERT_EQ(desk.resume(parked.row, "ann", "it has opened again"), WriteOutcome::stored);
  const auto report = runner.work_once();

  EXPECT_EQ(parked.status, SagaStatus::parked);
  EXPECT_EQ(alerts, (std::vector<std::string>{"the shop has closed"}));
  EXPECT_EQ(report.value().status, SagaStatus::compensated);
}

TEST_F(Sagas, GoOnBehindAStepThatAPersonSkips) {
  actions["charge"] = [](SagaCall&) { throw OutcomeUnknown("no answer from the bank"); };
  Errc told{};
  actions["ship"] = [&](SagaCall& call) {
    told = code_of([&] { static_cast<void>(call.result<std::string>("charge")); });
  };
  Runner runner(guard, journal, definition(), options());
  const SagaReport parked = settle(runner);

  ASSERT_EQ(desk.skip(parked.row, "ann", "paid in cash"), WriteOutcome::stored);
  const auto report = runner.work_once();

  EXPECT_EQ(report.value().status, SagaStatus::finished);
  EXPECT_EQ(told, Errc::no_value);
  EXPECT_EQ(desk.history("7").at(0).why, "paid in cash");
}

TEST_F(Sagas, HandResultsOnInAProcessThatHasNotSeenThem) {
  actions["ship"] = [](SagaCall& call) {
    if (call.execution().attempt() == 1) throw RetryableFailure("closed");
    EXPECT_EQ(call.result<std::string>("reserve"), "reserve of 7");
    EXPECT_EQ(call.result<std::string>("charge"), "charge of 7");
  };
  {
    Runner first(guard, journal, definition(), options());
    ASSERT_EQ(first.run("7", "input").status, SagaStatus::waiting);
  }
  clock.advance(std::chrono::hours{24 * 7});
  Guard another_guard(store);
  Runner another(another_guard, journal, definition(), options());

  const auto report = another.work_once();

  EXPECT_EQ(report.value().status, SagaStatus::finished);
  EXPECT_EQ(log, (std::vector<std::string>{"reserve", "charge", "ship", "ship"}));
}

TEST_F(Sagas, RunNothingUnderAnotherListOfSteps) {
  actions["charge"] = [](SagaCall&) { throw RetryableFailure("closed"); };
  Runner runner(guard, journal, definition(), options());
  static_cast<void>(runner.run("7", "input"));
  const Saga shorter("order", {{"reserve", [](SagaCall&) { ADD_FAILURE(); }}});
  Runner other(guard, journal, shorter, options());
  clock.advance(1h);

  EXPECT_EQ(code_of([&] { static_cast<void>(other.run("7", "input")); }), Errc::invalid_argument);
  EXPECT_FALSE(other.work_once().has_value());
  EXPECT_EQ(log, (std::vector<std::string>{"reserve", "charge"}));
  actions["charge"] = nullptr;
  EXPECT_EQ(settle(runner).status, SagaStatus::finished);
  EXPECT_EQ(other.run("7", "input").status, SagaStatus::finished);
}

TEST_F(Sagas, ParkASagaThatIsOlderThanItsStepsRecords) {
  actions["charge"] = [](SagaCall&) { throw RetryableFailure("closed"); };
  SagaOptions asked = options();
  asked.max_age = std::chrono::hours{1};
  Runner runner(guard, journal, definition(), asked);
  static_cast<void>(runner.run("7", "input"));
  clock.advance(std::chrono::hours{1} + 1ms);

  const auto report = runner.work_once();

  EXPECT_EQ(report.value().row.progress.state, SagaState::parked_running);
  EXPECT_EQ(log.size(), 2U);
  EXPECT_EQ(alerts.size(), 1U);
}

TEST_F(Sagas, UndoASagaThatIsOlderWhenAPersonSaysSo) {
  actions["charge"] = [](SagaCall&) { throw RetryableFailure("closed"); };
  SagaOptions asked = options();
  asked.max_age = std::chrono::hours{1};
  Runner runner(guard, journal, definition(), asked);
  static_cast<void>(runner.run("7", "input"));
  clock.advance(std::chrono::hours{1} + 1ms);
  const auto parked = runner.work_once();
  ASSERT_EQ(parked.value().status, SagaStatus::parked);

  ASSERT_EQ(desk.give_up(parked->row, "ann", "nothing was charged"), WriteOutcome::stored);

  EXPECT_EQ(settle(runner).status, SagaStatus::compensated);
  EXPECT_EQ(std::count(log.begin(), log.end(), "undo reserve of 7"), 1);
  EXPECT_EQ(alerts.size(), 1U);
}

TEST_F(Sagas, UndoNothingWhoseRecordHasGone) {
  actions["charge"] = [](SagaCall&) { throw RetryableFailure("closed"); };
  SagaOptions asked = options();
  asked.max_age = std::chrono::hours{1};
  Runner runner(guard, journal, definition(), asked);
  static_cast<void>(runner.run("7", "input"));
  clock.advance(std::chrono::hours{24 * 30});
  const auto parked = runner.work_once();
  ASSERT_EQ(parked.value().status, SagaStatus::parked);

  ASSERT_EQ(desk.give_up(parked->row, "ann", "nothing was charged"), WriteOutcome::stored);

  EXPECT_EQ(settle(runner).status, SagaStatus::parked);
  EXPECT_EQ(std::count(log.begin(), log.end(), "undo reserve of 7"), 0);
}

TEST_F(Sagas, ParkASagaOverWhichWorkersKeepDying) {
  Runner runner(guard, journal, definition(), options());
  const SagaReport started = runner.start("7", "input");
  for (int worker = 0; worker < 3; ++worker) {
    ASSERT_TRUE(journal
                    .claim({.definition = "order",
                            .plan = started.row.plan,
                            .worker = OwnerToken::generate(),
                            .lease = 1s})
                    .has_value());
    clock.advance(1s);
  }

  const auto report = runner.work_once();
  ASSERT_EQ(desk.resume(report.value().row, "ann", "the crash is mended"), WriteOutcome::stored);

  EXPECT_EQ(report->row.progress.state, SagaState::parked_running);
  EXPECT_EQ(alerts, (std::vector<std::string>{"its workers keep dying over it"}));
  EXPECT_TRUE(log.empty());
  EXPECT_EQ(runner.work_once().value().status, SagaStatus::finished);
}

TEST_F(Sagas, ParkASagaWhoseRowNamesNoStep) {
  Runner runner(guard, journal, definition(), options());
  const SagaReport started = runner.start("7", "input");
  const auto own = journal.claim({.definition = "order",
                                  .plan = started.row.plan,
                                  .worker = OwnerToken::generate(),
                                  .lease = 1s});
  ASSERT_TRUE(journal.advance(own.value(), {.to = {SagaState::running, 9, 0, 0}, .due_in = 0ms})
                  .has_value());

  EXPECT_EQ(runner.work_once().value().status, SagaStatus::parked);
  EXPECT_TRUE(log.empty());
}

TEST_F(Sagas, CallAnAlertAgainThatThrew) {
  actions["charge"] = [](SagaCall&) { throw OutcomeUnknown("no answer"); };
  on_alert = [] { throw std::runtime_error("the pager is broken"); };
  Runner runner(guard, journal, definition(), options());
  for (int round = 0; round < 3; ++round) {
    static_cast<void>(runner.run("7", "input"));
    clock.advance(1s);
  }
  ASSERT_EQ(alerts.size(), 1U);

  on_alert = nullptr;
  static_cast<void>(runner.work_once());
  clock.advance(1h);

  EXPECT_EQ(alerts.size(), 2U);
  EXPECT_FALSE(runner.work_once().has_value());
}

// The journal has forgotten the saga, its steps' records are still there.
TEST_F(Sagas, HandNoOthersResultsOnWhenAnIdIsUsedAgain) {
  Runner runner(guard, journal, definition(), options());
  ASSERT_EQ(runner.run("7", "input").status, SagaStatus::finished);
  ASSERT_EQ(journal.clean("order", 0ms, 10), 1U);

  static_cast<void>(runner.run("7", "another input"));
  const SagaReport report = runner.run("7", "another input");

  EXPECT_EQ(report.status, SagaStatus::waiting);
  EXPECT_EQ(report.row.progress.step, 0U);
  EXPECT_EQ(log.size(), 3U);
}

TEST_F(Sagas, KeepNoResultThatIsTooLarge) {
  Errc told{};
  SagaOptions asked = options();
  asked.step_policy.max_result_bytes = 100;
  const Saga saga("large",
                  {{"make", [](SagaCall&) { return std::string(200, 'x'); }},
                   {"use", [&](SagaCall& call) {
                      if (call.execution().attempt() == 1) throw RetryableFailure("later");
                      told = code_of([&] { static_cast<void>(call.result<std::string>("make")); });
                    }}});
  Runner runner(guard, journal, saga, asked);

  static_cast<void>(runner.run("7", "input"));
  clock.advance(1s);

  EXPECT_EQ(runner.work_once().value().status, SagaStatus::finished);
  EXPECT_EQ(told, Errc::no_value);
}

TEST_F(Sagas, AreWorkedOnUntilTheWorkerIsAskedToStop) {
  Runner runner(guard, journal, definition(), options());
  for (int number = 0; number < 5; ++number)
    static_cast<void>(runner.start(std::to_string(number), "input"));
  std::stop_source stop;
  actions["ship"] = [&](SagaCall&) {
    if (log.size() == 15) stop.request_stop();
  };

  runner.work(stop.get_token(), 1h);

  EXPECT_EQ(log.size(), 15U);
}

TEST_F(Sagas, WakeAWorkerThatHasNothingToDoWhenItIsToStop) {
  Runner runner(guard, journal, definition(), options());
  std::jthread worker(
      [&](const std::stop_token& stop) { runner.work(stop, std::chrono::hours{1}); });

  worker.request_stop();
  worker.join();

  EXPECT_TRUE(log.empty());
}

TEST_F(Sagas, AreCleanedWhenTheRecordsOfTheirStepsHaveGone) {
  SagaOptions asked = options();
  asked.max_age = 1h;
  asked.step_policy.success_retention = 2h;
  asked.step_policy.failure_retention = 3h;
  Runner runner(guard, journal, definition(), asked);
  static_cast<void>(runner.run("7", "input"));

  clock.advance(3h - 1ms);
  EXPECT_EQ(runner.clean(10), 0U);
  clock.advance(1ms);
  EXPECT_EQ(runner.clean(10), 1U);
  EXPECT_EQ(store.find(saga_key({"order", "7"}, "ship", SagaPart::action)).has_value(), false);
}

// TC-17: a record that is forgotten before the last try would be made again.
TEST_F(Sagas, RefuseOptionsThatContradictThemselves) {
  const auto refused = [&](const std::function<void(SagaOptions&)>& spoil) {
    SagaOptions asked = options();
    spoil(asked);
    return code_of([&] { Runner runner(guard, journal, definition(), asked); });
  };

  EXPECT_EQ(refused([](SagaOptions& o) { o.max_attempts = 0; }), Errc::invalid_argument);
  EXPECT_EQ(refused([](SagaOptions& o) { o.first_pause = 0ms; }), Errc::invalid_argument);
  EXPECT_EQ(refused([](SagaOptions& o) { o.longest_pause = 1ms; }), Errc::invalid_argument);
  EXPECT_EQ(refused([](SagaOptions& o) { o.lease = 0ms; }), Errc::invalid_argument);
  EXPECT_EQ(refused([](SagaOptions& o) { o.max_age = 0ms; }), Errc::invalid_argument);
  EXPECT_EQ(refused([](SagaOptions& o) { o.step_policy.success_retention = o.max_age; }),
            Errc::invalid_argument);
  EXPECT_EQ(refused([](SagaOptions& o) { o.step_policy.failure_retention = o.max_age; }),
            Errc::invalid_argument);
  EXPECT_EQ(refused([](SagaOptions& o) {
              o.step_policy.on_store_failure = OnStoreFailure::run_unprotected;
            }),
            Errc::invalid_argument);
  EXPECT_EQ(refused([](SagaOptions& o) { o.step_policy.lease = 0ms; }), Errc::invalid_policy);
  EXPECT_EQ(journal.find({"order", "7"}), std::nullopt);
}

TEST_F(Sagas, RefuseAnIdAndAnInputThatCannotBeKept) {
  Runner runner(guard, journal, definition(), options());

  EXPECT_EQ(code_of([&] { static_cast<void>(runner.run("", "input")); }), Errc::invalid_argument);
  EXPECT_EQ(code_of([&] { static_cast<void>(runner.run(std::string(129, 'x'), "input")); }),
            Errc::too_large);
  EXPECT_TRUE(log.empty());
}

TEST(SagaDefinition, RefusesNamesThatCannotBeKeys) {
  const auto refused = [](const std::string& name, std::vector<SagaStep> steps) {
    return code_of([&] { Saga saga(name, std::move(steps)); });
  };
  const auto nothing = [](SagaCall&) {};

  EXPECT_EQ(refused("", {{"a", nothing}}), Errc::invalid_argument);
  EXPECT_EQ(refused("an order", {{"a", nothing}}), Errc::invalid_argument);
  EXPECT_EQ(refused(std::string(60, 'x'), {{"a", nothing}}), Errc::invalid_argument);
  EXPECT_EQ(refused("order", {}), Errc::invalid_argument);
  EXPECT_EQ(refused("order", {{"a:b", nothing}}), Errc::invalid_argument);
  EXPECT_EQ(refused("order", {{std::string(65, 'x'), nothing}}), Errc::invalid_argument);
  EXPECT_EQ(refused("order", {{"a", nothing}, {"a", nothing}}), Errc::invalid_argument);
}

TEST(SagaDefinition, HasAPlanThatTheNamesOfItsStepsAndTheirOrderMake) {
  const auto nothing = [](SagaCall&) {};
  const auto plan = [&](std::vector<SagaStep> steps) {
    return Saga("order", std::move(steps)).plan();
  };

  EXPECT_EQ(plan({{"a", nothing}, {"b", nothing}}),
            plan({{"a", [](SagaCall&) { return 1; }}, {"b", nothing, nothing}}));
  EXPECT_NE(plan({{"a", nothing}, {"b", nothing}}), plan({{"b", nothing}, {"a", nothing}}));
  EXPECT_NE(plan({{"ab", nothing}}), plan({{"a", nothing}, {"b", nothing}}));
}

// A key that changes from one version to the next would run every step of the sagas under way again.
TEST(SagaKey, StaysTheSame) {
  EXPECT_EQ(saga_key({"order", "o-7"}, "charge", SagaPart::action).text(),
            "saga/order:o-7:charge:action~"
            "9a9e991c8fc2c8ac6d012783acc672d2dd16ed60a0b82783ff5f83a1e8d56b50");
  EXPECT_NE(saga_key({"order", "a"}, "b", SagaPart::action).text(),
            saga_key({"order", "a"}, "b", SagaPart::compensation).text());
  EXPECT_NO_THROW(static_cast<void>(saga_key({std::string(59, 'd'), std::string(128, '\n')},
                                             std::string(64, 's'), SagaPart::compensation)));
}

}  // namespace
}  // namespace idempotency
