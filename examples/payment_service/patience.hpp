#pragma once

#include <chrono>

namespace shop {

using Time = std::chrono::system_clock::time_point;

/// How long a charge or a booking may take. Who is asked for it refuses what comes later, so that whoever asks later
/// than that what has become of it gets a final answer.
inline constexpr std::chrono::milliseconds patience{3'000};

/// The end of an operation's time when it starts now.
[[nodiscard]] inline Time end_of_patience() { return std::chrono::system_clock::now() + patience; }

}  // namespace shop
