#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/waiting_room.hpp"
#include "idempotency/protocol.hpp"
#include "messages.hpp"
#include "process.hpp"
#include "simulated_lease.hpp"
#include "world.hpp"

namespace idempotency::simulation {

/// One call of `run`: performs what `Protocol` says, as `core/call.cpp` does, but never blocks.
class Caller {
 public:
  Caller(World& world, Process& process, std::uint32_t number, const CallPlan& plan);
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  void start();
  /// Its process has crashed.
  void vanish() noexcept;
  /// The room has changed.
  void look_at_place();

  [[nodiscard]] bool ended() const noexcept { return ended_; }
  [[nodiscard]] bool follows() const;
  [[nodiscard]] bool leads() const;
  [[nodiscard]] const CallPlan& plan() const noexcept { return plan_; }
  /// How it ended; nothing when by an exception.
  [[nodiscard]] const std::optional<RunStatus>& status() const noexcept { return status_; }

 private:
  using Ending = HandlerPlan::Ending;
  using Step = std::optional<ProtocolEvent>;  ///< nothing: an event of the world will follow

  void drive(ProtocolAction action);
  void report(const ProtocolEvent& event);
  Step perform(const ProtocolAction& action);

  // one function for each action that does more than report
  Step join();
  Step await_leader(SteadyTime deadline);
  Step begin();
  Step wait_until(SteadyTime at);
  Step run_handler(SteadyTime lease_end);
  Step run_unprotected();
  Step write();
  Step release();
  Step find();
  void finish(const ProtocolAction& action);
  void end_by_exception();

  [[nodiscard]] ProtocolEvent began(const Reply& reply);
  [[nodiscard]] ProtocolEvent answered(const BeginOutcome& outcome);
  void leave_the_line();
  void wake();

  // the handler
  void start_handler();
  void handler_sleeps(milliseconds span, std::function<void()> then);
  void reach_no_return();
  void mark_effect(SteadyTime give_up);
  void pass_no_return();
  void end_handler();
  void stop_handler();
  void handler_returned(Disposition disposition);
  void handler_threw(Disposition disposition);
  [[nodiscard]] bool cannot_tell() const noexcept;
  [[nodiscard]] bool lease_is_usable() const noexcept;
  void prepare_write(Disposition disposition, std::optional<std::string> result,
                     std::string reason);

  void deliver(RunStatus status);
  void leave_to_background();
  void leave_the_room();
  [[nodiscard]] Request request(StoreStep step) const;
  [[nodiscard]] std::string name() const {
    return process_.name() + " call " + std::to_string(number_);
  }
  void expect_no_wait_beyond_deadline(const ProtocolEvent& event,
                                      const ProtocolAction& action) const;

  World& world_;
  Process& process_;
  std::uint32_t number_;
  CallPlan plan_;
  OwnerToken owner_;
  SteadyTime started_;
  SteadyTime deadline_;
  Protocol protocol_;
  std::optional<detail::WaitingRoom::Ticket> ticket_;
  std::shared_ptr<SimulatedLease> lease_;
  Acquired acquired_{};
  Request end_write_;
  std::optional<std::string> recorded_;
  std::string failure_;
  std::optional<RunStatus> status_;
  std::uint32_t begins_ = 0;
  std::uint32_t sleep_ = 0;  // of the handler
  std::uint32_t wait_ = 0;   // which wait for the leader this is; timers of earlier ones are void
  bool awaiting_ = false;
  bool waking_ = false;
  bool sleeping_ = false;
  bool effect_begun_ = false;
  bool protected_ = false;
  bool threw_ = false;
  bool ended_ = false;
  bool vanished_ = false;
};

}  // namespace idempotency::simulation
