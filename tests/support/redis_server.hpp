#pragma once

#include <hiredis/hiredis.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "idempotency/stores/redis.hpp"
#include "support/child_process.hpp"
#include "support/temporary_directory.hpp"

namespace idempotency::testing_support {

/// A redis-server of a test's own, on a free port of the loopback and with its data in a temporary folder. It is
/// stopped, and only it, when this is destroyed; the kernel kills it when the test is killed.
///
/// Where redis-server is not installed, a program that links this skips all its tests and says so; with
/// IDEMPOTENCY_REQUIRE_SERVERS=1 in the environment it fails instead.
class RedisServer {
 public:
  /// Names of files with which it speaks TLS on a second port; it never asks clients for certificates unless told to.
  struct Encryption {
    std::string authority;
    std::string certificate;
    std::string key;
  };

  /// `settings`: words of the command line after the usual ones, which they override.
  explicit RedisServer(std::vector<std::string> settings = {},
                       std::optional<Encryption> encryption = std::nullopt);
  RedisServer(const RedisServer&) = delete;
  RedisServer& operator=(const RedisServer&) = delete;
  ~RedisServer() = default;

  /// What a server without persistence is not: every acknowledged write is on the disk.
  static std::vector<std::string> durable() {
    return {"--appendonly", "yes", "--appendfsync", "always"};
  }
  /// One that all tests of a program share.
  static RedisServer& shared();

  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }
  /// 0 without encryption.
  [[nodiscard]] std::uint16_t encrypted_port() const noexcept { return encrypted_port_; }
  [[nodiscard]] std::string socket() const { return directory_.file("redis.sock"); }
  [[nodiscard]] const ChildProcess& process() const noexcept { return *process_; }
  [[nodiscard]] RedisOptions options() const { return {.host = "127.0.0.1", .port = port_}; }
  [[nodiscard]] std::string address() const { return "redis://127.0.0.1:" + std::to_string(port_); }

  /// SIGKILL.
  void kill();
  /// SIGTERM: an orderly end.
  void stop();
  /// It takes connections and requests, and answers none until `resume`.
  void pause();
  void resume();
  /// Leaves its port for another; connections that it has stay.
  void move_to(std::uint16_t port);
  /// On the same port and data as before; waits until it answers.
  void start();
  /// The same with more settings, for once; it may still be loading.
  void start_without_waiting(const std::vector<std::string>& more = {});

  struct Free {
    void operator()(redisReply* reply) const noexcept { freeReplyObject(reply); }
  };
  using Reply = std::unique_ptr<redisReply, Free>;
  /// A command on a connection of the test's own. Throws when there is no answer.
  Reply ask(const std::vector<std::string>& words, std::uint32_t database = 0);
  /// The answer's text, number or error, as text; "" for none.
  std::string text(const std::vector<std::string>& words, std::uint32_t database = 0);
  std::int64_t number(const std::vector<std::string>& words, std::uint32_t database = 0);
  /// The value of one line of INFO.
  std::string info(const std::string& section, const std::string& name);
  /// How many commands clients have sent so far; each look counts as one itself.
  std::int64_t commands_processed();

 private:
  [[nodiscard]] bool answers() const;
  void launch(const std::vector<std::string>& more);

  TemporaryDirectory directory_;
  std::vector<std::string> settings_;
  std::optional<Encryption> encryption_;
  std::uint16_t port_ = 0;
  std::uint16_t encrypted_port_ = 0;
  std::optional<ChildProcess> process_;
};

}  // namespace idempotency::testing_support
