#pragma once

#include <functional>
#include <memory>

#include "messages.hpp"
#include "process.hpp"
#include "world.hpp"

namespace idempotency::simulation {

/// What a lease needs to be renewed.
struct LeaseTerms {
  Request renewal;
  SteadyTime ends_at;
  SteadyTime hold_until;
};

/// A held lease as `core/lease_keeper.hpp` keeps it: the first renewal when a third has passed, a failed one again
/// after a twelfth, lost with a margin before the end.
class SimulatedLease : public std::enable_shared_from_this<SimulatedLease> {
 public:
  SimulatedLease(World& world, Process& process, const LeaseTerms& terms,
                 std::function<void()> on_lost);

  void arm();
  void disarm() noexcept;

  [[nodiscard]] bool lost() const noexcept { return lost_; }
  [[nodiscard]] SteadyTime ends_at() const noexcept { return ends_at_; }

 private:
  void look_by(SteadyTime due);
  void look();
  void renew();
  void settle(const Reply& reply, SteadyTime sent);

  World& world_;
  Process& process_;
  Request renewal_;
  SteadyTime ends_at_;
  SteadyTime next_renewal_;
  SteadyTime hold_until_;
  std::function<void()> on_lost_;
  std::uint32_t look_ = 0;  // the one that is due; earlier ones are void
  std::uint32_t job_ = 0;
  bool renewing_ = false;
  bool armed_ = false;
  bool lost_ = false;
};

/// Repeats the write that ends a run until the store answers, as `core/background_writer.hpp` does.
class BackgroundWrite : public std::enable_shared_from_this<BackgroundWrite> {
 public:
  BackgroundWrite(World& world, Process& process, Request write, const LeaseTerms& terms);

  void start();

 private:
  void send();

  World& world_;
  Process& process_;
  Request write_;
  std::shared_ptr<SimulatedLease> lease_;
  milliseconds pause_{20};
};

}  // namespace idempotency::simulation
