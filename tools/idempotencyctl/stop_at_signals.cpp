#include "stop_at_signals.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "settings.hpp"

namespace idempotencyctl {

namespace {

/// Where the handler writes to.
volatile std::sig_atomic_t signalled = -1;

constexpr char at_signal = 's';
constexpr char at_end = 'e';

void set(void (*handler)(int), int flags) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  for (const int signal : {SIGINT, SIGTERM})
    ::sigaction(signal, &action, nullptr);
}

}  // namespace

StopAtSignals::StopAtSignals() {
  if (::pipe2(pipe_.data(), O_CLOEXEC) != 0) throw Ending(Exit::usage, "there is no pipe left");
  signalled = pipe_[1];
  watcher_ = std::thread([this] {
    char why = 0;
    while (::read(pipe_[0], &why, 1) < 0 && errno == EINTR) {
    }
    if (why == at_signal) stop_.request_stop();
  });
  const auto on_signal = [](int) {
    const int before = errno;
    static_cast<void>(!::write(signalled, &at_signal, 1));
    errno = before;
  };
  set(on_signal, SA_RESTART | static_cast<int>(SA_RESETHAND));
}

StopAtSignals::~StopAtSignals() {
  set(SIG_DFL, 0);
  static_cast<void>(!::write(pipe_[1], &at_end, 1));
  watcher_.join();
  for (const int end : pipe_)
    ::close(end);
}

}  // namespace idempotencyctl
