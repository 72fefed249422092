#pragma once

#include <httplib.h>

#include <cstdint>
#include <stdexcept>
#include <thread>

namespace idempotency::testing_support {

/// A cpp-httplib server on a free port of the loopback, stopped when it is destroyed.
class LocalHttpServer {
 public:
  LocalHttpServer() {
    // A kept connection holds its thread.
    http_.new_task_queue = [] { return new httplib::ThreadPool(32); };
    const int port = http_.bind_to_any_port("127.0.0.1");
    if (port <= 0) throw std::runtime_error("no port to listen at");
    port_ = static_cast<std::uint16_t>(port);
  }
  LocalHttpServer(const LocalHttpServer&) = delete;
  LocalHttpServer& operator=(const LocalHttpServer&) = delete;
  ~LocalHttpServer() {
    http_.stop();
    if (serving_.joinable()) serving_.join();
  }

  /// Where routes are added, before `start`.
  [[nodiscard]] httplib::Server& http() noexcept { return http_; }
  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }

  /// Returns when it serves.
  void start() {
    serving_ = std::thread([this] { http_.listen_after_bind(); });
    while (!http_.is_running())
      std::this_thread::yield();
  }

 private:
  httplib::Server http_;
  std::uint16_t port_ = 0;
  std::thread serving_;
};

}  // namespace idempotency::testing_support
