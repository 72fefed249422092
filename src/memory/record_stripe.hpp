#pragma once

#include <cstddef>
#include <mutex>

#include "memory/byte_hash.hpp"
#include "memory/memory_budget.hpp"
#include "memory/record_block.hpp"
#include "memory/slot_table.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail {

/// A part of a `MemoryStore`'s records behind a lock of its own, which the caller holds during every call.
class alignas(128) RecordStripe {
 public:
  RecordStripe() = default;
  RecordStripe(const RecordStripe&) = delete;
  RecordStripe& operator=(const RecordStripe&) = delete;
  ~RecordStripe();

  static constexpr std::size_t npos = SlotTable::npos;
  std::mutex mutex;

  [[nodiscard]] std::size_t find(std::uint64_t hash, std::string_view key) const;
  [[nodiscard]] std::byte* at(std::size_t index) const noexcept { return table_.at(index); }
  [[nodiscard]] std::size_t capacity() const noexcept { return table_.capacity(); }

  /// Adds a record of a key that is not there.
  ///
  /// Errors: `Errc::store_full` without memory; `refused` when the budget does not allow it.
  [[nodiscard]] MemoryBudget::Grant insert(MemoryBudget& budget, const ByteHash& hash_of_key,
                                           std::uint64_t hash, const RecordParts& parts);

  /// Puts a record in the place of one with the same key, whatever the budget says. `parts` may view the old one.
  ///
  /// Errors: `Errc::store_full` without memory; the old record stays.
  void replace(MemoryBudget& budget, std::size_t index, const RecordParts& parts);

  /// Whether a record may be past its retention.
  [[nodiscard]] bool may_hold_expired(Timestamp now) const noexcept { return earliest_ <= now; }

  struct SweepLimits {
    std::size_t slots;    ///< to look at
    std::size_t records;  ///< to remove
  };
  /// Removes expired records, from where the last sweep ended. All indices may change. Says how many.
  std::size_t sweep(MemoryBudget& budget, const ByteHash& hash_of_key, Timestamp now,
                    SweepLimits limits) noexcept;

  MemoryBudget::Share share;

 private:
  void note(Timestamp expires_at) noexcept;

  SlotTable table_;
  std::size_t hand_ = 0;
  // no record ends before `earliest_`; `round_earliest_` becomes it when the hand has been everywhere
  Timestamp earliest_ = never;
  Timestamp round_earliest_ = never;
};

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
