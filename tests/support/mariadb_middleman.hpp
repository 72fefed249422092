#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string_view>

#include "support/loopback.hpp"

namespace idempotency::testing_support {

/// Stands between clients and a MariaDB server on the loopback interface, understands the commands that pass, and can answer one
/// in the server's place or leave its client alone with it. Unencrypted connections only.
///
/// Thread safety: all members may be called concurrently.
class MariaDbMiddleman {
 public:
  /// What a client asks; preparing and executing are two commands, closing a statement is none.
  struct Command {
    std::uint64_t number = 0;  ///< from 0, over all connections
    std::string_view text;     ///< empty when a prepared statement is executed

    [[nodiscard]] bool commits() const noexcept { return text.ends_with("COMMIT"); }
  };
  struct Interference {
    enum class Kind : std::uint8_t {
      none,
      refused,      ///< the server does not get it, the client gets an error
      rolled_back,  ///< the same, and the server rolls back before, as it does itself at such an error
      hung_up,  ///< the server gets it, the client's connection ends; the server's side stays open
    };
    Kind kind = Kind::none;
    unsigned error = 0;  ///< the server's error number
  };
  using Plan = std::function<Interference(const Command&)>;

  explicit MariaDbMiddleman(std::uint16_t server_port);
  MariaDbMiddleman(const MariaDbMiddleman&) = delete;
  MariaDbMiddleman& operator=(const MariaDbMiddleman&) = delete;
  /// Ends all connections and threads.
  ~MariaDbMiddleman() = default;

  [[nodiscard]] std::uint16_t port() const noexcept { return front_.port(); }
  void plan(Plan plan);
  [[nodiscard]] std::uint64_t commands() const;

 private:
  struct Connection;

  void serve(Connection& connection);
  [[nodiscard]] bool pass_commands(Connection& connection);
  [[nodiscard]] bool interfere(Connection& connection, std::string_view packet, bool& passed);

  mutable std::mutex mutex_;
  Plan plan_;
  std::uint64_t commands_ = 0;
  LoopbackServer front_;  // the last: its threads use the others
};

}  // namespace idempotency::testing_support
