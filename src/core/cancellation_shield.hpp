#pragma once

#include <pthread.h>

namespace idempotency {
inline namespace v0 {
namespace detail {

/// Holds back `pthread_cancel` while a C client works: its state could not be unwound.
class ThreadCancellationShield {
 public:
  ThreadCancellationShield() noexcept : before_(PTHREAD_CANCEL_ENABLE) {
    static_cast<void>(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_));
  }
  ThreadCancellationShield(const ThreadCancellationShield&) = delete;
  ThreadCancellationShield& operator=(const ThreadCancellationShield&) = delete;
  ~ThreadCancellationShield() { static_cast<void>(pthread_setcancelstate(before_, nullptr)); }

 private:
  int before_;
};

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
