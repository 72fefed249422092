#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>

#include "caching/cache_entry.hpp"
#include "memory/byte_hash.hpp"
#include "memory/slot_table.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail {

/// A part of a cache's entries behind a lock of its own, which the caller holds during every call.
///
/// What goes first when room is needed is chosen by a hand that goes round: what has ended, and what nobody asked
/// for since the hand came by the last time.
class alignas(128) CacheStripe {
 public:
  CacheStripe() = default;
  CacheStripe(const CacheStripe&) = delete;
  CacheStripe& operator=(const CacheStripe&) = delete;
  ~CacheStripe();

  static constexpr std::size_t npos = SlotTable::npos;
  std::mutex mutex;
  std::uint64_t hits = 0;
  std::uint64_t misses = 0;
  std::uint64_t evictions = 0;

  [[nodiscard]] std::size_t find(std::uint64_t hash, std::string_view key) const;
  [[nodiscard]] std::byte* at(std::size_t index) const noexcept { return table_.at(index); }
  [[nodiscard]] std::size_t entries() const noexcept { return table_.size(); }
  [[nodiscard]] std::size_t bytes() const noexcept { return entry_bytes_ + table_.bytes(); }

  struct Limits {
    std::size_t max_bytes;
    Timestamp now;
  };
  /// Puts an entry in, in the place of one with the same key. Without room or memory there is none afterwards.
  void put(const ByteHash& hash_of_key, std::uint64_t hash, const EntryParts& parts,
           Limits limits) noexcept;
  void erase(const ByteHash& hash_of_key, std::size_t index) noexcept;

 private:
  [[nodiscard]] bool make_room(const ByteHash& hash_of_key, std::size_t bytes,
                               Limits limits) noexcept;
  [[nodiscard]] bool fits(std::size_t bytes, std::size_t max_bytes) const noexcept;
  void evict_one(const ByteHash& hash_of_key, Timestamp now) noexcept;

  SlotTable table_;
  std::size_t entry_bytes_ = 0;
  std::size_t hand_ = 0;
};

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
