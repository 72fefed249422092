#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "idempotency/protocol.hpp"

namespace idempotency::simulation {

/// A promise that did not hold.
class Violation : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline void require(bool holds, const char* promise) {
  if (!holds) throw Violation(promise);
}

enum class Recording : std::uint8_t { off, on };

/// Where the virtual steady clock starts.
inline constexpr SteadyTime beginning{std::chrono::milliseconds{1'000'000}};

/// What happened in a schedule, line by line. Lines are made only while recording: a schedule that turns out
/// interesting is simply run again.
class History {
 public:
  explicit History(Recording recording) noexcept : recording_(recording) {}

  /// `text()` makes the line; it must not change anything.
  template <class Text>
  void note(SteadyTime at, const Text& text) {
    if (recording_ == Recording::off) return;
    const auto since = std::chrono::duration_cast<std::chrono::milliseconds>(at - beginning);
    lines_.push_back(std::to_string(since.count()) + " ms  " + text());
  }

  [[nodiscard]] const std::vector<std::string>& lines() const noexcept { return lines_; }

 private:
  Recording recording_;
  std::vector<std::string> lines_;
};

/// FNV-1a (Fowler, Noll, Vo) over all lines.
[[nodiscard]] inline std::uint64_t hash_of(const std::vector<std::string>& lines) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325U;
  const auto add = [&hash](unsigned char byte) { hash = (hash ^ byte) * 0x100000001b3U; };
  for (const std::string& line : lines) {
    for (const char character : line)
      add(static_cast<unsigned char>(character));
    add(0);
  }
  return hash;
}

/// What a set of schedules must have reached to be worth its time.
enum class Reached : std::uint8_t {
  handler_started,
  lease_renewed,
  lease_lost,
  taken_over,
  became_uncertain,
  resolved,
  silent_record_resolved,
  late_resolution_refused,
  effect_marked,
  late_write_refused,
  late_copy_executed,
  late_copy_granted,
  request_lost,
  reply_lost,
  crashed,
  frozen,
  clock_jumped,
  waiter_delivered,
  waiter_promoted,
  waiter_gave_up,
  answered_from_cache,
  life_ended,
  released,
  settled_behind,
  count_
};
inline constexpr std::size_t reached_count = static_cast<std::size_t>(Reached::count_);
[[nodiscard]] std::string_view to_string(Reached reached) noexcept;

inline constexpr std::size_t status_count = static_cast<std::size_t>(RunStatus::undecidable) + 1;

struct Coverage {
  std::array<std::uint64_t, reached_count> reached{};
  std::array<std::uint64_t, status_count> endings{};
  std::uint64_t exceptions = 0;  ///< calls that ended by an exception
  std::uint64_t steps = 0;

  void count(Reached what) noexcept { ++reached[static_cast<std::size_t>(what)]; }
  void count(RunStatus ending) noexcept { ++endings[static_cast<std::size_t>(ending)]; }
  Coverage& operator+=(const Coverage& other) noexcept {
    for (std::size_t at = 0; at < reached.size(); ++at)
      reached[at] += other.reached[at];
    for (std::size_t at = 0; at < endings.size(); ++at)
      endings[at] += other.endings[at];
    exceptions += other.exceptions;
    steps += other.steps;
    return *this;
  }
};

}  // namespace idempotency::simulation
