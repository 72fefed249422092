#include "core/waiting_room.hpp"

#include <functional>
#include <string_view>
#include <utility>

#include "idempotency/detail/planted.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail {

WaitingRoom::Ticket::Ticket(WaitingRoom& room, const Key& key,
                            const std::optional<Fingerprint>& fingerprint) noexcept
    : room_(&room),
      key_(&key),
      fingerprint_(&fingerprint),
      hash_(std::hash<std::string_view>{}(key.text())) {}

WaitingRoom::Ticket::~Ticket() {
  if (place_ != Place::outside) room_->abandon(*this);
}

WaitingRoom::Place WaitingRoom::Ticket::place() const {
  const std::lock_guard lock(room_->shard_of(*this).mutex);
  return place_;
}

WaitingRoom::Ticket* WaitingRoom::find_leader(const Shard& shard, const Ticket& ticket) noexcept {
  for (Ticket* leader = shard.leaders; leader != nullptr; leader = leader->next_) {
    if (leader->hash_ == ticket.hash_ && *leader->key_ == *ticket.key_ &&
        *leader->fingerprint_ == *ticket.fingerprint_) {
      return leader;
    }
  }
  return nullptr;
}

WaitingRoom::Place WaitingRoom::enter(Ticket& ticket) {
  Shard& shard = shard_of(ticket);
  const std::lock_guard lock(shard.mutex);
  Ticket* leader = find_leader(shard, ticket);
  if (leader == nullptr) {
    ticket.next_ = std::exchange(shard.leaders, &ticket);
    return ticket.place_ = Place::leads;
  }
  if (leader->last_follower_ == nullptr) {
    leader->first_follower_ = &ticket;
  } else {
    leader->last_follower_->next_ = &ticket;
  }
  leader->last_follower_ = &ticket;
  return ticket.place_ = Place::follows;
}

WaitingRoom::Place WaitingRoom::await(Ticket& follower, SteadyTime deadline) {
  Shard& shard = shard_of(follower);
  std::unique_lock lock(shard.mutex);
  const auto called = [&] { return follower.place_ != Place::follows; };
  if (deadline == SteadyTime::max()) {
    follower.woken_.wait(lock, called);
  } else if (!follower.woken_.wait_until(lock, deadline, called)) {
    unlink_follower(shard, follower);
  }
  return follower.place_;
}

void WaitingRoom::deliver(Ticket& leader, Delivery delivery) {
  const auto shared = std::make_shared<const Delivery>(std::move(delivery));
  Shard& shard = shard_of(leader);
  const std::lock_guard lock(shard.mutex);
  unlink_leader(shard, leader);
  Ticket* follower = std::exchange(leader.first_follower_, nullptr);
  leader.last_follower_ = nullptr;
  bool first = true;
  while (follower != nullptr) {
    Ticket* next = std::exchange(follower->next_, nullptr);
    if (first || !planted(PlantedBug::waiter_never_woken)) {
      follower->delivery_ = shared;
      follower->place_ = Place::delivered;
      follower->woken_.notify_one();
    }
    first = false;
    follower = next;
  }
}

void WaitingRoom::hand_over(Ticket& leader) noexcept {
  Shard& shard = shard_of(leader);
  const std::lock_guard lock(shard.mutex);
  promote_next(shard, leader);
}

void WaitingRoom::abandon(Ticket& ticket) noexcept {
  Shard& shard = shard_of(ticket);
  const std::lock_guard lock(shard.mutex);
  switch (ticket.place_) {
    case Place::leads:
    case Place::promoted:
      promote_next(shard, ticket);
      break;
    case Place::follows:
      unlink_follower(shard, ticket);
      break;
    case Place::delivered:
    case Place::outside:
      ticket.place_ = Place::outside;
      break;
  }
}

void WaitingRoom::note_lease(Ticket& leader, SteadyTime lease_end) noexcept {
  const std::lock_guard lock(shard_of(leader).mutex);
  leader.lease_end_ = lease_end;
}

SteadyTime WaitingRoom::lease_end(const Ticket& follower) const {
  const Shard& shard = shard_of(follower);
  const std::lock_guard lock(shard.mutex);
  const Ticket* leader = find_leader(shard, follower);
  return leader == nullptr ? SteadyTime{} : leader->lease_end_;
}

void WaitingRoom::unlink_leader(Shard& shard, Ticket& leader) noexcept {
  Ticket** link = &shard.leaders;
  while (*link != nullptr && *link != &leader)
    link = &(*link)->next_;
  if (*link == &leader) *link = std::exchange(leader.next_, nullptr);
  leader.place_ = Place::outside;
}

void WaitingRoom::promote_next(Shard& shard, Ticket& leader) noexcept {
  Ticket* follower = std::exchange(leader.first_follower_, nullptr);
  Ticket* last = std::exchange(leader.last_follower_, nullptr);
  const SteadyTime lease_end = leader.lease_end_;
  unlink_leader(shard, leader);
  if (follower == nullptr) return;
  follower->first_follower_ = follower->next_;
  follower->last_follower_ = follower->first_follower_ == nullptr ? nullptr : last;
  follower->lease_end_ = lease_end;
  follower->next_ = std::exchange(shard.leaders, follower);
  follower->place_ = Place::promoted;
  follower->woken_.notify_one();
}

void WaitingRoom::unlink_follower(const Shard& shard, Ticket& follower) noexcept {
  follower.place_ = Place::outside;
  Ticket* leader = find_leader(shard, follower);
  if (leader == nullptr) return;
  Ticket* before = nullptr;
  for (Ticket* at = leader->first_follower_; at != nullptr; before = at, at = at->next_) {
    if (at != &follower) continue;
    (before == nullptr ? leader->first_follower_ : before->next_) = follower.next_;
    if (leader->last_follower_ == &follower) leader->last_follower_ = before;
    follower.next_ = nullptr;
    return;
  }
}

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
