#pragma once

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <random>
#include <string>

/// Says what holds, and ends the program when it does not.
inline void expect(bool holds, const char* sentence) {
  std::cout << (holds ? "ok      " : "BROKEN  ") << sentence << std::endl;
  if (!holds) std::exit(1);
}

/// The path of a database file in the current folder, of which an earlier run has left nothing.
inline std::string new_database(const std::string& name) {
  for (const char* part : {"", "-wal", "-shm"})
    std::filesystem::remove(name + part);
  return name;
}

/// A name that no earlier run of the program has used.
inline std::string new_id() {
  std::random_device random;
  return std::to_string(random()) + std::to_string(random());
}
