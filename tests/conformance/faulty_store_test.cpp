#include "idempotency/testing/faulty_store.hpp"

#include <chrono>

#include "idempotency/stores/memory.hpp"
#include "idempotency/testing/manual_clock.hpp"
#include "idempotency/testing/store_conformance.hpp"

namespace idempotency::testing {
namespace {

/// Without a script it must be like the store behind it.
class FaultlessFixture {
 public:
  FaultyStore<MemoryStore>& store() { return faulty_; }
  MemoryStore& other_store() { return store_; }
  void advance(std::chrono::milliseconds span) { clock_.advance(span); }

 private:
  ManualClock clock_;
  MemoryStore store_{MemoryStoreOptions{.clock = &clock_}};
  FaultyStore<MemoryStore> faulty_{store_};
};

INSTANTIATE_TYPED_TEST_SUITE_P(FaultyStoreWithoutFaults, StoreConformance, FaultlessFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(FaultyStoreWithoutFaults, AdminStoreConformance, FaultlessFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(FaultyStoreWithoutFaults, SettlementConformance, FaultlessFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(FaultyStoreWithoutFaults, BatchStoreConformance, FaultlessFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(FaultyStoreWithoutFaults, BatchBeginStoreConformance,
                               FaultlessFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(FaultyStoreWithoutFaults, IssuingStoreConformance, FaultlessFixture);

}  // namespace
}  // namespace idempotency::testing
