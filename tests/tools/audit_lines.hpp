#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace idempotency::testing_support {

/// The lines of an audit file.
inline std::vector<nlohmann::json> audit_lines(const std::string& path) {
  std::ifstream file(path);
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(file, line);)
    lines.push_back(nlohmann::json::parse(line));
  return lines;
}

}  // namespace idempotency::testing_support
