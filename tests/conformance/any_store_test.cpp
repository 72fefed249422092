#include "idempotency/stores/any.hpp"

#include <chrono>
#include <utility>

#include "idempotency/stores/memory.hpp"
#include "idempotency/testing/manual_clock.hpp"
#include "idempotency/testing/store_conformance.hpp"

namespace idempotency::testing {
namespace {

class OwningFixture {
 public:
  AnyStore& store() { return store_; }
  void advance(std::chrono::milliseconds span) { clock_.advance(span); }

 private:
  ManualClock clock_;
  AnyStore store_{std::in_place_type<MemoryStore>, MemoryStoreOptions{.clock = &clock_}};
};

INSTANTIATE_TYPED_TEST_SUITE_P(AnyStoreOwning, StoreConformance, OwningFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(AnyStoreOwning, BatchStoreConformance, OwningFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(AnyStoreOwning, BatchBeginStoreConformance, OwningFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(AnyStoreOwning, IssuingStoreConformance, OwningFixture);

}  // namespace
}  // namespace idempotency::testing
