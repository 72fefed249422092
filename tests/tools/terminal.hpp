#pragma once

#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <string>
#include <vector>

namespace idempotency::testing_support {

/// What a program said at a terminal, and how it ended.
struct TerminalRun {
  std::string said;
  int code = -1;  ///< -1: a signal ended it
};

/// When a program at a terminal says `words`, `then` is called once, and `answer` is typed.
struct Cue {
  std::string words = "Type yes";
  std::function<void(pid_t program)> then = [](pid_t) {};
  std::string answer = "yes\n";
};

/// Runs a program at a terminal of its own until it ends.
inline TerminalRun run_at_a_terminal(std::vector<std::string> words, const Cue& cue = {}) {
  std::vector<char*> argv;
  for (std::string& word : words)
    argv.push_back(word.data());
  argv.push_back(nullptr);
  int terminal = -1;
  const pid_t program = ::forkpty(&terminal, nullptr, nullptr, nullptr);
  if (program == 0) {
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  TerminalRun run;
  bool answered = false;
  char buffer[4096];
  while (true) {
    const ssize_t count = ::read(terminal, buffer, sizeof buffer);
    if (count <= 0) break;
    run.said.append(buffer, static_cast<std::size_t>(count));
    if (answered || run.said.find(cue.words) == std::string::npos) continue;
    answered = true;
    cue.then(program);
    const auto length = static_cast<ssize_t>(cue.answer.size());
    EXPECT_EQ(::write(terminal, cue.answer.data(), cue.answer.size()), length);
  }
  int status = 0;
  ::waitpid(program, &status, 0);
  ::close(terminal);
  run.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return run;
}

}  // namespace idempotency::testing_support
