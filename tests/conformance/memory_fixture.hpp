#pragma once

#include <chrono>

#include "idempotency/stores/memory.hpp"
#include "idempotency/testing/manual_clock.hpp"

namespace idempotency::testing_support {

/// A memory store whose time a test moves.
class MemoryFixture {
 public:
  MemoryStore& store() { return store_; }
  void advance(std::chrono::milliseconds span) { clock_.advance(span); }

 private:
  testing::ManualClock clock_;
  MemoryStore store_{MemoryStoreOptions{.clock = &clock_}};
};

}  // namespace idempotency::testing_support
