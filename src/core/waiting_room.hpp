#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "idempotency/observer.hpp"
#include "idempotency/protocol.hpp"
#include "idempotency/record.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail {

/// What a leader hands to those who waited for the same operation.
struct Delivery {
  RunStatus status = RunStatus::replayed;
  std::optional<std::string> result = std::nullopt;
  std::string failure = {};
  std::uint64_t fence = 0;
};

/// Where callers of one process that ask for the same key and fingerprint meet, so that only one of
/// them, the leader, asks the store.
///
/// `enter`, `deliver`, `hand_over` and `abandon` never block on anything but a short lock; `await` blocks.
/// Thread safety: all members may be called concurrently, each ticket by one thread.
class WaitingRoom {
 public:
  enum class Place : std::uint8_t { outside, leads, follows, promoted, delivered };

  /// One caller's place; lives on its stack and leaves the room when it ends.
  class Ticket {
   public:
    Ticket(WaitingRoom& room, const Key& key,
           const std::optional<Fingerprint>& fingerprint) noexcept;
    Ticket(const Ticket&) = delete;
    Ticket& operator=(const Ticket&) = delete;
    ~Ticket();

    /// Where the ticket stands; changed by others while it follows.
    [[nodiscard]] Place place() const;
    [[nodiscard]] const std::shared_ptr<const Delivery>& delivery() const noexcept {
      return delivery_;
    }

   private:
    friend class WaitingRoom;

    WaitingRoom* room_;
    const Key* key_;
    const std::optional<Fingerprint>* fingerprint_;
    std::size_t hash_;
    Place place_ = Place::outside;
    Ticket* next_ =
        nullptr;  // a leader: the next flight of the shard; a follower: the next in line
    Ticket* first_follower_ = nullptr;  // leaders only
    Ticket* last_follower_ = nullptr;
    SteadyTime lease_end_{};  // leaders only: what is known of the record's lease
    std::shared_ptr<const Delivery> delivery_;
    std::condition_variable woken_;
  };

  /// Becomes the leader of its key, or stands in line behind one.
  Place enter(Ticket& ticket);

  /// Waits until the leader delivers or hands over, or until `deadline`; then the ticket is outside.
  Place await(Ticket& follower, SteadyTime deadline);

  /// The leader's answer counts for everybody in line; all leave.
  void deliver(Ticket& leader, Delivery delivery);

  /// The leader has no answer for the others: the first in line becomes the leader.
  void hand_over(Ticket& leader) noexcept;

  /// The ticket gives up its place, whatever it is.
  void abandon(Ticket& ticket) noexcept;

  /// Tells those in line until when the record is leased, for their `retry_after`.
  void note_lease(Ticket& leader, SteadyTime lease_end) noexcept;
  /// What the leader of the follower's line said last; the epoch when nothing was said.
  [[nodiscard]] SteadyTime lease_end(const Ticket& follower) const;

 private:
  struct alignas(64) Shard {
    mutable std::mutex mutex;
    Ticket* leaders = nullptr;
  };
  static constexpr std::size_t shard_count = 64;

  [[nodiscard]] Shard& shard_of(const Ticket& ticket) noexcept {
    return shards_[ticket.hash_ % shard_count];
  }
  [[nodiscard]] const Shard& shard_of(const Ticket& ticket) const noexcept {
    return shards_[ticket.hash_ % shard_count];
  }
  static Ticket* find_leader(const Shard& shard, const Ticket& ticket) noexcept;
  static void unlink_leader(Shard& shard, Ticket& leader) noexcept;
  static void promote_next(Shard& shard, Ticket& leader) noexcept;
  static void unlink_follower(const Shard& shard, Ticket& follower) noexcept;

  std::array<Shard, shard_count> shards_;
};

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
