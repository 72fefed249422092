#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/child_process.hpp"

namespace idempotency::testing_support {

/// The path of a program that is installed; empty when it is not.
inline std::string program_path(std::string_view name) {
  const char* path = std::getenv("PATH");
  std::string_view folders = path == nullptr ? "/usr/bin" : path;
  while (true) {
    const std::size_t end = folders.find(':');
    std::string file = std::string(folders.substr(0, end)) + '/' + std::string(name);
    if (::access(file.c_str(), X_OK) == 0) return file;
    if (end == std::string_view::npos) return {};
    folders.remove_prefix(end + 1);
  }
}

/// Tests with a client that nobody here wrote. Where it is not installed they skip loudly; with
/// IDEMPOTENCY_REQUIRE_SERVERS=1 they fail.
class ClientProgramTest : public ::testing::Test {
 protected:
  explicit ClientProgramTest(std::string name)
      : name_(std::move(name)), program_(program_path(name_)) {}

  void SetUp() override {
    if (!program_.empty()) return;
    const char* required = std::getenv("IDEMPOTENCY_REQUIRE_SERVERS");
    if (required != nullptr && std::string_view(required) == "1") {
      FAIL() << name_ << " is not installed, and IDEMPOTENCY_REQUIRE_SERVERS is set";
    }
    GTEST_SKIP() << name_ << " IS NOT INSTALLED: nothing is tested with it here";
  }

  /// What the program says, line by line, until it has ended well.
  std::vector<std::string> output_of(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), program_);
    ChildProcess process = ChildProcess::start(arguments);
    std::vector<std::string> lines = process.remaining_lines();
    EXPECT_EQ(process.wait(), (ProcessEnd{0, 0})) << (lines.empty() ? "" : lines.back());
    return lines;
  }

 private:
  std::string name_;
  std::string program_;
};

}  // namespace idempotency::testing_support
