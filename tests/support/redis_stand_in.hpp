#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "support/loopback.hpp"

namespace idempotency::testing_support {

/// What stands between a client and a Redis, or in the place of one, on a free port of the loopback. Each connection has a
/// thread of its own.
class RedisStandIn {
 public:
  /// What a command is answered, as the protocol writes it, for example "+OK\r\n"; called by several threads. An empty
  /// answer closes the connection.
  using Answer = std::function<std::string(const std::vector<std::string>& words)>;
  explicit RedisStandIn(Answer answer);
  RedisStandIn(const RedisStandIn&) = delete;
  RedisStandIn& operator=(const RedisStandIn&) = delete;
  /// Ends all connections and threads.
  ~RedisStandIn() = default;

  /// One that passes everything on to a server and says that its version is another.
  static std::unique_ptr<RedisStandIn> of_version(std::uint16_t server_port, std::string version);

  [[nodiscard]] std::uint16_t port() const noexcept { return server_.port(); }

 private:
  RedisStandIn(std::uint16_t server_port, std::string version);

  LoopbackServer server_;
};

}  // namespace idempotency::testing_support
