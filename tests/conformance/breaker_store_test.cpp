#include "idempotency/stores/breaker.hpp"

#include <chrono>
#include <cstddef>

#include "conformance/sqlite_fixture.hpp"
#include "idempotency/stores/memory.hpp"
#include "idempotency/testing/manual_clock.hpp"
#include "idempotency/testing/store_conformance.hpp"

namespace idempotency::testing {
namespace {

class BreakerOverMemoryFixture {
 public:
  BreakerStore<MemoryStore>& store() { return breaker_; }
  BreakerStore<MemoryStore>& other_store() { return other_breaker_; }
  void advance(std::chrono::milliseconds span) { clock_.advance(span); }

 private:
  ManualClock clock_;
  MemoryStore store_{MemoryStoreOptions{.clock = &clock_}};
  BreakerStore<MemoryStore> breaker_{store_};
  BreakerStore<MemoryStore> other_breaker_{store_};
};

class BreakerOverSqliteFixture : public testing_support::SqliteFileFixture {
 public:
  BreakerStore<SqliteStore>& store() { return breaker_; }
  BreakerStore<SqliteStore>& other_store() { return other_breaker_; }

 private:
  BreakerStore<SqliteStore> breaker_{file_.first()};
  BreakerStore<SqliteStore> other_breaker_{file_.second()};
};

INSTANTIATE_TYPED_TEST_SUITE_P(BreakerStoreOverMemory, StoreConformance, BreakerOverMemoryFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(BreakerStoreOverMemory, AdminStoreConformance,
                               BreakerOverMemoryFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(BreakerStoreOverMemory, SettlementConformance,
                               BreakerOverMemoryFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(BreakerStoreOverMemory, BatchStoreConformance,
                               BreakerOverMemoryFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(BreakerStoreOverMemory, BatchBeginStoreConformance,
                               BreakerOverMemoryFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(BreakerStoreOverMemory, IssuingStoreConformance,
                               BreakerOverMemoryFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(BreakerStoreOverSqlite, TransactionalStoreConformance,
                               BreakerOverSqliteFixture);

}  // namespace
}  // namespace idempotency::testing
