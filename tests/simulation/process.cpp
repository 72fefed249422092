#include "process.hpp"

#include <algorithm>
#include <utility>

#include "caller.hpp"
#include "world.hpp"

namespace idempotency::simulation {

using detail::WaitingRoom;

BeginOutcome Link::begin(const BeginRequest& request) {
  return std::get<BeginOutcome>(pass(StoreStep::begin, request.owner).content);
}
WriteOutcome Link::complete(const Key& /*key*/, const Ownership& by,
                            const Completion& /*completion*/) {
  return std::get<WriteOutcome>(pass(StoreStep::complete, by.owner).content);
}
WriteOutcome Link::fail(const Key& /*key*/, const Ownership& by, const Failure& /*failure*/,
                        milliseconds /*retention*/) {
  return std::get<WriteOutcome>(pass(StoreStep::fail, by.owner).content);
}
WriteOutcome Link::doubt(const Key& /*key*/, const Ownership& by) {
  return std::get<WriteOutcome>(pass(StoreStep::doubt, by.owner).content);
}
WriteOutcome Link::mark_effect(const Key& /*key*/, const Ownership& by) {
  return std::get<WriteOutcome>(pass(StoreStep::mark_effect, by.owner).content);
}
WriteOutcome Link::renew(const Key& /*key*/, const Ownership& by, milliseconds /*lease*/) {
  return std::get<WriteOutcome>(pass(StoreStep::renew, by.owner).content);
}
ReleaseOutcome Link::release(const Key& /*key*/, const Ownership& /*by*/,
                             milliseconds /*retention*/) noexcept {
  return ReleaseOutcome::unknown;
}
std::optional<Record> Link::find(const Key& /*key*/) {
  return std::get<std::optional<Record>>(pass(StoreStep::find, {}).content);
}

Reply Link::pass(StoreStep step, const OwnerToken& owner) {
  const auto sent = std::find_if(outgoing_.begin(), outgoing_.end(), [&](const Outgoing* each) {
    return each->request.step == step && each->request.by.owner == owner;
  });
  require(sent != outgoing_.end(), "a cache must not call the store of its own accord");
  (*sent)->reached_the_store = true;
  Reply reply = world_->exchange((*sent)->request);
  if (process_->frozen_until() > world_->now())
    world_->pause(process_->frozen_until() - world_->now());
  if (!process_->alive()) throw Error(Errc::store_unavailable, "this process has crashed");
  if (const Errc* error = reply.error()) throw Error(*error, "lost on the way");
  return reply;
}

Process::Process(World& world, std::string name)
    : world_(world), name_(std::move(name)), link_(world, *this) {
  if (world.plan().cached) {
    cache_.emplace(link_, CachingStoreOptions{.max_bytes = std::size_t{1} << 16U,
                                              .clock = &world.time().cache_clock()});
  }
}

Process::~Process() = default;

void Process::add(std::uint32_t number, const CallPlan& plan) {
  callers_.push_back(std::make_unique<Caller>(world_, *this, number, plan));
  callers_.back()->start();
}

void Process::send(const Request& request, std::function<void(const Reply&)> done) {
  const bool through_cache = request.step == StoreStep::begin ||
                             request.step == StoreStep::complete || request.step == StoreStep::fail;
  if (cache_ && through_cache) return done(send_through_cache(request));
  world_.send(request, [this, done = std::move(done)](const Reply& reply) {
    run([done, reply] { done(reply); });
  });
}

Reply Process::send_through_cache(const Request& request) {
  Outgoing outgoing{request};
  link_.outgoing_.push_back(&outgoing);
  Reply reply;
  try {
    const Key& key = world_.key(request.key);
    if (request.step == StoreStep::begin) {
      reply.content = cache_->begin({.key = key,
                                     .owner = request.by.owner,
                                     .fingerprint = fingerprint_of(request.meaning),
                                     .mode = request.mode,
                                     .lease = request.lease,
                                     .trace = std::to_string(request.call)});
    } else if (request.step == StoreStep::complete) {
      reply.content =
          cache_->complete(key, request.by, Completion{request.bytes, request.retention});
    } else {
      reply.content = cache_->fail(key, request.by,
                                   Failure{request.retryability, request.reason, request.bytes},
                                   request.retention);
    }
  } catch (const Error& error) {
    reply.content = error.code();
  }
  std::erase(link_.outgoing_, &outgoing);
  const auto* outcome = std::get_if<BeginOutcome>(&reply.content);
  if (outcome != nullptr && !outgoing.reached_the_store) {
    world_.note([&] {
      return "the cache of " + name_ + " answers " + describe(request) + ": " + describe(*outcome);
    });
    world_.oracle().answered_from_cache(request, *outcome);
  }
  return reply;
}

void Process::at(SteadyTime when, std::function<void()> action) {
  world_.at(when, [this, act = std::move(action)] { run(act); });
}

void Process::run(std::function<void()> action) {
  if (!alive_) return;
  if (frozen_until_ > world_.now()) return at(frozen_until_, std::move(action));
  action();
}

void Process::room_changed() {
  for (const auto& caller : callers_)
    caller->look_at_place();
}

void Process::crash() {
  alive_ = false;
  for (const auto& caller : callers_)
    caller->vanish();
}

void Process::check_room() const {
  for (const auto& waiting : callers_) {
    if (!waiting->follows()) continue;
    const bool led = std::any_of(callers_.begin(), callers_.end(), [&](const auto& other) {
      return other->leads() && other->plan().key == waiting->plan().key &&
             other->plan().meaning == waiting->plan().meaning;
    });
    require(led, "a waiting caller must be woken when its leader is gone");
  }
}

void Process::check_rest() {
  for (const auto& caller : callers_)
    require(caller->ended(), "every call must end");
  require(background_writes_ == 0, "a write that is repeated behind must end");
  for (std::size_t number = 0; number < world_.plan().keys; ++number) {
    for (const Meaning meaning :
         {Meaning::unsaid, Meaning::first, Meaning::second, Meaning::first_renumbered}) {
      WaitingRoom::Ticket probe(room_, world_.key(number), fingerprint_of(meaning));
      require(room_.enter(probe) == WaitingRoom::Place::leads,
              "nobody must be left in the room when all calls have ended");
    }
  }
}

}  // namespace idempotency::simulation
