// ID-02, ID-04, ID-11, LK-20 and LK-22 are cases of the suites that every store instantiates.

#include "idempotency/stores/memory.hpp"

#include <chrono>

#include "idempotency/testing/manual_clock.hpp"
#include "idempotency/testing/store_conformance.hpp"

namespace idempotency::testing {
namespace {

class MemoryFixture {
 public:
  MemoryStore& store() { return store_; }
  void advance(std::chrono::milliseconds span) { clock_.advance(span); }

 private:
  ManualClock clock_;
  MemoryStore store_{MemoryStoreOptions{.clock = &clock_}};
};

INSTANTIATE_TYPED_TEST_SUITE_P(MemoryStore, StoreConformance, MemoryFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(MemoryStore, AdminStoreConformance, MemoryFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(MemoryStore, SettlementConformance, MemoryFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(MemoryStore, BatchStoreConformance, MemoryFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(MemoryStore, IssuingStoreConformance, MemoryFixture);

}  // namespace
}  // namespace idempotency::testing
