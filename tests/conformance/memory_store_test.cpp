// ID-02, ID-04, ID-11, LK-20 and LK-22 are cases of the suites that every store instantiates.

#include "idempotency/testing/store_conformance.hpp"
#include "memory_fixture.hpp"

namespace idempotency::testing {
namespace {

using testing_support::MemoryFixture;

INSTANTIATE_TYPED_TEST_SUITE_P(MemoryStore, StoreConformance, MemoryFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(MemoryStore, AdminStoreConformance, MemoryFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(MemoryStore, SettlementConformance, MemoryFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(MemoryStore, BatchStoreConformance, MemoryFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(MemoryStore, BatchBeginStoreConformance, MemoryFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(MemoryStore, IssuingStoreConformance, MemoryFixture);

}  // namespace
}  // namespace idempotency::testing
