#pragma once

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace idempotency::testing_support {

/// Waits until a thread of this process sleeps.
inline void wait_until_asleep(pid_t thread) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds{30};
  while (std::chrono::steady_clock::now() < end) {
    std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
    std::string line;
    std::getline(file, line);
    const std::size_t name = line.rfind(") ");
    if (name != std::string::npos && line[name + 2] == 'S') return;
    std::this_thread::yield();
  }
  ADD_FAILURE() << "the thread does not wait";
}

/// Threads that wait for something, in the order in which they were added. They are joined at the end.
class WaitingThreads {
 public:
  /// Starts a thread that does `call()`, and returns when it waits in it: nobody else may hold it up meanwhile.
  template <class Call>
  void add(Call call) {
    std::atomic<pid_t>& thread = ids_.emplace_back(0);
    threads_.emplace_back([&thread, call = std::move(call)] {
      thread = static_cast<pid_t>(::syscall(SYS_gettid));
      thread.notify_one();
      call();
    });
    thread.wait(0);
    wait_until_asleep(thread);
  }
  void join() { threads_.clear(); }

 private:
  std::deque<std::atomic<pid_t>> ids_;
  std::vector<std::jthread> threads_;
};

}  // namespace idempotency::testing_support
