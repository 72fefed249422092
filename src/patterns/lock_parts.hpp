#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/lease_keeper.hpp"
#include "idempotency/detail/lock_engine.hpp"
#include "idempotency/detail/ports.hpp"
#include "idempotency/patterns/distributed_lock.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail {

/// The last fences that were seen, of a few thousand keys.
///
/// Thread safety: all members may be called concurrently.
class SeenFences {
 public:
  /// Errors: `Errc::store_corrupt` when it is not above the last one.
  void note(const Key& key, std::uint64_t fence);

 private:
  static constexpr std::size_t most = 4'096;
  void forget_the_lower_half();

  std::mutex mutex_;
  std::unordered_map<std::string, std::uint64_t> fences_;
};

/// Tells the options' callback and the observer.
class LockListener final : public Observer {
 public:
  explicit LockListener(const LockOptions& options) noexcept : options_(&options) {}

  void on_store_error(const Key& key, StoreCall call, const Error& error,
                      std::uint32_t attempt) noexcept override;
  void on_lease_renewed(const Key& key, std::uint64_t fence) noexcept override;
  void on_lease_lost(const Key& key, std::uint64_t fence) noexcept override;

 private:
  const LockOptions* options_;
};

/// A carrier as the keeper of leases sees it.
class LockRenewals final : public RenewalPort {
 public:
  explicit LockRenewals(LockPort& port) noexcept : port_(&port) {}

  [[nodiscard]] bool batches() const noexcept override { return false; }
  /// Each is one lock's: a carrier that waits for a row or a server holds up no more than these.
  [[nodiscard]] std::size_t most_at_once() const noexcept override { return 16; }
  std::vector<WriteOutcome> renew_many(const std::vector<Renewal>& renewals) override;

 private:
  LockPort* port_;
};

/// What the locks of one engine share.
struct LockParts {
  LockParts(LockPort& lock_port, LockOptions lock_options);

  [[nodiscard]] bool is_inherited() const noexcept;
  /// Errors go to the observer.
  ReleaseOutcome give_back(const Key& key, const OwnerToken& owner) noexcept;
  /// One attempt. Nothing when the lock is another's, whose lease `remaining` then is.
  struct Attempt {
    LockHoldPtr hold;
    std::chrono::milliseconds remaining{0};
    bool is_late = false;  ///< it was granted, but too late to be used
  };
  [[nodiscard]] Attempt attempt(const Key& key);

  LockPort& port;
  LockOptions options;
  std::uint64_t made_in;
  LockListener listener;
  LockRenewals renewals;
  SeenFences seen;
  LeaseLane lane;

 private:
  struct Answer {
    LockOutcome outcome;
    SteadyTime sent;
  };
  [[nodiscard]] Answer ask(const Key& key, const OwnerToken& owner);
};

/// One lock that is held; given back when it is destroyed.
class LockHold {
 public:
  LockHold(LockParts& parts, const Key& key, const Ownership& by, SteadyTime sent);
  LockHold(const LockHold&) = delete;
  LockHold& operator=(const LockHold&) = delete;
  ~LockHold() { release(); }

  void arm() { lease_.arm(); }
  ReleaseOutcome release() noexcept;

  [[nodiscard]] bool is_inherited() const noexcept { return parts_->is_inherited(); }
  [[nodiscard]] const Key& key() const noexcept { return key_; }
  [[nodiscard]] std::uint64_t fence() const noexcept { return by_.fence; }
  [[nodiscard]] std::stop_token stop_token() { return lease_.stop_token(); }
  [[nodiscard]] std::chrono::milliseconds remaining() const;

 private:
  LockParts* parts_;
  Key key_;
  Ownership by_;
  HeldLease lease_;
  std::mutex releasing_;
  std::optional<ReleaseOutcome> outcome_;
  std::atomic<bool> is_released_{false};
};

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
