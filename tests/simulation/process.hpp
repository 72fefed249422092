#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/waiting_room.hpp"
#include "history.hpp"
#include "idempotency/stores/caching.hpp"
#include "messages.hpp"

namespace idempotency::simulation {

class Caller;
class Process;
class World;

/// A call that a process makes through its cache; on the stack of the one who makes it.
struct Outgoing {
  const Request& request;
  bool reached_the_store = false;
};

/// The way from a process' cache to the store.
class Link {
 public:
  Link(World& world, const Process& process) noexcept : world_(&world), process_(&process) {}

  [[nodiscard]] BeginOutcome begin(const BeginRequest& request);
  [[nodiscard]] WriteOutcome complete(const Key& key, const Ownership& by,
                                      const Completion& completion);
  [[nodiscard]] WriteOutcome fail(const Key& key, const Ownership& by, const Failure& failure,
                                  milliseconds retention);
  // the cache only passes these on, so that the processes send them past it
  [[nodiscard]] WriteOutcome doubt(const Key& key, const Ownership& by);
  [[nodiscard]] WriteOutcome mark_effect(const Key& key, const Ownership& by);
  [[nodiscard]] WriteOutcome renew(const Key& key, const Ownership& by, milliseconds lease);
  ReleaseOutcome release(const Key& key, const Ownership& by, milliseconds retention) noexcept;
  [[nodiscard]] std::optional<Record> find(const Key& key);

 private:
  friend class Process;

  [[nodiscard]] Reply pass(StoreStep step, const OwnerToken& owner);

  World* world_;
  const Process* process_;
  std::vector<Outgoing*> outgoing_;
};

static_assert(Store<Link>);

/// One process with a guard: its waiting room, its cache and its callers.
class Process {
 public:
  Process(World& world, std::string name);
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process();

  void add(std::uint32_t number, const CallPlan& plan);
  /// Like `World::send`, through the cache when there is one.
  void send(const Request& request, std::function<void(const Reply&)> done);
  /// Somebody has changed the room: those who wait look at their places.
  void room_changed();
  /// Everybody in it is gone from one step to the next.
  void crash();
  /// Nobody in it does anything until then; everybody believes that no time has passed.
  void freeze(SteadyTime until) noexcept { frozen_until_ = until; }

  /// Does something in this process at that moment, or when it is awake again; never when it has crashed.
  void at(SteadyTime when, std::function<void()> action);
  void run(std::function<void()> action);

  /// Errors: `Violation` when somebody waits for a leader that is not there.
  void check_room() const;
  /// Errors: `Violation` when a call has not ended, or the room is not empty.
  void check_rest();

  [[nodiscard]] bool alive() const noexcept { return alive_; }
  [[nodiscard]] SteadyTime frozen_until() const noexcept { return frozen_until_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] detail::WaitingRoom& room() noexcept { return room_; }
  [[nodiscard]] const std::vector<std::unique_ptr<Caller>>& callers() const noexcept {
    return callers_;
  }
  void background_write_began() noexcept { ++background_writes_; }
  void background_write_ended() noexcept { --background_writes_; }

 private:
  [[nodiscard]] Reply send_through_cache(const Request& request);

  World& world_;
  std::string name_;
  bool alive_ = true;
  SteadyTime frozen_until_ = beginning;
  std::size_t background_writes_ = 0;
  Link link_;
  std::optional<CachingStore<Link>> cache_;
  detail::WaitingRoom room_;
  std::vector<std::unique_ptr<Caller>> callers_;  // last: their tickets name the room
};

}  // namespace idempotency::simulation
