#pragma once

#include <cstddef>
#include <string>

namespace benchmark_core {

/// The guard over `MemoryStore` against what a service would write by hand, a locked `unordered_map`.
void memory_rows(std::size_t rounds);

/// The guard over `MemoryStore` against the store's own calls.
void bare_store_rows(std::size_t rounds);

/// The guard over a `CachingStore` over a `SqliteStore` in `folder` against the same look-up.
void caching_rows(const std::string& folder, std::size_t rounds);

/// The guard over a `BreakerStore` that is closed against the guard over its store.
void breaker_rows(std::size_t rounds);

/// Bytes of memory a record at a million records.
void size_rows();

/// How much more two threads do than one.
void scaling_rows(std::size_t rounds);

}  // namespace benchmark_core
