// Runs a command beside a server of its own, and stops the server when the command has ended.
//
//   with_server redis|mariadb [SETTING...] -- PROGRAM [ARGUMENT...]
//
// `{url}` in an argument becomes the server's address (redis://... or mysql://...). Settings are further words of the
// server's command line. The program must be named with its path. Ends with the command's exit code, 128 + the
// signal that ended it, 77 where the server is not installed, 2 for unusable arguments, and 1 when the server does not
// start or, with IDEMPOTENCY_REQUIRE_SERVERS=1, is not installed.

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/child_process.hpp"
#include "support/mariadb_server.hpp"
#include "support/redis_server.hpp"

namespace {

using idempotency::testing_support::ChildProcess;
using idempotency::testing_support::MariaDbServer;
using idempotency::testing_support::ProcessEnd;
using idempotency::testing_support::RedisServer;
using Words = std::vector<std::string>;

constexpr int skipped = 77;

volatile sig_atomic_t asked_to_end = 0;
volatile pid_t command_id = 0;

/// The command is told to end, and the server is stopped after it.
void pass_on(int signal) {
  asked_to_end = signal;
  if (command_id != 0) ::kill(command_id, signal);
}

constexpr int passed_on[] = {SIGHUP, SIGINT, SIGTERM};

void handle_signals(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  for (const int signal : passed_on)
    ::sigaction(signal, &action, nullptr);
}

/// While one of these exists no signal is handled.
class SignalsWait {
 public:
  SignalsWait() noexcept {
    sigset_t signals{};
    sigemptyset(&signals);
    for (const int signal : passed_on)
      sigaddset(&signals, signal);
    ::sigprocmask(SIG_BLOCK, &signals, &before_);
  }
  SignalsWait(const SignalsWait&) = delete;
  SignalsWait& operator=(const SignalsWait&) = delete;
  ~SignalsWait() { end(); }
  void end() const noexcept { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

bool redis_is_installed() {
  const char* path = std::getenv("PATH");
  std::string_view rest = path != nullptr ? path : "";
  while (!rest.empty()) {
    const std::size_t end = rest.find(':');
    const std::string file = std::string(rest.substr(0, end)) + "/redis-server";
    if (::access(file.c_str(), X_OK) == 0) return true;
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  }
  return false;
}

int skip(const char* server) {
  const char* required = std::getenv("IDEMPOTENCY_REQUIRE_SERVERS");
  if (required != nullptr && std::string_view(required) == "1") {
    std::fprintf(stderr, "%s is not installed, and IDEMPOTENCY_REQUIRE_SERVERS=1\n", server);
    return EXIT_FAILURE;
  }
  std::printf("[  SKIPPED ] %s IS NOT INSTALLED: NOTHING IS TESTED HERE\n", server);
  return skipped;
}

Words with_address(Words command, const std::string& address) {
  constexpr std::string_view place = "{url}";
  for (std::string& word : command) {
    for (std::size_t at = word.find(place); at != std::string::npos;
         at = word.find(place, at + address.size())) {
      word.replace(at, place.size(), address);
    }
  }
  return command;
}

int run(Words command) {
  std::vector<char*> argv;
  for (std::string& word : command)
    argv.push_back(word.data());
  argv.push_back(nullptr);
  const auto start = [&argv] {
    const SignalsWait wait;  // until somebody is there who does what they say
    ChildProcess started = ChildProcess::fork([&](const ChildProcess::ToParent&) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      handle_signals(SIG_DFL);
      wait.end();
      ::execv(argv[0], argv.data());
      std::fprintf(stderr, "with_server: %s cannot be started\n", argv[0]);
      return 127;
    });
    command_id = started.id();
    if (asked_to_end != 0) started.send(asked_to_end);
    return started;
  };
  ChildProcess process = start();
  // Not reaped before its id is forgotten: no signal may go to another process that gets the same.
  siginfo_t ended{};
  while (::waitid(P_PID, static_cast<id_t>(process.id()), &ended, WEXITED | WNOWAIT) != 0) {
  }
  command_id = 0;
  const ProcessEnd end = process.wait();
  return end.signal != 0 ? 128 + end.signal : end.exit_code;
}

int run_beside(const std::string& kind, const Words& settings, const Words& command) {
  if (kind == "redis") {
    if (!redis_is_installed()) return skip("REDIS-SERVER");
    const RedisServer server(settings);
    return run(with_address(command, "redis://127.0.0.1:" + std::to_string(server.port())));
  }
  if (!MariaDbServer::is_installed()) return skip("MARIADB-SERVER");
  const MariaDbServer server(settings);
  return run(with_address(command, server.address()));
}

}  // namespace

int main(int count, char** values) {
  const Words words(values + 1, values + count);
  const auto separator = std::find(words.begin(), words.end(), "--");
  if (words.empty() || (words[0] != "redis" && words[0] != "mariadb") ||
      std::distance(separator, words.end()) < 2) {
    std::fputs("with_server redis|mariadb [SETTING...] -- PROGRAM [ARGUMENT...]\n", stderr);
    return 2;
  }
  handle_signals(pass_on);
  try {
    return run_beside(words[0], Words(words.begin() + 1, separator),
                      Words(separator + 1, words.end()));
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "with_server: %s\n", problem.what());
    return EXIT_FAILURE;
  }
}
