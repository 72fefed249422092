#include "caching/cache_stripe.hpp"

#include <new>

namespace idempotency {
inline namespace v0 {
namespace detail {

CacheStripe::~CacheStripe() {
  for (std::size_t index = 0; index < table_.capacity(); ++index) {
    if (std::byte* entry = table_.at(index)) CacheEntry::free(entry);
  }
}

std::size_t CacheStripe::find(std::uint64_t hash, std::string_view key) const {
  return table_.find(hash, [key](const std::byte* entry) { return CacheEntry::key(entry) == key; });
}

void CacheStripe::put(const ByteHash& hash_of_key, std::uint64_t hash, const EntryParts& parts,
                      Limits limits) noexcept {
  const std::size_t old = find(hash, parts.key);
  if (old != npos) erase(hash_of_key, old);
  const std::size_t bytes = CacheEntry::heap_bytes(parts);
  if (!make_room(hash_of_key, bytes, limits)) return;
  if (table_.must_grow()) {
    try {
      table_.grow([&](const std::byte* other) { return hash_of_key(CacheEntry::key(other)); });
    } catch (const std::bad_alloc&) {
      return;
    }
  }
  std::byte* entry = CacheEntry::make(parts);
  if (entry == nullptr) return;
  if (!SlotTable::can_hold(entry)) {
    CacheEntry::free(entry);
    return;
  }
  table_.insert(hash, entry);
  entry_bytes_ += bytes;
}

void CacheStripe::erase(const ByteHash& hash_of_key, std::size_t index) noexcept {
  std::byte* entry = table_.at(index);
  table_.erase(index, [&](const std::byte* other) { return hash_of_key(CacheEntry::key(other)); });
  entry_bytes_ -= CacheEntry::heap_bytes(entry);
  CacheEntry::free(entry);
}

bool CacheStripe::make_room(const ByteHash& hash_of_key, std::size_t bytes,
                            Limits limits) noexcept {
  if (bytes > limits.max_bytes / 2) return false;
  while (!fits(bytes, limits.max_bytes)) {
    if (table_.size() == 0) return false;
    evict_one(hash_of_key, limits.now);
  }
  return true;
}

bool CacheStripe::fits(std::size_t entry_bytes, std::size_t max_bytes) const noexcept {
  const std::size_t table_bytes = table_.must_grow() ? table_.bytes_to_grow() : 0;
  return bytes() + entry_bytes + table_bytes <= max_bytes;
}

// ends: a full turn clears every mark, so that the next entry met goes
void CacheStripe::evict_one(const ByteHash& hash_of_key, Timestamp now) noexcept {
  for (;; ++hand_) {
    if (hand_ >= table_.capacity()) hand_ = 0;
    std::byte* entry = table_.at(hand_);
    if (entry == nullptr) continue;
    const bool ended = CacheEntry::ends(entry) <= now;
    if (!ended && CacheEntry::visited(entry)) {
      CacheEntry::set_visited(entry, false);
      continue;
    }
    if (!ended) ++evictions;
    erase(hash_of_key, hand_);
    return;
  }
}

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
