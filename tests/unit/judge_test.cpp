#include "idempotency/detail/judge.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <string_view>
#include <vector>

#include "idempotency/testing/printers.hpp"
#include "support/error_of.hpp"

namespace idempotency {
namespace {

using namespace std::chrono_literals;
using detail::is_as_seen;
using detail::judge_begin;
using detail::judge_resolve;
using detail::RecordFacts;
using testing_support::code_of;

constexpr Timestamp begun{1'700'000'000'000ms};
constexpr Timestamp run_out = begun + 1s;

OwnerToken token(std::uint8_t number) { return OwnerToken(OwnerToken::Bytes{number}); }

/// A silent owner's record, as a store holds it.
RecordFacts silent() {
  return {.mode = RecordMode::hold,
          .ownership = {token(1), 1},
          .lease_until = run_out,
          .created_at = begun};
}

/// The same, as `find` gives it.
Record seen_silent() {
  return {.key = Key("payment", "order-1"),
          .mode = RecordMode::hold,
          .ownership = {token(1), 1},
          .attempt = 1,
          .created_at = begun,
          .updated_at = begun,
          .lease_until = run_out};
}

// MemoryStore and SqliteStore both judge so; only SqliteStore's file can hold such a record today.
TEST(JudgeBegin, RefusesTheKeyOfAOneTimeTokenThatWasIssued) {
  const RecordFacts issued{.state = RecordState::issued, .created_at = begun};
  const BeginRequest request{.key = Key("token", "1"), .owner = token(1)};

  EXPECT_EQ(code_of([&] { static_cast<void>(judge_begin(&issued, request, begun)); }),
            Errc::store_refused);
}

TEST(IsAsSeen, KnowsARecordThatNothingHasMoved) {
  RecordFacts doubted = silent();
  doubted.state = RecordState::uncertain;
  doubted.lease_until = detail::never;
  Record seen_doubted = seen_silent();
  seen_doubted.state = RecordState::uncertain;
  seen_doubted.lease_until.reset();

  EXPECT_TRUE(is_as_seen(silent(), seen_silent()));
  EXPECT_TRUE(is_as_seen(doubted, seen_doubted));
}

TEST(IsAsSeen, NoticesEverythingThatAnOwnerOrANewLifeMoves) {
  struct Move {
    std::string_view what;
    void (*apply)(RecordFacts&);
  };
  const std::vector<Move> moves{
      {"another life", [](RecordFacts& facts) { facts.created_at += 1ms; }},
      {"another owner", [](RecordFacts& facts) { facts.ownership.owner = token(2); }},
      {"another fence", [](RecordFacts& facts) { facts.ownership.fence = 2; }},
      {"a renewal", [](RecordFacts& facts) { facts.lease_until += 1ms; }},
      {"a lost deadline", [](RecordFacts& facts) { facts.lease_until = detail::never; }},
      {"an effect mark", [](RecordFacts& facts) { facts.effect_marked = true; }},
      {"another mode", [](RecordFacts& facts) { facts.mode = RecordMode::take_over; }},
      {"a doubt", [](RecordFacts& facts) { facts.state = RecordState::uncertain; }},
      {"a result", [](RecordFacts& facts) { facts.state = RecordState::success; }}};

  for (const Move& move : moves) {
    RecordFacts moved = silent();
    move.apply(moved);

    EXPECT_FALSE(is_as_seen(moved, seen_silent())) << move.what;
  }
}

TEST(JudgeResolve, RecognisesARepeatedResolutionByItsTokenAndTheFenceThatItLeft) {
  const Resolution resolution{.verdict = Resolution::Verdict::succeeded, .resolver = token(9)};
  RecordFacts settled = silent();
  settled.state = RecordState::success;
  settled.ownership = {token(9), 2};
  settled.lease_until = detail::never;
  RecordFacts later = settled;
  later.ownership.fence = 3;

  EXPECT_EQ(judge_resolve(&settled, seen_silent(), resolution, run_out),
            (Transition{Phase::success, Answer::stored}));
  EXPECT_EQ(judge_resolve(&later, seen_silent(), resolution, run_out).answer, Answer::lost);
}

TEST(JudgeResolve, SettlesASilentRecordWhenItsLeaseIsOverByTheStoresClock) {
  const RecordFacts facts = silent();
  const Resolution resolution{.resolver = token(9)};

  EXPECT_EQ(judge_resolve(&facts, seen_silent(), resolution, run_out - 1ms).answer, Answer::lost);
  EXPECT_EQ(judge_resolve(&facts, seen_silent(), resolution, run_out).answer, Answer::stored);
  EXPECT_EQ(judge_resolve(nullptr, seen_silent(), resolution, run_out).answer, Answer::lost);
}

}  // namespace
}  // namespace idempotency
