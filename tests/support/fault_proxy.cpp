#include "support/fault_proxy.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <utility>

namespace idempotency::testing_support {

using std::chrono::milliseconds;

struct FaultProxy::Connection {
  Socket client;
  Socket server;
  const Socket& ended;  // readable when the proxy ends
};

FaultProxy::FaultProxy(std::uint16_t server_port)
    : front_([this, server_port](Socket client, const Socket& ended) {
        Socket server = connected_to(server_port);
        if (!server) return client.reset();  // it is down: so is the proxy, to the client
        {
          const std::lock_guard lock(mutex_);
          ++connections_;
        }
        Connection connection{std::move(client), std::move(server), ended};
        serve(connection);
      }) {}

void FaultProxy::plan(Plan plan) {
  const std::lock_guard lock(mutex_);
  plan_ = std::move(plan);
}

void FaultProxy::cut_next_and_then(std::function<void()> meanwhile) {
  plan([meanwhile = std::move(meanwhile), seen = 0](std::uint64_t) mutable {
    if (std::exchange(seen, 1) == 0) return NetworkFault::cut_before_reply;
    if (meanwhile) std::exchange(meanwhile, nullptr)();
    return NetworkFault::none;
  });
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
  pollfd ended{connection.ended.descriptor(), POLLIN, 0};
  return ::poll(&ended, 1, static_cast<int>(span.count())) == 0;
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
    if (!connection.client.send({&byte, 1})) return false;
  }
  return true;
}

void FaultProxy::serve(Connection& connection) {
  std::array<char, 16'384> bytes{};
  NetworkFault fault = NetworkFault::none;
  Underway in_request(*this);  // the client has sent something that the server has not answered
  bool deaf = false;           // nothing is passed on any more, nothing is closed
  while (true) {
    const auto readable = wait_to_read(connection.client, connection.server, connection.ended);
    if (!readable) return;
    if (readable->first) {
      const std::string_view request = connection.client.receive(bytes);
      if (request.empty()) {  // the client has gone; `settle` waits for the server's answer
        if (in_request) static_cast<void>(wait_to_read({}, connection.server, connection.ended));
        return;
      }
      if (!in_request && !deaf) fault = next_request();
      if (fault == NetworkFault::cut_before_request) return;
      if (fault == NetworkFault::reset_in_request) {
        // A connection that has been ended and then reset answers the next write with EPIPE, which comes with SIGPIPE;
        // without the end before, with ECONNRESET.
        ::shutdown(connection.client.descriptor(), SHUT_WR);
        return connection.client.reset();
      }
      if (fault == NetworkFault::half_open) deaf = true;
      in_request.set(!deaf);
      if (fault == NetworkFault::delayed) {
        if (!sleeps_through(connection, delay())) return;
        fault = NetworkFault::none;
      }
      if (!deaf && !connection.server.send(request)) return;
    }
    if (readable->second) {
      const std::string_view reply = connection.server.receive(bytes);
      if (reply.empty() && !deaf) return;
      if (reply.empty()) {  // the client is to hear nothing of it: wait for it to give up
        connection.server.close();
        continue;
      }
      const bool answers = static_cast<bool>(in_request);  // else the server's greeting
      in_request.set(false);
      if (answers && fault == NetworkFault::cut_before_reply) return;
      if (answers && fault == NetworkFault::reset_before_reply) {
        return connection.client.reset();
      }
      if (answers && fault == NetworkFault::reply_swallowed) deaf = true;
      if (deaf) continue;
      const bool trickles = answers && fault == NetworkFault::trickle;
      if (trickles ? !trickle(connection, reply) : !connection.client.send(reply)) return;
    }
  }
}

}  // namespace idempotency::testing_support
