#include "idempotency/stores/caching.hpp"

#include <chrono>
#include <cstddef>

#include "conformance/sqlite_fixture.hpp"
#include "idempotency/stores/memory.hpp"
#include "idempotency/testing/manual_clock.hpp"
#include "idempotency/testing/store_conformance.hpp"

namespace idempotency::testing {
namespace {

class CachedMemoryFixture {
 public:
  CachingStore<MemoryStore>& store() { return cache_; }
  /// Another process, with a cache of its own.
  CachingStore<MemoryStore>& other_store() { return other_cache_; }
  void advance(std::chrono::milliseconds span) { clock_.advance(span); }

 private:
  ManualClock clock_;
  MemoryStore store_{MemoryStoreOptions{.clock = &clock_}};
  CachingStore<MemoryStore> cache_{store_, {.clock = &clock_}};
  CachingStore<MemoryStore> other_cache_{store_, {.clock = &clock_}};
};

class CachedSqliteFixture : public testing_support::SqliteFileFixture {
 public:
  CachingStore<SqliteStore>& store() { return cache_; }
  CachingStore<SqliteStore>& other_store() { return other_cache_; }

 private:
  CachingStore<SqliteStore> cache_{file_.first(), {.clock = &file_.clock()}};
  CachingStore<SqliteStore> other_cache_{file_.second(), {.clock = &file_.clock()}};
};

INSTANTIATE_TYPED_TEST_SUITE_P(CachingStoreOverMemory, StoreConformance, CachedMemoryFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(CachingStoreOverMemory, AdminStoreConformance, CachedMemoryFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(CachingStoreOverMemory, SettlementConformance, CachedMemoryFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(CachingStoreOverMemory, BatchStoreConformance, CachedMemoryFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(CachingStoreOverMemory, BatchBeginStoreConformance,
                               CachedMemoryFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(CachingStoreOverMemory, IssuingStoreConformance,
                               CachedMemoryFixture);

INSTANTIATE_TYPED_TEST_SUITE_P(CachingStoreOverSqlite, StoreConformance, CachedSqliteFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(CachingStoreOverSqlite, AdminStoreConformance, CachedSqliteFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(CachingStoreOverSqlite, SettlementConformance, CachedSqliteFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(CachingStoreOverSqlite, BatchStoreConformance, CachedSqliteFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(CachingStoreOverSqlite, BatchBeginStoreConformance,
                               CachedSqliteFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(CachingStoreOverSqlite, IssuingStoreConformance,
                               CachedSqliteFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(CachingStoreOverSqlite, TransactionalStoreConformance,
                               CachedSqliteFixture);

}  // namespace
}  // namespace idempotency::testing
