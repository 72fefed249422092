#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "idempotency/detail/cache_table.hpp"
#include "idempotency/detail/judge.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail {

/// What an entry of the cache says. The views point into the entry, or into the arguments of the call that is about
/// to write one.
struct EntryParts {
  enum class Kind : std::uint8_t {
    note,  ///< begun by this process; `ownership` counts
    success,
    failure,  ///< permanent
  };
  Kind kind = Kind::note;
  std::optional<Fingerprint::Part> fingerprint;  ///< the record's
  Ownership ownership;
  Timestamp ends = never;
  std::string_view key;
  std::optional<std::string_view> result;
  std::string_view reason;
};

/// One entry in one allocation: this head, then fingerprint, owner, key, result and reason, as far as there are any.
class CacheEntry {
 public:
  /// Null without memory.
  [[nodiscard]] static std::byte* make(const EntryParts& parts) noexcept;
  static void free(std::byte* entry) noexcept;

  [[nodiscard]] static EntryParts read(const std::byte* entry) noexcept;
  [[nodiscard]] static std::string_view key(const std::byte* entry) noexcept;
  [[nodiscard]] static Timestamp ends(const std::byte* entry) noexcept;
  /// What an entry takes from the heap, the allocator's own header included.
  [[nodiscard]] static std::size_t heap_bytes(const std::byte* entry) noexcept;
  [[nodiscard]] static std::size_t heap_bytes(const EntryParts& parts) noexcept;

  // Whether the entry was asked for since the hand came by.
  [[nodiscard]] static bool visited(const std::byte* entry) noexcept;
  static void set_visited(std::byte* entry, bool visited) noexcept;
};

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
