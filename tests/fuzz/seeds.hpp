#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace idempotency::fuzzing {

/// A corpus in code: one mutation of eight begins anew with one of `seeds`.
inline std::size_t mutate_with_seeds(const std::vector<std::string>& seeds, std::uint8_t* data,
                                     std::size_t size, std::size_t max_size, unsigned seed) {
  constexpr unsigned one_of = 8;
  if (seed % one_of == 0) {
    const std::string& chosen = seeds[seed / one_of % seeds.size()];
    size = std::min(chosen.size(), max_size);
    std::memcpy(data, chosen.data(), size);
  }
  return LLVMFuzzerMutate(data, size, max_size);
}

}  // namespace idempotency::fuzzing
