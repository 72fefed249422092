#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>

namespace idempotency {
inline namespace v0 {
namespace detail {

/// An open-addressed table of pointers to blocks, eight bytes a slot: sixteen bits of the hash beside the
/// pointer, so that a look-up reads a block only when it is very likely the right one.
///
/// It owns neither blocks nor their hashes; `hash_of(block)` computes one anew where it is needed.
/// Thread safety: none.
class SlotTable {
 public:
  static_assert(sizeof(std::uintptr_t) == 8,
                "idempotency: the memory tables need 64-bit pointers.");
  static constexpr std::size_t npos = std::numeric_limits<std::size_t>::max();

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return capacity_ * sizeof(std::uint64_t); }
  [[nodiscard]] bool must_grow() const noexcept { return (size_ + 1) * 5 > capacity_ * 4; }
  [[nodiscard]] std::size_t bytes_to_grow() const noexcept {
    return (grown() - capacity_) * sizeof(std::uint64_t);
  }

  /// The block in a slot, or null.
  [[nodiscard]] std::byte* at(std::size_t index) const noexcept {
    return reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(slots_[index] & pointer_mask));
  }

  /// The slot whose block `matches`, or `npos`.
  template <class Matches>
  [[nodiscard]] std::size_t find(std::uint64_t hash, Matches matches) const {
    if (capacity_ == 0) return npos;
    const std::uint64_t tag = tag_of(hash);
    for (std::size_t index = home_of(hash); slots_[index] != 0; index = after(index)) {
      if ((slots_[index] & ~pointer_mask) == tag && matches(at(index))) return index;
    }
    return npos;
  }

  /// Preconditions: `can_hold(block)`, `!must_grow()`, and no slot holds the same key.
  std::size_t insert(std::uint64_t hash, std::byte* block) noexcept {
    std::size_t index = home_of(hash);
    while (slots_[index] != 0)
      index = after(index);
    slots_[index] = tag_of(hash) | address_of(block);
    ++size_;
    return index;
  }

  /// Puts another block of the same key into a slot.
  void replace(std::size_t index, std::byte* block) noexcept {
    slots_[index] = (slots_[index] & ~pointer_mask) | address_of(block);
  }

  /// Empties a slot. Later blocks of the same run may move towards it, one into the slot itself.
  template <class HashOf>
  void erase(std::size_t index, HashOf hash_of) noexcept {
    --size_;
    std::size_t hole = index;
    for (std::size_t next = after(hole); slots_[next] != 0; next = after(next)) {
      const std::size_t home = home_of(hash_of(at(next)));
      const bool reachable = distance(home, next) >= distance(hole, next);
      if (!reachable) continue;
      slots_[hole] = slots_[next];
      hole = next;
    }
    slots_[hole] = 0;
  }

  /// Makes room for half as many again. All indices change.
  template <class HashOf>
  void grow(HashOf hash_of) {
    SlotTable larger;
    larger.capacity_ = grown();
    larger.slots_ = std::make_unique<std::uint64_t[]>(larger.capacity_);
    for (std::size_t index = 0; index < capacity_; ++index) {
      if (slots_[index] != 0) larger.insert(hash_of(at(index)), at(index));
    }
    *this = std::move(larger);
  }

  /// Whether a pointer leaves the bits free that the tag needs.
  [[nodiscard]] static bool can_hold(const void* block) noexcept {
    return (address_of(block) & ~pointer_mask) == 0;
  }

 private:
  static constexpr std::uint64_t pointer_mask = (std::uint64_t{1} << 48U) - 1;

  static std::uint64_t address_of(const void* block) noexcept {
    return reinterpret_cast<std::uintptr_t>(block);
  }
  static std::uint64_t tag_of(std::uint64_t hash) noexcept { return hash << 48U; }

  // bits 16 to 47; the lowest are the tag, the highest choose the stripe
  [[nodiscard]] std::size_t home_of(std::uint64_t hash) const noexcept {
    return static_cast<std::size_t>((((hash >> 16U) & 0xffffffffU) * capacity_) >> 32U);
  }
  [[nodiscard]] std::size_t after(std::size_t index) const noexcept {
    return index + 1 == capacity_ ? 0 : index + 1;
  }
  [[nodiscard]] std::size_t distance(std::size_t from, std::size_t to) const noexcept {
    return to >= from ? to - from : to + capacity_ - from;
  }
  [[nodiscard]] std::size_t grown() const noexcept {
    return capacity_ == 0 ? 8 : capacity_ + capacity_ / 2;
  }

  std::unique_ptr<std::uint64_t[]> slots_;
  std::size_t capacity_ = 0;
  std::size_t size_ = 0;
};

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
