#include "idempotency/patterns/saga_progress.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "idempotency/testing/saga_printers.hpp"

namespace idempotency {
namespace {

using Outcome = SagaOutcome;
using State = SagaState;

constexpr std::array all_states{State::running,        State::compensating,
                                State::finished,       State::compensated,
                                State::parked_running, State::parked_compensating};
constexpr std::array all_outcomes{Outcome::done,      Outcome::failed, Outcome::retryable,
                                  Outcome::unsettled, Outcome::busy,   Outcome::unworkable};
constexpr SagaLimits limits{.steps = 3, .max_attempts = 4};

struct Arrow {
  State from;
  Outcome outcome;
  SagaProgress to;
};

// From the middle step, at the first try, with run 1.
constexpr std::array arrows{
    Arrow{State::running, Outcome::done, {State::running, 2, 0, 0}},
    Arrow{State::running, Outcome::failed, {State::compensating, 1, 0, 1}},
    Arrow{State::running, Outcome::retryable, {State::running, 1, 1, 1}},
    Arrow{State::running, Outcome::unsettled, {State::running, 1, 1, 0}},
    Arrow{State::running, Outcome::busy, {State::running, 1, 0, 0}},
    Arrow{State::running, Outcome::unworkable, {State::parked_running, 1, 0, 0}},
    Arrow{State::compensating,
          Outcome::done,
          {State::compensating, 0, 0, SagaProgress::record_must_tell}},
    Arrow{State::compensating, Outcome::failed, {State::parked_compensating, 1, 0, 0}},
    Arrow{State::compensating, Outcome::retryable, {State::compensating, 1, 1, 0}},
    Arrow{State::compensating, Outcome::unsettled, {State::compensating, 1, 1, 0}},
    Arrow{State::compensating, Outcome::busy, {State::compensating, 1, 0, 0}},
    Arrow{State::compensating, Outcome::unworkable, {State::parked_compensating, 1, 0, 0}},
};

TEST(SagaTransition, LeadsFromEveryStateByEveryOutcomeAsTheTableSays) {
  std::size_t asked = 0;
  for (const State state : all_states) {
    for (const Outcome outcome : all_outcomes) {
      const SagaProgress from{state, 1, 0, 0};
      SagaProgress expected = from;  // what ended or is parked is moved by no worker
      for (const Arrow& arrow : arrows) {
        if (arrow.from == state && arrow.outcome == outcome) expected = arrow.to;
      }

      const SagaProgress to = saga_transition(from, {outcome, 1}, limits);

      EXPECT_EQ(to, expected) << static_cast<int>(state) << ' ' << static_cast<int>(outcome);
      ++asked;
    }
  }
  EXPECT_EQ(asked, all_states.size() * all_outcomes.size());
}

TEST(SagaTransition, EndsBehindTheLastStepOfEitherDirection) {
  const SagaProgress last{State::running, 2, 3, 3};
  const SagaProgress first{State::compensating, 0, 3, 1};

  EXPECT_EQ(saga_transition(last, {Outcome::done}, limits),
            (SagaProgress{State::finished, 3, 0, 0}));
  EXPECT_EQ(saga_transition(first, {Outcome::done}, limits),
            (SagaProgress{State::compensated, 0, 0, 0}));
}

TEST(SagaTransition, GivesAnActionUpAtItsLastTryWhenEveryRunIsAccountedFor) {
  SagaProgress progress;

  for (std::uint32_t run = 1; run < limits.max_attempts; ++run) {
    progress = saga_transition(progress, {Outcome::retryable, run}, limits);
    EXPECT_EQ(progress, (SagaProgress{State::running, 0, run, run}));
  }
  progress = saga_transition(progress, {Outcome::retryable, limits.max_attempts}, limits);

  EXPECT_EQ(progress, (SagaProgress{State::compensating, 0, 0, limits.max_attempts}));
}

// Run 2 fell silent: its effect may stand, whatever the later ones say of themselves.
TEST(SagaTransition, ParksInsteadOfGivingUpWhenARunFellSilent) {
  SagaProgress progress = saga_transition({}, {Outcome::retryable, 1}, limits);

  for (const std::uint32_t run : {3U, 4U, 5U})
    progress = saga_transition(progress, {Outcome::retryable, run}, limits);

  EXPECT_EQ(progress, (SagaProgress{State::parked_running, 0, 4, 1}));
}

TEST(SagaTransition, GoesNowhereWhileAStepIsNotSettled) {
  for (const State state : {State::running, State::compensating}) {
    for (const Outcome outcome : {Outcome::unsettled, Outcome::busy}) {
      SagaProgress progress{state, 1, 0, 0};
      for (std::uint32_t tries = 1; tries <= 2 * limits.max_attempts; ++tries) {
        progress = saga_transition(progress, {outcome}, limits);

        EXPECT_EQ(progress.step, 1U);
        const bool parked = outcome == Outcome::unsettled && tries >= limits.max_attempts;
        EXPECT_EQ(is_parked(progress.state), parked) << tries;
        EXPECT_FALSE(is_ended(progress.state));
      }
    }
  }
}

TEST(SagaTransition, ParksACompensationAfterItsLastTry) {
  SagaProgress progress{State::compensating, 1, 0, 0};

  for (std::uint32_t tries = 0; tries < limits.max_attempts; ++tries)
    progress = saga_transition(progress, {Outcome::retryable, tries + 1}, limits);

  EXPECT_EQ(progress, (SagaProgress{State::parked_compensating, 1, 4, 0}));
}

TEST(SagaTransition, ReachesAnEndFromEverywhereHoweverTheTriesEnd) {
  std::vector<SagaProgress> open{SagaProgress{}};
  std::size_t ends = 0;
  std::vector<SagaProgress> seen;
  while (!open.empty()) {
    const SagaProgress from = open.back();
    open.pop_back();
    if (std::find(seen.begin(), seen.end(), from) != seen.end()) continue;
    seen.push_back(from);
    if (is_ended(from.state) || is_parked(from.state)) {
      ++ends;
      continue;
    }
    for (const Outcome outcome : all_outcomes) {
      if (outcome == Outcome::busy) continue;  // the only one that may come for ever
      const SagaProgress to = saga_transition(from, {outcome, from.known_runs + 1}, limits);
      EXPECT_NE(to, from);
      open.push_back(to);
    }
  }
  EXPECT_GT(ends, 4U);
}

TEST(SagaDecision, TriesAgainWhatIsParkedInTheDirectionThatItHad) {
  EXPECT_EQ(saga_decided({State::parked_running, 1, 4, 2}, SagaDecision::resume, 3),
            (SagaProgress{State::running, 1, 0, 2}));
  EXPECT_EQ(saga_decided({State::parked_compensating, 1, 4, 0}, SagaDecision::resume, 3),
            (SagaProgress{State::compensating, 1, 0, 0}));
}

TEST(SagaDecision, SkipsOneStepInTheDirectionThatItHad) {
  EXPECT_EQ(saga_decided({State::parked_running, 1, 4, 2}, SagaDecision::skip, 3),
            (SagaProgress{State::running, 2, 0, 0}));
  EXPECT_EQ(saga_decided({State::parked_running, 2, 4, 2}, SagaDecision::skip, 3),
            (SagaProgress{State::finished, 3, 0, 0}));
  EXPECT_EQ(saga_decided({State::parked_compensating, 1, 4, 0}, SagaDecision::skip, 3),
            (SagaProgress{State::compensating, 0, 0, SagaProgress::record_must_tell}));
  EXPECT_EQ(saga_decided({State::parked_compensating, 0, 4, 0}, SagaDecision::skip, 3),
            (SagaProgress{State::compensated, 0, 0, 0}));
}

TEST(SagaDecision, GivesAnActionUpInEitherDirection) {
  const SagaProgress given_up{State::compensating, 1, 0, SagaProgress::vouched_for};

  EXPECT_EQ(saga_decided({State::parked_running, 1, 4, 2}, SagaDecision::give_up, 3), given_up);
  EXPECT_EQ(saga_decided({State::parked_compensating, 1, 4, 2}, SagaDecision::give_up, 3),
            given_up);
}

TEST(SagaDecision, MovesNothingThatIsNotParked) {
  for (const State state :
       {State::running, State::compensating, State::finished, State::compensated}) {
    const SagaProgress progress{state, 1, 1, 1};

    EXPECT_EQ(saga_decided(progress, SagaDecision::resume, 3), progress);
    EXPECT_EQ(saga_decided(progress, SagaDecision::skip, 3), progress);
    EXPECT_EQ(saga_decided(progress, SagaDecision::give_up, 3), progress);
  }
}

}  // namespace
}  // namespace idempotency
