#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "idempotency/edges/rabbitmq.hpp"
#include "support/child_process.hpp"
#include "support/temporary_directory.hpp"

namespace idempotency::testing_support {

/// A rabbitmq-server of a test's own, with an epmd of its own, on free ports of the loopback and with all its files in a temporary
/// folder: one process group, which is ended, and only it, when this is destroyed or the test dies.
///
/// Where rabbitmq-server is not installed, a program that links this skips all its tests and says so; with
/// IDEMPOTENCY_REQUIRE_SERVERS=1 in the environment it fails instead.
class RabbitMqServer {
 public:
  RabbitMqServer();
  RabbitMqServer(const RabbitMqServer&) = delete;
  RabbitMqServer& operator=(const RabbitMqServer&) = delete;
  ~RabbitMqServer();

  /// One that all tests of a program share: it takes several seconds to start.
  static RabbitMqServer& shared();

  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }
  [[nodiscard]] RabbitMqOptions options() const {
    return {.port = port_,
            .connect_timeout = std::chrono::seconds{20},
            .reply_timeout = std::chrono::seconds{20}};
  }

 private:
  [[nodiscard]] bool start();
  [[nodiscard]] bool answers() const;
  void stop();

  TemporaryDirectory directory_;
  std::uint16_t port_ = 0;
  std::optional<ChildProcess> group_;
};

}  // namespace idempotency::testing_support
