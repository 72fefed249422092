#pragma once

#include <hiredis/hiredis.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/redis_server.hpp"

namespace idempotency::testing_support {

/// Hears every command that clients send to a server, as the server itself tells them (MONITOR).
class RedisMonitor {
 public:
  explicit RedisMonitor(RedisServer& server)
      : server_(server), context_(redisConnect("127.0.0.1", server.port())) {
    if (!context_ || context_->err != 0) throw std::runtime_error("no connection for MONITOR");
    const timeval patience{20, 0};
    redisSetTimeout(context_.get(), patience);
    const RedisServer::Reply accepted(
        static_cast<redisReply*>(redisCommand(context_.get(), "MONITOR")));
    if (!accepted) throw std::runtime_error("MONITOR is not answered");
  }

  /// The names of the commands since the last call, without those that scripts run.
  std::vector<std::string> commands() {
    const std::string mark = "mark-" + std::to_string(++marks_);
    server_.ask({"ECHO", mark});
    std::vector<std::string> names;
    while (true) {
      const std::string line = next_line();
      if (line.find(mark) != std::string::npos) return names;
      if (line.find(" lua]") != std::string::npos) continue;
      const std::size_t begin = line.find("] \"");
      if (begin == std::string::npos) continue;
      names.push_back(line.substr(begin + 3, line.find('"', begin + 3) - begin - 3));
    }
  }

 private:
  struct Close {
    void operator()(redisContext* context) const noexcept { redisFree(context); }
  };

  std::string next_line() {
    void* reply = nullptr;
    if (redisGetReply(context_.get(), &reply) != REDIS_OK) {
      throw std::runtime_error("MONITOR ended");
    }
    const RedisServer::Reply line(static_cast<redisReply*>(reply));
    return line->str != nullptr ? std::string(line->str, line->len) : std::string();
  }

  RedisServer& server_;
  std::unique_ptr<redisContext, Close> context_;
  int marks_ = 0;
};

}  // namespace idempotency::testing_support
