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
  /// Names of files with which it speaks TLS on a second port; it never asks clients for certificates unless told to.
  struct Encryption {
    std::string authority;
    std::string certificate;
    std::string key;
  };

  /// `settings`: lines of rabbitmq.conf after the usual ones.
  explicit RabbitMqServer(std::string settings = {},
                          std::optional<Encryption> encryption = std::nullopt);
  RabbitMqServer(const RabbitMqServer&) = delete;
  RabbitMqServer& operator=(const RabbitMqServer&) = delete;
  ~RabbitMqServer();

  /// One that all tests of a program share: it takes several seconds to start.
  static RabbitMqServer& shared();

  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }
  /// 0 without encryption.
  [[nodiscard]] std::uint16_t encrypted_port() const noexcept { return encrypted_port_; }
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
  std::string settings_;
  std::optional<Encryption> encryption_;
  std::uint16_t port_ = 0;
  std::uint16_t encrypted_port_ = 0;
  std::optional<ChildProcess> group_;
};

}  // namespace idempotency::testing_support
