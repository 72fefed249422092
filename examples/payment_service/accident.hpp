#pragma once

#include <exception>
#include <filesystem>
#include <iostream>
#include <string_view>

#include "arguments.hpp"

namespace shop {

/// Whether a promise was kept, or an accident shown as it happens without; says what is broken otherwise.
inline bool holds(bool held, std::string_view sentence) {
  if (!held) std::cout << "BROKEN: " << sentence << std::endl;
  return held;
}

/// `main` of a program that plays an accident in the folder of `--folder`: `play(folder)` gives its exit code.
template <class Play>
int play_accident(std::string_view name, int count, char** values, Play play) {
  try {
    const Arguments arguments(count, values, {"folder"});
    const std::filesystem::path folder = arguments.text("folder");
    std::filesystem::create_directories(folder);
    return play(folder);
  } catch (const std::exception& problem) {
    std::cerr << name << ": " << problem.what() << '\n';
    return 1;
  }
}

}  // namespace shop
