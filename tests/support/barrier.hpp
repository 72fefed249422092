#pragma once

#include <cstddef>
#include <exception>
#include <latch>
#include <thread>
#include <vector>

namespace idempotency::testing_support {

/// Calls `work(index)` on `count` threads that start at the same moment, and waits for all of them.
///
/// Errors: the first exception of a thread, after all have ended.
template <class Work>
void run_together(std::size_t count, Work work) {
  std::latch start(static_cast<std::ptrdiff_t>(count));
  std::vector<std::exception_ptr> errors(count);
  {
    std::vector<std::jthread> threads;
    threads.reserve(count);
    for (std::size_t index = 0; index < count; ++index) {
      threads.emplace_back([&, index] {
        start.arrive_and_wait();
        try {
          work(index);
        } catch (...) {
          errors[index] = std::current_exception();
        }
      });
    }
  }
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace idempotency::testing_support
