#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <random>
#include <stdexcept>

namespace idempotency::testing_support {

/// Whether nobody listens on a port of the loopback now.
inline bool is_free(std::uint16_t port) {
  const int descriptor = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  place.sin_port = htons(port);
  const bool free =
      descriptor >= 0 && ::bind(descriptor, reinterpret_cast<sockaddr*>(&place), sizeof place) == 0;
  if (descriptor >= 0) ::close(descriptor);
  return free;
}

/// A port of the loopback that nobody listens on now. Another could take it before a server does; then the server's start fails
/// loudly. Not of those that the system gives to connections: while a server is down, one of them could take its place.
inline std::uint16_t free_port() {
  std::random_device random;
  for (int attempt = 0; attempt < 200; ++attempt) {
    const auto port = static_cast<std::uint16_t>(15'000 + random() % 15'000);
    if (is_free(port)) return port;
  }
  throw std::runtime_error("no free port");
}

}  // namespace idempotency::testing_support
