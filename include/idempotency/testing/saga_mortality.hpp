#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "idempotency/error.hpp"
#include "idempotency/observer.hpp"
#include "idempotency/patterns/saga_journal.hpp"
#include "idempotency/testing/faulty_store.hpp"

namespace idempotency {
inline namespace v0 {
namespace testing {

/// Lets a process die at one of its calls, counted from 1: before it arrives, or when it was carried out. From then on nothing that
/// the process does arrives anywhere.
///
/// Thread safety: all members may be called concurrently.
class Mortality {
 public:
  enum class Moment : std::uint8_t { before, after };

  Mortality(std::size_t call, Moment moment) noexcept : call_(call), moment_(moment) {}

  /// In front of and behind every call.
  void enter() {
    const std::scoped_lock lock(mutex_);
    ++calls_;
    die_if_it_is_time(Moment::before);
  }
  void leave() {
    const std::scoped_lock lock(mutex_);
    die_if_it_is_time(Moment::after);
  }
  [[nodiscard]] bool has_died() const {
    const std::scoped_lock lock(mutex_);
    return dead_;
  }
  template <class Call>
  auto perform(Call call) {
    enter();
    auto answer = call();
    leave();
    return answer;
  }

 private:
  void die_if_it_is_time(Moment moment) {
    if (calls_ == call_ && moment == moment_) dead_ = true;
    if (dead_) throw Error(Errc::store_unavailable, "a test has let this process die");
  }

  mutable std::mutex mutex_;
  std::size_t call_;
  Moment moment_;
  std::size_t calls_ = 0;
  bool dead_ = false;
};

/// Lets the calls of a store count.
template <class Inner>
void let_die(FaultyStore<Inner>& store, Mortality& mortality) {
  for (const StoreCall call :
       {StoreCall::begin, StoreCall::complete, StoreCall::fail, StoreCall::doubt,
        StoreCall::mark_effect, StoreCall::renew, StoreCall::release, StoreCall::find}) {
    store.on(call).before([&mortality] { mortality.enter(); }).after([&mortality] {
      mortality.leave();
    });
  }
}

/// A journal as a process sees it that may die.
///
/// Lifetime: borrows the journal and the mortality.
template <SagaJournal Inner>
class MortalSagas {
 public:
  MortalSagas(Inner& inner, Mortality& mortality) noexcept
      : inner_(&inner), mortality_(&mortality) {}

  SagaRow create(const SagaStart& start) {
    return mortality_->perform([&] { return inner_->create(start); });
  }
  [[nodiscard]] std::optional<SagaRow> claim(const SagaClaim& claim) {
    return mortality_->perform([&] { return inner_->claim(claim); });
  }
  [[nodiscard]] std::optional<SagaRow> advance(const SagaRow& seen, const SagaChange& change) {
    return mortality_->perform([&] { return inner_->advance(seen, change); });
  }
  [[nodiscard]] WriteOutcome decide(const SagaRow& seen, const SagaVerdict& verdict) {
    return mortality_->perform([&] { return inner_->decide(seen, verdict); });
  }
  [[nodiscard]] std::optional<SagaRow> find(const SagaName& name) {
    return mortality_->perform([&] { return inner_->find(name); });
  }
  [[nodiscard]] std::vector<SagaRow> list_parked(std::string_view definition,
                                                 std::string_view after, std::size_t limit) {
    return mortality_->perform([&] { return inner_->list_parked(definition, after, limit); });
  }
  [[nodiscard]] std::vector<SagaAudit> history(const SagaName& name) {
    return mortality_->perform([&] { return inner_->history(name); });
  }
  std::size_t clean(std::string_view definition, std::chrono::milliseconds ended_for,
                    std::size_t limit) {
    return mortality_->perform([&] { return inner_->clean(definition, ended_for, limit); });
  }

 private:
  Inner* inner_;
  Mortality* mortality_;
};

}  // namespace testing
}  // namespace v0
}  // namespace idempotency
