// What becomes of a handler that has run when its result, a step or the store gets in the way: it is not run again.
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <stdexcept>
#include <string>

#include "idempotency/codecs/json.hpp"
#include "idempotency/idempotency.hpp"
#include "idempotency/stores/memory.hpp"
#include "idempotency/testing/faulty_store.hpp"
#include "idempotency/testing/manual_clock.hpp"
#include "support/error_of.hpp"

namespace fragile_shop {

enum class Kind { cash, card };
struct Receipt {
  Kind kind = Kind::cash;
};
void to_json(nlohmann::json& json, const Receipt& receipt) {
  static const std::map<Kind, std::string> names{{Kind::cash, "cash"}};
  json["kind"] = names.at(receipt.kind);  // throws std::out_of_range for what it has forgotten
}
void from_json(const nlohmann::json& json, Receipt& receipt) {
  static const std::map<std::string, Kind> kinds{{"nothing", Kind::cash}};
  receipt.kind = kinds.at(json.at("kind").get<std::string>());
}

struct Broken {};

}  // namespace fragile_shop

template <>
struct idempotency::Codec<fragile_shop::Receipt> : idempotency::JsonCodec<fragile_shop::Receipt> {};
template <>
struct idempotency::Codec<fragile_shop::Broken> {
  static constexpr std::string_view name = "broken";
  static void encode(const fragile_shop::Broken& /*value*/, std::string& /*out*/) {
    throw std::runtime_error("a codec of the user's own");
  }
  static fragile_shop::Broken decode(ByteReader& /*in*/) { return {}; }
};

namespace idempotency {
namespace {

using namespace std::chrono_literals;
using testing::Fault;
using testing::FaultyStore;
using testing::ManualClock;
using testing_support::code_of;

// ID-33: an effect is not repeated because its result cannot be written down.
TEST(UnencodableResult, IsASuccessWithoutAResultWhateverTheCodecThrows) {
  MemoryStore store;
  IdempotencyGuard guard{store};
  int runs = 0;
  const auto by_json = [&] { return ++runs, fragile_shop::Receipt{fragile_shop::Kind::card}; };
  const auto by_hand = [&] { return ++runs, fragile_shop::Broken{}; };

  EXPECT_EQ(guard.run({.key = {"order", "1"}}, by_json).status(), RunStatus::executed);
  EXPECT_EQ(guard.run({.key = {"order", "1"}}, by_json).status(),
            RunStatus::replayed_without_result);
  EXPECT_EQ(guard.run({.key = {"order", "2"}}, by_hand).status(), RunStatus::executed);
  EXPECT_EQ(guard.run({.key = {"order", "2"}}, by_hand).status(),
            RunStatus::replayed_without_result);

  EXPECT_EQ(runs, 2);
}

TEST(UnreadableResult, IsATypedErrorAndRunsNothing) {
  MemoryStore store;
  IdempotencyGuard guard{store};
  int runs = 0;
  const auto pay = [&] { return ++runs, fragile_shop::Receipt{fragile_shop::Kind::cash}; };
  ASSERT_EQ(guard.run({.key = {"order", "1"}}, pay).status(), RunStatus::executed);

  EXPECT_EQ(code_of([&] {
              static_cast<void>(guard.run({.key = {"order", "1"}}, pay));
            }),
            Errc::codec_mismatch);

  EXPECT_EQ(runs, 1);
}

TEST(Step, GivesItsValueBackWhenItCannotBeRecorded) {
  MemoryStore store;
  IdempotencyGuard guard{store};
  int steps = 0;

  const auto result = guard.run({.key = {"order", "1"}}, [&](Execution& execution) {
    static_cast<void>(execution.step("print", [&] { return ++steps, fragile_shop::Broken{}; }));
    return 7;
  });

  EXPECT_EQ(result.status(), RunStatus::executed);
  EXPECT_EQ(steps, 1);
}

TEST(Step, IsSkippedByTheNextAttemptOfTheSameLife) {
  MemoryStore store;
  IdempotencyGuard guard{store};
  int charges = 0;
  const auto pay = [&](Execution& execution) {
    const int charge = execution.step("charge", [&] { return ++charges; });
    if (execution.attempt() == 1) throw RetryableFailure("the mail server is away");
    return charge;
  };

  EXPECT_THROW(static_cast<void>(guard.run({.key = {"order", "1"}}, pay)), RetryableFailure);
  const auto second = guard.run({.key = {"order", "1"}}, pay);

  EXPECT_EQ(second.value(), 1);
  EXPECT_EQ(charges, 1);
}

// A key that is used again after its retention is another operation: what the earlier one did is not its own.
TEST(Step, RunsAgainInAnotherLifeOfTheKey) {
  ManualClock clock;
  MemoryStore store{{.clock = &clock}};
  IdempotencyGuard guard{store};
  const auto charged = [&](int cents) {
    const Operation order{.key = {"order", "1"},
                          .fingerprint = Fingerprint::of(cents),
                          .policy = {.success_retention = 50ms}};
    return guard.run(order, [&](Execution& execution) {
      return execution.step("charge", [&] { return cents; });
    });
  };
  ASSERT_EQ(charged(100).value(), 100);
  clock.advance(51ms);

  const auto next_life = charged(999);

  EXPECT_EQ(next_life.status(), RunStatus::executed);
  EXPECT_EQ(next_life.value(), 999);
}

// ID-13: a store that is full for a moment must not make the handler run again.
TEST(FullStore, IsAskedAgainToRecordWhatHasRun) {
  MemoryStore inner;
  FaultyStore store{inner};
  IdempotencyGuard guard{store, {.write_budget = 10'000ms}};
  int full = 2;
  store.on(StoreCall::complete).before([&] {
    if (full-- > 0) throw Error(Errc::store_full, "no room");
  });
  int runs = 0;

  const auto first = guard.run({.key = {"order", "1"}}, [&] { return ++runs; });
  const auto second = guard.run({.key = {"order", "1"}}, [&] { return ++runs; });

  EXPECT_EQ(first.status(), RunStatus::executed);
  EXPECT_EQ(second.status(), RunStatus::replayed);
  EXPECT_EQ(runs, 1);
}

// Two operators who decide differently are two resolutions, also when neither has named itself.
TEST(Resolution, IsAnotherOneEachTimeUnlessItIsRepeated) {
  MemoryStore store;
  const BeginRequest request{.key = Key("order", "1"), .owner = OwnerToken::generate()};
  ASSERT_EQ(store.begin(request), BeginOutcome(Acquired{}));
  ASSERT_EQ(store.doubt(request.key, {request.owner, 1}), WriteOutcome::stored);
  const Record seen = *store.find(request.key);
  const Resolution retry{.verdict = Resolution::Verdict::retry};
  const Resolution succeeded{.verdict = Resolution::Verdict::succeeded};

  EXPECT_EQ(store.resolve(seen, retry), WriteOutcome::stored);
  EXPECT_EQ(store.resolve(seen, succeeded), WriteOutcome::lost);
  EXPECT_EQ(store.resolve(seen, retry), WriteOutcome::stored);
}

}  // namespace
}  // namespace idempotency
