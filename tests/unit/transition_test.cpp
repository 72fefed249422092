#include "idempotency/transition.hpp"

#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "idempotency/testing/printers.hpp"

namespace idempotency {
namespace {

constexpr std::array phases{
    Phase::absent,           Phase::processing, Phase::success, Phase::failed_retryable,
    Phase::failed_permanent, Phase::uncertain,  Phase::issued};
constexpr std::array events{
    Event::begin,    Event::begin_issued,    Event::renew,          Event::mark_effect,
    Event::complete, Event::fail_retryable,  Event::fail_permanent, Event::doubt,
    Event::release,  Event::resolve_success, Event::resolve_failed, Event::resolve_retry,
    Event::issue};
constexpr std::array standings{Standing::other, Standing::current};
constexpr std::array leases{LeaseStatus::running, LeaseStatus::run_out};
constexpr std::array modes{RecordMode::take_over, RecordMode::hold};

/// The argument of one call of `transition`.
struct Situation {
  Phase phase;
  Event event;
  Standing standing;
  LeaseStatus lease;
  RecordMode mode;
};

void PrintTo(const Situation& at, std::ostream* out) {
  PrintTo(at.event, out);
  *out << (at.standing == Standing::current ? " by the current one" : " by another") << " on ";
  PrintTo(at.phase, out);
  *out << (at.lease == LeaseStatus::running ? ", lease running, " : ", lease run out, ")
       << to_string(at.mode);
}

std::vector<Situation> all_situations() {
  std::vector<Situation> all;
  for (const Phase phase : phases) {
    for (const Event event : events) {
      for (const Standing standing : standings) {
        for (const LeaseStatus lease : leases) {
          for (const RecordMode mode : modes)
            all.push_back({phase, event, standing, lease, mode});
        }
      }
    }
  }
  return all;
}

/// A sentence of the design, as data: where it applies, and what it says. An empty set stands for "any".
struct Sentence {
  std::set<Phase> from;
  std::set<Event> on;
  std::optional<Standing> by;
  std::optional<LeaseStatus> while_lease;
  std::optional<RecordMode> under;
  Transition says;

  [[nodiscard]] bool applies(const Situation& at) const {
    return from.contains(at.phase) && on.contains(at.event) &&
           by.value_or(at.standing) == at.standing && while_lease.value_or(at.lease) == at.lease &&
           under.value_or(at.mode) == at.mode;
  }
};

Transition let_in(FenceStep fence) {
  return {Phase::processing, Answer::acquired, fence, OwnerStep::caller, LeaseStep::start};
}
Transition stays(Phase phase, Answer answer) { return {.to = phase, .answer = answer}; }
Transition ends_in(Phase phase) {
  return {phase, Answer::stored, FenceStep::keep, OwnerStep::keep, LeaseStep::clear};
}
Transition settled_as(Phase phase) {
  return {phase, Answer::stored, FenceStep::next, OwnerStep::caller, LeaseStep::clear};
}

void add_begin(std::vector<Sentence>& design) {
  const std::set<Event> any_begin{Event::begin, Event::begin_issued};
  const auto other = Standing::other;
  const auto owner = Standing::current;
  const auto run_out = LeaseStatus::run_out;
  design.insert(
      design.end(),
      {
          // absent, or finished and past its retention | begin | processing, fence 1
          {{Phase::absent}, {Event::begin}, {}, {}, {}, let_in(FenceStep::first)},
          // processing, lease run out | begin of another, take_over | processing, fence + 1, new owner
          {{Phase::processing},
           any_begin,
           other,
           run_out,
           RecordMode::take_over,
           let_in(FenceStep::next)},
          // processing, lease run out | begin of another, hold or effect marked | uncertain
          {{Phase::processing},
           any_begin,
           other,
           run_out,
           RecordMode::hold,
           {Phase::uncertain, Answer::uncertain, FenceStep::keep, OwnerStep::keep,
            LeaseStep::clear}},
          {{Phase::processing},
           any_begin,
           other,
           LeaseStatus::running,
           {},
           stays(Phase::processing, Answer::in_progress)},
          // processing | begin of the owner itself | acquired at the same fence, lease renewed
          {{Phase::processing},
           any_begin,
           owner,
           {},
           {},
           {Phase::processing, Answer::acquired, FenceStep::keep, OwnerStep::keep,
            LeaseStep::start}},
          // uncertain | begin of the owner or of another | unchanged: uncertain
          {{Phase::uncertain}, any_begin, {}, {}, {}, stays(Phase::uncertain, Answer::uncertain)},
          // failed, retryable | begin of another | processing, fence + 1
          {{Phase::failed_retryable}, any_begin, other, {}, {}, let_in(FenceStep::next)},
          // failed, retryable | begin of the token that failed | unchanged: failed
          {{Phase::failed_retryable},
           any_begin,
           owner,
           {},
           {},
           stays(Phase::failed_retryable, Answer::failed)},
          // failed, permanent; success | begin | unchanged: replayed
          {{Phase::failed_permanent},
           any_begin,
           {},
           {},
           {},
           stays(Phase::failed_permanent, Answer::failed)},
          {{Phase::success}, any_begin, {}, {}, {}, stays(Phase::success, Answer::completed)},
          // issued (fence 0) | begin that admits issued records | processing, fence 1: its first
          {{Phase::issued}, {Event::begin_issued}, {}, {}, {}, let_in(FenceStep::first)},
          // absent | issue | issued, by the issuer, who may repeat it
          {{Phase::absent},
           {Event::issue},
           {},
           {},
           {},
           {Phase::issued, Answer::stored, FenceStep::keep, OwnerStep::caller, LeaseStep::clear}},
          {{Phase::issued},
           {Event::issue},
           {Standing::current},
           {},
           {},
           stays(Phase::issued, Answer::stored)},
      });
}

void add_owner_writes(std::vector<Sentence>& design) {
  const auto owner = Standing::current;
  const std::set<Phase> unfinished{Phase::processing, Phase::uncertain};
  design.insert(
      design.end(),
      {
          {{Phase::processing},
           {Event::renew},
           owner,
           {},
           {},
           {Phase::processing, Answer::stored, FenceStep::keep, OwnerStep::keep, LeaseStep::start}},
          {{Phase::processing},
           {Event::mark_effect},
           owner,
           {},
           {},
           stays(Phase::processing, Answer::stored)},
          // from uncertain too: the owner knows best, however late
          {unfinished, {Event::complete}, owner, {}, {}, ends_in(Phase::success)},
          {unfinished, {Event::fail_retryable}, owner, {}, {}, ends_in(Phase::failed_retryable)},
          {unfinished, {Event::fail_permanent}, owner, {}, {}, ends_in(Phase::failed_permanent)},
          {{Phase::processing}, {Event::doubt}, owner, {}, {}, ends_in(Phase::uncertain)},
          {{Phase::processing}, {Event::release}, owner, {}, {}, ends_in(Phase::failed_retryable)},
          // every call may be repeated
          {{Phase::success},
           {Event::complete},
           owner,
           {},
           {},
           stays(Phase::success, Answer::stored)},
          {{Phase::failed_retryable},
           {Event::fail_retryable, Event::release},
           owner,
           {},
           {},
           stays(Phase::failed_retryable, Answer::stored)},
          {{Phase::failed_permanent},
           {Event::fail_permanent},
           owner,
           {},
           {},
           stays(Phase::failed_permanent, Answer::stored)},
          {{Phase::uncertain},
           {Event::doubt},
           owner,
           {},
           {},
           stays(Phase::uncertain, Answer::stored)},
      });
}

void add_resolutions(std::vector<Sentence>& design) {
  struct Verdict {
    Event event;
    Phase to;
  };
  for (const Verdict& verdict : {Verdict{Event::resolve_success, Phase::success},
                                 Verdict{Event::resolve_failed, Phase::failed_permanent},
                                 Verdict{Event::resolve_retry, Phase::failed_retryable}}) {
    design.push_back(
        {{Phase::uncertain}, {verdict.event}, Standing::current, {}, {}, settled_as(verdict.to)});
    design.push_back({{Phase::processing},
                      {verdict.event},
                      Standing::current,
                      LeaseStatus::run_out,
                      {},
                      settled_as(verdict.to)});
  }
}

std::vector<Sentence> the_design() {
  std::vector<Sentence> design;
  add_begin(design);
  add_owner_writes(design);
  add_resolutions(design);
  return design;
}

TEST(TransitionTable, SaysWhatTheDesignSaysInEverySituation) {
  const std::vector<Sentence> design = the_design();
  const std::vector<Situation> situations = all_situations();

  for (const Situation& at : situations) {
    std::vector<Transition> expected;
    for (const Sentence& sentence : design) {
      if (sentence.applies(at)) expected.push_back(sentence.says);
    }
    // Anything not in the table changes nothing and answers lost.
    if (expected.empty()) expected.push_back(stays(at.phase, Answer::lost));

    ASSERT_EQ(expected.size(), 1U) << "two sentences for " << ::testing::PrintToString(at);
    EXPECT_EQ(transition(at.phase, at.event, at.standing, at.lease, at.mode), expected.front())
        << ::testing::PrintToString(at);
  }
  EXPECT_EQ(situations.size(), 7U * 13U * 2U * 2U * 2U);
}

TEST(TransitionTable, LeavesNoSentenceOfTheDesignUnused) {
  const std::vector<Situation> situations = all_situations();

  for (const Sentence& sentence : the_design()) {
    bool used = false;
    for (const Situation& at : situations)
      used = used || sentence.applies(at);
    EXPECT_TRUE(used);
  }
}

// ID-29, LK-09, LK-11
TEST(TransitionTable, LetsNobodyButTheOwnerChangeARecordByAnOwnersWrite) {
  const std::set<Event> writes{Event::renew,          Event::mark_effect,    Event::complete,
                               Event::fail_retryable, Event::fail_permanent, Event::doubt,
                               Event::release};
  for (const Situation& at : all_situations()) {
    if (!writes.contains(at.event) || at.standing == Standing::current) continue;

    const Transition step = transition(at.phase, at.event, at.standing, at.lease, at.mode);

    EXPECT_EQ(step, stays(at.phase, Answer::lost)) << ::testing::PrintToString(at);
  }
}

TEST(TransitionTable, NeverLeavesSuccessOrAPermanentFailure) {
  for (const Situation& at : all_situations()) {
    if (at.phase != Phase::success && at.phase != Phase::failed_permanent) continue;

    const Transition step = transition(at.phase, at.event, at.standing, at.lease, at.mode);

    EXPECT_EQ(step.to, at.phase) << ::testing::PrintToString(at);
    EXPECT_EQ(step.fence, FenceStep::keep) << ::testing::PrintToString(at);
    EXPECT_EQ(step.owner, OwnerStep::keep) << ::testing::PrintToString(at);
  }
}

TEST(TransitionTable, RaisesTheFenceWheneverTheOwnerChangesButForAnIssuerWhoOwnsNoTurn) {
  for (const Situation& at : all_situations()) {
    if (at.event == Event::issue) continue;
    const Transition step = transition(at.phase, at.event, at.standing, at.lease, at.mode);

    EXPECT_EQ(step.owner == OwnerStep::caller, step.fence != FenceStep::keep)
        << ::testing::PrintToString(at);
  }
}

TEST(TransitionTable, NeverStartsAHandlerWhileAnotherLeaseRunsOrAnOutcomeIsUnknown) {
  for (const Situation& at : all_situations()) {
    const bool blocked = at.phase == Phase::uncertain ||
                         (at.phase == Phase::processing && at.standing == Standing::other &&
                          (at.lease == LeaseStatus::running || at.mode == RecordMode::hold));
    if (!blocked) continue;

    const Transition step = transition(at.phase, at.event, at.standing, at.lease, at.mode);

    EXPECT_NE(step.answer, Answer::acquired) << ::testing::PrintToString(at);
  }
}

TEST(TransitionTable, NeverMakesARecordAbsentNorIssuedBySomethingElseThanIssue) {
  for (const Situation& at : all_situations()) {
    const Transition step = transition(at.phase, at.event, at.standing, at.lease, at.mode);

    EXPECT_TRUE(step.to == at.phase || (step.to != Phase::absent &&
                                        (step.to != Phase::issued || at.event == Event::issue)))
        << ::testing::PrintToString(at);
  }
}

static_assert(transition(Phase::absent, Event::begin, Standing::other, LeaseStatus::running,
                         RecordMode::take_over)
                      .fence == FenceStep::first,
              "the table can be asked while compiling");

}  // namespace
}  // namespace idempotency
