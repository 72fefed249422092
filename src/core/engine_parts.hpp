#pragma once

#include <cstdint>
#include <optional>

#include "core/background_writer.hpp"
#include "core/lease_keeper.hpp"
#include "core/timed_ports.hpp"
#include "core/waiting_room.hpp"
#include "idempotency/detail/engine.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail {

/// What all calls of one guard share.
struct Engine::Parts {
  Parts(StorePort& port, GuardOptions guard_options);

  std::optional<TimedStorePort> timed;  ///< where somebody observes
  StorePort& store;
  GuardOptions options;
  std::uint64_t made_in;  ///< fork generation
  WaitingRoom room;
  LeaseLane leases;
  BackgroundWriter behind;  // last: its pending writes hold leases
};

/// Errors: `Errc::used_after_fork` in a child of the process that made the engine.
void refuse_after_fork(const Engine::Parts& parts);

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
