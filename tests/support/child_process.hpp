#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace idempotency::testing_support {

/// How a process ended: an exit code, or the signal that killed it.
struct ProcessEnd {
  int exit_code = -1;
  int signal = 0;
  friend bool operator==(const ProcessEnd&, const ProcessEnd&) = default;
};

/// A process that a test starts and kills. Killed and reaped when it is destroyed.
class ChildProcess {
 public:
  /// What the child writes to its parent, line by line.
  class ToParent {
   public:
    explicit ToParent(int descriptor) noexcept : descriptor_(descriptor) {}
    void say(std::string_view line) const {
      std::string text(line);
      text += '\n';
      for (std::size_t sent = 0; sent < text.size();) {
        const ssize_t wrote = ::write(descriptor_, text.data() + sent, text.size() - sent);
        if (wrote < 0 && errno != EINTR) return;
        if (wrote > 0) sent += static_cast<std::size_t>(wrote);
      }
    }

   private:
    int descriptor_;
  };

  /// Forks. The child calls `int work(const ToParent&)` and ends with its value, without running destructors or exit
  /// handlers of the parent's; an exception ends it with 99. Fork before threads are started.
  template <class Work>
  [[nodiscard]] static ChildProcess fork(Work work) {
    const Pipe pipe = open_pipe();
    const pid_t id = checked_fork();
    if (id == 0) {
      ::close(pipe.read);
      int code = 99;
      try {
        code = work(ToParent(pipe.write));
      } catch (...) {
        code = 99;
      }
      ::_exit(code);
    }
    ::close(pipe.write);
    return ChildProcess(id, pipe.read);
  }

  /// Starts a program that dies with the thread that started it, so that no test leaves one behind; its standard output and error are what it says to the parent. `environment` is added to this
  /// process' own, each as NAME=VALUE.
  [[nodiscard]] static ChildProcess start(const std::vector<std::string>& arguments,
                                          std::vector<std::string> environment = {}) {
    std::vector<std::string> words(arguments);
    std::vector<char*> argv;
    for (std::string& word : words)
      argv.push_back(word.data());
    argv.push_back(nullptr);
    std::vector<char*> envp;
    for (char** variable = ::environ; *variable != nullptr; ++variable)
      envp.push_back(*variable);
    for (std::string& variable : environment)
      envp.push_back(variable.data());
    envp.push_back(nullptr);
    const Pipe pipe = open_pipe();
    const pid_t id = checked_fork();
    if (id == 0) {  // only calls that are safe after fork
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::dup2(pipe.write, STDOUT_FILENO);
      ::dup2(pipe.write, STDERR_FILENO);
      ::execve(argv[0], argv.data(), envp.data());
      ::_exit(127);
    }
    ::close(pipe.write);
    return ChildProcess(id, pipe.read);
  }

  ChildProcess(ChildProcess&& other) noexcept
      : id_(std::exchange(other.id_, -1)),
        from_child_(std::exchange(other.from_child_, -1)),
        buffer_(std::move(other.buffer_)),
        end_(other.end_) {}
  ChildProcess& operator=(ChildProcess&&) = delete;
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  ~ChildProcess() {
    if (id_ > 0 && !end_) {
      ::kill(id_, SIGKILL);
      static_cast<void>(wait());
    }
    if (from_child_ >= 0) ::close(from_child_);
  }

  [[nodiscard]] pid_t id() const noexcept { return id_; }
  void send(int signal) const {
    if (!end_) ::kill(id_, signal);
  }
  /// SIGKILL, and waits for the end.
  ProcessEnd kill() {
    send(SIGKILL);
    return wait();
  }
  /// Waits until it has ended.
  ProcessEnd wait() {
    while (!end_) {
      int status = 0;
      if (::waitpid(id_, &status, 0) != id_) {
        if (errno == EINTR) continue;
        throw std::system_error(errno, std::generic_category(), "waitpid");
      }
      end_ = WIFSIGNALED(status) ? ProcessEnd{-1, WTERMSIG(status)}
                                 : ProcessEnd{WEXITSTATUS(status), 0};
    }
    return *end_;
  }

  /// The next line the child says; nothing when it has closed its side, or after `limit`, which only ends tests
  /// that hang.
  [[nodiscard]] std::optional<std::string> next_line(
      std::chrono::milliseconds limit = std::chrono::seconds{60}) {
    const auto end = std::chrono::steady_clock::now() + limit;
    while (true) {
      if (const std::size_t at = buffer_.find('\n'); at != std::string::npos) {
        std::string line = buffer_.substr(0, at);
        buffer_.erase(0, at + 1);
        return line;
      }
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          end - std::chrono::steady_clock::now());
      if (left.count() <= 0 || !read_more(static_cast<int>(left.count()))) return std::nullopt;
    }
  }
  /// Everything the child says from now on, until it ends.
  [[nodiscard]] std::vector<std::string> remaining_lines() {
    std::vector<std::string> lines;
    while (std::optional<std::string> line = next_line())
      lines.push_back(*std::move(line));
    return lines;
  }

 private:
  struct Pipe {
    int read = -1;
    int write = -1;
  };

  ChildProcess(pid_t id, int from_child) noexcept : id_(id), from_child_(from_child) {}

  static Pipe open_pipe() {
    int ends[2] = {-1, -1};
    if (::pipe2(ends, O_CLOEXEC) != 0) {
      throw std::system_error(errno, std::generic_category(), "pipe2");
    }
    return {ends[0], ends[1]};
  }
  static pid_t checked_fork() {
    const pid_t id = ::fork();
    if (id < 0) throw std::system_error(errno, std::generic_category(), "fork");
    return id;
  }

  /// False at the end of what the child says, and when nothing came in time.
  bool read_more(int milliseconds) {
    pollfd waiting{from_child_, POLLIN, 0};
    const int ready = ::poll(&waiting, 1, milliseconds);
    if (ready < 0 && errno == EINTR) return true;
    if (ready <= 0) return false;
    char bytes[4096];
    const ssize_t count = ::read(from_child_, bytes, sizeof bytes);
    if (count < 0 && errno == EINTR) return true;
    if (count <= 0) return false;
    buffer_.append(bytes, static_cast<std::size_t>(count));
    return true;
  }

  pid_t id_;
  int from_child_;
  std::string buffer_;
  std::optional<ProcessEnd> end_;
};

}  // namespace idempotency::testing_support
