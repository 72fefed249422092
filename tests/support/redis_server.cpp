#include "support/redis_server.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <thread>

#include "support/free_port.hpp"

namespace idempotency::testing_support {

namespace {

constexpr timeval patience{30, 0};

/// Where redis-server is; empty when it is not installed.
std::string program() {
  const char* path = std::getenv("PATH");
  std::string_view rest = path != nullptr ? path : "";
  while (!rest.empty()) {
    const std::size_t end = rest.find(':');
    std::string file = std::string(rest.substr(0, end)) + "/redis-server";
    if (::access(file.c_str(), X_OK) == 0) return file;
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  }
  return {};
}

struct Close {
  void operator()(redisContext* context) const noexcept { redisFree(context); }
};
using Context = std::unique_ptr<redisContext, Close>;

Context connect(std::uint16_t port) {
  Context context(redisConnectWithTimeout("127.0.0.1", port, patience));
  if (!context || context->err != 0) return nullptr;
  redisSetTimeout(context.get(), patience);
  return context;
}

RedisServer::Reply ask_on(redisContext* context, const std::vector<std::string>& words) {
  std::vector<const char*> texts;
  std::vector<std::size_t> sizes;
  for (const std::string& word : words) {
    texts.push_back(word.data());
    sizes.push_back(word.size());
  }
  return RedisServer::Reply(static_cast<redisReply*>(
      redisCommandArgv(context, static_cast<int>(words.size()), texts.data(), sizes.data())));
}

/// Says before any test that there is no server.
class NeedsRedisServer : public ::testing::Environment {
 public:
  void SetUp() override {
    if (!program().empty()) return;
    const char* required = std::getenv("IDEMPOTENCY_REQUIRE_SERVERS");
    if (required != nullptr && std::string_view(required) == "1") {
      std::puts("redis-server is not installed, and IDEMPOTENCY_REQUIRE_SERVERS=1");
      std::exit(EXIT_FAILURE);  // a failure here would skip the tests, and a skip is no failure
    }
    std::puts("[  SKIPPED ] redis-server is not installed: NOTHING OF REDIS IS TESTED HERE");
    GTEST_SKIP();
  }
};

const ::testing::Environment* const needs_redis_server =
    ::testing::AddGlobalTestEnvironment(new NeedsRedisServer);

}  // namespace

RedisServer::RedisServer(std::vector<std::string> settings, std::optional<Encryption> encryption)
    : settings_(std::move(settings)), encryption_(std::move(encryption)) {
  static_cast<void>(needs_redis_server);
  for (int attempt = 0; attempt < 5; ++attempt) {  // another program may take the port meanwhile
    port_ = free_port();
    if (encryption_) encrypted_port_ = free_port();
    try {
      start();
      return;
    } catch (const std::runtime_error&) {
      process_.reset();
    }
  }
  throw std::runtime_error("redis-server does not start");
}

RedisServer& RedisServer::shared() {
  static RedisServer server;
  return server;
}

void RedisServer::launch(const std::vector<std::string>& more) {
  std::vector<std::string> words{program(),
                                 "--port",
                                 std::to_string(port_),
                                 "--bind",
                                 "127.0.0.1",
                                 "--unixsocket",
                                 socket(),
                                 "--dir",
                                 directory_.path().string(),
                                 "--logfile",
                                 "redis.log",
                                 "--save",
                                 "",
                                 "--appendonly",
                                 "no",
                                 "--daemonize",
                                 "no",
                                 "--enable-debug-command",
                                 "yes",
                                 "--maxclients",
                                 "1000"};
  if (encryption_) {
    words.insert(words.end(), {"--tls-port", std::to_string(encrypted_port_), "--tls-ca-cert-file",
                               encryption_->authority, "--tls-cert-file", encryption_->certificate,
                               "--tls-key-file", encryption_->key, "--tls-auth-clients", "no"});
  }
  words.insert(words.end(), settings_.begin(), settings_.end());
  words.insert(words.end(), more.begin(), more.end());
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words)
    argv.push_back(word.data());
  argv.push_back(nullptr);
  process_.emplace(ChildProcess::fork([&](const ChildProcess::ToParent&) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::signal(SIGPIPE, SIG_DFL);
    ::execv(argv[0], argv.data());
    return 127;
  }));
}

void RedisServer::start_without_waiting(const std::vector<std::string>& more) { launch(more); }

void RedisServer::start() {
  launch({});
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds{20};
  while (std::chrono::steady_clock::now() < end) {
    if (answers()) return;
    int status = 0;
    if (::waitpid(process_->id(), &status, WNOHANG | WNOWAIT) == process_->id()) break;
    std::this_thread::sleep_for(std::chrono::milliseconds{5});
  }
  throw std::runtime_error("redis-server does not answer");
}

bool RedisServer::answers() const {
  const Context context = connect(port_);
  if (!context) return false;
  const Reply reply = ask_on(context.get(), {"INFO", "server"});
  if (!reply || reply->type != REDIS_REPLY_STRING) return false;
  const std::string process = "process_id:" + std::to_string(process_->id()) + "\r";
  const Reply ready = ask_on(context.get(), {"PING"});
  return std::string_view(reply->str, reply->len).find(process) != std::string_view::npos &&
         ready && ready->type == REDIS_REPLY_STATUS;
}

void RedisServer::kill() { static_cast<void>(process_->kill()); }

void RedisServer::stop() {
  process_->send(SIGTERM);
  static_cast<void>(process_->wait());
}

void RedisServer::pause() {
  process_->send(SIGSTOP);
  siginfo_t stopped{};
  ::waitid(P_PID, static_cast<id_t>(process_->id()), &stopped, WSTOPPED | WNOWAIT);
}

void RedisServer::resume() { process_->send(SIGCONT); }

void RedisServer::move_to(std::uint16_t port) {
  ask({"CONFIG", "SET", "port", std::to_string(port)});
  port_ = port;
}

RedisServer::Reply RedisServer::ask(const std::vector<std::string>& words, std::uint32_t database) {
  const Context context = connect(port_);
  if (!context) throw std::runtime_error("redis-server is not there");
  if (database != 0) ask_on(context.get(), {"SELECT", std::to_string(database)});
  Reply reply = ask_on(context.get(), words);
  if (!reply) throw std::runtime_error("redis-server does not answer");
  return reply;
}

std::string RedisServer::text(const std::vector<std::string>& words, std::uint32_t database) {
  const Reply reply = ask(words, database);
  if (reply->type == REDIS_REPLY_INTEGER) return std::to_string(reply->integer);
  return reply->str != nullptr ? std::string(reply->str, reply->len) : std::string();
}

std::int64_t RedisServer::number(const std::vector<std::string>& words, std::uint32_t database) {
  return ask(words, database)->integer;
}

std::string RedisServer::info(const std::string& section, const std::string& name) {
  const std::string all = text({"INFO", section});
  const std::size_t at = all.find("\n" + name + ":");
  if (at == std::string::npos) return {};
  const std::size_t begin = at + name.size() + 2;
  return all.substr(begin, all.find('\r', begin) - begin);
}

std::int64_t RedisServer::commands_processed() {
  return std::stoll(info("stats", "total_commands_processed"));
}

}  // namespace idempotency::testing_support
