#include "support/rabbitmq_server.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "edges/rabbitmq/rabbitmq_link.hpp"
#include "support/free_port.hpp"

namespace idempotency::testing_support {

namespace {

/// The server itself: what stands in /usr/sbin changes user and folder first.
constexpr const char* program = "/usr/lib/rabbitmq/bin/rabbitmq-server";

/// Says before any test that there is no server.
class NeedsRabbitMqServer : public ::testing::Environment {
 public:
  void SetUp() override {
    if (::access(program, X_OK) == 0) return;
    const char* required = std::getenv("IDEMPOTENCY_REQUIRE_SERVERS");
    if (required != nullptr && std::string_view(required) == "1") {
      std::puts("rabbitmq-server is not installed, and IDEMPOTENCY_REQUIRE_SERVERS=1");
      std::exit(EXIT_FAILURE);  // a failure here would skip the tests, and a skip is no failure
    }
    std::puts("[  SKIPPED ] rabbitmq-server is not installed: NOTHING OF RABBITMQ IS TESTED HERE");
    GTEST_SKIP();
  }
};

const ::testing::Environment* const needs_rabbitmq_server =
    ::testing::AddGlobalTestEnvironment(new NeedsRabbitMqServer);

struct Ports {
  std::uint16_t server = free_port();
  std::uint16_t encrypted = free_port();
  std::uint16_t distribution = free_port();
  std::uint16_t epmd = free_port();
};

bool takes_connections(std::uint16_t port) {
  const int descriptor = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  place.sin_port = htons(port);
  const bool taken = descriptor >= 0 &&
                     ::connect(descriptor, reinterpret_cast<sockaddr*>(&place), sizeof place) == 0;
  if (descriptor >= 0) ::close(descriptor);
  return taken;
}

void execute(const std::vector<std::string>& words) {
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (const std::string& word : words)
    argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  ::signal(SIGTERM, SIG_DFL);
  ::signal(SIGPIPE, SIG_DFL);
  ::execvp(argv[0], argv.data());
  ::_exit(127);
}

volatile pid_t epmd_process = 0;
volatile pid_t server_process = 0;

/// Of what the leader has started; reaps it, too.
void end_group(int /*signal*/) {
  for (const pid_t process : {pid_t{server_process}, pid_t{epmd_process}}) {
    if (process <= 0) continue;
    ::kill(process, SIGKILL);
    ::waitpid(process, nullptr, 0);
  }
  while (::waitpid(-1, nullptr, WNOHANG) > 0) {  // what the server had started
  }
  ::_exit(0);
}

/// Leads a process group of its own, which ends as a whole when its first process is told to end or its parent dies.
int lead_group(const std::string& folder, const Ports& ports, pid_t parent) {
  ::setpgid(0, 0);
  ::signal(SIGTERM, end_group);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  if (::getppid() != parent) return 1;
  const int output = ::open((folder + "/output").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  ::dup2(output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  const std::string epmd_port = std::to_string(ports.epmd);
  const auto set = [](const char* name, const std::string& value) {
    ::setenv(name, value.c_str(), 1);
  };
  set("RUNNING_UNDER_SYSTEMD", "yes");  // the script becomes the server instead of waiting for it
  set("HOME", folder);
  set("ERL_EPMD_PORT", epmd_port);
  set("ERL_EPMD_ADDRESS", "127.0.0.1");
  set("RABBITMQ_NODENAME", "test-" + std::to_string(ports.server) + "@localhost");
  set("RABBITMQ_DIST_PORT", std::to_string(ports.distribution));
  set("RABBITMQ_MNESIA_BASE", folder + "/mnesia");
  set("RABBITMQ_LOG_BASE", folder + "/log");
  set("RABBITMQ_PID_FILE", folder + "/pid");
  set("RABBITMQ_ENABLED_PLUGINS_FILE", folder + "/plugins");
  set("RABBITMQ_CONFIG_FILE", folder + "/rabbitmq.conf");
  set("RABBITMQ_GENERATED_CONFIG_DIR", folder + "/generated");
  set("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", "+S 1:1 +sbwt none +sbwtdcpu none +sbwtdio none");
  const auto start = [](const std::vector<std::string>& words) {
    const pid_t leader = ::getpid();
    const pid_t process = ::fork();
    if (process == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() == leader) execute(words);
      ::_exit(1);
    }
    return process;
  };
  epmd_process = start({"epmd", "-port", epmd_port, "-address", "127.0.0.1"});
  server_process = start({program});
  siginfo_t ended{};
  ::waitid(P_PID, static_cast<id_t>(server_process), &ended, WEXITED | WNOWAIT);
  end_group(SIGTERM);
  return 1;
}

}  // namespace

RabbitMqServer::RabbitMqServer(std::string settings, std::optional<Encryption> encryption)
    : settings_(std::move(settings)), encryption_(std::move(encryption)) {
  static_cast<void>(needs_rabbitmq_server);
  std::ofstream(directory_.file("plugins")) << "[].\n";
  for (int attempt = 0; attempt < 3; ++attempt) {  // another program may take a port meanwhile
    if (start()) return;
    stop();
  }
  throw std::runtime_error("rabbitmq-server does not start");
}

RabbitMqServer::~RabbitMqServer() { stop(); }

RabbitMqServer& RabbitMqServer::shared() {
  static RabbitMqServer server;
  return server;
}

bool RabbitMqServer::start() {
  const Ports ports;
  port_ = ports.server;
  std::ofstream configuration(directory_.file("rabbitmq.conf"));
  configuration << "listeners.tcp.default = 127.0.0.1:" << port_ << "\n"
                << "disk_free_limit.absolute = 10MB\n"
                << "log.file.level = warning\n";
  if (encryption_) {
    encrypted_port_ = ports.encrypted;
    configuration << "listeners.ssl.default = 127.0.0.1:" << encrypted_port_ << "\n"
                  << "ssl_options.cacertfile = " << encryption_->authority << "\n"
                  << "ssl_options.certfile = " << encryption_->certificate << "\n"
                  << "ssl_options.keyfile = " << encryption_->key << "\n";
  }
  configuration << settings_;
  configuration.close();
  const pid_t parent = ::getpid();
  const std::string folder = directory_.path().string();
  group_.emplace(ChildProcess::fork(
      [=](const ChildProcess::ToParent&) { return lead_group(folder, ports, parent); }));
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds{120};
  while (std::chrono::steady_clock::now() < end) {
    if (answers()) return true;
    siginfo_t ended{};
    if (::waitid(P_PID, static_cast<id_t>(group_->id()), &ended, WEXITED | WNOHANG | WNOWAIT) !=
            0 ||
        ended.si_pid != 0) {
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds{50});
  }
  return false;
}

bool RabbitMqServer::answers() const {
  try {
    const detail::rabbitmq::Link link(options());
    return !encryption_ || takes_connections(encrypted_port_);  // opened behind the plain one
  } catch (const Error&) {                                      // not yet
    return false;
  }
}

void RabbitMqServer::stop() {
  if (!group_) return;
  group_->send(SIGTERM);
  static_cast<void>(group_->wait());
  group_.reset();
}

}  // namespace idempotency::testing_support
