#include <gtest/gtest.h>

#include <chrono>
#include <idempotency/stores/memory.hpp>
#include <idempotency/testing/manual_clock.hpp>
#include <idempotency/testing/store_conformance.hpp>

// Somebody's own store; here it is the library's, so that the suite is known to pass.
struct OwnStoreFixture {
  idempotency::testing::ManualClock clock;
  idempotency::MemoryStore own_store{{.clock = &clock}};

  idempotency::MemoryStore& store() { return own_store; }
  void advance(std::chrono::milliseconds span) { clock.advance(span); }
};

namespace idempotency::testing {
INSTANTIATE_TYPED_TEST_SUITE_P(OwnStore, StoreConformance, OwnStoreFixture);
}  // namespace idempotency::testing
