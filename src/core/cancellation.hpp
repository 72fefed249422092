#pragma once

#include <pthread.h>

namespace idempotency {
inline namespace v0 {
namespace detail {

/// Puts off the cancellation of this thread (`pthread_cancel`): a store's call is not to be torn apart, and what is
/// `noexcept` must not be unwound. A request that arrives meanwhile is acted on at the next cancellation point after it.
class CancellationShield {
 public:
  CancellationShield() noexcept { ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  CancellationShield(const CancellationShield&) = delete;
  CancellationShield& operator=(const CancellationShield&) = delete;
  ~CancellationShield() { ::pthread_setcancelstate(before_, nullptr); }

  /// Lifts the shield for a while: around a handler, and around waiting for others.
  class Gap {
   public:
    explicit Gap(const CancellationShield& shield) noexcept {
      ::pthread_setcancelstate(shield.before_, nullptr);
    }
    Gap(const Gap&) = delete;
    Gap& operator=(const Gap&) = delete;
    ~Gap() { ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr); }
  };

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
