#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace idempotency::simulation {

using std::chrono::milliseconds;

/// Numbers that follow from a seed alone: SplitMix64 (Steele, Lea, Flood: "Fast Splittable Pseudorandom Number
/// Generators", 2014).
class SeededRandom {
 public:
  explicit SeededRandom(std::uint64_t seed) noexcept : state_(seed) {}

  std::uint64_t next() noexcept {
    state_ += 0x9e3779b97f4a7c15U;
    std::uint64_t mixed = state_;
    mixed = (mixed ^ (mixed >> 30U)) * 0xbf58476d1ce4e5b9U;
    mixed = (mixed ^ (mixed >> 27U)) * 0x94d049bb133111ebU;
    return mixed ^ (mixed >> 31U);
  }

  /// From 0 to `bound` - 1.
  std::size_t below(std::size_t bound) noexcept { return static_cast<std::size_t>(next() % bound); }

  /// From `least` to `most`, both included.
  milliseconds between(milliseconds least, milliseconds most) noexcept {
    const auto span = static_cast<std::size_t>((most - least).count()) + 1;
    return least + milliseconds{static_cast<milliseconds::rep>(below(span))};
  }

  [[nodiscard]] bool chance(std::uint32_t permille) noexcept {
    return permille > 0 && below(1000) < permille;
  }

  template <class T, std::size_t Count>
  const T& one_of(const std::array<T, Count>& choices) noexcept {
    return choices[below(Count)];
  }

 private:
  std::uint64_t state_;
};

}  // namespace idempotency::simulation
