#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string_view>
#include <thread>

#include "idempotency/patterns/lock_carrier.hpp"

namespace idempotency {
inline namespace v0 {

struct LockOptions;

namespace detail {

/// A carrier as the engine sees it, whatever its type.
class LockPort {
 public:
  LockPort() = default;
  LockPort(const LockPort&) = delete;
  LockPort& operator=(const LockPort&) = delete;
  virtual ~LockPort() = default;

  virtual LockOutcome acquire(const Key& key, const OwnerToken& owner,
                              std::chrono::milliseconds lease) = 0;
  virtual WriteOutcome renew(const Key& key, const Ownership& by,
                             std::chrono::milliseconds lease) = 0;
  virtual WriteOutcome release(const Key& key, const OwnerToken& owner) = 0;
  virtual std::uint64_t force_release(const Key& key) = 0;
  /// Until the lock may be free, or `until`.
  virtual void wait(const Key& key, std::chrono::steady_clock::time_point until) = 0;
};

template <LockCarrier CarrierT>
class LockPortOf final : public LockPort {
 public:
  explicit LockPortOf(CarrierT& carrier) noexcept : carrier_(&carrier) {}

  LockOutcome acquire(const Key& key, const OwnerToken& owner,
                      std::chrono::milliseconds lease) override {
    return carrier_->acquire(key, owner, lease);
  }
  WriteOutcome renew(const Key& key, const Ownership& by,
                     std::chrono::milliseconds lease) override {
    return carrier_->renew(key, by, lease);
  }
  WriteOutcome release(const Key& key, const OwnerToken& owner) override {
    return carrier_->release(key, owner);
  }
  std::uint64_t force_release(const Key& key) override { return carrier_->force_release(key); }
  void wait(const Key& key, std::chrono::steady_clock::time_point until) override {
    if constexpr (NotifyingLockCarrier<CarrierT>) {
      carrier_->wait_until_free(key, until);
    } else {
      std::this_thread::sleep_until(until);
    }
  }

 private:
  CarrierT* carrier_;
};

struct LockParts;
class LockHold;
/// Gives the lock back; but in the child of a `fork()` it is the parent's, and so are the keeper's locks.
struct EndLockHold {
  void operator()(LockHold* hold) const noexcept;
};
using LockHoldPtr = std::unique_ptr<LockHold, EndLockHold>;

/// What a lock does, whatever its carrier.
///
/// Thread safety: all members may be called concurrently.
class LockEngine {
 public:
  LockEngine(LockPort& port, LockOptions options);
  LockEngine(const LockEngine&) = delete;
  LockEngine& operator=(const LockEngine&) = delete;
  ~LockEngine();

  /// Nothing when the lock stays another's until `deadline`. There is always one attempt.
  [[nodiscard]] LockHoldPtr acquire(const Key& key, std::chrono::steady_clock::time_point deadline);
  std::uint64_t force_release(const Key& key, std::string_view who, std::string_view why);
  [[nodiscard]] const LockOptions& options() const noexcept;

 private:
  std::unique_ptr<LockParts> parts_;
};

/// As far as the clock counts, for any `wait`: from its first moment to its last.
[[nodiscard]] std::chrono::steady_clock::time_point deadline_after(
    std::chrono::milliseconds wait) noexcept;

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
