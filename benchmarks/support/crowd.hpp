#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace benchmark_support {

/// One operation, made again and again.
using Work = std::function<void()>;
/// Makes what one thread of a crowd does, on that thread, together with what it needs for it (a connection, say).
using MakeWork = std::function<Work(std::size_t thread)>;

/// The same work by hand and through the library, by many threads at once.
struct CrowdRow {
  std::string name;
  std::size_t threads = 1;
  MakeWork by_hand;
  MakeWork ours;
  double wanted = 0;  ///< our operations in a second by theirs, at least; 0: not asked for
  double wanted_p99 =
      0;  ///< what 99 of 100 operations take at most, ours by theirs, at most; 0: not asked for
};

/// How rows are measured. A round gives each side its turns, in short slices one after the other.
struct Effort {
  std::size_t rounds = 7;
  std::size_t slices = 10;
  std::chrono::milliseconds slice{100};
};

/// What the command line asks for: `[ROUNDS] [ROW]`, at least seven rounds unless it says so, and only rows whose name
/// contains the second.
class Selection {
 public:
  Selection(int count, char** values);
  [[nodiscard]] const Effort& effort() const noexcept { return effort_; }
  [[nodiscard]] bool wants(std::string_view row) const {
    return row.find(filter_) != std::string_view::npos;
  }

 private:
  Effort effort_;
  std::string filter_;
};

/// The processor time that a process has used so far, in nanoseconds.
using ProcessorTime = std::function<double()>;
[[nodiscard]] ProcessorTime processor_time_of(long process);

void print_crowd_heading(std::string_view title);

/// Runs by hand, by hand once more (the control) and through the library in turns, and prints the row: operations in a
/// second, the median and the range of the rounds' ratios, the control's ratio, how p50 and p99 compare, and the
/// processor time of an operation, ours and the server's.
void compare(const CrowdRow& row, const Effort& effort, const ProcessorTime& server);

}  // namespace benchmark_support
