#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace shop {

/// A server program of this example as a process of its own.
///
/// It dies with the process that started it, whatever that one dies of.
/// Thread safety: belongs to the thread that made it.
class ChildProcess {
 public:
  /// Starts `command` and waits for the port that it prints.
  ///
  /// Errors: `std::runtime_error` when it ends or stays silent instead.
  explicit ChildProcess(const std::vector<std::string>& command);
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  /// Kills it if it still runs.
  ~ChildProcess();

  [[nodiscard]] int port() const noexcept { return port_; }

  /// SIGKILL: no destructor runs, no buffer is written.
  void kill_hard();

  /// SIGTERM, and waits for a clean end. Errors: `std::runtime_error` when the end is not clean.
  void stop();

 private:
  /// Sends the signal and gives what `waitpid` says of the end.
  int end_by(int signal);

  pid_t pid_ = -1;
  int port_ = 0;
};

}  // namespace shop
