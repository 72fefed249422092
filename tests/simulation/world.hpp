#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "history.hpp"
#include "idempotency/stores/memory.hpp"
#include "messages.hpp"
#include "oracle.hpp"
#include "plan.hpp"
#include "seeded_random.hpp"
#include "virtual_time.hpp"

namespace idempotency::simulation {

class Process;

/// One schedule: virtual time, the one store, the network in front of it, and the processes that use it.
///
/// Everything happens as an event at a moment of virtual time; events of the same moment come in random order.
/// After each event every promise is checked.
class World {
 public:
  World(std::uint64_t seed, Recording recording);
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World();

  /// From the first call until everything has come to rest. Errors: `Violation`.
  void run();

  // What happens next.
  void after(milliseconds span, std::function<void()> action) {
    at(now() + span, std::move(action));
  }
  void at(SteadyTime when, std::function<void()> action);
  /// Lets everything happen that is due within `span`, unless too many calls are nested already.
  void pause(std::chrono::nanoseconds span);

  // The network.
  /// Sends `request`; `done` is called once, with the store's answer or the reason why there is none.
  void send(const Request& request, std::function<void(const Reply&)> done);
  /// The same for a caller that cannot be suspended: time passes within the call.
  [[nodiscard]] Reply exchange(const Request& request);

  void call_ended() noexcept { ++calls_ended_; }
  [[nodiscard]] OwnerToken new_token() noexcept;
  [[nodiscard]] std::uint32_t new_call() noexcept { return ++calls_; }

  template <class Text>
  void note(const Text& text) {
    history_.note(now(), text);
  }

  [[nodiscard]] SteadyTime now() const noexcept { return time_.now(); }
  [[nodiscard]] const VirtualTime& time() const noexcept { return time_; }
  [[nodiscard]] const SchedulePlan& plan() const noexcept { return plan_; }
  [[nodiscard]] SeededRandom& random() noexcept { return random_; }
  [[nodiscard]] Oracle& oracle() noexcept { return oracle_; }
  [[nodiscard]] Coverage& coverage() noexcept { return coverage_; }
  [[nodiscard]] const Key& key(std::size_t number) const { return key_texts_[number]; }
  [[nodiscard]] const History& history() const noexcept { return history_; }
  [[nodiscard]] bool faults_are_on() const noexcept { return now() < faults_end_; }

 private:
  struct Event {
    SteadyTime at;
    std::uint64_t tie;
    std::function<void()> action;
  };
  enum class Fate : std::uint8_t {
    normal,
    refused,
    busy,
    request_lost,
    reply_lost,
    late,
    duplicated
  };
  struct Passage {
    Fate fate = Fate::normal;
    milliseconds there{0};
    milliseconds back{0};
    milliseconds patience{0};  ///< until a silent store is given up
    milliseconds late{0};      ///< for a copy that is executed after all
  };

  void run_until(SteadyTime limit);
  void after_step();
  void check();
  [[nodiscard]] Passage draw_passage(const Request& request);
  /// Executes the request, now or (a store that reads and then writes) with a gap.
  void arrive(const Request& request, Copy copy, std::function<void(const Reply&)> done);
  [[nodiscard]] Reply execute(const Request& request, Copy copy);
  [[nodiscard]] Reply call_store(const Request& request);
  [[nodiscard]] bool reads_before_it_takes_over(const Request& request);
  [[nodiscard]] Reply take_over_blindly(const Request& request, Copy copy);
  void schedule_copy(const Request& request, milliseconds in);

  void schedule_calls();
  void start_call(std::size_t process, const CallPlan& plan);
  void schedule_operator();
  void schedule_purge();
  void crash(std::size_t process);
  void freeze(std::size_t process);
  void jump();
  void close();
  void settle_what_only_the_operator_can(std::size_t key);

  static constexpr std::size_t most_nested = 3;
  static constexpr std::uint64_t most_steps = 20'000;

  SeededRandom random_;
  SchedulePlan plan_;
  VirtualTime time_;
  History history_;
  Coverage coverage_;
  Oracle oracle_;
  std::vector<Key> key_texts_;
  MemoryStore store_;
  std::vector<Event> events_;
  std::vector<std::unique_ptr<Process>> processes_;
  std::vector<std::unique_ptr<Process>> crashed_;  // kept: what is on its way still names them
  SteadyTime faults_end_;
  std::size_t nested_ = 0;
  std::uint32_t calls_ = 0;
  std::uint32_t calls_ended_ = 0;
  std::uint32_t tokens_ = 0;
};

}  // namespace idempotency::simulation
