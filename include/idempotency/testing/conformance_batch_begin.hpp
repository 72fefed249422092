#pragma once

// What batches of messages rely on when their operations are begun at once.

#include <array>
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "idempotency/testing/conformance_concurrency.hpp"
#include "idempotency/testing/conformance_fixture.hpp"

namespace idempotency {
inline namespace v0 {
namespace testing {

/// What became of each request; each must have been answered.
template <class StoreT>
[[nodiscard]] std::vector<BeginOutcome> begun(StoreT& store,
                                              const std::vector<BeginRequest>& requests) {
  std::vector<BeginOutcome> outcomes;
  for (std::optional<BeginOutcome>& outcome : store.begin_many(requests)) {
    if (!outcome) throw std::runtime_error("the store left a request to be made by itself");
    outcomes.push_back(*std::move(outcome));
  }
  return outcomes;
}

/// The rules of a `BatchBeginStore`.
template <class FixtureT>
class BatchBeginStoreConformance : public ConformanceTest<FixtureT> {
  static_assert(BatchBeginStore<typename ConformanceTest<FixtureT>::StoreT>,
                "idempotency: BatchBeginStoreConformance is for stores that satisfy "
                "idempotency::BatchBeginStore.");

 protected:
  [[nodiscard]] BeginRequest request(const std::string& value, const CallerOptions& options = {}) {
    CallerOptions own = options;
    own.key = this->key(value);
    return this->caller(own).request();
  }
};

TYPED_TEST_SUITE_P(BatchBeginStoreConformance);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(BatchBeginStoreConformance);

TYPED_TEST_P(BatchBeginStoreConformance, BeginsEachRecordAsItsOwnRequestSays) {
  const std::vector<BeginRequest> requests{this->request("b", {.mode = RecordMode::hold,
                                                               .lease = std::chrono::hours{2},
                                                               .fingerprint = Fingerprint::of("b"),
                                                               .trace = "message-b"}),
                                           this->request("a", {.lease = std::chrono::hours{1}})};

  const std::vector<BeginOutcome> outcomes = begun(this->store(), requests);

  EXPECT_EQ(outcomes, (std::vector<BeginOutcome>{acquired(1, 1), acquired(1, 1)}));
  const Record second = this->record(requests[1].key);
  const Record first = this->record(requests[0].key);
  EXPECT_EQ(first.ownership, (Ownership{requests[0].owner, 1}));
  EXPECT_EQ(first.mode, RecordMode::hold);
  EXPECT_EQ(first.fingerprint, requests[0].fingerprint->current());
  EXPECT_EQ(first.trace, "message-b");
  EXPECT_EQ(second.ownership, (Ownership{requests[1].owner, 1}));
  EXPECT_EQ(second.mode, RecordMode::take_over);
  EXPECT_FALSE(second.fingerprint);
  EXPECT_EQ(second.trace, "");
  EXPECT_EQ(*first.lease_until - *second.lease_until, std::chrono::hours{1});
}

TYPED_TEST_P(BatchBeginStoreConformance, AnswersInTheOrderOfTheRequestsWhateverTheyMeet) {
  auto run_out = this->owner({.key = this->key("c-run-out"), .lease = this->short_lease});
  auto held = this->owner(
      {.key = this->key("a-held"), .mode = RecordMode::hold, .lease = this->short_lease});
  auto done = this->owner({.key = this->key("d-done"), .fingerprint = Fingerprint::of("one")});
  ASSERT_EQ(done.complete("receipt"), WriteOutcome::stored);
  auto failed = this->owner({.key = this->key("b-failed")});
  ASSERT_EQ(failed.fail(permanent_failure()), WriteOutcome::stored);
  auto released = this->owner({.key = this->key("e-released")});
  ASSERT_EQ(released.release(), ReleaseOutcome::released);
  auto running = this->owner({.key = this->key("f-running")});
  auto doubtful = this->owner({.key = this->key("0-doubtful")});
  ASSERT_EQ(doubtful.doubt(), WriteOutcome::stored);
  this->advance(this->short_lease + this->tolerance);

  const std::vector<BeginOutcome> outcomes =
      begun(this->store(),
            std::vector<BeginRequest>{
                this->request("f-running"), this->request("e-released"), this->request("new"),
                this->request("d-done", {.fingerprint = Fingerprint::of("one")}),
                this->request("d-done", {.fingerprint = Fingerprint::of("two")}),
                this->request("c-run-out"), this->request("b-failed"), this->request("a-held"),
                this->request("0-doubtful")});

  ASSERT_EQ(outcomes.size(), 9U);
  EXPECT_TRUE(is<InProgress>(outcomes[0]));
  EXPECT_EQ(outcomes[1], acquired(2, 2));
  EXPECT_EQ(outcomes[2], acquired(1, 1));
  EXPECT_TRUE(replays(outcomes[3], "receipt"));
  EXPECT_TRUE(is<Mismatch>(outcomes[4]));
  EXPECT_EQ(outcomes[5], acquired(2, 2));
  EXPECT_TRUE(replays(outcomes[6], permanent_failure()));
  EXPECT_TRUE(is<Uncertain>(outcomes[7]));
  EXPECT_TRUE(is<Uncertain>(outcomes[8]));
  EXPECT_EQ(this->record(held.key()).state, RecordState::uncertain);
  EXPECT_EQ(this->record(running.key()).ownership, running.by());
  EXPECT_EQ(run_out.complete(), WriteOutcome::lost);
}

TYPED_TEST_P(BatchBeginStoreConformance, JudgesTheRequestsOfOneKeyOneAfterTheOther) {
  const std::vector<BeginRequest> requests{this->request("same"), this->request("other"),
                                           this->request("same")};

  const std::vector<BeginOutcome> outcomes = begun(this->store(), requests);

  ASSERT_EQ(outcomes.size(), 3U);
  EXPECT_EQ(outcomes[0], acquired(1, 1));
  EXPECT_EQ(outcomes[1], acquired(1, 1));
  EXPECT_TRUE(is<InProgress>(outcomes[2]));
  EXPECT_EQ(this->record(this->key("same")).ownership.owner, requests[0].owner);
}

TYPED_TEST_P(BatchBeginStoreConformance, MayBeRepeatedWithTheSameTokens) {
  const std::vector<BeginRequest> requests{this->request("1", {.lease = std::chrono::seconds{10}}),
                                           this->request("2", {.lease = std::chrono::seconds{10}})};
  const std::vector<BeginOutcome> first = begun(this->store(), requests);
  this->advance(this->short_lease);

  const std::vector<BeginOutcome> again = begun(this->store(), requests);

  EXPECT_EQ(first, (std::vector<BeginOutcome>{acquired(1, 1), acquired(1, 1)}));
  EXPECT_EQ(again, first);
  for (const BeginRequest& request : requests) {
    EXPECT_EQ(this->record(request.key).ownership, (Ownership{request.owner, 1}));
    const BeginOutcome other = this->caller({.key = request.key}).begin();
    ASSERT_TRUE(is<InProgress>(other));
    EXPECT_GT(std::get<InProgress>(other).lease_remaining,
              std::chrono::seconds{10} - this->short_lease)
        << "the lease is counted anew";
  }
}

TYPED_TEST_P(BatchBeginStoreConformance, BeginsManyAtOnce) {
  constexpr std::size_t count = 600;
  std::vector<BeginRequest> requests;
  for (std::size_t number = 0; number < count; ++number)
    requests.push_back(this->request(std::to_string(number)));

  const std::vector<BeginOutcome> outcomes = begun(this->store(), requests);

  EXPECT_EQ(outcomes, std::vector<BeginOutcome>(count, acquired(1, 1)));
  for (const std::size_t number : {std::size_t{0}, count / 2, count - 1}) {
    EXPECT_EQ(this->record(requests[number].key).ownership.owner, requests[number].owner);
  }
}

TYPED_TEST_P(BatchBeginStoreConformance, BeginsNothingWhenAskedForNothing) {
  EXPECT_EQ(begun(this->store(), std::vector<BeginRequest>{}), std::vector<BeginOutcome>{});
}

TYPED_TEST_P(BatchBeginStoreConformance, GivesEachOfTheSameKeysToOneOfManyBatches) {
  constexpr std::size_t count = 12;
  for (int round = 0; round < concurrent_rounds; ++round) {
    std::array<std::vector<BeginRequest>, concurrent_callers> batches;
    for (std::size_t number = 0; number < batches.size(); ++number) {
      for (std::size_t place = 0; place < count; ++place) {
        const std::size_t value = number % 2 == 0 ? place : count - 1 - place;
        batches[number].push_back(
            this->request(std::to_string(round) + '-' + std::to_string(value)));
      }
    }
    std::array<std::vector<BeginOutcome>, concurrent_callers> outcomes;

    on_threads(batches.size(),
               [&](std::size_t index) { outcomes[index] = begun(this->store(), batches[index]); });

    std::size_t let_in = 0;
    for (std::size_t number = 0; number < batches.size(); ++number) {
      ASSERT_EQ(outcomes[number].size(), count);
      for (std::size_t place = 0; place < count; ++place) {
        const bool owns = this->record(batches[number][place].key).ownership.owner ==
                          batches[number][place].owner;
        ASSERT_EQ(outcomes[number][place] == acquired(1, 1), owns) << "round " << round;
        ASSERT_TRUE(owns || is<InProgress>(outcomes[number][place])) << "round " << round;
        let_in += owns ? 1 : 0;
      }
    }
    ASSERT_EQ(let_in, count) << "round " << round;
  }
}

REGISTER_TYPED_TEST_SUITE_P(BatchBeginStoreConformance, BeginsEachRecordAsItsOwnRequestSays,
                            AnswersInTheOrderOfTheRequestsWhateverTheyMeet,
                            JudgesTheRequestsOfOneKeyOneAfterTheOther,
                            MayBeRepeatedWithTheSameTokens, BeginsManyAtOnce,
                            BeginsNothingWhenAskedForNothing,
                            GivesEachOfTheSameKeysToOneOfManyBatches);

}  // namespace testing
}  // namespace v0
}  // namespace idempotency
