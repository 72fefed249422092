#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "idempotency/record.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail {

/// SipHash-1-3 under a secret key of its own: who chooses the keys cannot choose collisions.
///
/// Thread safety: a value; distinct copies may be used concurrently.
class ByteHash {
 public:
  explicit ByteHash(const OwnerToken& secret) noexcept
      : first_(word_at(secret.bytes().data())), second_(word_at(secret.bytes().data() + 8)) {}

  [[nodiscard]] std::uint64_t operator()(std::string_view bytes) const noexcept {
    State state{first_ ^ 0x736f6d6570736575ULL, second_ ^ 0x646f72616e646f6dULL,
                first_ ^ 0x6c7967656e657261ULL, second_ ^ 0x7465646279746573ULL};
    const char* at = bytes.data();
    std::size_t left = bytes.size();
    for (; left >= 8; left -= 8, at += 8)
      state.absorb(word_at(at));
    std::uint64_t last = static_cast<std::uint64_t>(bytes.size()) << 56U;
    for (std::size_t i = 0; i < left; ++i) {
      last |= static_cast<std::uint64_t>(static_cast<unsigned char>(at[i])) << (8U * i);
    }
    state.absorb(last);
    state.v2 ^= 0xffU;
    state.mix();
    state.mix();
    state.mix();
    return state.v0 ^ state.v1 ^ state.v2 ^ state.v3;
  }

 private:
  struct State {
    std::uint64_t v0;
    std::uint64_t v1;
    std::uint64_t v2;
    std::uint64_t v3;

    void mix() noexcept {
      v0 += v1;
      v1 = std::rotl(v1, 13) ^ v0;
      v0 = std::rotl(v0, 32);
      v2 += v3;
      v3 = std::rotl(v3, 16) ^ v2;
      v0 += v3;
      v3 = std::rotl(v3, 21) ^ v0;
      v2 += v1;
      v1 = std::rotl(v1, 17) ^ v2;
      v2 = std::rotl(v2, 32);
    }
    void absorb(std::uint64_t word) noexcept {
      v3 ^= word;
      mix();
      v0 ^= word;
    }
  };

  template <class Byte>
  static std::uint64_t word_at(const Byte* bytes) noexcept {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes, sizeof word);
    return word;
  }

  std::uint64_t first_;
  std::uint64_t second_;
};

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
