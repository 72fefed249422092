#pragma once

#include <cstdint>

namespace idempotency {
inline namespace v0 {
namespace detail {

/// Rises in the child of every `fork()`: what was made under another number belongs to the parent.
///
/// Thread safety: may be called concurrently.
[[nodiscard]] std::uint64_t fork_generation() noexcept;

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
