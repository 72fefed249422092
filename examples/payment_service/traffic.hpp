#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <queue>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace httplib {
class Client;
}

namespace shop {

/// One business request, which the storm sends several times.
struct Order {
  std::string id;
  std::string path;
  std::string body;
  int copies = 1;
  std::string misuse_body = {};  ///< sent once with the same id when all is done; empty: not

  // What came of it.
  int final_status = 0;  ///< 0: no final reply yet
  std::string final_body = {};
  bool replies_differ = false;
  int misuse_status = 0;
};

struct TrafficOptions {
  unsigned seed = 1;
  std::size_t clients = 32;
  double drop_probability = 0.15;  ///< that a client hangs up before it reads the reply
};

struct TrafficCounts {
  std::int64_t requests = 0;
  std::int64_t dropped = 0;
  std::int64_t replayed = 0;
  std::int64_t finished = 0;  ///< copies that have their final reply
  std::int64_t copies = 0;    ///< all of them
};

/// Many clients that send all copies of all orders, mixed, each until it has a final reply.
///
/// Thread safety: `set_port`, `counts` and `wait` may be called from another thread while clients run.
class Traffic {
 public:
  using Clock = std::chrono::steady_clock;

  /// Starts the clients. They send nothing until there is a port.
  Traffic(std::vector<Order> orders, const TrafficOptions& options);
  Traffic(const Traffic&) = delete;
  Traffic& operator=(const Traffic&) = delete;
  /// Ends the clients, finished or not.
  ~Traffic();

  /// Where the service is now; 0 while it is down.
  void set_port(int port);

  [[nodiscard]] TrafficCounts counts() const;

  enum class Wait { finished, time_is_up };
  /// Until `finished` copies have their final reply, or `end`.
  Wait wait(std::int64_t finished, Clock::time_point end);

  /// Ends the clients and gives the orders with what came of them.
  [[nodiscard]] std::vector<Order> take_orders();

 private:
  struct Delivery {
    Clock::time_point due;
    std::size_t order = 0;
    int attempt = 0;
    bool misuse = false;
    friend bool operator<(const Delivery& a, const Delivery& b) { return a.due > b.due; }
  };
  struct Reply {
    int status = 0;
    std::string body;
    bool replayed = false;
  };
  class Connection;

  void run_client(unsigned number);
  std::optional<Delivery> next();
  std::optional<Reply> send(Connection& connection, const Delivery& delivery,
                            std::minstd_rand& random);
  void take_reply(const Delivery& delivery, Reply reply);
  void send_again(Delivery delivery, std::minstd_rand& random);
  void end_clients();

  std::vector<Order> orders_;
  TrafficOptions options_;

  mutable std::mutex mutex_;
  std::condition_variable work_;      ///< there is something to send, or nothing any more
  std::condition_variable progress_;  ///< a copy has its final reply
  std::priority_queue<Delivery> deliveries_;
  TrafficCounts counts_;
  int port_ = 0;
  bool ended_ = false;
  std::vector<std::thread> clients_;
};

}  // namespace shop
