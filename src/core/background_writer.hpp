#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/lease_keeper.hpp"
#include "core/pending_write.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail {

/// Repeats writes that a call could not bring home within its budget, and keeps their leases alive, until the store
/// answers or the guard ends. What is left then shows as uncertain (`hold`) or as a lease that runs out.
///
/// Thread safety: `take` may be called concurrently.
class BackgroundWriter {
 public:
  BackgroundWriter(StorePort& store, LeaseLane& leases, Observer* observer) noexcept
      : store_(&store), leases_(&leases), observer_(observer) {}
  BackgroundWriter(const BackgroundWriter&) = delete;
  BackgroundWriter& operator=(const BackgroundWriter&) = delete;
  ~BackgroundWriter();

  struct Work {
    Key key;
    Ownership ownership;
    EndWrite write;
    std::chrono::milliseconds lease;
    SteadyTime lease_ends_at;
    SteadyTime hold_until;
  };
  void take(Work work);

 private:
  struct Pending {
    explicit Pending(LeaseLane& lane, Work taken)
        : work(std::move(taken)),
          held(lane, work.key, work.ownership, work.lease, work.lease_ends_at, work.hold_until) {}
    Work work;
    HeldLease held;
    std::uint32_t attempts = 0;
  };
  using PendingPtr = std::unique_ptr<Pending>;

  void repeat();
  [[nodiscard]] bool settled(Pending& pending);

  StorePort* store_;
  LeaseLane* leases_;
  Observer* observer_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<PendingPtr> arrived_;
  std::thread thread_;
  bool stopping_ = false;
};

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
