#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "idempotency/detail/ports.hpp"
#include "idempotency/observer.hpp"
#include "idempotency/protocol.hpp"
#include "idempotency/record.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail {

class HeldLease;

/// One renewal on its way to the store. Outlives the lease when that ends meanwhile; the store then answers `lost`.
struct RenewalJob {
  HeldLease* held = nullptr;  // null once the lease has ended; guarded by the shard's lock
  std::size_t shard = 0;
  Renewal renewal;
  bool alone = false;  ///< no other is sent with it; written before it is queued
};

/// The loss of a lease, to be told outside of all locks.
struct LeaseLoss {
  Key key;
  std::uint64_t fence;
  std::optional<std::stop_source> stop;
};

/// Hands losses to users' code on a thread of its own, which is started with the first one and does nothing else.
///
/// Thread safety: all members may be called concurrently.
class LossTeller {
 public:
  explicit LossTeller(std::function<void(const LeaseLoss&)> tell) : tell_(std::move(tell)) {}
  LossTeller(const LossTeller&) = delete;
  LossTeller& operator=(const LossTeller&) = delete;
  /// Tells what is left, then ends.
  ~LossTeller();

  /// False when no thread is to be had now; then they are kept for the next `try_again`.
  bool tell_soon(const std::vector<LeaseLoss>& losses);
  bool try_again();

 private:
  void tell_all();
  bool start();

  std::function<void(const LeaseLoss&)> tell_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<LeaseLoss> losses_;
  std::thread thread_;
  bool ends_ = false;
};

/// The leases of one guard or lock, and the threads that renew them in its store.
///
/// The process's one scheduling thread looks at the lanes and never calls a store; a lane's own threads (started when
/// needed, at most `most_at_once()`) do, so that a slow store or row delays nobody else. Users' code (stop callbacks, the
/// observer) runs on threads of the lane's own that do nothing else, or on the thread that asks for a stop token, and under no lock.
/// Thread safety: all members may be called concurrently.
class LeaseLane {
 public:
  LeaseLane(RenewalPort& store, Observer* observer);
  LeaseLane(const LeaseLane&) = delete;
  LeaseLane& operator=(const LeaseLane&) = delete;
  /// Ends the threads; waits for a renewal that is under way.
  ~LeaseLane();

  /// Looks at every lease: sends what is due to the workers and tells what is lost. Gives the time of the next look.
  SteadyTime sweep(SteadyTime now);

 private:
  friend class HeldLease;

  static constexpr std::size_t shard_count = 8;
  static constexpr std::size_t largest_batch = 64;

  struct alignas(64) Shard {
    std::mutex mutex;
    HeldLease* first = nullptr;
  };
  using Jobs = std::vector<std::shared_ptr<RenewalJob>>;

  [[nodiscard]] SteadyTime look_at(HeldLease& held, SteadyTime now, std::size_t shard, Jobs& due,
                                   std::vector<LeaseLoss>& losses);
  static void mark_lost(HeldLease& held, std::vector<LeaseLoss>& losses);
  void tell_soon(std::vector<LeaseLoss>& losses) noexcept;
  void tell(const LeaseLoss& loss) noexcept;
  /// Whether some thread will renew them.
  [[nodiscard]] bool enqueue(Jobs& due);
  /// Nobody could take them: soon again.
  [[nodiscard]] SteadyTime postpone(const Jobs& due, SteadyTime now);
  void work();
  void renew(Jobs& batch);
  void drop_ended(Jobs& batch);
  [[nodiscard]] Jobs next_batch();
  /// One row that cannot be renewed must not take the others' leases.
  void renew_each_alone(Jobs& batch);
  void settle(RenewalJob& job, std::optional<WriteOutcome> outcome, SteadyTime sent);

  RenewalPort* store_;
  Observer* observer_;
  std::array<Shard, shard_count> shards_;

  std::mutex queue_mutex_;
  std::condition_variable queue_filled_;
  Jobs queue_;
  std::vector<std::thread> workers_;
  std::size_t idle_workers_ = 0;
  bool stopping_ = false;

  LossTeller stops_;    ///< sets stop tokens; must not wait for an observer
  LossTeller reports_;  ///< tells the observer
};

/// A lease that is being renewed while it is armed; lives on the stack of the run.
///
/// Thread safety: `arm` and `disarm` belong to the run's thread; the rest may be called concurrently.
class HeldLease {
 public:
  HeldLease(LeaseLane& lane, const Key& key, const Ownership& ownership,
            std::chrono::milliseconds lease, SteadyTime ends_at, SteadyTime hold_until) noexcept;
  HeldLease(const HeldLease&) = delete;
  HeldLease& operator=(const HeldLease&) = delete;
  ~HeldLease() { disarm(); }

  /// Renewals start: the first when a third of the lease has passed.
  void arm();
  /// Renewals end: none is sent after this returns; one that is under way changes nothing once the record is finished.
  void disarm() noexcept;

  [[nodiscard]] bool lost() const noexcept;
  [[nodiscard]] SteadyTime ends_at() const noexcept;
  /// Made on first use, so that runs that do not ask for it do not pay for it.
  [[nodiscard]] std::stop_token stop_token();

 private:
  friend class LeaseLane;

  [[nodiscard]] LeaseLane::Shard& shard() const noexcept { return lane_->shards_[shard_]; }

  LeaseLane* lane_;
  const Key* key_;
  Ownership ownership_;
  std::chrono::milliseconds lease_;
  SteadyTime ends_at_;  // guarded, as all below, by the shard's lock
  SteadyTime next_renewal_;
  SteadyTime hold_until_;
  std::size_t shard_;
  HeldLease* before_ = nullptr;
  HeldLease* after_ = nullptr;
  std::shared_ptr<RenewalJob> job_;
  std::optional<std::stop_source> stop_;
  bool armed_ = false;
  bool lost_ = false;
  bool alone_ = false;  ///< a batch with it has failed, and it has not been renewed since
};

/// How many scheduling threads this process runs now: 0 or 1. For tests.
[[nodiscard]] std::size_t scheduling_threads() noexcept;

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
