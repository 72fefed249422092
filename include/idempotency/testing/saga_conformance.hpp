#pragma once

// The rules that every journal of sagas keeps towards its workers. Fixtures are those of saga_fixture.hpp.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "idempotency/patterns/saga_journal.hpp"
#include "idempotency/testing/saga_fixture.hpp"

namespace idempotency {
inline namespace v0 {
namespace testing {

template <class FixtureT>
class SagaConformance : public SagaJournalTest<FixtureT> {};

TYPED_TEST_SUITE_P(SagaConformance);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SagaConformance);

TYPED_TEST_P(SagaConformance, MakesASagaOnceAndKeepsWhatItWasFirstStartedWith) {
  const SagaRow first = this->create("a");
  const SagaRow again = this->journal().create(
      {.name = {"order", "a"}, .plan = "plan-2", .steps = 9, .input = "other"});

  EXPECT_EQ(first.name, (SagaName{"order", "a"}));
  EXPECT_EQ(first.progress, SagaProgress{});
  EXPECT_EQ(first.due_at, first.created_at);
  EXPECT_GE(first.read_at, first.created_at);
  EXPECT_EQ(again.input, "input of a");
  EXPECT_EQ(again.plan, "plan-1");
  EXPECT_EQ(again.steps, 3U);
  EXPECT_EQ(again.claim, first.claim);
}

TYPED_TEST_P(SagaConformance, GivesASagaToOneWorkerUntilItsLeaseHasRunOut) {
  this->create("a");

  const auto first = this->claim();
  const auto rival = this->claim();
  this->pass(this->lease - std::chrono::milliseconds{10'000});
  const auto early = this->claim();
  this->pass(std::chrono::milliseconds{10'000});
  const auto next = this->claim();

  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(rival, std::nullopt);
  EXPECT_EQ(early, std::nullopt);
  ASSERT_TRUE(next.has_value());
  EXPECT_EQ(next->input, "input of a");
  EXPECT_GT(next->claim.fence, first->claim.fence);
}

TYPED_TEST_P(SagaConformance, ChangesNothingForAWorkerThatHasLostItsLease) {
  this->create("a");
  const auto late = this->claim();
  this->pass(this->lease);
  const auto next = this->claim();

  const auto refused =
      this->journal().advance(late.value(), {.to = {SagaState::running, 1, 0, 0}, .note = "late"});

  EXPECT_EQ(refused, std::nullopt);
  EXPECT_EQ(this->journal().find({"order", "a"})->claim, next.value().claim);
  EXPECT_EQ(this->journal().find({"order", "a"})->progress, SagaProgress{});
  const auto moved = this->journal().advance(
      *next, {.to = {SagaState::running, 1, 0, 0}, .due_in = std::chrono::milliseconds{0}});
  EXPECT_TRUE(moved.has_value());
}

TYPED_TEST_P(SagaConformance, KeepsWhatAWorkerFoundOut) {
  this->create("a");
  const SagaProgress to{SagaState::compensating, 2, 1, SagaProgress::record_must_tell};
  const auto own = this->claim();

  const auto moved = this->journal().advance(
      own.value(),
      {.to = to, .note = std::string("no\0money", 8), .due_in = std::chrono::milliseconds{5'000}});

  ASSERT_TRUE(moved.has_value());
  EXPECT_EQ(moved->progress, to);
  EXPECT_EQ(moved->note, std::string("no\0money", 8));
  EXPECT_EQ(moved->claim, (Ownership{own->claim.owner, own->claim.fence + 1}));
  EXPECT_EQ(moved->due_at, moved->updated_at + std::chrono::milliseconds{5'000});
  EXPECT_EQ(this->claim(), std::nullopt);
  this->pass(std::chrono::milliseconds{5'000});
  EXPECT_EQ(this->claim().value().progress, to);
}

TYPED_TEST_P(SagaConformance, CountsTheWorkersThatSaidNothing) {
  this->create("a");
  static_cast<void>(this->claim());
  this->pass(this->lease);
  static_cast<void>(this->claim());
  this->pass(this->lease);

  const auto third = this->claim();
  const auto moved = this->journal().advance(
      third.value(), {.to = {SagaState::running, 1, 0, 0}, .due_in = std::chrono::milliseconds{0}});

  EXPECT_EQ(third->claims, 3U);
  EXPECT_EQ(moved.value().claims, 0U);
  EXPECT_EQ(this->claim().value().claims, 1U);
}

TYPED_TEST_P(SagaConformance, CutsANoteThatIsTooLong) {
  this->create("a");

  const auto moved =
      this->journal().advance(this->claim().value(), {.to = {}, .note = std::string(5'000, 'x')});

  EXPECT_EQ(moved.value().note, std::string(SagaChange::max_note_bytes, 'x'));
}

TYPED_TEST_P(SagaConformance, AnswersARepeatedCallAsItAnsweredTheFirst) {
  this->create("a");
  const auto own = this->claim();
  const SagaChange change{.to = {SagaState::parked_running, 1, 4, 0}, .note = "silent"};
  const auto first = this->journal().advance(own.value(), change);
  const auto again = this->journal().advance(own.value(), change);
  const SagaVerdict verdict = this->verdict(SagaDecision::resume);

  EXPECT_EQ(again.value().claim, first.value().claim);
  EXPECT_EQ(again->progress, first->progress);
  EXPECT_EQ(this->journal().decide(*first, verdict), WriteOutcome::stored);
  EXPECT_EQ(this->journal().decide(*first, verdict), WriteOutcome::stored);
  EXPECT_EQ(this->journal().history({"order", "a"}).size(), 1U);
  EXPECT_EQ(this->journal().find({"order", "a"})->claim.fence, first->claim.fence + 1);
}

TYPED_TEST_P(SagaConformance, GivesTheSagaThatHasBeenDueForLongest) {
  std::vector<std::string> claimed;
  for (const std::string id : {"c", "a", "b"}) {
    this->create(id);
    this->pass(std::chrono::milliseconds{1'000});
  }

  while (const std::optional<SagaRow> row = this->claim())
    claimed.push_back(row->name.id);

  EXPECT_EQ(claimed, (std::vector<std::string>{"c", "a", "b"}));
}

TYPED_TEST_P(SagaConformance, GivesAWorkerOnlySagasOfItsDefinitionAndPlan) {
  this->create("a", "order", "plan-2");
  this->create("a", "refund", "plan-1");

  EXPECT_EQ(this->claim(), std::nullopt);
  EXPECT_EQ(this->claim("a"), std::nullopt);
  EXPECT_EQ(this->claim("nobody"), std::nullopt);
  EXPECT_TRUE(this->journal().claim(this->any("order", "plan-2")).has_value());
  EXPECT_TRUE(this->journal().claim(this->any("refund", "plan-1")).has_value());
}

TYPED_TEST_P(SagaConformance, GivesASagaByItsName) {
  this->create("a");
  this->create("b");

  EXPECT_EQ(this->claim("b").value().name.id, "b");
  EXPECT_EQ(this->claim("b"), std::nullopt);
}

TYPED_TEST_P(SagaConformance, TellsSagasApartByTheirBytes) {
  const std::array ids{std::string("a"),       std::string("A"),
                       std::string("a "),      std::string("a\0", 2),
                       std::string("\xff", 1), std::string(SagaName::max_id_bytes, 'x')};
  for (const std::string& id : ids)
    this->create(id);

  for (const std::string& id : ids) {
    const std::optional<SagaRow> row = this->journal().find({"order", id});
    ASSERT_TRUE(row.has_value());
    EXPECT_EQ(row->name.id, id);
    EXPECT_EQ(row->input, "input of " + id);
  }
  EXPECT_EQ(this->journal().find({"order", "b"}), std::nullopt);
}

TYPED_TEST_P(SagaConformance, KeepsItsInputAsBytes) {
  std::string large(SagaStart::max_input_bytes, '\0');
  large.back() = 'x';

  for (const std::string& input : {std::string(), std::string("\0\xff", 2), large}) {
    const std::string id = std::to_string(input.size());
    static_cast<void>(
        this->journal().create({.name = {"order", id}, .plan = "p", .steps = 1, .input = input}));
    EXPECT_EQ(this->journal().find({"order", id})->input, input);
  }
}

TYPED_TEST_P(SagaConformance, GivesEachSagaToOneOfManyWorkers) {
  constexpr int sagas = 40;
  constexpr std::size_t workers = 8;
  for (int number = 0; number < sagas; ++number)
    this->create(std::to_string(number));
  std::mutex mutex;
  std::map<std::string, int> claimed;

  this->together(workers, [&](std::size_t /*worker*/) {
    while (const std::optional<SagaRow> row = this->claim()) {
      const std::scoped_lock lock(mutex);
      ++claimed[row->name.id];
    }
  });

  EXPECT_EQ(claimed.size(), static_cast<std::size_t>(sagas));
  for (const auto& [id, times] : claimed)
    EXPECT_EQ(times, 1) << id;
}

TYPED_TEST_P(SagaConformance, MakesASagaOnceHoweverManyStartIt) {
  constexpr std::size_t rivals = 8;
  std::array<std::string, rivals> inputs;

  this->together(rivals, [&](std::size_t rival) {
    inputs[rival] =
        this->journal()
            .create(
                {.name = {"order", "a"}, .plan = "p", .steps = 1, .input = std::to_string(rival)})
            .input;
  });

  EXPECT_EQ(std::count(inputs.begin(), inputs.end(), inputs[0]), std::ptrdiff_t{rivals});
}

REGISTER_TYPED_TEST_SUITE_P(SagaConformance, CountsTheWorkersThatSaidNothing,
                            MakesASagaOnceAndKeepsWhatItWasFirstStartedWith,
                            GivesASagaToOneWorkerUntilItsLeaseHasRunOut,
                            ChangesNothingForAWorkerThatHasLostItsLease, KeepsWhatAWorkerFoundOut,
                            CutsANoteThatIsTooLong, AnswersARepeatedCallAsItAnsweredTheFirst,
                            GivesTheSagaThatHasBeenDueForLongest,
                            GivesAWorkerOnlySagasOfItsDefinitionAndPlan, GivesASagaByItsName,
                            TellsSagasApartByTheirBytes, KeepsItsInputAsBytes,
                            GivesEachSagaToOneOfManyWorkers, MakesASagaOnceHoweverManyStartIt);

}  // namespace testing
}  // namespace v0
}  // namespace idempotency
