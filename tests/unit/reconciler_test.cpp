#include "idempotency/operations/reconciler.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "idempotency/idempotency.hpp"
#include "idempotency/stores/memory.hpp"
#include "idempotency/testing/faulty_store.hpp"
#include "idempotency/testing/manual_clock.hpp"
#include "idempotency/testing/printers.hpp"
#include "support/error_of.hpp"
#include "support/event.hpp"

namespace idempotency {
namespace {

using namespace std::chrono_literals;
using testing::Fault;
using testing::FaultyStore;
using testing::ManualClock;
using testing_support::code_of;

/// Payments whose outcome is not known, and a bank that answers as the test says.
class Reconcilers : public ::testing::Test {
 protected:
  struct Owner {
    Key key;
    Ownership by;
  };

  Owner begin(const std::string& order, RecordMode mode = RecordMode::hold,
              const std::string& type = "payment") {
    const Key key{type, order};
    const BeginRequest request{
        .key = key, .owner = OwnerToken::generate(), .mode = mode, .lease = 30s};
    const auto acquired = std::get<Acquired>(store.begin(request));
    return {key, {request.owner, acquired.fence}};
  }
  Owner leave_uncertain(const std::string& order, const std::string& type = "payment") {
    const Owner owner = begin(order, RecordMode::hold, type);
    EXPECT_EQ(store.doubt(owner.key, owner.by), WriteOutcome::stored);
    return owner;
  }
  Finding ask(const Record& record) {
    asked.emplace_back(record.key.value());
    if (const auto call = during) call(record);  // which may set another
    const auto answer = answers.find(std::string(record.key.value()));
    return answer == answers.end() ? Finding::still_unknown("the bank is closed")
                                   : answer->second();
  }
  Reconciler::Resolve bank() {
    return [this](const Record& record) { return ask(record); };
  }
  ReconcilerOptions options() {
    ReconcilerOptions asked_for;
    asked_for.margin = 60s;
    asked_for.max_questions = 3;
    asked_for.alert = [this](const ReconcileEvent& event) {
      alerts.push_back(std::string(event.record.key.value()) + ": " + std::string(event.why));
      if (const auto call = on_alert) call();
    };
    return asked_for;
  }
  void answer(const std::string& order, Finding finding) {
    answers[order] = [finding] { return finding; };
  }
  RecordState state(const std::string& order) { return store.find({"payment", order})->state; }
  RunResult<int> pay(const std::string& order) {
    return guard.run({.key = {"payment", order}}, [&] { return ++charges; });
  }
  /// What reconcilers have written for themselves, and is still there.
  std::size_t own_records() {
    return store.list({.type = std::string(Reconciler::record_type)}, "", 100).records.size();
  }

  ManualClock clock;
  MemoryStore store{MemoryStoreOptions{.clock = &clock}};
  IdempotencyGuard<MemoryStore> guard{store};
  std::map<std::string, std::function<Finding()>> answers;
  std::function<void(const Record&)> during;
  std::function<void()> on_alert;
  std::vector<std::string> asked;
  std::vector<std::string> alerts;
  int charges = 0;
};

// FB-08: done.
TEST_F(Reconcilers, RecordTheResultThatTheCallShouldHaveHad) {
  leave_uncertain("1");
  answer("1", Finding::succeeded(42));
  Reconciler reconciler(store, bank(), options());

  const ReconcileReport report = reconciler.run_once();

  EXPECT_EQ(report.succeeded, 1U);
  EXPECT_EQ(report.settled(), 1U);
  const RunResult<int> again = pay("1");
  EXPECT_EQ(again.status(), RunStatus::replayed);
  EXPECT_EQ(again.value(), 42);
  EXPECT_EQ(charges, 0);
}

// FB-08: not done.
TEST_F(Reconcilers, LetTheNextCallRunWhatTheBankKnowsNothingOf) {
  leave_uncertain("1");
  answer("1", Finding::retry());
  Reconciler reconciler(store, bank(), options());
  clock.advance(60s);

  const ReconcileReport report = reconciler.run_once();

  EXPECT_EQ(report.released, 1U);
  EXPECT_EQ(pay("1").status(), RunStatus::executed);
  EXPECT_EQ(charges, 1);
}

// FB-08: unknown.
TEST_F(Reconcilers, AskAgainAfterAPauseWhenThereIsNoAnswer) {
  leave_uncertain("1");
  Reconciler reconciler(store, bank(), options());

  const ReconcileReport first = reconciler.run_once();

  EXPECT_EQ(first.still_unknown, 1U);
  ASSERT_EQ(first.notes.size(), 1U);
  EXPECT_EQ(first.notes.front().why, "the bank is closed");
  EXPECT_EQ(state("1"), RecordState::uncertain);
  answer("1", Finding::succeeded(42));
  clock.advance(2s);
  EXPECT_EQ(reconciler.run_once().succeeded, 1U);
}

// FB-08: throws.
TEST_F(Reconcilers, ReportAQuestionThatThrowsAndAskAgain) {
  leave_uncertain("1");
  answers["1"] = []() -> Finding { throw std::runtime_error("no route to the bank"); };
  Reconciler reconciler(store, bank(), options());

  const ReconcileReport report = reconciler.run_once();

  EXPECT_EQ(report.threw, 1U);
  ASSERT_EQ(report.notes.size(), 1U);
  EXPECT_EQ(report.notes.front().key, Key("payment", "1"));
  EXPECT_EQ(report.notes.front().why, "no route to the bank");
  EXPECT_EQ(state("1"), RecordState::uncertain);
  answers["1"] = []() -> Finding { throw 7; };
  clock.advance(2s);
  EXPECT_EQ(reconciler.run_once().threw, 1U);
}

TEST_F(Reconcilers, RecordAFailureWithItsText) {
  leave_uncertain("1");
  answer("1", Finding::failed("the card is stolen" + std::string(5'000, '!')));
  Reconciler reconciler(store, bank(), options());

  EXPECT_EQ(reconciler.run_once().failed, 1U);

  const RunResult<int> again = pay("1");
  EXPECT_EQ(again.status(), RunStatus::failed);
  EXPECT_EQ(again.failure().substr(0, 18), "the card is stolen");
  EXPECT_EQ(again.failure().size(), Failure::max_reason_bytes);
}

TEST_F(Reconcilers, RecordASuccessOfWhichNothingElseIsKnown) {
  leave_uncertain("1");
  answer("1", Finding::succeeded_as(std::nullopt));
  Reconciler reconciler(store, bank(), options());

  EXPECT_EQ(reconciler.run_once().succeeded, 1U);

  EXPECT_EQ(pay("1").status(), RunStatus::replayed_without_result);
}

TEST_F(Reconcilers, KeepWhatTheySettleAsLongAsThePoliciesSay) {
  leave_uncertain("1", "refund");
  leave_uncertain("2", "refund");
  answer("1", Finding::succeeded(1));
  answer("2", Finding::failed("no"));
  ReconcilerOptions asked_for = options();
  asked_for.policies.set("refund", {.success_retention = 48h, .failure_retention = 5h});
  Reconciler reconciler(store, bank(), asked_for);

  static_cast<void>(reconciler.run_once());

  EXPECT_EQ(store.find({"refund", "1"})->expires_at, clock.now() + 48h);
  EXPECT_EQ(store.find({"refund", "2"})->expires_at, clock.now() + 5h);
}

TEST_F(Reconcilers, SettleARunUnderHoldWhoseLeaseHasRunOut) {
  begin("1");
  answer("1", Finding::succeeded(42));
  Reconciler reconciler(store, bank(), options());

  const ReconcileReport running = reconciler.run_once();
  clock.advance(30s);
  const ReconcileReport silent = reconciler.run_once();

  EXPECT_EQ(running.unsettled, 0U);
  EXPECT_EQ(silent.succeeded, 1U);
}

TEST_F(Reconcilers, LeaveAloneWhatTheNextCallMayTakeOver) {
  begin("1", RecordMode::take_over);
  const Owner marked = begin("2", RecordMode::take_over);
  ASSERT_EQ(store.mark_effect(marked.key, marked.by), WriteOutcome::stored);
  clock.advance(1h);
  Reconciler reconciler(store, bank(), options());

  EXPECT_EQ(reconciler.run_once().unsettled, 1U);

  EXPECT_EQ(asked, std::vector<std::string>{"2"});
}

TEST_F(Reconcilers, AskAboutTheOldestFirst) {
  for (const char* order : {"3", "1", "2"}) {
    leave_uncertain(order);
    clock.advance(1s);
  }
  begin("4");  // silent from the end of its lease on
  clock.advance(31s);
  leave_uncertain("0");
  Reconciler reconciler(store, bank(), options());

  static_cast<void>(reconciler.run_once());

  EXPECT_EQ(asked, (std::vector<std::string>{"3", "1", "2", "4", "0"}));
}

TEST_F(Reconcilers, LookAfterTheTypesThatTheyAreFor) {
  leave_uncertain("1", "refund");
  leave_uncertain("2", "transfer");
  leave_uncertain("3", "payment");
  ReconcilerOptions asked_for = options();
  asked_for.types = {"payment", "refund"};
  Reconciler reconciler(store, bank(), asked_for);

  EXPECT_EQ(reconciler.run_once().unsettled, 2U);

  std::sort(asked.begin(), asked.end());  // they are of one age
  EXPECT_EQ(asked, (std::vector<std::string>{"1", "3"}));
}

TEST_F(Reconcilers, DoNotBelieveRetryWhileARequestMayBeOnItsWay) {
  leave_uncertain("1");
  answer("1", Finding::retry());
  Reconciler reconciler(store, bank(), options());

  const ReconcileReport early = reconciler.run_once();
  clock.advance(59s);
  const ReconcileReport at_rest = reconciler.run_once();
  clock.advance(1s);
  const ReconcileReport late = reconciler.run_once();

  EXPECT_EQ(early.too_early, 1U);
  EXPECT_EQ(at_rest.resting, 1U);
  EXPECT_EQ(late.released, 1U);
}

// The answer is as old as the question.
TEST_F(Reconcilers, DoNotBelieveRetryThatWasAskedForTooEarlyAndCameLate) {
  leave_uncertain("1");
  answer("1", Finding::retry());
  during = [&](const Record&) { clock.advance(2min); };
  ReconcilerOptions asked_for = options();
  asked_for.lease = 1h;
  Reconciler reconciler(store, bank(), asked_for);

  EXPECT_EQ(reconciler.run_once().too_early, 1U);

  EXPECT_EQ(state("1"), RecordState::uncertain);
}

TEST_F(Reconcilers, CountTheMarginFromTheEndOfTheLease) {
  begin("1");
  answer("1", Finding::retry());
  Reconciler reconciler(store, bank(), options());
  clock.advance(30s + 59s);

  const ReconcileReport early = reconciler.run_once();
  clock.advance(1s);

  EXPECT_EQ(early.too_early, 1U);
  EXPECT_EQ(reconciler.run_once().released, 1U);
}

TEST_F(Reconcilers, BelieveRetryAfterTheLastQuestionCameTooEarly) {
  leave_uncertain("1");
  answer("1", Finding::retry());
  ReconcilerOptions asked_for = options();
  asked_for.max_questions = 1;
  Reconciler reconciler(store, bank(), asked_for);

  EXPECT_EQ(reconciler.run_once().too_early, 1U);
  clock.advance(60s);

  EXPECT_EQ(reconciler.run_once().released, 1U);
  EXPECT_TRUE(alerts.empty());
}

TEST_F(Reconcilers, GiveWayToAnOwnerThatKnowsBetter) {
  const Owner owner = leave_uncertain("1");
  answer("1", Finding::failed("never heard of it"));
  during = [&](const Record&) {
    EXPECT_EQ(store.complete(owner.key, owner.by, {encode_result(7), 1h}), WriteOutcome::stored);
  };
  Reconciler reconciler(store, bank(), options());

  const ReconcileReport report = reconciler.run_once();

  EXPECT_EQ(report.moved, 1U);
  EXPECT_EQ(report.settled(), 0U);
  EXPECT_EQ(pay("1").value(), 7);
}

TEST_F(Reconcilers, GiveWayToAnOwnerThatComesBackWhileTheBankIsAsked) {
  const Owner owner = begin("1");
  answer("1", Finding::succeeded(42));
  clock.advance(30s);
  during = [&](const Record&) {
    EXPECT_EQ(store.renew(owner.key, owner.by, 30s), WriteOutcome::stored);
  };
  Reconciler reconciler(store, bank(), options());

  EXPECT_EQ(reconciler.run_once().moved, 1U);
  EXPECT_EQ(state("1"), RecordState::processing);

  during = nullptr;
  clock.advance(30s);
  EXPECT_EQ(reconciler.run_once().succeeded, 1U) << "and settle it when it falls silent again";
}

TEST_F(Reconcilers, AskOneProcessAtATime) {
  leave_uncertain("1");
  Reconciler here(store, bank(), options());
  Reconciler elsewhere(store, bank(), options());
  ReconcileReport other;
  during = [&](const Record&) {
    during = nullptr;
    other = elsewhere.run_once();
  };

  static_cast<void>(here.run_once());

  EXPECT_EQ(asked.size(), 1U);
  EXPECT_EQ(other.resting, 1U);
  EXPECT_EQ(other.asked, 0U);
}

TEST_F(Reconcilers, AskInThePlaceOfAProcessThatFellSilent) {
  leave_uncertain("1");
  answer("1", Finding::succeeded(42));
  Reconciler here(store, bank(), options());
  Reconciler elsewhere(store, bank(), options());
  ReconcileReport other;
  during = [&](const Record&) {
    during = nullptr;
    clock.advance(60s);
    other = elsewhere.run_once();
  };

  const ReconcileReport late = here.run_once();

  EXPECT_EQ(other.succeeded, 1U);
  EXPECT_EQ(late.moved, 1U);
}

TEST_F(Reconcilers, LetThePausesGrowForAllProcessesTogether) {
  leave_uncertain("1");
  ReconcilerOptions asked_for = options();
  asked_for.max_questions = 50;
  asked_for.longest_pause = 1min;
  std::vector<std::chrono::milliseconds> rests;
  asked_for.on_record = [&](const ReconcileEvent& event) { rests.push_back(event.rest); };

  for (int round = 0; round < 40; ++round) {
    Reconciler reconciler(store, bank(), asked_for);  // as after a restart
    static_cast<void>(reconciler.run_once());
    if (rests.back() > 1ms) {
      clock.advance(rests.back() - 1ms);
      const ReconcileReport early = reconciler.run_once();
      EXPECT_EQ(early.resting, 1U);
      EXPECT_EQ(early.asked, 0U);
      clock.advance(1ms);
    } else {
      clock.advance(1ms);
    }
  }

  ASSERT_EQ(rests.size(), 40U);
  std::chrono::milliseconds most = 1s;
  for (const std::chrono::milliseconds rest : rests) {
    EXPECT_LE(rest, most);
    most = std::min<std::chrono::milliseconds>(most * 2, 1min);
  }
  EXPECT_GT(*std::max_element(rests.begin(), rests.end()), 2s) << "by all likelihood";
}

TEST_F(Reconcilers, ParkWhatNobodyCanAnswerAndSayItOnce) {
  leave_uncertain("1");
  Reconciler here(store, bank(), options());
  Reconciler elsewhere(store, bank(), options());

  ReconcileReport last;
  for (int round = 0; round < 3; ++round) {
    last = here.run_once();
    clock.advance(1min);
  }
  for (int round = 0; round < 5; ++round) {
    clock.advance(24h);
    EXPECT_EQ(here.run_once().asked, 0U);
    EXPECT_EQ(elsewhere.run_once().resting, 1U);
  }

  EXPECT_EQ(last.parked, 1U);
  EXPECT_EQ(asked.size(), 3U);
  EXPECT_EQ(alerts, std::vector<std::string>{"1: the bank is closed"});
  EXPECT_EQ(state("1"), RecordState::uncertain);
}

TEST_F(Reconcilers, AskAnewWhenTheParkingIsOver) {
  leave_uncertain("1");
  ReconcilerOptions asked_for = options();
  asked_for.max_questions = 1;
  asked_for.parked_for = 24h;
  Reconciler reconciler(store, bank(), asked_for);
  EXPECT_EQ(reconciler.run_once().parked, 1U);

  clock.advance(24h);
  answer("1", Finding::succeeded(42));

  EXPECT_EQ(reconciler.run_once().succeeded, 1U);
}

TEST_F(Reconcilers, RaiseTheAlarmAgainWhenNobodyHeardIt) {
  leave_uncertain("1");
  ReconcilerOptions asked_for = options();
  asked_for.max_questions = 1;
  on_alert = [] { throw std::runtime_error("no mail server"); };
  Reconciler reconciler(store, bank(), asked_for);

  const ReconcileReport unheard = reconciler.run_once();
  on_alert = nullptr;
  clock.advance(1min);
  const ReconcileReport heard = reconciler.run_once();

  EXPECT_EQ(unheard.parked, 0U);
  EXPECT_EQ(unheard.notes.at(0).why, "the alert: no mail server");
  EXPECT_EQ(heard.parked, 1U);
  EXPECT_EQ(alerts.size(), 2U);
}

TEST_F(Reconcilers, ParkAQuestionThatKillsWhoeverAsksIt) {
  struct Death {};
  leave_uncertain("1");
  ReconcilerOptions asked_for = options();
  FaultyStore faulty{store};
  int deaths = 0;

  for (int round = 0; round < 10 && alerts.empty(); ++round) {
    faulty.heal();
    Reconciler reconciler(
        faulty,
        [&](const Record&) -> Finding {
          ++deaths;
          faulty.on(StoreCall::renew).before([] { throw Death{}; });  // nothing arrives any more
          faulty.on(StoreCall::fail).before([] { throw Death{}; });
          throw std::runtime_error("as good as dead");
        },
        asked_for);
    try {
      static_cast<void>(reconciler.run_once());
    } catch (const Death&) {
      alerts.clear();
    }
    clock.advance(2min);
  }

  EXPECT_GE(deaths, 3);
  EXPECT_LE(deaths, 6);
  EXPECT_EQ(alerts, std::vector<std::string>{"1: its questions do not end"});
}

TEST_F(Reconcilers, EndAPassEarlyWhenTheBankIsAwayAndGoOnBehindItNextTime) {
  for (int order = 100; order < 120; ++order) {
    leave_uncertain(std::to_string(order));
    clock.advance(1ms);
  }
  bool away = true;
  during = [&](const Record&) {
    if (away) throw std::runtime_error("connection refused");
  };
  ReconcilerOptions asked_for = options();
  asked_for.first_pause = 10min;
  Reconciler reconciler(store, bank(), asked_for);

  const ReconcileReport without = reconciler.run_once();
  EXPECT_EQ(without.threw, 5U);
  EXPECT_TRUE(without.ended_early);

  away = false;
  for (int order = 100; order < 120; ++order)
    answer(std::to_string(order), Finding::succeeded(order));
  asked.clear();
  const ReconcileReport with = reconciler.run_once();
  EXPECT_GE(with.succeeded, 15U);
  EXPECT_NE(std::find(asked.begin(), asked.end(), "119"), asked.end());
  clock.advance(10min);
  EXPECT_EQ(with.succeeded + reconciler.run_once().succeeded, 20U);
}

TEST_F(Reconcilers, StarveNothingBehindRecordsThatRest) {
  for (int order = 100; order < 130; ++order) {
    leave_uncertain(std::to_string(order));
    clock.advance(1ms);
  }
  ReconcilerOptions asked_for = options();
  asked_for.max_records = 7;
  asked_for.first_pause = 24h;
  asked_for.longest_pause = 24h;
  Reconciler reconciler(store, bank(), asked_for);

  std::size_t most = 0;
  for (int pass = 0; pass < 8; ++pass)
    most = std::max(most, reconciler.run_once().asked);

  EXPECT_LE(most, 7U);
  std::sort(asked.begin(), asked.end());
  asked.erase(std::unique(asked.begin(), asked.end()), asked.end());
  EXPECT_EQ(asked.size(), 30U);
}

TEST_F(Reconcilers, LeaveNothingOfTheirOwnBehindWhatTheySettled) {
  for (const char* order : {"1", "2", "3"})
    leave_uncertain(order);
  answer("1", Finding::succeeded(1));
  answer("2", Finding::failed("no"));
  Reconciler reconciler(store, bank(), options());

  static_cast<void>(reconciler.run_once());
  clock.advance(1ms);

  EXPECT_EQ(own_records(), 1U) << "of what is still unknown";
}

TEST_F(Reconcilers, TellTheNextTurnOfAKeyFromTheOneThatWasParked) {
  leave_uncertain("1");
  ReconcilerOptions asked_for = options();
  asked_for.max_questions = 1;
  Reconciler reconciler(store, bank(), asked_for);
  EXPECT_EQ(reconciler.run_once().parked, 1U);
  ASSERT_EQ(store.resolve(*store.find({"payment", "1"}), {.reason = "a person said so"}),
            WriteOutcome::stored);

  leave_uncertain("1");
  answer("1", Finding::succeeded(42));

  EXPECT_EQ(reconciler.run_once().succeeded, 1U);
}

TEST_F(Reconcilers, TakeKeysOfAnyLengthAndForm) {
  const std::string longest(Key::max_value_bytes, 'v');
  const std::string odd = "caf\xc3\xa9: a%b ~\xff ";
  leave_uncertain(longest, std::string(Key::max_type_bytes, 't'));
  leave_uncertain(odd);
  answer(longest, Finding::succeeded(1));
  answer(odd, Finding::succeeded(2));
  Reconciler reconciler(store, bank(), options());

  EXPECT_EQ(reconciler.run_once().succeeded, 2U);
}

TEST_F(Reconcilers, GoOnWhenAReplyOfTheStoreIsLost) {
  leave_uncertain("1");
  answer("1", Finding::succeeded(42));
  FaultyStore faulty{store};
  for (const StoreCall call : {StoreCall::begin, StoreCall::find, StoreCall::complete})
    faulty.on(call).fail_next(1, Fault::reply_lost);
  faulty.on(testing::AdminCall::resolve).fail_next(1, Fault::reply_lost);
  Reconciler reconciler(faulty, bank(), options());

  const ReconcileReport report = reconciler.run_once();

  EXPECT_EQ(report.succeeded, 1U);
  EXPECT_EQ(report.store_failed, 0U);
}

TEST_F(Reconcilers, ReportRecordsForWhichTheStoreDoesNotAnswer) {
  leave_uncertain("1");
  answer("1", Finding::succeeded(42));
  FaultyStore faulty{store};
  faulty.on(testing::AdminCall::resolve).fail_next(2, Fault::reply_lost);
  Reconciler reconciler(faulty, bank(), options());

  const ReconcileReport report = reconciler.run_once();
  clock.advance(1h);
  const ReconcileReport next = reconciler.run_once();

  EXPECT_EQ(report.store_failed, 1U);
  EXPECT_EQ(next.unsettled, 0U) << "it had arrived";
  EXPECT_EQ(pay("1").value(), 42);
}

/// A process that is killed. Nothing of it catches this.
struct Killed {};

/// Lets a process die at one of its calls of the store, counted from 1.
class Mortal {
 public:
  Mortal(FaultyStore<MemoryStore>& faulty, std::size_t at, bool arrives) {
    const auto count = [this, at](std::size_t& calls) {
      if (dead_ || ++calls == at) {
        dead_ = true;
        throw Killed{};
      }
    };
    const auto watch = [&](testing::FaultScript& script) {
      if (arrives) {
        script.after([this, count] { count(calls_); });
        script.before([this] {
          if (dead_) throw Killed{};
        });
      } else {
        script.before([this, count] { count(calls_); });
      }
    };
    for (const StoreCall call : {StoreCall::begin, StoreCall::complete, StoreCall::fail,
                                 StoreCall::renew, StoreCall::find})
      watch(faulty.on(call));
    for (const auto call : {testing::AdminCall::list, testing::AdminCall::resolve})
      watch(faulty.on(call));
  }
  [[nodiscard]] bool has_died() const noexcept { return dead_; }

 private:
  std::size_t calls_ = 0;
  bool dead_ = false;
};

class ReconcilerDeath : public Reconcilers {
 protected:
  /// A process dies at its call number `at`, then others do the rest. False when it did not die.
  bool die_at(std::size_t at, bool arrives, const std::function<void()>& set_up) {
    set_up();
    FaultyStore faulty{store};
    Mortal mortal(faulty, at, arrives);
    {
      Reconciler reconciler(faulty, bank(), options());
      try {
        for (int pass = 0; pass < 4; ++pass) {
          static_cast<void>(reconciler.run_once());
          clock.advance(2min);
        }
      } catch (const Killed&) {
      }
    }
    Reconciler others(store, bank(), options());
    for (int pass = 0; pass < 6; ++pass) {
      static_cast<void>(others.run_once());
      clock.advance(2min);
    }
    return mortal.has_died();
  }
};

TEST_F(ReconcilerDeath, AtAnyMomentLeavesNothingUnsettled) {
  std::size_t deaths = 0;
  for (const bool arrives : {false, true}) {
    bool died = true;
    for (std::size_t at = 1; died; ++at) {
      const std::string order = std::to_string(at) + (arrives ? "a" : "b");
      died = die_at(at, arrives, [&] {
        leave_uncertain(order + "-done");
        leave_uncertain(order + "-not");
        begin(order + "-silent");
        clock.advance(30s);
        answer(order + "-done", Finding::succeeded(42));
        answer(order + "-not", Finding::retry());
        answer(order + "-silent", Finding::failed("refused"));
      });
      deaths += died ? 1 : 0;
      EXPECT_EQ(pay(order + "-done").value(), 42) << "died at call " << at;
      EXPECT_EQ(pay(order + "-silent").status(), RunStatus::failed) << "died at call " << at;
      EXPECT_EQ(pay(order + "-not").status(), RunStatus::executed) << "died at call " << at;
      EXPECT_TRUE(alerts.empty()) << alerts.front();
      // What is left of a clock is swept by a process that starts later.
      static_cast<void>(Reconciler(store, bank(), options()).run_once());
      clock.advance(1min);
      EXPECT_EQ(own_records(), 0U) << "died at call " << at;
      ASSERT_LT(at, 200U) << "it never ends";
    }
  }
  EXPECT_GT(deaths, 30U) << "every call of a pass is a moment to die at";
}

TEST_F(ReconcilerDeath, WhileItParksRaisesTheAlarmAtLeastOnce) {
  std::size_t deaths = 0;
  for (const bool arrives : {false, true}) {
    bool died = true;
    for (std::size_t at = 1; died; ++at) {
      const std::string order = std::to_string(at) + (arrives ? "a" : "b");
      alerts.clear();
      died = die_at(at, arrives, [&] { leave_uncertain(order); });
      deaths += died ? 1 : 0;
      EXPECT_GE(alerts.size(), 1U) << "died at call " << at;
      EXPECT_LE(alerts.size(), 2U) << "died at call " << at;
      ASSERT_EQ(store.resolve(*store.find({"payment", order}), {}), WriteOutcome::stored);
      ASSERT_LT(at, 200U) << "it never ends";
    }
  }
  EXPECT_GT(deaths, 15U);
}

TEST_F(Reconcilers, RunUntilTheyAreAskedToStop) {
  leave_uncertain("1");
  answer("1", Finding::succeeded(42));
  ReconcilerOptions asked_for = options();
  asked_for.every = 1ms;
  testing_support::Event second_pass;
  int passes = 0;
  asked_for.on_pass = [&](const ReconcileReport&) {
    if (++passes == 2) second_pass.set();
  };
  Reconciler reconciler(store, bank(), asked_for);

  std::jthread thread([&](const std::stop_token& stop) { reconciler.run(stop); });
  ASSERT_TRUE(second_pass.wait());
  thread.request_stop();
  thread.join();

  EXPECT_EQ(state("1"), RecordState::success);
}

TEST_F(Reconcilers, OutliveAStoreThatDoesNotAnswer) {
  leave_uncertain("1");
  answer("1", Finding::succeeded(42));
  FaultyStore faulty{store};
  faulty.on(testing::AdminCall::list).fail_next(3, Fault::request_lost);
  ReconcilerOptions asked_for = options();
  asked_for.every = 1ms;
  asked_for.first_pause = 1ms;
  asked_for.longest_pause = 2ms;
  std::stop_source stop;
  asked_for.on_pass = [&](const ReconcileReport&) { stop.request_stop(); };
  Reconciler reconciler(faulty, bank(), asked_for);

  reconciler.run(stop.get_token());

  EXPECT_EQ(state("1"), RecordState::success);
}

TEST_F(Reconcilers, EndTheirLoopWhenRepeatingDoesNotHelp) {
  FaultyStore faulty{store};
  faulty.on(testing::AdminCall::list).fail_always(Fault::refused);
  Reconciler reconciler(faulty, bank(), options());

  EXPECT_EQ(code_of([&] { reconciler.run({}); }), Errc::store_refused);
}

TEST_F(Reconcilers, StopInTheMiddleOfAPass) {
  leave_uncertain("1");
  leave_uncertain("2");
  std::stop_source stop;
  during = [&](const Record&) { stop.request_stop(); };
  Reconciler reconciler(store, bank(), options());

  const ReconcileReport report = reconciler.run_once(stop.get_token());

  EXPECT_EQ(report.asked, 1U);
  EXPECT_TRUE(report.ended_early);
}

TEST_F(Reconcilers, RefuseWhatCannotBeMeant) {
  const auto refused = [&](const std::function<void(ReconcilerOptions&)>& change) {
    ReconcilerOptions asked_for;
    change(asked_for);
    return code_of([&] { Reconciler(store, bank(), asked_for); }) == Errc::invalid_argument;
  };

  EXPECT_TRUE(refused([](auto& o) { o.margin = -1ms; }));
  EXPECT_TRUE(refused([](auto& o) { o.lease = 0ms; }));
  EXPECT_TRUE(refused([](auto& o) { o.first_pause = 0ms; }));
  EXPECT_TRUE(refused([](auto& o) { o.longest_pause = o.first_pause - 1ms; }));
  EXPECT_TRUE(refused([](auto& o) { o.max_questions = 0; }));
  EXPECT_TRUE(refused([](auto& o) { o.parked_for = 0ms; }));
  EXPECT_TRUE(refused([](auto& o) { o.max_records = 0; }));
  EXPECT_TRUE(refused([](auto& o) { o.max_failures_in_a_row = 0; }));
  EXPECT_TRUE(refused([](auto& o) { o.every = 0ms; }));
  EXPECT_EQ(code_of([&] { Reconciler(store, nullptr); }), Errc::invalid_argument);
}

}  // namespace
}  // namespace idempotency
