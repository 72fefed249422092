#pragma once

// The rules of a TCC barrier on a database. A fixture has
//
//   StoreT& store();                        // a TransactionalStore
//   static void run(StoreT&, sql)           // one statement, DDL as well, outside of transactions
//   static constexpr SqlDialect dialect;
//
// and gives every test a database without the tables `tcc_barrier` and `effect`.

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <ostream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "idempotency/patterns/tcc_barrier.hpp"

namespace idempotency {
inline namespace v0 {
namespace testing {

/// What the business has done for one branch.
struct TccEffects {
  int tries = 0;
  int confirms = 0;
  int cancels = 0;
  friend bool operator==(const TccEffects&, const TccEffects&) = default;
  friend void PrintTo(const TccEffects& effects, std::ostream* out) {
    *out << effects.tries << " tries, " << effects.confirms << " confirms, " << effects.cancels
         << " cancels";
  }
};

template <class FixtureT>
class TccConformance : public ::testing::Test {
 protected:
  TccConformance() {
    fixture_.run(tcc_barrier_schema("tcc_barrier", FixtureT::dialect));
    fixture_.run("CREATE TABLE effect (branch VARCHAR(64), what INTEGER NOT NULL)");
  }

  auto& store() { return fixture_.store(); }
  [[nodiscard]] const TccBarrier& barrier() const { return barrier_; }

  static void count(auto& transaction, const std::string& branch, TccCall what) {
    transaction.execute("INSERT INTO effect (branch, what) VALUES (?, ?)", branch,
                        static_cast<int>(what));
  }
  TccStatus call(const std::string& branch, TccCall what) {
    return barrier_.call(store(), TccBranch{"transfer-7", branch}, what,
                         [&](auto& transaction) { count(transaction, branch, what); });
  }
  /// The business fails behind its effect.
  void crash(const std::string& branch, TccCall what) {
    try {
      static_cast<void>(
          barrier_.call(store(), TccBranch{"transfer-7", branch}, what, [&](auto& transaction) {
            count(transaction, branch, what);
            throw std::runtime_error("the business failed");
          }));
    } catch (const std::runtime_error&) {
      return;
    }
  }
  [[nodiscard]] TccEffects effects_of(const std::string& branch) {
    return v0::detail::in_own_transaction(store(), [&](auto& transaction) {
      TccEffects effects;
      for (const SqlRow& row :
           transaction.query("SELECT what FROM effect WHERE branch = ?", branch)) {
        const auto what = static_cast<TccCall>(row.as<int>(0));
        if (what == TccCall::try_branch) ++effects.tries;
        if (what == TccCall::confirm) ++effects.confirms;
        if (what == TccCall::cancel) ++effects.cancels;
      }
      return effects;
    });
  }
  [[nodiscard]] TccState state_of(const std::string& branch) {
    return v0::detail::in_own_transaction(store(), [&](auto& transaction) {
      return barrier_.look(transaction, {"transfer-7", branch});
    });
  }

  /// Every sequence of `length` calls, each of which ends well or fails behind its effect.
  void play_every_order(const std::vector<TccCall>& calls, std::size_t length) {
    const std::size_t choices = calls.size() * 2;
    std::size_t orders = 1;
    for (std::size_t at = 0; at < length; ++at)
      orders *= choices;
    for (std::size_t order = 0; order < orders; ++order) {
      const std::string branch = std::to_string(order);
      SCOPED_TRACE("order " + branch);
      TccState state = TccState::absent;
      TccEffects expected;
      bool is_announced = false;
      std::size_t rest = order;
      for (std::size_t at = 0; at < length; ++at, rest /= choices) {
        const TccCall what = calls[rest % calls.size()];
        const TccStep step = tcc_step(state, what);
        if (rest % choices >= calls.size()) {
          crash(branch, what);
          if (step.status != TccStatus::done) state = step.to;  // the business was not called
          continue;
        }
        ASSERT_EQ(call(branch, what), step.status);
        state = step.to;
        if (step.status != TccStatus::done) continue;
        is_announced = is_announced || what == TccCall::announce;
        expected.tries += what == TccCall::try_branch ? 1 : 0;
        expected.confirms += what == TccCall::confirm ? 1 : 0;
        expected.cancels += what == TccCall::cancel ? 1 : 0;
      }
      ASSERT_EQ(state_of(branch), state);
      ASSERT_EQ(effects_of(branch), expected);
      ASSERT_LE(expected.tries, 1);
      ASSERT_LE(expected.confirms + expected.cancels, expected.tries + (is_announced ? 1 : 0));
    }
  }

  /// Leads a branch there.
  void bring(const std::string& branch, TccState state) {
    if (state == TccState::init) {
      ASSERT_EQ(call(branch, TccCall::announce), TccStatus::done);
      return;
    }
    if (state == TccState::absent) return;
    ASSERT_EQ(call(branch, TccCall::try_branch), TccStatus::done);
    if (state == TccState::trying) return;
    const TccCall last = state == TccState::confirmed ? TccCall::confirm : TccCall::cancel;
    ASSERT_EQ(call(branch, last), TccStatus::done);
  }

 private:
  FixtureT fixture_;
  TccBarrier barrier_;
};

inline constexpr std::array tcc_calls{TccCall::try_branch, TccCall::confirm, TccCall::cancel};
inline constexpr std::array all_tcc_calls{TccCall::try_branch, TccCall::confirm, TccCall::cancel,
                                          TccCall::announce, TccCall::tried};

TYPED_TEST_SUITE_P(TccConformance);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TccConformance);

// TC-02: every order of calls, repeated, each as it should be or failing behind its effect.
TYPED_TEST_P(TccConformance, AnswersEveryOrderOfCallsAsTheTableSays) {
  this->play_every_order(std::vector<TccCall>(tcc_calls.begin(), tcc_calls.end()), 4);
}

TYPED_TEST_P(TccConformance, AnswersEveryOrderWithEffectsOutsideAsTheTableSays) {
  this->play_every_order(std::vector<TccCall>(all_tcc_calls.begin(), all_tcc_calls.end()), 3);
}

// Two calls at once answer as one of the two orders would, and none of them is chosen as a deadlock's victim for good.
TYPED_TEST_P(TccConformance, AnswersTwoCallsAtOnceInOneOfTheTwoOrders) {
  int number = 0;
  for (const TccState before : {TccState::absent, TccState::init, TccState::trying,
                                TccState::confirmed, TccState::cancelled}) {
    for (const TccCall left : tcc_calls) {
      for (const TccCall right : tcc_calls) {
        for (int round = 0; round < 4; ++round) {
          const std::string branch = std::to_string(++number);
          SCOPED_TRACE(branch);
          this->bring(branch, before);
          std::atomic<int> waiting{2};
          std::array<TccStatus, 2> told{};
          const auto ask = [&](std::size_t who, TccCall what) {
            for (--waiting; waiting != 0;)
              std::this_thread::yield();
            told[who] = this->call(branch, what);
          };
          std::thread first([&] { ask(0, left); });
          std::thread second([&] { ask(1, right); });
          first.join();
          second.join();

          const TccStep left_first = tcc_step(before, left);
          const TccStep right_first = tcc_step(before, right);
          const std::array in_order{left_first.status, tcc_step(left_first.to, right).status};
          const std::array in_reverse{tcc_step(right_first.to, left).status, right_first.status};
          EXPECT_TRUE(told == in_order || told == in_reverse);
          EXPECT_LE(this->effects_of(branch).tries, 1);
        }
      }
    }
  }
}

// TC-01, TC-04: the marker of an empty cancel is committed, once, and keeps the late try out.
TYPED_TEST_P(TccConformance, RemembersACancelThatCameFirst) {
  EXPECT_EQ(this->call("a", TccCall::cancel), TccStatus::empty);
  EXPECT_EQ(this->call("a", TccCall::cancel), TccStatus::repeated);
  EXPECT_EQ(this->call("a", TccCall::cancel), TccStatus::repeated);

  EXPECT_EQ(this->call("a", TccCall::try_branch), TccStatus::refused_cancelled);
  EXPECT_EQ(this->call("a", TccCall::confirm), TccStatus::refused_cancelled);
  EXPECT_EQ(this->effects_of("a"), TccEffects{});
}

TYPED_TEST_P(TccConformance, TellsBranchesApartByTheirBytes) {
  ASSERT_EQ(this->call("a", TccCall::cancel), TccStatus::empty);

  EXPECT_EQ(this->call("A", TccCall::try_branch), TccStatus::done);
  EXPECT_EQ(this->call("a ", TccCall::try_branch), TccStatus::done);
  EXPECT_EQ(this->call(std::string("a\0", 2), TccCall::try_branch), TccStatus::done);
}

TYPED_TEST_P(TccConformance, RefusesATryWhoseEffectsAreOutsideAfterACancelBetween) {
  ASSERT_EQ(this->call("a", TccCall::announce), TccStatus::done);
  EXPECT_EQ(this->call("a", TccCall::announce), TccStatus::repeated);
  EXPECT_EQ(this->call("a", TccCall::confirm), TccStatus::refused_not_tried);
  EXPECT_EQ(this->call("a", TccCall::try_branch), TccStatus::refused_not_tried);
  EXPECT_EQ(this->call("a", TccCall::cancel), TccStatus::done);

  EXPECT_EQ(this->call("a", TccCall::tried), TccStatus::refused_cancelled);
  EXPECT_EQ(this->call("a", TccCall::announce), TccStatus::refused_cancelled);
}

TYPED_TEST_P(TccConformance, ConfirmsATryWhoseEffectsAreOutside) {
  EXPECT_EQ(this->call("a", TccCall::tried), TccStatus::refused_not_tried);
  ASSERT_EQ(this->call("a", TccCall::announce), TccStatus::done);
  ASSERT_EQ(this->call("a", TccCall::tried), TccStatus::done);
  EXPECT_EQ(this->call("a", TccCall::tried), TccStatus::repeated);

  EXPECT_EQ(this->call("a", TccCall::confirm), TccStatus::done);
  EXPECT_EQ(this->call("a", TccCall::cancel), TccStatus::refused_confirmed);
}

// TC-07
TYPED_TEST_P(TccConformance, CleansWhatIsFinishedOnceItIsOldEnough) {
  constexpr int empty_cancels = 50;
  for (int number = 0; number < empty_cancels; ++number)
    ASSERT_EQ(this->call(std::to_string(number), TccCall::cancel), TccStatus::empty);
  this->bring("confirmed", TccState::confirmed);
  this->bring("cancelled", TccState::cancelled);
  this->bring("announced", TccState::init);
  this->bring("open", TccState::trying);
  const TccBarrier patient;
  const TccBarrier hasty({.longest_late_try = std::chrono::milliseconds{0},
                          .retention = std::chrono::milliseconds{1}});
  const auto clean = [&](const TccBarrier& barrier, std::uint32_t limit) {
    return v0::detail::in_own_transaction(
        this->store(), [&](auto& transaction) { return barrier.clean(transaction, limit); });
  };
  std::this_thread::sleep_for(std::chrono::milliseconds{20});  // by the server's clock

  EXPECT_EQ(clean(patient, 1'000), 0U);
  EXPECT_EQ(clean(hasty, 20), 20U);
  EXPECT_EQ(clean(hasty, 1'000), empty_cancels + 2 - 20U);
  EXPECT_EQ(clean(hasty, 1'000), 0U);

  EXPECT_EQ(this->state_of("open"), TccState::trying);
  EXPECT_EQ(this->state_of("announced"), TccState::init);
  EXPECT_EQ(this->state_of("confirmed"), TccState::absent);
  EXPECT_EQ(this->state_of("cancelled"), TccState::absent);
  EXPECT_EQ(this->state_of("7"), TccState::absent);
}

TYPED_TEST_P(TccConformance, RefusesNamesThatItCannotKeep) {
  const auto code_of = [&](const TccBranch& branch) {
    try {
      static_cast<void>(this->barrier().call(this->store(), branch, TccCall::cancel, [](auto&) {}));
    } catch (const Error& error) {
      return error.code();
    }
    return Errc{};
  };
  const std::string long_name(129, 'x');

  EXPECT_EQ(code_of({"", "a"}), Errc::invalid_argument);
  EXPECT_EQ(code_of({"a", ""}), Errc::invalid_argument);
  EXPECT_EQ(code_of({long_name, "a"}), Errc::too_large);
  EXPECT_EQ(code_of({"a", long_name}), Errc::too_large);
  EXPECT_EQ(code_of({long_name.substr(1), long_name.substr(65)}), Errc{});
}

REGISTER_TYPED_TEST_SUITE_P(TccConformance, AnswersEveryOrderOfCallsAsTheTableSays,
                            AnswersEveryOrderWithEffectsOutsideAsTheTableSays,
                            AnswersTwoCallsAtOnceInOneOfTheTwoOrders, RemembersACancelThatCameFirst,
                            TellsBranchesApartByTheirBytes,
                            RefusesATryWhoseEffectsAreOutsideAfterACancelBetween,
                            ConfirmsATryWhoseEffectsAreOutside,
                            CleansWhatIsFinishedOnceItIsOldEnough, RefusesNamesThatItCannotKeep);

}  // namespace testing
}  // namespace v0
}  // namespace idempotency
