// What the guard costs over the in-memory stores, against what a service would write by hand.
//
//   idempotency_benchmark_core [FOLDER] [ROUNDS]
//
// Both sides of a row run in turns, round by round, in one process: a row shows the median of each side and the median and range
// of the rounds' ratios. The control rows compare a case with itself: how far they are from 1.00 is the noise of the others.

#include <stdlib.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "core/measure.hpp"
#include "core/memory_benchmark.hpp"

int main(int argc, char** argv) {
  std::string folder = (std::filesystem::path(argc > 1 ? argv[1] : ".") / "core-XXXXXX").string();
  const std::size_t rounds =
      argc > 2 ? std::max<std::size_t>(1, std::strtoul(argv[2], nullptr, 10)) : 9;
  if (mkdtemp(folder.data()) == nullptr) benchmark_core::wrong("there is no folder to work in");
  benchmark_core::memory_rows(rounds);
  benchmark_core::bare_store_rows(rounds);
  benchmark_core::caching_rows(folder, rounds);
  benchmark_core::breaker_rows(rounds);
  benchmark_core::scaling_rows(rounds);
  benchmark_core::size_rows();
  std::filesystem::remove_all(folder);
  return 0;
}
