#include "support/loopback.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <list>
#include <system_error>

namespace idempotency::testing_support {

namespace {

[[noreturn]] void fail(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

/// On a free port. One client more than `waiting` may wait to be accepted.
Socket listening(int waiting) {
  Socket made(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address = loopback(0);
  if (::bind(made.descriptor(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(made.descriptor(), waiting) != 0) {
    fail("listening on the loopback");
  }
  return made;
}

std::uint16_t port_of(const Socket& socket) {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  if (::getsockname(socket.descriptor(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    fail("the port of a socket");
  }
  return ntohs(address.sin_port);
}

int connect(const Socket& socket, std::uint16_t port) {
  const sockaddr_in address = loopback(port);
  return ::connect(socket.descriptor(), reinterpret_cast<const sockaddr*>(&address),
                   sizeof address);
}

void send_without_delay(const Socket& socket) {
  const int on = 1;
  ::setsockopt(socket.descriptor(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

}  // namespace

void Socket::close() noexcept {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

void Socket::reset() noexcept {
  const linger at_once{1, 0};
  ::setsockopt(descriptor_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  close();
}

bool Socket::send(std::string_view bytes) const {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

std::string_view Socket::receive(std::span<char> buffer) const {
  ssize_t size = -1;
  do {
    size = ::recv(descriptor_, buffer.data(), buffer.size(), 0);
  } while (size < 0 && errno == EINTR);
  return {buffer.data(), size > 0 ? static_cast<std::size_t>(size) : 0};
}

Socket connected_to(std::uint16_t port) {
  Socket made(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connect(made, port) != 0) return {};
  send_without_delay(made);
  return made;
}

std::optional<Readable> wait_to_read(const Socket& first, const Socket& second,
                                     const Socket& ended) {
  std::array<pollfd, 3> wait{pollfd{first.descriptor(), POLLIN, 0},  // ignored when it is -1
                             pollfd{second.descriptor(), POLLIN, 0},
                             pollfd{ended.descriptor(), POLLIN, 0}};
  while (::poll(wait.data(), wait.size(), -1) < 0) {
    if (errno != EINTR) return std::nullopt;
  }
  if (wait[2].revents != 0) return std::nullopt;
  return Readable{wait[0].revents != 0, wait[1].revents != 0};
}

LoopbackServer::LoopbackServer(Serve serve)
    : serve_(std::move(serve)), listener_(listening(64)), port_(port_of(listener_)) {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) fail("a pipe");
  ended_ = Socket(ends[0]);
  to_end_ = Socket(ends[1]);
  acceptor_ = std::thread([this] { accept_clients(); });
}

LoopbackServer::~LoopbackServer() {
  to_end_.close();  // every thread sees the end of this pipe
  acceptor_.join();
}

void LoopbackServer::accept_clients() const {
  struct Served {
    std::atomic<bool> over{false};
    std::jthread thread;
  };
  std::list<Served> served;
  while (wait_to_read(listener_, {}, ended_)) {
    Socket client(::accept4(listener_.descriptor(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!client) continue;
    send_without_delay(client);
    served.remove_if([](const Served& one) { return one.over.load(); });
    Served& one = served.emplace_back();
    one.thread = std::jthread([this, &one, client = std::move(client)]() mutable {
      serve_(std::move(client), ended_);
      one.over = true;
    });
  }
}

BlackHole::BlackHole() : listener_(listening(0)), port_(port_of(listener_)) {
  for (Socket& waiting : waiting_) {
    waiting = Socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    static_cast<void>(connect(waiting, port_));
  }
}

}  // namespace idempotency::testing_support
