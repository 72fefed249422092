#pragma once

// What the suites for journals of sagas share. A fixture has
//
//   JournalT& journal();             // a SagaJournal with nothing in it
//   void pass(milliseconds span);    // time goes by: the journal's clock is moved, or the times in its rows
//
// What one thread does with the journal must be seen by the threads that the tests start.

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <latch>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "idempotency/error.hpp"
#include "idempotency/patterns/saga_journal.hpp"
#include "idempotency/testing/printers.hpp"
#include "idempotency/testing/saga_printers.hpp"

namespace idempotency {
inline namespace v0 {
namespace testing {

template <class FixtureT>
class SagaJournalTest : public ::testing::Test {
 protected:
  using milliseconds = std::chrono::milliseconds;
  static constexpr milliseconds lease{60'000};

  auto& journal() { return fixture_.journal(); }
  void pass(milliseconds span) { fixture_.pass(span); }

  SagaRow create(const std::string& id, const std::string& definition = "order",
                 const std::string& plan = "plan-1") {
    return journal().create(
        {.name = {definition, id}, .plan = plan, .steps = 3, .input = "input of " + id});
  }
  static SagaClaim any(const std::string& definition = "order",
                       const std::string& plan = "plan-1") {
    return {.definition = definition,
            .plan = plan,
            .id = std::nullopt,
            .worker = OwnerToken::generate(),
            .lease = lease};
  }
  std::optional<SagaRow> claim() { return journal().claim(any()); }
  std::optional<SagaRow> claim(const std::string& id) {
    SagaClaim one = any();
    one.id = id;
    return journal().claim(one);
  }
  /// A saga that a worker has parked, with its alert noted.
  SagaRow park(const std::string& id,
               const SagaProgress& at = {SagaState::parked_running, 1, 4, 2}) {
    create(id);
    const std::optional<SagaRow> own = claim(id);
    const auto parked = journal().advance(own.value(), {.to = at, .note = "the bank is silent"});
    return parked.value();
  }
  static SagaVerdict verdict(SagaDecision decision) {
    return {.decision = decision,
            .who = "ann",
            .why = "the bank has answered",
            .by = OwnerToken::generate()};
  }
  template <class Fn>
  static Errc code_of(Fn&& fn) {
    try {
      fn();
    } catch (const Error& error) {
      return error.code();
    }
    return Errc{};
  }
  static void together(std::size_t count, const auto& work) {
    std::latch start(static_cast<std::ptrdiff_t>(count));
    std::vector<std::jthread> threads;
    for (std::size_t index = 0; index < count; ++index) {
      threads.emplace_back([&, index] {
        start.arrive_and_wait();
        work(index);
      });
    }
  }

 private:
  FixtureT fixture_;
};

}  // namespace testing
}  // namespace v0
}  // namespace idempotency
