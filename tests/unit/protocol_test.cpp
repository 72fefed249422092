#include "idempotency/protocol.hpp"

#include <gtest/gtest.h>

#include <chrono>

namespace idempotency {
namespace {

using namespace std::chrono_literals;
using Do = ProtocolAction::Kind;
using Seen = ProtocolEvent::Kind;

constexpr SteadyTime t0{1'000s};

ProtocolEvent answered(Answer answer, RunStatus status = RunStatus::replayed,
                       std::chrono::milliseconds remaining = 0ms) {
  return {.kind = Seen::begin_answered, .answer = answer, .status = status, .remaining = remaining};
}
ProtocolEvent failed(Seen kind, Errc error) { return {.kind = kind, .error = error}; }
ProtocolEvent handled(Disposition disposition) {
  return {.kind = Seen::handler_ended, .disposition = disposition};
}

TEST(Protocol, RunsTheHandlerAndCompletesIt) {
  Protocol protocol({.lease = 10s}, t0);

  EXPECT_EQ(protocol.start(t0).kind, Do::begin);
  const ProtocolAction run = protocol.next(answered(Answer::acquired), t0 + 5ms);
  EXPECT_EQ(run.kind, Do::run_handler);
  EXPECT_EQ(run.at, t0 + 10s);  // from the moment the request was sent
  EXPECT_EQ(protocol.next(handled(Disposition::success), t0 + 1s).kind, Do::complete);
  const ProtocolAction end = protocol.next({.kind = Seen::write_stored}, t0 + 1s);
  EXPECT_EQ(end.kind, Do::finish);
  EXPECT_EQ(end.status, RunStatus::executed);
}

TEST(Protocol, FinishesAtOnceWithWhatIsRecorded) {
  const struct {
    Answer answer;
    RunStatus status;
  } cases[] = {{Answer::completed, RunStatus::replayed},
               {Answer::failed, RunStatus::failed},
               {Answer::uncertain, RunStatus::uncertain},
               {Answer::in_progress, RunStatus::in_progress}};
  for (const auto& each : cases) {
    Protocol protocol({}, t0);
    static_cast<void>(protocol.start(t0));

    const ProtocolAction end = protocol.next(answered(each.answer, each.status, 3s), t0);

    EXPECT_EQ(end.kind, Do::finish);
    EXPECT_EQ(end.status, each.status);
  }
}

TEST(Protocol, TellsWhatRemainsOfTheOthersLease) {
  Protocol protocol({}, t0);
  static_cast<void>(protocol.start(t0));

  const ProtocolAction end = protocol.next(answered(Answer::in_progress, {}, 7s), t0);

  EXPECT_EQ(end.status, RunStatus::in_progress);
  EXPECT_EQ(end.retry_after, 7s);
}

// LK-05: an answer that took most of the lease does not start the handler.
TEST(Protocol, DoesNotStartTheHandlerOnAnAlmostExpiredLease) {
  Protocol protocol({.lease = 200ms}, t0);
  static_cast<void>(protocol.start(t0));

  ProtocolAction action = protocol.next(answered(Answer::acquired), t0 + 300ms);
  EXPECT_EQ(action.kind, Do::begin);
  action = protocol.next(answered(Answer::acquired), t0 + 600ms);
  EXPECT_EQ(action.kind, Do::begin);
  action = protocol.next(answered(Answer::acquired), t0 + 900ms);
  EXPECT_EQ(action.kind, Do::release);
  EXPECT_EQ(protocol.next({.kind = Seen::write_stored}, t0 + 901ms).kind, Do::too_slow);
}

TEST(Protocol, StartsTheHandlerWhenASecondAnswerIsQuick) {
  Protocol protocol({.lease = 200ms}, t0);
  static_cast<void>(protocol.start(t0));
  static_cast<void>(protocol.next(answered(Answer::acquired), t0 + 300ms));

  const ProtocolAction action = protocol.next(answered(Answer::acquired), t0 + 310ms);

  EXPECT_EQ(action.kind, Do::run_handler);
  EXPECT_EQ(action.at, t0 + 500ms);
}

// LK-07: a lost reply is asked for again at once, with the same token.
TEST(Protocol, RepeatsABeginWhoseReplyWasLost) {
  Protocol protocol({.begin_attempts = 3}, t0);
  static_cast<void>(protocol.start(t0));

  EXPECT_EQ(protocol.next(failed(Seen::begin_failed, Errc::store_reply_lost), t0).kind, Do::begin);
  EXPECT_EQ(protocol.next(failed(Seen::begin_failed, Errc::store_unavailable), t0).kind,
            Do::wait_until);
  EXPECT_EQ(protocol.next({.kind = Seen::timer}, t0 + 1s).kind, Do::begin);
  EXPECT_EQ(protocol.next(failed(Seen::begin_failed, Errc::store_reply_lost), t0).kind, Do::refuse);
}

TEST(Protocol, RunsUnprotectedOnlyWhenThePolicySaysSo) {
  Protocol protocol({.on_store_failure = OnStoreFailure::run_unprotected, .begin_attempts = 1}, t0);
  static_cast<void>(protocol.start(t0));

  EXPECT_EQ(protocol.next(failed(Seen::begin_failed, Errc::store_unavailable), t0).kind,
            Do::run_unprotected);
  EXPECT_EQ(protocol.next(handled(Disposition::success), t0).status,
            RunStatus::executed_unprotected);
}

TEST(Protocol, NeverRunsUnprotectedWhenTheStoreRefuses) {
  for (const Errc error : {Errc::store_refused, Errc::store_corrupt, Errc::used_after_fork}) {
    Protocol protocol({.on_store_failure = OnStoreFailure::run_unprotected}, t0);
    static_cast<void>(protocol.start(t0));

    EXPECT_EQ(protocol.next(failed(Seen::begin_failed, error), t0).kind, Do::refuse);
  }
}

TEST(Protocol, SaysUndecidableWhenAStoreThatMayKnowCannotBeAsked) {
  Protocol protocol({}, t0);
  static_cast<void>(protocol.start(t0));

  const ProtocolAction end = protocol.next(failed(Seen::begin_failed, Errc::store_undecidable), t0);

  EXPECT_EQ(end.kind, Do::finish);
  EXPECT_EQ(end.status, RunStatus::undecidable);
}

TEST(Protocol, JoinsTheRoomOnlyWhenItMayWait) {
  EXPECT_EQ(Protocol({.wait = 0ms}, t0).start(t0).kind, Do::begin);
  EXPECT_EQ(Protocol({.wait = 1ms}, t0).start(t0).kind, Do::join);
}

TEST(Protocol, WaitsBehindALeaderUntilItsOwnDeadline) {
  Protocol protocol({.wait = 2s}, t0);
  static_cast<void>(protocol.start(t0));

  const ProtocolAction action = protocol.next({.kind = Seen::follows}, t0);
  EXPECT_EQ(action.kind, Do::await_leader);
  EXPECT_EQ(action.at, t0 + 2s);
  const ProtocolAction end = protocol.next(answered(Answer::in_progress, {}, 1s), t0 + 2s);
  EXPECT_EQ(end.status, RunStatus::in_progress);
}

TEST(Protocol, TakesADeliveredAnswerAndAHandedOverLead) {
  Protocol delivered({.wait = 2s}, t0);
  static_cast<void>(delivered.start(t0));
  static_cast<void>(delivered.next({.kind = Seen::follows}, t0));
  EXPECT_EQ(delivered.next({.kind = Seen::delivered, .status = RunStatus::failed}, t0).status,
            RunStatus::failed);

  Protocol promoted({.wait = 2s}, t0);
  static_cast<void>(promoted.start(t0));
  static_cast<void>(promoted.next({.kind = Seen::follows}, t0));
  EXPECT_EQ(promoted.next({.kind = Seen::promoted}, t0 + 1s).kind, Do::begin);
}

TEST(Protocol, PollsOtherProcessesWithGrowingPausesWithinItsDeadline) {
  Protocol protocol({.wait = 10s, .jitter_seed = 42}, t0);
  static_cast<void>(protocol.start(t0));
  ProtocolAction action = protocol.next({.kind = Seen::leads}, t0);
  SteadyTime now = t0;
  std::chrono::nanoseconds longest{0};
  int polls = 0;

  while (action.kind == Do::begin) {
    action = protocol.next(answered(Answer::in_progress, {}, 60s), now);
    if (action.kind == Do::finish) break;
    ASSERT_EQ(action.kind, Do::wait_until);
    ASSERT_GT(action.at, now);
    longest = std::max(longest, action.at - now);
    now = action.at;
    ++polls;
    action = protocol.next({.kind = Seen::timer}, now);
  }

  EXPECT_EQ(action.status, RunStatus::in_progress);
  EXPECT_EQ(now, t0 + 10s);
  EXPECT_LE(longest, 250ms);
  EXPECT_LT(polls, 120);
}

// LK-17: a wait of the largest duration neither overflows nor ends early; one already past ends at once.
TEST(Protocol, SurvivesExtremeWaits) {
  Protocol for_ever({.wait = std::chrono::milliseconds::max()}, t0);
  static_cast<void>(for_ever.start(t0));
  EXPECT_EQ(for_ever.next({.kind = Seen::follows}, t0).at, SteadyTime::max());

  Protocol short_one({.wait = 1ms}, t0);
  static_cast<void>(short_one.start(t0));
  static_cast<void>(short_one.next({.kind = Seen::leads}, t0));
  EXPECT_EQ(short_one.next(answered(Answer::in_progress, {}, 60s), t0 + 1h).status,
            RunStatus::in_progress);
  Protocol never({.wait = std::chrono::milliseconds::min()}, t0);
  EXPECT_EQ(never.start(t0).kind, Do::begin);
}

TEST(Protocol, AsksAgainWhenTheOthersLeaseEnds) {
  Protocol protocol({.wait = 10s}, t0);
  static_cast<void>(protocol.start(t0));
  static_cast<void>(protocol.next({.kind = Seen::leads}, t0));

  const ProtocolAction action = protocol.next(answered(Answer::in_progress, {}, 1ms), t0);

  EXPECT_LE(action.at, t0 + 2ms);
}

TEST(Protocol, WritesWhatTheHandlersEndMeans) {
  const struct {
    Disposition disposition;
    Do write;
    RunStatus status;
  } cases[] = {{Disposition::success, Do::complete, RunStatus::executed},
               {Disposition::retryable, Do::fail, RunStatus::executed_failed},
               {Disposition::permanent, Do::fail, RunStatus::executed_failed},
               {Disposition::uncertain, Do::doubt, RunStatus::uncertain}};
  for (const auto& each : cases) {
    Protocol protocol({}, t0);
    static_cast<void>(protocol.start(t0));
    static_cast<void>(protocol.next(answered(Answer::acquired), t0));

    EXPECT_EQ(protocol.next(handled(each.disposition), t0).kind, each.write);
    EXPECT_EQ(protocol.next({.kind = Seen::write_stored}, t0).status, each.status);
  }
}

// ID-13: a completion is repeated within its budget, then left to be repeated behind.
TEST(Protocol, RepeatsTheCompletionWithinItsBudget) {
  Protocol protocol({.write_budget = 1s}, t0);
  static_cast<void>(protocol.start(t0));
  static_cast<void>(protocol.next(answered(Answer::acquired), t0));
  ProtocolAction action = protocol.next(handled(Disposition::success), t0);
  SteadyTime now = t0;
  int sent = 0;

  while (action.kind != Do::finish) {
    if (action.kind == Do::complete) {
      ++sent;
      action = protocol.next(failed(Seen::write_failed, Errc::store_reply_lost), now);
    } else {
      ASSERT_EQ(action.kind, Do::wait_until);
      now = action.at;
      action = protocol.next({.kind = Seen::timer}, now);
    }
  }

  EXPECT_EQ(action.status, RunStatus::executed_unrecorded);
  EXPECT_TRUE(action.write_pending);
  EXPECT_EQ(now, t0 + 1s);
  EXPECT_GE(sent, 4);
}

TEST(Protocol, DoesNotRepeatAWriteThatTheStoreRefuses) {
  Protocol protocol({}, t0);
  static_cast<void>(protocol.start(t0));
  static_cast<void>(protocol.next(answered(Answer::acquired), t0));
  static_cast<void>(protocol.next(handled(Disposition::success), t0));

  const ProtocolAction end = protocol.next(failed(Seen::write_failed, Errc::store_refused), t0);

  EXPECT_EQ(end.status, RunStatus::executed_unrecorded);
  EXPECT_FALSE(end.write_pending);
}

TEST(Protocol, LooksUpWhatWasRecordedInsteadWhenItsWriteIsLost) {
  Protocol protocol({}, t0);
  static_cast<void>(protocol.start(t0));
  static_cast<void>(protocol.next(answered(Answer::acquired), t0));
  static_cast<void>(protocol.next(handled(Disposition::success), t0));

  EXPECT_EQ(protocol.next({.kind = Seen::write_lost}, t0).kind, Do::find);
  EXPECT_EQ(protocol.next({.kind = Seen::found_finished}, t0).status, RunStatus::superseded);
}

}  // namespace
}  // namespace idempotency
