#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace idempotency::testing_support {

/// Passes bytes on between clients and a server of the loopback, in both directions, until its connections are cut.
///
/// Thread safety: all members may be called concurrently.
class TcpRelay {
 public:
  explicit TcpRelay(std::uint16_t server_port) : server_port_(server_port) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = loopback(0);
    socklen_t size = sizeof address;
    auto* any = reinterpret_cast<sockaddr*>(&address);
    if (listener_ < 0 || ::bind(listener_, any, size) != 0 || ::listen(listener_, 16) != 0 ||
        ::getsockname(listener_, any, &size) != 0) {
      throw std::system_error(errno, std::generic_category(), "relay");
    }
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread([this] { accept_clients(); });
  }
  TcpRelay(const TcpRelay&) = delete;
  TcpRelay& operator=(const TcpRelay&) = delete;
  ~TcpRelay() {
    ::shutdown(listener_, SHUT_RDWR);
    acceptor_.join();
    cut();
    for (std::thread& pump : pumps_)
      pump.join();
    for (const int descriptor : descriptors_)
      ::close(descriptor);
    ::close(listener_);
  }

  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }

  /// Ends all connections that there are; new ones may be made.
  void cut() {
    const std::scoped_lock lock(mutex_);
    for (const int descriptor : descriptors_)
      ::shutdown(descriptor, SHUT_RDWR);
  }

 private:
  static sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    return address;
  }

  void accept_clients() {
    while (true) {
      const int client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (client < 0) return;
      const int server = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      sockaddr_in address = loopback(server_port_);
      if (::connect(server, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
        ::close(server);
        ::close(client);
        continue;
      }
      const std::scoped_lock lock(mutex_);
      descriptors_.push_back(client);
      descriptors_.push_back(server);
      pumps_.emplace_back([=] { pump(client, server); });
      pumps_.emplace_back([=] { pump(server, client); });
    }
  }

  static void pump(int from, int to) {
    char bytes[4096];
    while (true) {
      const ssize_t count = ::recv(from, bytes, sizeof bytes, 0);
      if (count <= 0) break;
      for (ssize_t sent = 0; sent < count;) {
        const ssize_t more =
            ::send(to, bytes + sent, static_cast<std::size_t>(count - sent), MSG_NOSIGNAL);
        if (more <= 0) break;
        sent += more;
      }
    }
    ::shutdown(to, SHUT_RDWR);
    ::shutdown(from, SHUT_RDWR);
  }

  std::uint16_t server_port_;
  std::uint16_t port_ = 0;
  int listener_ = -1;
  std::mutex mutex_;
  std::vector<int> descriptors_;
  std::vector<std::thread> pumps_;
  std::thread acceptor_;
};

}  // namespace idempotency::testing_support
