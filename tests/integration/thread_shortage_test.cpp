// No thread is to be had when a lease has to be renewed: it is renewed as soon as there is one, and nothing else happens.

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "idempotency/guard.hpp"
#include "idempotency/patterns/distributed_lock.hpp"
#include "idempotency/patterns/memory_locks.hpp"
#include "idempotency/stores/memory.hpp"
#include "support/child_process.hpp"

namespace idempotency {
namespace {

using namespace std::chrono_literals;
using testing_support::ChildProcess;
using testing_support::ProcessEnd;

/// The user "nobody": limits do not hold for root.
constexpr uid_t nobody = 65'534;

void allow_threads(rlim_t count) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NPROC, &limit) != 0) std::_Exit(11);
  limit.rlim_cur = std::min(count, limit.rlim_max);
  if (::setrlimit(RLIMIT_NPROC, &limit) != 0) std::_Exit(12);
}

bool can_start_a_thread() {
  try {
    std::thread([] {}).join();
    return true;
  } catch (const std::system_error&) {
    return false;
  }
}

struct Counting : Observer {
  void on_lease_renewed(const Key& /*key*/, std::uint64_t /*fence*/) noexcept override {
    ++renewed;
    renewed.notify_all();
  }
  void on_lease_lost(const Key& /*key*/, std::uint64_t /*fence*/) noexcept override { ++lost; }
  std::atomic<int> renewed{0};
  std::atomic<int> lost{0};
};

/// Holds a lease of 6 s: for its first half there are no threads.
int hold(const ChildProcess::ToParent& parent, Counting& watched,
         const std::function<void(const std::function<void()>&)>& while_held) {
  if (::geteuid() == 0 && ::setuid(nobody) != 0) return 13;
  while_held([&] {
    allow_threads(0);
    if (can_start_a_thread()) parent.say("threads can be started");
    std::this_thread::sleep_for(3s);  // the first renewal was due at a third of the lease
    if (watched.renewed != 0) parent.say("renewed without a thread");
    allow_threads(RLIM_INFINITY);
    watched.renewed.wait(0);
  });
  parent.say("lost " + std::to_string(watched.lost));
  return 0;
}

void expect_survived(ChildProcess child) {
  EXPECT_EQ(child.remaining_lines(), std::vector<std::string>{"lost 0"});
  EXPECT_EQ(child.wait(), (ProcessEnd{0, 0}));
}

TEST(ThreadShortage, DoesNotEndAGuardsLease) {
  expect_survived(ChildProcess::fork([](const ChildProcess::ToParent& parent) {
    MemoryStore store;
    Counting watched;
    IdempotencyGuard guard{store, {.observer = &watched}};
    return hold(parent, watched, [&](const std::function<void()>& work) {
      static_cast<void>(
          guard.run({.key = {"order", "7"}, .policy = {.lease = 6s, .max_total_hold = 1h}}, work));
    });
  }));
}

TEST(ThreadShortage, DoesNotEndALock) {
  expect_survived(ChildProcess::fork([](const ChildProcess::ToParent& parent) {
    MemoryLocks locks;
    Counting watched;
    DistributedLock lock{locks, {.lease = 6s, .observer = &watched}};
    return hold(parent, watched, [&](const std::function<void()>& work) {
      const auto held = lock.try_acquire({"order", "7"});
      work();
    });
  }));
}

}  // namespace
}  // namespace idempotency
