#include "support/fault_proxy.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

namespace idempotency::testing_support {

namespace {

using std::chrono::milliseconds;

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

void close_if_open(int& descriptor) {
  if (descriptor >= 0) ::close(descriptor);
  descriptor = -1;
}

void without_delay(int descriptor) {
  const int on = 1;
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

bool send_all(int descriptor, const char* bytes, std::size_t size) {
  while (size > 0) {
    const ssize_t sent = ::send(descriptor, bytes, size, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    bytes += sent;
    size -= static_cast<std::size_t>(sent);
  }
  return true;
}

/// The next close sends a RST instead of a FIN.
void close_with_reset(int& descriptor) {
  const linger at_once{1, 0};
  ::setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  close_if_open(descriptor);
}

}  // namespace

struct FaultProxy::Connection {
  int client = -1;
  int server = -1;
  int stop_read = -1;  // becomes readable when the proxy ends
  std::thread thread;
  bool ended = false;  // guarded by the proxy's mutex
};

FaultProxy::FaultProxy(std::uint16_t server_port) : server_port_(server_port) {
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (listener_ < 0) fail("socket");
  sockaddr_in address = loopback(0);
  socklen_t size = sizeof address;
  if (::bind(listener_, reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      ::listen(listener_, 64) != 0 ||
      ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      ::pipe2(wake_, O_CLOEXEC) != 0) {
    fail("a proxy on the loopback interface");
  }
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this] { accept_clients(); });
}

FaultProxy::~FaultProxy() {
  close_if_open(wake_[1]);  // every thread sees the end of this pipe
  acceptor_.join();
  for (const auto& connection : open_) {
    if (connection->thread.joinable()) connection->thread.join();
    close_if_open(connection->client);
    close_if_open(connection->server);
  }
  close_if_open(listener_);
  close_if_open(wake_[0]);
}

void FaultProxy::plan(Plan plan) {
  const std::lock_guard lock(mutex_);
  plan_ = std::move(plan);
}

void FaultProxy::harm(std::uint64_t others, NetworkFault fault) {
  const std::lock_guard lock(mutex_);
  plan_ = [at = requests_ + others, fault](std::uint64_t number) {
    return number == at ? fault : NetworkFault::none;
  };
}

void FaultProxy::set_delay(milliseconds delay) {
  const std::lock_guard lock(mutex_);
  delay_ = delay;
}

milliseconds FaultProxy::delay() const {
  const std::lock_guard lock(mutex_);
  return delay_;
}

std::uint64_t FaultProxy::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}
std::uint64_t FaultProxy::connections() const {
  const std::lock_guard lock(mutex_);
  return connections_;
}
std::uint64_t FaultProxy::harmed() const {
  const std::lock_guard lock(mutex_);
  return harmed_;
}

std::chrono::nanoseconds FaultProxy::trickled() const {
  const std::lock_guard lock(mutex_);
  return trickled_;
}

void FaultProxy::settle() {
  std::unique_lock lock(mutex_);
  settled_.wait(lock, [this] { return underway_ == 0; });
}

/// Whether one connection has a request that the server has yet to answer, for `settle`.
class FaultProxy::Underway {
 public:
  explicit Underway(FaultProxy& proxy) noexcept : proxy_(&proxy) {}
  Underway(const Underway&) = delete;
  Underway& operator=(const Underway&) = delete;
  ~Underway() { set(false); }

  void set(bool underway) {
    if (underway == underway_) return;
    const std::lock_guard lock(proxy_->mutex_);
    underway_ = underway;
    proxy_->underway_ += underway ? 1 : std::size_t(-1);
    proxy_->settled_.notify_all();
  }
  explicit operator bool() const noexcept { return underway_; }

 private:
  FaultProxy* proxy_;
  bool underway_ = false;
};

/// False when the proxy ends before `span` is over.
bool FaultProxy::sleeps_through(const Connection& connection, milliseconds span) const {
  pollfd stop{connection.stop_read, POLLIN, 0};
  return ::poll(&stop, 1, static_cast<int>(span.count())) == 0;
}

/// For a client that has gone: until the server has answered what was passed on.
void FaultProxy::wait_for_answer(const Connection& connection) const {
  std::array<pollfd, 2> wait{pollfd{connection.server, POLLIN, 0},
                             pollfd{connection.stop_read, POLLIN, 0}};
  while (::poll(wait.data(), wait.size(), -1) < 0 && errno == EINTR) {
  }
}

NetworkFault FaultProxy::next_request() {
  const std::lock_guard lock(mutex_);
  const std::uint64_t number = requests_++;
  const NetworkFault fault = plan_ ? plan_(number) : NetworkFault::none;
  if (fault != NetworkFault::none) ++harmed_;
  return fault;
}

bool FaultProxy::trickle(const Connection& connection, std::string_view reply) {
  auto before = std::chrono::steady_clock::now();
  for (const char& byte : reply) {
    if (!sleeps_through(connection, milliseconds{1})) return false;
    const auto now = std::chrono::steady_clock::now();
    {
      const std::lock_guard lock(mutex_);
      trickled_ += now - std::exchange(before, now);
    }
    if (!send_all(connection.client, &byte, 1)) return false;
  }
  return true;
}

void FaultProxy::accept_clients() {
  while (true) {
    std::array<pollfd, 2> wait{pollfd{listener_, POLLIN, 0}, pollfd{wake_[0], POLLIN, 0}};
    if (::poll(wait.data(), wait.size(), -1) < 0 && errno != EINTR) return;
    if (wait[1].revents != 0) return;
    if (wait[0].revents == 0) continue;
    auto connection = std::make_unique<Connection>();
    connection->client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection->client < 0) continue;
    connection->server = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    connection->stop_read = wake_[0];
    const sockaddr_in address = loopback(server_port_);
    if (connection->server < 0 ||
        ::connect(connection->server, reinterpret_cast<const sockaddr*>(&address),
                  sizeof address) != 0) {
      close_with_reset(connection->client);  // the server is down: so is the proxy, to the client
      close_if_open(connection->server);
      continue;
    }
    without_delay(connection->client);
    without_delay(connection->server);
    const std::lock_guard lock(mutex_);
    ++connections_;
    open_.remove_if([](const std::unique_ptr<Connection>& old) {
      if (old->ended) old->thread.join();
      return old->ended;
    });
    open_.push_back(std::move(connection));
    Connection& opened = *open_.back();
    opened.thread = std::thread([this, &opened] {
      serve(opened);
      const std::lock_guard end(mutex_);
      close_if_open(opened.client);
      close_if_open(opened.server);
      opened.ended = true;
    });
  }
}

void FaultProxy::serve(Connection& connection) {
  std::array<char, 16'384> bytes{};
  NetworkFault fault = NetworkFault::none;
  Underway in_request(*this);  // the client has sent something that the server has not answered
  bool deaf = false;           // nothing is passed on any more, nothing is closed
  while (true) {
    std::array<pollfd, 3> wait{pollfd{connection.client, POLLIN, 0},
                               pollfd{connection.server, POLLIN, 0},
                               pollfd{connection.stop_read, POLLIN, 0}};
    if (::poll(wait.data(), wait.size(), -1) < 0 && errno != EINTR) return;
    if (wait[2].revents != 0) return;
    if (wait[0].revents != 0) {
      const ssize_t size = ::recv(connection.client, bytes.data(), bytes.size(), 0);
      if (size <= 0 && in_request) wait_for_answer(connection);
      if (size <= 0) return;
      if (!in_request && !deaf) fault = next_request();
      if (fault == NetworkFault::cut_before_request) return;
      if (fault == NetworkFault::reset_in_request) {
        // A connection that has been ended and then reset answers the next write with EPIPE, which comes with SIGPIPE;
        // without the end before, with ECONNRESET.
        ::shutdown(connection.client, SHUT_WR);
        return close_with_reset(connection.client);
      }
      if (fault == NetworkFault::half_open) deaf = true;
      in_request.set(!deaf);
      if (fault == NetworkFault::delayed) {
        if (!sleeps_through(connection, delay())) return;
        fault = NetworkFault::none;
      }
      if (!deaf && !send_all(connection.server, bytes.data(), static_cast<std::size_t>(size))) {
        return;
      }
    }
    if (wait[1].revents != 0) {
      const ssize_t size = ::recv(connection.server, bytes.data(), bytes.size(), 0);
      if (size <= 0 && !deaf) return;
      if (size <= 0) {  // the client is to hear nothing of it: wait for it to give up
        close_if_open(connection.server);
        connection.server = -1;
        continue;
      }
      const bool answers = static_cast<bool>(in_request);  // else the server's greeting
      in_request.set(false);
      if (answers && fault == NetworkFault::cut_before_reply) return;
      if (answers && fault == NetworkFault::reset_before_reply) {
        return close_with_reset(connection.client);
      }
      if (answers && fault == NetworkFault::reply_swallowed) deaf = true;
      if (deaf) continue;
      const std::string_view reply(bytes.data(), static_cast<std::size_t>(size));
      const bool trickles = answers && fault == NetworkFault::trickle;
      if (trickles ? !trickle(connection, reply)
                   : !send_all(connection.client, reply.data(), reply.size())) {
        return;
      }
    }
  }
}

}  // namespace idempotency::testing_support
