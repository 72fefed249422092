#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <thread>
#include <utility>

namespace idempotency::testing_support {

/// A socket, or an end of a pipe, that is closed when it is destroyed; or none.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) noexcept : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Socket() { close(); }

  /// -1 when there is none.
  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }
  explicit operator bool() const noexcept { return descriptor_ >= 0; }

  void close() noexcept;
  /// Closes it with a RST instead of a FIN.
  void reset() noexcept;
  /// Sends all of it; false when that cannot be.
  [[nodiscard]] bool send(std::string_view bytes) const;
  /// What has come, in `buffer`; empty at the end of the connection.
  [[nodiscard]] std::string_view receive(std::span<char> buffer) const;

 private:
  int descriptor_ = -1;
};

/// A connection to a port of the loopback; none when nobody listens there.
[[nodiscard]] Socket connected_to(std::uint16_t port);

/// Which of two sockets have something to read, or have ended.
struct Readable {
  bool first = false;
  bool second = false;
};
/// Waits for one of two sockets, either of which may be none; nothing when `ended` can be read instead.
[[nodiscard]] std::optional<Readable> wait_to_read(const Socket& first, const Socket& second,
                                                   const Socket& ended);

/// Listens on a free port of the loopback and serves each client in a thread of its own.
class LoopbackServer {
 public:
  /// Serves one client, whose connection ends with the call. `ended` can be read from when the server is destroyed; then this
  /// has to return.
  using Serve = std::function<void(Socket client, const Socket& ended)>;

  explicit LoopbackServer(Serve serve);
  LoopbackServer(const LoopbackServer&) = delete;
  LoopbackServer& operator=(const LoopbackServer&) = delete;
  /// Ends all connections and threads.
  ~LoopbackServer();

  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }

 private:
  void accept_clients() const;

  Serve serve_;
  Socket listener_;
  Socket ended_;   // of a pipe,
  Socket to_end_;  // and its other end, closed when this is destroyed
  std::uint16_t port_;
  std::thread acceptor_;
};

/// A port of the loopback where nobody answers, not even with a refusal: the queue of those who want to connect is full.
class BlackHole {
 public:
  BlackHole();

  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }

 private:
  Socket listener_;
  std::uint16_t port_;
  std::array<Socket, 8> waiting_;
};

}  // namespace idempotency::testing_support
