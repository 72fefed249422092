#include "core/measure.hpp"

#include <time.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <utility>

namespace benchmark_core {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

Nanoseconds processor_time() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) * 1e9 + static_cast<double>(used.tv_nsec);
}

Nanoseconds time_each_on_threads(
    std::size_t threads, std::size_t count,
    const std::function<void(std::size_t thread, std::size_t index)>& body) {
  std::barrier start(static_cast<std::ptrdiff_t>(threads) + 1);
  std::vector<std::jthread> running;
  for (std::size_t thread = 0; thread < threads; ++thread) {
    running.emplace_back([&, thread] {
      start.arrive_and_wait();
      for (std::size_t index = 0; index < count; ++index)
        body(thread, index);
    });
  }
  start.arrive_and_wait();
  const auto begun = std::chrono::steady_clock::now();
  running.clear();
  const std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - begun;
  return taken.count() / static_cast<double>(threads * count);
}

void compare(const Comparison& comparison, std::size_t rounds) {
  std::vector<double> by_hand;
  std::vector<double> ours;
  std::vector<double> ratios;
  for (std::size_t round = 0; round <= rounds; ++round) {
    const bool first = round % 2 == 0;
    const Nanoseconds before = first ? comparison.by_hand() : comparison.ours();
    const Nanoseconds after = first ? comparison.ours() : comparison.by_hand();
    if (round == 0) continue;  // warms up
    by_hand.push_back(first ? before : after);
    ours.push_back(first ? after : before);
    ratios.push_back(ours.back() / by_hand.back());
  }
  const auto [least, most] = std::minmax_element(ratios.begin(), ratios.end());
  std::printf("%-46s %9.0f ns %9.0f ns   %5.2f  (%.2f-%.2f)   %s\n", comparison.name.c_str(),
              median(by_hand), median(ours), median(ratios), *least, *most,
              comparison.wanted.c_str());
}

void compare_threads(const Scaling& scaling, std::size_t rounds) {
  std::vector<double> one;
  std::vector<double> two;
  std::vector<double> ratios;
  for (std::size_t round = 0; round <= rounds; ++round) {
    const Nanoseconds with_one = scaling.run(1);
    const Nanoseconds with_two = scaling.run(2);
    if (round == 0) continue;
    one.push_back(with_one);
    two.push_back(with_two);
    ratios.push_back(with_one / with_two);
  }
  const auto [least, most] = std::minmax_element(ratios.begin(), ratios.end());
  std::printf("%-46s %9.0f ns %9.0f ns   %5.2f  (%.2f-%.2f)   %s\n", scaling.name.c_str(),
              median(one), median(two), median(ratios), *least, *most, scaling.wanted.c_str());
}

void print_heading(std::string_view title) {
  std::printf("\n%.*s\n", static_cast<int>(title.size()), title.data());
}

void wrong(std::string_view what) {
  std::fprintf(stderr, "the benchmark does not do what it measures: %.*s\n",
               static_cast<int>(what.size()), what.data());
  std::exit(1);
}

}  // namespace benchmark_core
