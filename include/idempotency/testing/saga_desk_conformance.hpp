#pragma once

// The rules that every journal of sagas keeps towards people. Fixtures are those of saga_fixture.hpp.

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

#include "idempotency/error.hpp"
#include "idempotency/patterns/saga_desk.hpp"
#include "idempotency/testing/saga_fixture.hpp"

namespace idempotency {
inline namespace v0 {
namespace testing {

template <class FixtureT>
class SagaDeskConformance : public SagaJournalTest<FixtureT> {};

TYPED_TEST_SUITE_P(SagaDeskConformance);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SagaDeskConformance);

TYPED_TEST_P(SagaDeskConformance, RefusesWhatItCannotKeepBeforeAnythingIsWritten) {
  const auto start = [&](const std::string& definition, const std::string& id,
                         const std::string& input = {}) {
    return this->code_of([&] {
      static_cast<void>(this->journal().create(
          {.name = {definition, id}, .plan = "p", .steps = 1, .input = input}));
    });
  };
  const SagaRow parked = this->park("a");
  const auto decide = [&](const std::string& who, const std::string& why) {
    SagaVerdict verdict = this->verdict(SagaDecision::skip);
    verdict.who = who;
    verdict.why = why;
    return this->code_of([&] { static_cast<void>(this->journal().decide(parked, verdict)); });
  };

  EXPECT_EQ(start("", "a"), Errc::invalid_argument);
  EXPECT_EQ(start("order", ""), Errc::invalid_argument);
  EXPECT_EQ(start(std::string(60, 'x'), "b"), Errc::too_large);
  EXPECT_EQ(start("order", std::string(129, 'x')), Errc::too_large);
  EXPECT_EQ(start("order", "b", std::string(SagaStart::max_input_bytes + 1, 'x')), Errc::too_large);
  EXPECT_EQ(this->journal().find({"order", "b"}), std::nullopt);
  EXPECT_EQ(decide("", "why"), Errc::invalid_argument);
  EXPECT_EQ(decide("ann", ""), Errc::invalid_argument);
  EXPECT_EQ(decide(std::string(256, 'x'), "why"), Errc::too_large);
  EXPECT_EQ(decide("ann", std::string(1025, 'x')), Errc::too_large);
  EXPECT_EQ(this->journal().find({"order", "a"})->progress, parked.progress);
  EXPECT_TRUE(this->journal().history({"order", "a"}).empty());
}

TYPED_TEST_P(SagaDeskConformance, ListsWhatIsParkedPageByPage) {
  for (const std::string id : {"b", "d", "B", "c"})
    this->park(id);
  this->create("a");
  const auto ids = [](const std::vector<SagaRow>& rows) {
    std::vector<std::string> names;
    for (const SagaRow& row : rows)
      names.push_back(row.name.id);
    return names;
  };

  const auto first = this->journal().list_parked("order", "", 3);
  const auto second = this->journal().list_parked("order", "c", 3);

  EXPECT_EQ(ids(first), (std::vector<std::string>{"B", "b", "c"}));
  EXPECT_EQ(ids(second), (std::vector<std::string>{"d"}));
  EXPECT_EQ(first.at(0).note, "the bank is silent");
  EXPECT_EQ(first.at(0).due_at, std::nullopt);
  EXPECT_TRUE(this->journal().list_parked("refund", "", 3).empty());
}

TYPED_TEST_P(SagaDeskConformance, WorksOnNothingThatIsParkedUntilItIsResumed) {
  this->park("a");
  SagaDesk desk(this->journal(), "order");
  this->pass(std::chrono::hours{24});
  ASSERT_EQ(this->claim(), std::nullopt);

  const SagaRow seen = desk.list_parked(10).at(0);
  const WriteOutcome resumed = desk.resume(seen, "ann", "the bank has answered");

  EXPECT_EQ(resumed, WriteOutcome::stored);
  EXPECT_EQ(this->claim().value().progress, (SagaProgress{SagaState::running, 1, 0, 2}));
  const auto lines = desk.history("a");
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0].decision, SagaDecision::resume);
  EXPECT_EQ(lines[0].about, seen.progress);
  EXPECT_EQ(lines[0].who, "ann");
  EXPECT_EQ(lines[0].why, "the bank has answered");
  EXPECT_GE(lines[0].at, seen.created_at);
}

TYPED_TEST_P(SagaDeskConformance, SkipsAStepAndEndsBehindTheLast) {
  const SagaRow middle = this->park("a");
  const SagaRow last = this->park("b", {SagaState::parked_compensating, 0, 4, 0});
  SagaDesk desk(this->journal(), "order");

  EXPECT_EQ(desk.skip(middle, "ann", "done by hand"), WriteOutcome::stored);
  EXPECT_EQ(desk.skip(last, "ann", "done by hand"), WriteOutcome::stored);

  EXPECT_EQ(desk.find("a")->progress, (SagaProgress{SagaState::running, 2, 0, 0}));
  EXPECT_EQ(desk.find("b")->progress, (SagaProgress{SagaState::compensated, 0, 0, 0}));
  EXPECT_EQ(desk.find("b")->due_at, std::nullopt);
  EXPECT_EQ(desk.history("b").at(0).decision, SagaDecision::skip);
}

TYPED_TEST_P(SagaDeskConformance, GivesAnActionUpOnAPersonsWord) {
  const SagaRow seen = this->park("a");
  SagaDesk desk(this->journal(), "order");

  const WriteOutcome given_up = desk.give_up(seen, "ann", "the bank knows nothing of it");

  EXPECT_EQ(given_up, WriteOutcome::stored);
  EXPECT_EQ(this->claim().value().progress,
            (SagaProgress{SagaState::compensating, 1, 0, SagaProgress::vouched_for}));
  EXPECT_EQ(desk.history("a").at(0).decision, SagaDecision::give_up);
}

TYPED_TEST_P(SagaDeskConformance, DecidesNothingAboutASagaThatHasMoved) {
  const SagaRow seen = this->park("a");
  SagaDesk desk(this->journal(), "order");
  ASSERT_EQ(desk.skip(seen, "ann", "done by hand"), WriteOutcome::stored);

  EXPECT_EQ(desk.skip(seen, "bob", "done by hand"), WriteOutcome::lost);
  EXPECT_EQ(this->journal().decide(seen, this->verdict(SagaDecision::skip)), WriteOutcome::lost);

  EXPECT_EQ(desk.find("a")->progress, (SagaProgress{SagaState::running, 2, 0, 0}));
  EXPECT_EQ(desk.history("a").size(), 1U);
  EXPECT_EQ(desk.resume(this->create("b"), "ann", "why"), WriteOutcome::lost);
}

// Somebody else has resumed it, and it went one step further.
TYPED_TEST_P(SagaDeskConformance, DecidesNothingAboutASagaThatIsParkedElsewhereByNow) {
  const SagaRow seen = this->park("a");
  SagaDesk desk(this->journal(), "order");
  ASSERT_EQ(desk.resume(seen, "bob", "it works again"), WriteOutcome::stored);
  const auto own = this->claim("a");
  const SagaProgress further{SagaState::parked_running, 2, 4, 0};
  ASSERT_TRUE(this->journal().advance(own.value(), {.to = further}).has_value());

  EXPECT_EQ(desk.skip(seen, "ann", "done by hand"), WriteOutcome::lost);

  EXPECT_EQ(desk.find("a")->progress, further);
  EXPECT_EQ(desk.history("a").size(), 1U);
}

// The worker notes its alert behind what the person has seen.
TYPED_TEST_P(SagaDeskConformance, DecidesAboutAParkedSagaThatOnlyHasBeenWrittenAgain) {
  const SagaRow seen = this->park("a");
  const auto noted =
      this->journal().advance(seen, {.to = seen.progress, .note = "the alert has been sent"});
  ASSERT_TRUE(noted.has_value());
  SagaDesk desk(this->journal(), "order");

  EXPECT_EQ(this->journal().decide(seen, this->verdict(SagaDecision::skip)), WriteOutcome::lost);
  EXPECT_EQ(desk.skip(seen, "ann", "done by hand"), WriteOutcome::stored);
}

TYPED_TEST_P(SagaDeskConformance, CleansWhatEndedLongAgoAndNothingElse) {
  for (const std::string id : {"a", "b", "c"}) {
    this->create(id);
    const auto own = this->claim(id);
    static_cast<void>(this->journal().advance(
        own.value(), {.to = {id == "b" ? SagaState::compensated : SagaState::finished, 3, 0, 0}}));
  }
  this->park("d");
  this->create("e");
  const auto clean = [&](std::size_t limit) {
    return this->journal().clean("order", std::chrono::milliseconds{1'000'000}, limit);
  };

  this->pass(std::chrono::milliseconds{900'000});
  EXPECT_EQ(clean(10), 0U);
  this->pass(std::chrono::milliseconds{100'000});
  EXPECT_EQ(this->journal().clean("refund", std::chrono::milliseconds{1}, 10), 0U);
  EXPECT_EQ(clean(2), 2U);
  EXPECT_EQ(clean(10), 1U);
  EXPECT_EQ(clean(10), 0U);

  EXPECT_EQ(this->journal().find({"order", "a"}), std::nullopt);
  EXPECT_TRUE(this->journal().find({"order", "d"}).has_value());
  EXPECT_TRUE(this->journal().find({"order", "e"}).has_value());
}

TYPED_TEST_P(SagaDeskConformance, LetsOneOfManyPeopleDecide) {
  constexpr std::size_t rivals = 8;
  for (int round = 0; round < 5; ++round) {
    const std::string id = std::to_string(round);
    const SagaRow seen = this->park(id);
    std::atomic<int> stored{0};

    this->together(rivals, [&](std::size_t rival) {
      SagaDesk desk(this->journal(), "order");
      const auto decided = rival % 2 == 0 ? desk.skip(seen, "ann", "by hand")
                                          : desk.resume(seen, "bob", "it works again");
      if (decided == WriteOutcome::stored) ++stored;
    });

    EXPECT_EQ(stored, 1) << "round " << round;
    EXPECT_EQ(this->journal().history({"order", id}).size(), 1U) << "round " << round;
  }
}

REGISTER_TYPED_TEST_SUITE_P(SagaDeskConformance, RefusesWhatItCannotKeepBeforeAnythingIsWritten,
                            ListsWhatIsParkedPageByPage, WorksOnNothingThatIsParkedUntilItIsResumed,
                            SkipsAStepAndEndsBehindTheLast, GivesAnActionUpOnAPersonsWord,
                            DecidesNothingAboutASagaThatHasMoved,
                            DecidesNothingAboutASagaThatIsParkedElsewhereByNow,
                            DecidesAboutAParkedSagaThatOnlyHasBeenWrittenAgain,
                            CleansWhatEndedLongAgoAndNothingElse, LetsOneOfManyPeopleDecide);

}  // namespace testing
}  // namespace v0
}  // namespace idempotency
