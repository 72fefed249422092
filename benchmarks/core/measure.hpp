#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace benchmark_core {

using Nanoseconds = double;

/// What one turn of a case costs, for each of its operations.
using Case = std::function<Nanoseconds()>;

[[nodiscard]] double median(std::vector<double> values);

/// The processor time that this process has used so far, all threads together.
[[nodiscard]] Nanoseconds processor_time();

/// Times `body(index)` for `count` indices: nanoseconds of processor time for each, helper threads included, so
/// that what else the machine does counts less.
template <class Body>
[[nodiscard]] Nanoseconds time_each(std::size_t count, Body body) {
  const Nanoseconds start = processor_time();
  for (std::size_t index = 0; index < count; ++index)
    body(index);
  return (processor_time() - start) / static_cast<double>(count);
}

/// Runs `body(thread, index)` on several threads at once: nanoseconds of the clock for each operation.
[[nodiscard]] Nanoseconds time_each_on_threads(
    std::size_t threads, std::size_t count,
    const std::function<void(std::size_t thread, std::size_t index)>& body);

struct Comparison {
  std::string name;
  std::string wanted;  ///< what the project asks for, as text
  Case by_hand;
  Case ours;
};

/// Runs both sides in turns, round by round, and prints the medians and the median of the rounds' ratios ours / by hand.
void compare(const Comparison& comparison, std::size_t rounds);

/// Runs with one and two threads in turns and prints how many times as much two do.
struct Scaling {
  std::string name;
  std::string wanted;
  std::function<Nanoseconds(std::size_t threads)> run;
};
void compare_threads(const Scaling& scaling, std::size_t rounds);

void print_heading(std::string_view title);

/// Ends the program: what was measured is not what it should be.
[[noreturn]] void wrong(std::string_view what);

inline void check(bool right, std::string_view what) {
  if (!right) wrong(what);
}

}  // namespace benchmark_core
