#pragma once

// What becomes of sagas whose workers die, and of sagas with several workers, on a journal. Fixtures are those of
// saga_fixture.hpp; the records of the steps are in memory.

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <latch>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "idempotency/guard.hpp"
#include "idempotency/patterns/saga_desk.hpp"
#include "idempotency/patterns/saga_runner.hpp"
#include "idempotency/stores/memory.hpp"
#include "idempotency/testing/manual_clock.hpp"
#include "idempotency/testing/saga_fixture.hpp"
#include "idempotency/testing/saga_mortality.hpp"

namespace idempotency {
inline namespace v0 {
namespace testing {

/// How the steps of a saga behave.
enum class SagaPlot : std::uint8_t {
  all_succeed,
  last_fails,           ///< for good
  last_keeps_failing,   ///< without effect, every time
  middle_is_uncertain,  ///< cannot say whether it had an effect
};

/// What the steps have done outside: a system that may know keys, and counts how often it was asked.
///
/// Thread safety: all members may be called concurrently.
class SagaEffects {
 public:
  struct Count {
    int asked = 0;                      ///< how often the effect was begun
    std::map<std::string, int> by_key;  ///< with which keys
  };

  void happen(const SagaCall& call, const std::string& what) {
    const std::scoped_lock lock(mutex_);
    Count& count = effects_[call.id() + ' ' + what];
    ++count.asked;
    ++count.by_key[call.derived_key("bank")];
  }
  /// Effects as a system sees them that recognises keys, or one that does not.
  [[nodiscard]] int known(const std::string& id, const std::string& what) const {
    return static_cast<int>(count(id, what).by_key.size());
  }
  [[nodiscard]] int raw(const std::string& id, const std::string& what) const {
    return count(id, what).asked;
  }

 private:
  [[nodiscard]] Count count(const std::string& id, const std::string& what) const {
    const std::scoped_lock lock(mutex_);
    const auto found = effects_.find(id + ' ' + what);
    return found == effects_.end() ? Count{} : found->second;
  }

  mutable std::mutex mutex_;
  std::map<std::string, Count> effects_;
};

template <class FixtureT>
class SagaDeathConformance : public SagaJournalTest<FixtureT> {
 protected:
  using milliseconds = std::chrono::milliseconds;
  using Journal = std::remove_reference_t<decltype(std::declval<FixtureT&>().journal())>;
  static constexpr std::array<const char*, 3> steps{"reserve", "charge", "ship"};
  static constexpr milliseconds owned{5'000};  // by a worker, in the journal and in the records

  /// A worker and all that dies with it.
  struct Process {
    using Store = FaultyStore<MemoryStore>;
    using Guard = IdempotencyGuard<Store>;

    Process(SagaDeathConformance& test, SagaPlot plot, RecordMode mode, std::size_t call,
            Mortality::Moment moment)
        : mortality(call, moment),
          store(test.store_),
          journal(test.journal(), mortality),
          guard(store, {.write_budget = milliseconds{1}, .begin_attempts = 1}),
          runner(guard, journal, test.saga(plot, mortality), test.options(mode, mortality)) {
      let_die(store, mortality);
    }

    Mortality mortality;
    Store store;
    MortalSagas<Journal> journal;
    Guard guard;
    SagaRunner<Guard, MortalSagas<Journal>> runner;
  };

  Saga saga(SagaPlot plot, Mortality& mortality) {
    std::vector<SagaStep> all;
    for (const std::string step : steps) {
      all.emplace_back(
          step,
          [this, step, plot, &mortality](SagaCall& call) {
            if (step == "ship" && plot == SagaPlot::last_fails) throw PermanentFailure("refused");
            if (step == "ship" && plot == SagaPlot::last_keeps_failing) {
              throw RetryableFailure("closed");
            }
            happen(call, "act " + step, mortality);
            if (step == "charge" && plot == SagaPlot::middle_is_uncertain) {
              throw OutcomeUnknown("no answer");
            }
            return step;
          },
          [this, step, &mortality](SagaCall& call) {
            EXPECT_EQ(call.result<std::string>(step), step);
            happen(call, "undo " + step, mortality);
          });
    }
    return Saga("order", std::move(all));
  }
  SagaOptions options(RecordMode mode, Mortality& mortality) {
    SagaOptions asked;
    asked.max_attempts = 3;
    asked.first_pause = milliseconds{100};
    asked.longest_pause = milliseconds{1'000};
    asked.lease = owned;
    asked.step_policy.lease = owned;
    asked.step_policy.on_expired_lease = mode;
    asked.alert = [this, &mortality](const SagaRow&) {
      mortality.enter();
      ++alerts_;
      mortality.leave();
    };
    return asked;
  }
  void happen(const SagaCall& call, const std::string& what, Mortality& mortality) {
    mortality.enter();
    effects_.happen(call, what);
    mortality.leave();
  }

  /// Time goes by everywhere.
  void wait(milliseconds span) {
    clock_.advance(span);
    this->pass(span);
  }
  /// Works on one saga until it has ended or is parked, or the process has died.
  void live(Process& process, const std::string& id) {
    constexpr int enough = 60;
    try {
      static_cast<void>(process.runner.run(id, "input"));
      for (int round = 0; round < enough && this->journal().find({"order", id})->due_at; ++round) {
        wait(owned / 2);
        static_cast<void>(process.runner.work_once());
      }
    } catch (const Error&) {
      EXPECT_TRUE(process.mortality.has_died());
    }
  }

  /// A process dies at each of its calls in turn, the one that goes on at one of its first ones, and a third one ends what they
  /// began. Says how many were parked; people end those.
  int kill_at_every_call(SagaPlot plot, RecordMode mode, Mortality::Moment moment) {
    int parked = 0;
    bool died = true;
    for (std::size_t call = 1; died; ++call) {
      const std::string id = std::to_string(++sagas_);
      SCOPED_TRACE("call " + std::to_string(call));
      alerts_ = 0;
      {
        Process mortal(*this, plot, mode, call, moment);
        live(mortal, id);
        died = mortal.mortality.has_died();
      }
      {
        Process next(*this, plot, mode, 1 + call * 5 % 11, moment);
        live(next, id);
      }
      Process last(*this, plot, mode, 0, moment);
      live(last, id);
      const SagaRow row = this->journal().find({"order", id}).value();
      parked += is_parked(row.progress.state) ? 1 : 0;
      judge(row, mode, died);
      settle_by_hand(last, id, mode);
      this->journal().clean("order", milliseconds{0}, 1);
      if (::testing::Test::HasFailure()) return parked;
    }
    return parked;
  }

  /// A person finds out what happened, and settles what is uncertain with the truth: every saga ends then.
  void settle_by_hand(Process& process, const std::string& id, RecordMode mode) {
    SagaDesk desk(this->journal(), "order");
    constexpr int enough = 5;
    for (int round = 0; round < enough; ++round) {
      const SagaRow row = desk.find(id).value();
      if (is_ended(row.progress.state)) break;
      const bool settled =
          tell_the_truth(row, SagaPart::action) + tell_the_truth(row, SagaPart::compensation) > 0;
      EXPECT_EQ(settled ? desk.resume(row, "ann", "it is settled")
                        : desk.give_up(row, "ann", "it has no effect"),
                WriteOutcome::stored);
      live(process, id);
    }
    const SagaRow row = desk.find(id).value();
    EXPECT_TRUE(is_ended(row.progress.state)) << ::testing::PrintToString(row);
    judge_effects(row, mode);
  }
  int tell_the_truth(const SagaRow& row, SagaPart part) {
    const std::string step = steps.at(row.progress.step);
    const auto record = store_.find(saga_key(row.name, step, part));
    if (!record || record->state != RecordState::uncertain) return 0;
    const std::string what = (part == SagaPart::action ? "act " : "undo ") + step;
    const bool happened = effects_.raw(row.name.id, what) > 0;
    const Resolution truth{
        .verdict = happened ? Resolution::Verdict::succeeded : Resolution::Verdict::retry,
        .result = encode_saga_result(step),
        .retention = std::chrono::hours{24 * 365}};
    EXPECT_EQ(store_.resolve(*record, truth), WriteOutcome::stored);
    return 1;
  }

  void judge(const SagaRow& row, RecordMode mode, bool died) {
    const SagaState state = row.progress.state;
    EXPECT_TRUE(is_ended(state) || is_parked(state)) << ::testing::PrintToString(row);
    EXPECT_EQ(row.due_at, std::nullopt);
    EXPECT_GE(alerts_, is_parked(state) ? 1 : 0);
    EXPECT_LE(alerts_, is_parked(state) ? (died ? 3 : 1) : 0);
    judge_effects(row, mode);
  }
  void judge_effects(const SagaRow& row, RecordMode mode) {
    const SagaState state = row.progress.state;
    for (const std::string step : steps) {
      const auto effects = [&](const std::string& what) {
        const bool knows_keys = mode == RecordMode::take_over;
        return knows_keys ? effects_.known(row.name.id, what) : effects_.raw(row.name.id, what);
      };
      const int acts = effects("act " + step);
      const int undone = effects("undo " + step);
      EXPECT_LE(acts, 1) << step;
      EXPECT_LE(undone, acts) << step;
      if (state == SagaState::finished) {
        EXPECT_EQ(acts, 1) << step;
        EXPECT_EQ(undone, 0) << step;
      }
      if (state == SagaState::compensated) {
        EXPECT_EQ(undone, acts) << step;
      }
    }
  }

  /// In both modes, dying before and after. Says how many ended parked.
  int kill_everywhere(SagaPlot plot, RecordMode mode) {
    return kill_at_every_call(plot, mode, Mortality::Moment::before) +
           kill_at_every_call(plot, mode, Mortality::Moment::after);
  }

  ManualClock clock_;
  MemoryStore store_{MemoryStoreOptions{.clock = &clock_}};
  SagaEffects effects_;
  std::atomic<int> alerts_{0};
  int sagas_ = 0;
};

TYPED_TEST_SUITE_P(SagaDeathConformance);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SagaDeathConformance);

TYPED_TEST_P(SagaDeathConformance, FinishesASagaWhoseWorkerDiesWhenItsEffectsMayBeRepeated) {
  EXPECT_EQ(this->kill_everywhere(SagaPlot::all_succeed, RecordMode::take_over), 0);
  EXPECT_GT(this->sagas_, 25);
}

// Whoever dies beside its effect leaves an uncertain step behind.
TYPED_TEST_P(SagaDeathConformance, FinishesOrParksASagaWhoseWorkerDiesUnderHold) {
  const int parked = this->kill_everywhere(SagaPlot::all_succeed, RecordMode::hold);

  EXPECT_GT(parked, 0);
  EXPECT_LT(parked, this->sagas_);
}

TYPED_TEST_P(SagaDeathConformance, CompensatesASagaWhoseWorkerDiesWhenItsEffectsMayBeRepeated) {
  EXPECT_EQ(this->kill_everywhere(SagaPlot::last_fails, RecordMode::take_over), 0);
  EXPECT_GT(this->sagas_, 40);
}

TYPED_TEST_P(SagaDeathConformance, CompensatesOrParksASagaWhoseWorkerDiesUnderHold) {
  const int parked = this->kill_everywhere(SagaPlot::last_fails, RecordMode::hold);

  EXPECT_GT(parked, 0);
  EXPECT_LT(parked, this->sagas_);
}

TYPED_TEST_P(SagaDeathConformance, CompensatesOrParksASagaWhoseWorkerDiesWhileItKeepsFailing) {
  for (const RecordMode mode : {RecordMode::take_over, RecordMode::hold}) {
    const int before = this->sagas_;
    const int parked = this->kill_everywhere(SagaPlot::last_keeps_failing, mode);

    EXPECT_LT(parked, this->sagas_ - before);
  }
}

TYPED_TEST_P(SagaDeathConformance, ParksASagaWithAnUncertainStepWhereverItsWorkerDies) {
  for (const RecordMode mode : {RecordMode::take_over, RecordMode::hold}) {
    const int before = this->sagas_;
    const int parked = this->kill_everywhere(SagaPlot::middle_is_uncertain, mode);

    EXPECT_EQ(parked, this->sagas_ - before);
  }
}

TYPED_TEST_P(SagaDeathConformance, RunsEachStepOnceHoweverManyWorkersThereAre) {
  constexpr std::size_t workers = 4;
  constexpr int sagas = 12;
  std::vector<std::unique_ptr<typename TestFixture::Process>> processes;
  for (std::size_t number = 0; number < workers; ++number) {
    processes.push_back(std::make_unique<typename TestFixture::Process>(
        *this, SagaPlot::last_fails, RecordMode::hold, 0, Mortality::Moment::before));
  }
  for (int number = 0; number < sagas; ++number)
    static_cast<void>(processes[0]->runner.start(std::to_string(number), "input"));

  this->together(workers, [&](std::size_t worker) {
    while (processes[worker]->runner.work_once()) {
    }
  });

  for (int number = 0; number < sagas; ++number) {
    const std::string id = std::to_string(number);
    EXPECT_EQ(this->journal().find({"order", id})->progress.state, SagaState::compensated);
    for (const std::string what : {"act reserve", "act charge", "undo reserve", "undo charge"})
      EXPECT_EQ(this->effects_.raw(id, what), 1) << id << ' ' << what;
  }
}

// The journal's lease has run out, the record's has not: the other one waits, and the first one notes what it did.
TYPED_TEST_P(SagaDeathConformance, LeavesAStepToTheWorkerThatIsStillRunningIt) {
  std::latch entered(1);
  std::latch go_on(1);
  const Saga slow("order", {{"charge", [&](SagaCall& call) {
                               entered.count_down();
                               go_on.wait();
                               this->effects_.happen(call, "act charge");
                             }}});
  IdempotencyGuard guard(this->store_);
  SagaOptions options;
  options.lease = this->owned;
  options.first_pause = std::chrono::milliseconds{1};
  SagaRunner runner(guard, this->journal(), slow, options);
  static_cast<void>(runner.start("a", "input"));

  std::optional<SagaReport> late;
  std::jthread first([&] { late = runner.work_once(); });
  entered.wait();
  this->pass(this->owned);
  const auto second = runner.work_once();
  go_on.count_down();
  first.join();
  this->pass(std::chrono::hours{1});
  const auto third = runner.work_once();

  EXPECT_EQ(second.value().status, SagaStatus::waiting);
  EXPECT_EQ(second->row.progress, SagaProgress{});
  EXPECT_EQ(late.value().status, SagaStatus::finished) << "what it found out counts";
  EXPECT_FALSE(third.has_value());
  EXPECT_EQ(this->effects_.raw("a", "act charge"), 1);
}

REGISTER_TYPED_TEST_SUITE_P(SagaDeathConformance,
                            FinishesASagaWhoseWorkerDiesWhenItsEffectsMayBeRepeated,
                            FinishesOrParksASagaWhoseWorkerDiesUnderHold,
                            CompensatesASagaWhoseWorkerDiesWhenItsEffectsMayBeRepeated,
                            CompensatesOrParksASagaWhoseWorkerDiesUnderHold,
                            CompensatesOrParksASagaWhoseWorkerDiesWhileItKeepsFailing,
                            ParksASagaWithAnUncertainStepWhereverItsWorkerDies,
                            RunsEachStepOnceHoweverManyWorkersThereAre,
                            LeavesAStepToTheWorkerThatIsStillRunningIt);

}  // namespace testing
}  // namespace v0
}  // namespace idempotency
