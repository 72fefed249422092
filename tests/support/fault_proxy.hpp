#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string_view>

#include "support/loopback.hpp"

namespace idempotency::testing_support {

/// What happens to one request of a client.
enum class NetworkFault : std::uint8_t {
  none,
  delayed,             ///< the request waits for `FaultProxy::delay` before it goes on
  cut_before_request,  ///< both sides are closed, the server never sees the request
  cut_before_reply,    ///< the server has answered, the client sees its connection end instead
  reset_before_reply,  ///< the same with a RST
  half_open,        ///< the request is swallowed and nothing is closed: the client has to time out
  reply_swallowed,  ///< the server has answered, the client hears nothing and nothing is closed
  trickle,          ///< the reply comes a byte at a time
  reset_in_request,  ///< the client still sends when its connection is ended and then reset; the server sees nothing
};

/// A proxy between a client and a server on the loopback interface that harms requests as a test says.
///
/// A request is what a client sends until the server has answered; the protocols that are tested here wait for
/// each answer. Requests are counted from 0, over all connections, in the order of their arrival.
/// Thread safety: all members may be called concurrently.
class FaultProxy {
 public:
  /// Decides what happens to request `number`. Called by the proxy's threads, one call at a time.
  using Plan = std::function<NetworkFault(std::uint64_t number)>;

  explicit FaultProxy(std::uint16_t server_port);
  FaultProxy(const FaultProxy&) = delete;
  FaultProxy& operator=(const FaultProxy&) = delete;
  /// Ends all connections and threads.
  ~FaultProxy() = default;

  [[nodiscard]] std::uint16_t port() const noexcept { return front_.port(); }

  void plan(Plan plan);
  /// The next request is harmed so, those after it are not.
  void harm_next(NetworkFault fault) { harm(0, fault); }
  /// The request after `others` more is harmed so.
  void harm(std::uint64_t others, NetworkFault fault);
  /// The next reply is cut off, and `meanwhile` is called once before the request that follows goes on: the client's own repetition.
  void cut_next_and_then(std::function<void()> meanwhile);
  void heal() { plan(nullptr); }
  void set_delay(std::chrono::milliseconds delay);
  /// Returns when no request is on its way any more: every one that was passed on has been answered by the server, also
  /// where the client has gone.
  void settle();

  [[nodiscard]] std::uint64_t requests() const;
  [[nodiscard]] std::uint64_t connections() const;
  /// How many requests were harmed.
  [[nodiscard]] std::uint64_t harmed() const;
  /// How long replies have been under way in a trickle, all together; up to date before a byte is sent.
  [[nodiscard]] std::chrono::nanoseconds trickled() const;

 private:
  struct Connection;

  class Underway;
  void serve(Connection& connection);
  [[nodiscard]] bool sleeps_through(const Connection& connection,
                                    std::chrono::milliseconds span) const;
  [[nodiscard]] NetworkFault next_request();
  /// A byte at a time; false when that cannot go on.
  [[nodiscard]] bool trickle(const Connection& connection, std::string_view reply);
  [[nodiscard]] std::chrono::milliseconds delay() const;

  mutable std::mutex mutex_;
  Plan plan_;
  std::chrono::milliseconds delay_{50};
  std::uint64_t requests_ = 0;
  std::uint64_t connections_ = 0;
  std::uint64_t harmed_ = 0;
  std::chrono::nanoseconds trickled_{0};
  std::size_t underway_ = 0;
  std::condition_variable settled_;
  LoopbackServer front_;  // the last: its threads use the others
};

}  // namespace idempotency::testing_support
