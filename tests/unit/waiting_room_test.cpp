#include "core/waiting_room.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "idempotency/fingerprint.hpp"

namespace idempotency::detail {
namespace {

using namespace std::chrono_literals;
using Place = WaitingRoom::Place;
using Ticket = WaitingRoom::Ticket;

const Key key("order", "7");
const std::optional<Fingerprint> none;

SteadyTime in(std::chrono::milliseconds span) { return std::chrono::steady_clock::now() + span; }

TEST(WaitingRoom, MakesTheFirstCallerTheLeader) {
  WaitingRoom room;
  Ticket first(room, key, none);
  Ticket second(room, key, none);

  EXPECT_EQ(room.enter(first), Place::leads);
  EXPECT_EQ(room.enter(second), Place::follows);
}

TEST(WaitingRoom, JoinsByKeyAndFingerprint) {
  WaitingRoom room;
  const Key other_key("order", "8");
  const std::optional<Fingerprint> one = Fingerprint::of(1);
  const std::optional<Fingerprint> two = Fingerprint::of(2);
  Ticket first(room, key, one);
  Ticket other_meaning(room, key, two);
  Ticket without(room, key, none);
  Ticket elsewhere(room, other_key, one);
  Ticket same(room, key, one);

  EXPECT_EQ(room.enter(first), Place::leads);
  EXPECT_EQ(room.enter(other_meaning), Place::leads);
  EXPECT_EQ(room.enter(without), Place::leads);
  EXPECT_EQ(room.enter(elsewhere), Place::leads);
  EXPECT_EQ(room.enter(same), Place::follows);
}

TEST(WaitingRoom, DeliversToEverybodyInLine) {
  WaitingRoom room;
  Ticket leader(room, key, none);
  Ticket second(room, key, none);
  Ticket third(room, key, none);
  room.enter(leader);
  room.enter(second);
  room.enter(third);

  room.deliver(leader, {.status = RunStatus::replayed, .result = "bytes", .fence = 4});

  for (Ticket* follower : {&second, &third}) {
    ASSERT_EQ(follower->place(), Place::delivered);
    EXPECT_EQ(follower->delivery()->result, "bytes");
    EXPECT_EQ(follower->delivery()->fence, 4U);
  }
  Ticket next(room, key, none);
  EXPECT_EQ(room.enter(next), Place::leads);
}

// ID-34: when the owner gives up exactly one becomes the next leader, the others keep waiting behind it.
TEST(WaitingRoom, HandsTheLeadToExactlyOne) {
  WaitingRoom room;
  auto leader = std::make_unique<Ticket>(room, key, none);
  Ticket second(room, key, none);
  Ticket third(room, key, none);
  Ticket fourth(room, key, none);
  room.enter(*leader);
  room.enter(second);
  room.enter(third);
  room.enter(fourth);

  leader.reset();  // also when its call ends by an exception

  EXPECT_EQ(second.place(), Place::promoted);
  EXPECT_EQ(third.place(), Place::follows);
  room.deliver(second, {.status = RunStatus::failed});
  EXPECT_EQ(third.place(), Place::delivered);
  EXPECT_EQ(fourth.place(), Place::delivered);
}

TEST(WaitingRoom, LetsAFollowerLeaveFromAnyPlaceInLine) {
  for (std::size_t leaving = 0; leaving < 3; ++leaving) {
    WaitingRoom room;
    Ticket leader(room, key, none);
    room.enter(leader);
    std::vector<std::unique_ptr<Ticket>> line;
    for (int i = 0; i < 3; ++i) {
      line.push_back(std::make_unique<Ticket>(room, key, none));
      room.enter(*line.back());
    }

    line.erase(line.begin() + static_cast<std::ptrdiff_t>(leaving));
    line.push_back(std::make_unique<Ticket>(room, key, none));
    EXPECT_EQ(room.enter(*line.back()), Place::follows);
    room.deliver(leader, {});

    for (const auto& ticket : line)
      EXPECT_EQ(ticket->place(), Place::delivered);
  }
}

TEST(WaitingRoom, EndsAWaitAtItsDeadline) {
  WaitingRoom room;
  Ticket leader(room, key, none);
  Ticket follower(room, key, none);
  room.enter(leader);
  room.enter(follower);
  room.note_lease(leader, SteadyTime{5s});

  // LK-17: a deadline that is already past does not wait.
  EXPECT_EQ(room.await(follower, SteadyTime::min()), Place::outside);
  EXPECT_EQ(room.lease_end(follower), SteadyTime{5s});
  EXPECT_EQ(room.enter(follower), Place::follows);
  EXPECT_EQ(room.await(follower, in(1ms)), Place::outside);
}

TEST(WaitingRoom, WakesAFollowerThatWaitsForEver) {
  WaitingRoom room;
  Ticket leader(room, key, none);
  room.enter(leader);
  std::promise<void> entered;
  auto waited = std::async(std::launch::async, [&] {
    Ticket follower(room, key, none);
    room.enter(follower);
    entered.set_value();
    return room.await(follower, SteadyTime::max());
  });

  entered.get_future().wait();
  room.deliver(leader, {});

  ASSERT_EQ(waited.wait_for(30s), std::future_status::ready);
  EXPECT_EQ(waited.get(), Place::delivered);
}

}  // namespace
}  // namespace idempotency::detail
