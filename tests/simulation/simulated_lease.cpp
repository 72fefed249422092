#include "simulated_lease.hpp"

#include <algorithm>
#include <utility>

#include "idempotency/protocol.hpp"

namespace idempotency::simulation {

SimulatedLease::SimulatedLease(World& world, Process& process, const LeaseTerms& terms,
                               std::function<void()> on_lost)
    : world_(world),
      process_(process),
      renewal_(terms.renewal),
      ends_at_(terms.ends_at),
      next_renewal_(terms.ends_at - renewal_.lease + renewal_.lease / 3),
      hold_until_(terms.hold_until),
      on_lost_(std::move(on_lost)) {
  renewal_.step = StoreStep::renew;
}

void SimulatedLease::arm() {
  if (armed_) return;
  armed_ = true;
  look_by(next_renewal_);
}

void SimulatedLease::disarm() noexcept {
  armed_ = false;
  renewing_ = false;
  ++job_;
  ++look_;
}

void SimulatedLease::look_by(SteadyTime due) {
  const bool overslept = world_.faults_are_on() && world_.random().chance(50);
  if (overslept) due += world_.random().between(milliseconds{1}, renewal_.lease / 3);
  process_.at(due, [self = shared_from_this(), expected = ++look_] {
    if (self->armed_ && self->look_ == expected) self->look();
  });
}

void SimulatedLease::look() {
  if (lost_) return;
  const SteadyTime now = world_.now();
  const SteadyTime last_moment = ends_at_ - Protocol::margin(renewal_.lease);
  if (now >= last_moment) {
    lost_ = true;
    world_.coverage().count(Reached::lease_lost);
    world_.note([&] { return "call " + std::to_string(renewal_.call) + " loses its lease"; });
    on_lost_();
    return;
  }
  if (renewing_ || now >= hold_until_) return look_by(last_moment);
  if (now < next_renewal_) return look_by(std::min(next_renewal_, last_moment));
  renew();
  look_by(last_moment);
}

void SimulatedLease::renew() {
  renewing_ = true;
  process_.send(renewal_,
                [self = shared_from_this(), job = ++job_, sent = world_.now()](const Reply& reply) {
                  if (self->process_.alive() && self->armed_ && self->job_ == job)
                    self->settle(reply, sent);
                });
}

void SimulatedLease::settle(const Reply& reply, SteadyTime sent) {
  renewing_ = false;
  if (reply.error() != nullptr) {
    next_renewal_ = world_.now() + std::max(renewal_.lease / 12, milliseconds{1});
  } else if (reply.is_stored()) {
    ends_at_ = sent + renewal_.lease;
    next_renewal_ = sent + renewal_.lease / 3;
  } else if (!lost_) {
    lost_ = true;
    world_.coverage().count(Reached::lease_lost);
    on_lost_();
    return;
  }
  look_by(std::min(next_renewal_, ends_at_ - Protocol::margin(renewal_.lease)));
}

BackgroundWrite::BackgroundWrite(World& world, Process& process, Request write,
                                 const LeaseTerms& terms)
    : world_(world),
      process_(process),
      write_(std::move(write)),
      lease_(std::make_shared<SimulatedLease>(world, process, terms, [] {})) {}

void BackgroundWrite::start() {
  process_.background_write_began();
  lease_->arm();
  process_.at(world_.now() + pause_, [self = shared_from_this()] { self->send(); });
}

void BackgroundWrite::send() {
  lease_->disarm();
  process_.send(write_, [self = shared_from_this()](const Reply& reply) {
    if (!self->process_.alive()) return;
    if (reply.error() == nullptr || !safe_to_retry(*reply.error())) {
      self->process_.background_write_ended();
      self->world_.coverage().count(Reached::settled_behind);
      return;
    }
    self->lease_->arm();
    self->pause_ = std::min(self->pause_ * 2, milliseconds{1'000});
    self->process_.at(self->world_.now() + self->pause_, [self] { self->send(); });
  });
}

}  // namespace idempotency::simulation
