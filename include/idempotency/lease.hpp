#pragma once

#include <array>
#include <cstdint>

namespace idempotency {
inline namespace v0 {

/// 128 random bits, new for each call of `run`: the proof that a later write comes from the one that
/// began. Thread safety: a value.
class OwnerToken {
 public:
  using Bytes = std::array<std::uint8_t, 16>;

  constexpr OwnerToken() noexcept = default;
  explicit constexpr OwnerToken(const Bytes& bytes) noexcept : bytes_(bytes) {}

  /// A token from the operating system's randomness (through libcrypto), never shared across `fork()`.
  ///
  /// Errors: `Errc::store_unavailable` when no randomness is to be had.
  /// Thread safety: may be called concurrently.
  [[nodiscard]] static OwnerToken generate();

  [[nodiscard]] constexpr const Bytes& bytes() const noexcept { return bytes_; }
  friend constexpr bool operator==(const OwnerToken&, const OwnerToken&) noexcept = default;

 private:
  Bytes bytes_{};
};

/// Who writes: the owner's token and the fence it was granted. Every write after `begin` carries both.
struct Ownership {
  OwnerToken owner;
  std::uint64_t fence = 0;  ///< rises with every acquisition and resolution; the first is 1
  friend bool operator==(const Ownership&, const Ownership&) = default;
};

}  // namespace v0
}  // namespace idempotency
