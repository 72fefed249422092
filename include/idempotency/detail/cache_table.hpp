#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "idempotency/clock.hpp"
#include "idempotency/store.hpp"

namespace idempotency {
inline namespace v0 {

/// What a cache has done so far and holds now.
struct CacheStatistics {
  std::uint64_t hits = 0;
  std::uint64_t misses = 0;
  std::uint64_t evictions = 0;  ///< entries dropped for room while they still counted
  std::uint64_t entries = 0;
  std::uint64_t bytes = 0;  ///< entries and their table
};

namespace detail {

/// The part of `CachingStore` that does not depend on the store: finished records by key, and notes of what this
/// process has begun.
///
/// An entry ends at `sent` plus the retention that the store said remains, so that it never outlives the record.
/// Filling never fails: without room or memory an entry is not kept.
/// Thread safety: all members may be called concurrently. In a child of `fork()` it knows nothing.
class CacheTable {
 public:
  CacheTable(std::size_t max_bytes, const Clock* clock);
  CacheTable(const CacheTable&) = delete;
  CacheTable& operator=(const CacheTable&) = delete;
  ~CacheTable();

  /// The moment to measure retentions from: taken before a request is sent.
  [[nodiscard]] Timestamp now() const noexcept;

  /// What the store would answer, when an entry knows it.
  [[nodiscard]] std::optional<BeginOutcome> answer(const BeginRequest& request);

  /// Keeps what the store answered to a request: finished records, and a note of what was acquired.
  void learn(const BeginRequest& request, const BeginOutcome& outcome, Timestamp sent) noexcept;

  /// What was noted when this process began a record that was not there before: the fingerprint it carries. Of a record
  /// that is begun again the cache does not know it.
  struct Note {
    std::optional<Fingerprint::Part> fingerprint;
  };
  /// Takes the note of the owner away, so that only the first write it sends fills the cache: a repeated one
  /// cannot know what the first has left, nor since when.
  [[nodiscard]] std::optional<Note> take_note(const Key& key, const Ownership& by) noexcept;

  void keep(const Key& key, std::uint64_t fence, const Note& note, const Completion& completion,
            Timestamp sent) noexcept;
  void keep(const Key& key, std::uint64_t fence, const Note& note, const Failure& failure,
            std::chrono::milliseconds retention, Timestamp sent) noexcept;
  void forget(const Key& key) noexcept;

  [[nodiscard]] CacheStatistics statistics() const;

 private:
  class Impl;
  Impl* impl_;
};

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
