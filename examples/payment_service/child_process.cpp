#include "child_process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <stdexcept>
#include <system_error>

namespace shop {

namespace {

constexpr int start_timeout_in_milliseconds = 30'000;

/// Reads the line that a server prints when it accepts connections.
int read_port(int from, const std::string& program) {
  std::string line;
  while (line.empty() || line.back() != '\n') {
    pollfd readable{.fd = from, .events = POLLIN, .revents = 0};
    const int ready = ::poll(&readable, 1, start_timeout_in_milliseconds);
    if (ready < 0 && errno == EINTR) continue;
    std::array<char, 32> part{};
    const ssize_t size = ready > 0 ? ::read(from, part.data(), part.size()) : 0;
    if (size <= 0) throw std::runtime_error(program + " did not start");
    line.append(part.data(), static_cast<std::size_t>(size));
  }
  int port = 0;
  std::from_chars(line.data(), line.data() + line.size(), port);
  if (port <= 0) throw std::runtime_error(program + " printed no port");
  return port;
}

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  for (const std::string& argument : command)
    arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) {
    throw std::system_error(errno, std::generic_category(), "pipe");
  }
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) {  // only async-signal-safe calls from here to exec
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() == parent && ::dup2(pipe[1], STDOUT_FILENO) >= 0) {
      ::execv(arguments[0], arguments.data());
    }
    ::_exit(127);
  }
  ::close(pipe[1]);
  if (pid_ < 0) {
    ::close(pipe[0]);
    throw std::system_error(errno, std::generic_category(), "fork");
  }
  try {
    port_ = read_port(pipe[0], command.front());
  } catch (...) {
    ::close(pipe[0]);
    kill_hard();
    throw;
  }
  ::close(pipe[0]);
}

ChildProcess::~ChildProcess() { kill_hard(); }

void ChildProcess::kill_hard() { end_by(SIGKILL); }

void ChildProcess::stop() {
  const int status = end_by(SIGTERM);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    throw std::runtime_error("a server did not end cleanly");
  }
}

int ChildProcess::end_by(int signal) {
  if (pid_ < 0) return 0;
  ::kill(pid_, signal);
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  return status;
}

}  // namespace shop
