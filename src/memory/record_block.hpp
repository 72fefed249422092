#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "idempotency/detail/judge.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail {

/// What a block of a `MemoryStore` says. The views point into the block, or into the arguments of the call that
/// is about to write one.
struct RecordParts {
  RecordFacts facts;
  std::uint32_t attempt = 0;
  Timestamp updated_at{};
  std::string_view key;
  std::size_t type_size = 0;
  std::optional<std::string_view> result;  ///< of a success, or of a returned failure
  std::string_view reason;
  std::string_view trace;

  /// Of the lease, or of the retention when finished.
  [[nodiscard]] Timestamp deadline() const noexcept {
    return facts.state == RecordState::processing ? facts.lease_until : facts.expires_at;
  }
};

/// One record in one allocation: the fields of fixed size, then numbers of variable length and the bytes.
///
/// 16 owner | 3 x 6 times | 1 flags | key and type size | key | fence | attempt | sizes of result, reason and
/// trace | fingerprint | result | reason | trace. A size of variable length takes one byte below 128.
class RecordBlock {
 public:
  /// A block for `parts`, or null when there is no memory.
  [[nodiscard]] static std::byte* make(const RecordParts& parts) noexcept;
  static void free(std::byte* block) noexcept;

  [[nodiscard]] static RecordParts read(const std::byte* block) noexcept;
  [[nodiscard]] static std::string_view key(const std::byte* block) noexcept;
  /// The end of the retention of a finished record, `never` for one that does not expire.
  [[nodiscard]] static Timestamp expires_at(const std::byte* block) noexcept;

  // What does not change the size is changed in place.
  static void set_deadline(std::byte* block, Timestamp deadline) noexcept;
  static void mark_effect(std::byte* block) noexcept;
  static void make_uncertain(std::byte* block, Timestamp now) noexcept;

  /// What a block for `parts` takes from the heap, the allocator's own header included.
  [[nodiscard]] static std::size_t heap_bytes(const RecordParts& parts) noexcept;
};

[[nodiscard]] Record record_of(const RecordParts& parts);

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
