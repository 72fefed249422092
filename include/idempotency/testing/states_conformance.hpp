#pragma once

// The rules that every carrier of a state machine keeps. A fixture has
//
//   void create(const std::string& id, OrderState state);   // an object, however the carrier makes one
//   TransitionResult<OrderState> transition(const std::string& id, OrderState from, OrderState to);
//   std::optional<OrderState> look(const std::string& id);
//
// over `order_machine`; what one fixture does must be seen by the threads that the test starts.

#include <gtest/gtest.h>

#include <atomic>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include "idempotency/error.hpp"
#include "idempotency/patterns/state_machine.hpp"

namespace idempotency {
inline namespace v0 {
namespace testing {

enum class OrderState { created = 1, paid, shipped, returned, cancelled, unlisted };

inline constexpr StateMachine<OrderState> order_machine(
    {{OrderState::created, "created", StateKind::initial},
     {OrderState::paid, "paid"},
     {OrderState::shipped, "shipped"},
     {OrderState::returned, "returned", StateKind::final},
     {OrderState::cancelled, "cancelled", StateKind::final}},
    {{OrderState::created, OrderState::paid},
     {OrderState::created, OrderState::cancelled},
     {OrderState::paid, OrderState::shipped},
     {OrderState::shipped, OrderState::paid, "sent back by the carrier"},
     {OrderState::shipped, OrderState::returned}});

inline void PrintTo(OrderState state, std::ostream* out) { *out << order_machine.name_of(state); }

template <class FixtureT>
class StatesConformance : public ::testing::Test {
 protected:
  using Result = TransitionResult<OrderState>;

  FixtureT& carrier() { return fixture_; }
  Result move(const std::string& id, OrderState from, OrderState to) {
    return fixture_.transition(id, from, to);
  }

 private:
  FixtureT fixture_;
};

TYPED_TEST_SUITE_P(StatesConformance);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(StatesConformance);

TYPED_TEST_P(StatesConformance, MoveAnObjectFromWhereItIs) {
  this->carrier().create("a", OrderState::created);

  const auto result = this->move("a", OrderState::created, OrderState::paid);

  EXPECT_EQ(result.status(), TransitionStatus::moved);
  EXPECT_EQ(result.actual(), OrderState::paid);
  EXPECT_EQ(this->carrier().look("a"), OrderState::paid);
}

TYPED_TEST_P(StatesConformance, TellARepetitionFromAMove) {
  this->carrier().create("a", OrderState::created);
  ASSERT_TRUE(this->move("a", OrderState::created, OrderState::paid).is_there());

  const auto again = this->move("a", OrderState::created, OrderState::paid);

  EXPECT_EQ(again.status(), TransitionStatus::already_there);
  EXPECT_TRUE(again.is_there());
}

TYPED_TEST_P(StatesConformance, SayWhereAnObjectIsThatHasGoneOn) {
  this->carrier().create("a", OrderState::shipped);

  const auto result = this->move("a", OrderState::created, OrderState::paid);

  EXPECT_EQ(result.status(), TransitionStatus::not_from_here);
  EXPECT_EQ(result.actual(), OrderState::shipped);
  EXPECT_EQ(this->carrier().look("a"), OrderState::shipped);
}

TYPED_TEST_P(StatesConformance, RefuseAMoveThatTheMachineDoesNotHave) {
  this->carrier().create("a", OrderState::created);

  EXPECT_EQ(this->move("a", OrderState::created, OrderState::shipped).status(),
            TransitionStatus::forbidden);
  EXPECT_EQ(this->move("a", OrderState::cancelled, OrderState::created).status(),
            TransitionStatus::forbidden);
  EXPECT_EQ(this->move("nobody", OrderState::created, OrderState::shipped).status(),
            TransitionStatus::forbidden);
  EXPECT_EQ(this->carrier().look("a"), OrderState::created);
}

TYPED_TEST_P(StatesConformance, SayThatAnObjectIsMissing) {
  const auto result = this->move("nobody", OrderState::created, OrderState::paid);

  EXPECT_EQ(result.status(), TransitionStatus::missing);
  EXPECT_EQ(result.actual(), std::nullopt);
  EXPECT_EQ(this->carrier().look("nobody"), std::nullopt);
}

TYPED_TEST_P(StatesConformance, RefuseAStateThatIsNotListedBeforeAnythingIsWritten) {
  this->carrier().create("a", OrderState::created);

  for (const auto& [from, to] : {std::pair{OrderState::created, OrderState::unlisted},
                                 std::pair{OrderState::unlisted, OrderState::paid}}) {
    try {
      static_cast<void>(this->move("a", from, to));
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::invalid_argument);
    }
  }
  EXPECT_EQ(this->carrier().look("a"), OrderState::created);
}

TYPED_TEST_P(StatesConformance, GoRoundACycleThatIsAllowed) {
  this->carrier().create("a", OrderState::paid);

  for (int round = 0; round < 3; ++round) {
    ASSERT_EQ(this->move("a", OrderState::paid, OrderState::shipped).status(),
              TransitionStatus::moved);
    ASSERT_EQ(this->move("a", OrderState::shipped, OrderState::paid).status(),
              TransitionStatus::moved);
  }
  EXPECT_EQ(this->carrier().look("a"), OrderState::paid);
}

// Two ways lead out of `created`; whoever is second is told so.
TYPED_TEST_P(StatesConformance, MoveAnObjectOnceHoweverManyTry) {
  constexpr int rounds = 20;
  constexpr int rivals = 8;
  for (int round = 0; round < rounds; ++round) {
    const std::string id = std::to_string(round);
    this->carrier().create(id, OrderState::created);
    std::atomic<int> moved{0};
    std::atomic<int> told{0};
    std::atomic<int> waiting{rivals};
    std::vector<std::thread> threads;
    for (int rival = 0; rival < rivals; ++rival) {
      threads.emplace_back([&, rival] {
        const OrderState to = rival % 2 == 0 ? OrderState::paid : OrderState::cancelled;
        for (--waiting; waiting != 0;)
          std::this_thread::yield();
        const auto result = this->move(id, OrderState::created, to);
        if (result.status() == TransitionStatus::moved) ++moved;
        if (result.actual() == this->carrier().look(id)) ++told;
      });
    }
    for (std::thread& thread : threads)
      thread.join();

    EXPECT_EQ(moved, 1) << "round " << round;
    EXPECT_EQ(told, rivals) << "round " << round;
  }
}

REGISTER_TYPED_TEST_SUITE_P(StatesConformance, MoveAnObjectFromWhereItIs, TellARepetitionFromAMove,
                            SayWhereAnObjectIsThatHasGoneOn, RefuseAMoveThatTheMachineDoesNotHave,
                            SayThatAnObjectIsMissing,
                            RefuseAStateThatIsNotListedBeforeAnythingIsWritten,
                            GoRoundACycleThatIsAllowed, MoveAnObjectOnceHoweverManyTry);

}  // namespace testing
}  // namespace v0
}  // namespace idempotency
