#include "traffic.hpp"

#include <httplib.h>

#include <algorithm>
#include <utility>

namespace shop {

namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

/// Copies of one order are sent while about this many other orders are being sent.
constexpr double mixing = 20;

/// Whether the reply answers the request; others say "ask again".
bool is_final(int status) { return status == 201 || status == 402 || status == 422; }

}  // namespace

/// A client's connection, which is made anew when the service is another one.
class Traffic::Connection {
 public:
  httplib::Client& to(int port) {
    if (!client_ || port != port_) {
      client_ = std::make_unique<httplib::Client>("127.0.0.1", port);
      client_->set_keep_alive(true);
      client_->set_tcp_nodelay(true);
      client_->set_connection_timeout(std::chrono::seconds{2});
      client_->set_read_timeout(std::chrono::seconds{10});
      port_ = port;
    }
    return *client_;
  }
  void close() { client_.reset(); }

 private:
  std::unique_ptr<httplib::Client> client_;
  int port_ = 0;
};

Traffic::Traffic(std::vector<Order> orders, const TrafficOptions& options)
    : orders_(std::move(orders)), options_(options) {
  std::minstd_rand random{options.seed};
  std::uniform_real_distribution<double> shift{0, mixing};
  std::vector<std::pair<double, std::size_t>> sequence;
  for (std::size_t order = 0; order < orders_.size(); ++order) {
    for (int copy = 0; copy < orders_[order].copies; ++copy) {
      sequence.emplace_back(static_cast<double>(order) + shift(random), order);
    }
  }
  std::sort(sequence.begin(), sequence.end());
  counts_.copies = static_cast<std::int64_t>(sequence.size());

  const Clock::time_point start = Clock::now();
  for (std::size_t place = 0; place < sequence.size(); ++place) {
    // All are due at once; the microseconds only keep them in order.
    deliveries_.push({.due = start - std::chrono::hours{1} + microseconds{place},
                      .order = sequence[place].second});
  }
  for (std::size_t number = 0; number < options.clients; ++number) {
    clients_.emplace_back([this, number] { run_client(static_cast<unsigned>(number)); });
  }
}

Traffic::~Traffic() { end_clients(); }

void Traffic::set_port(int port) {
  const std::lock_guard lock(mutex_);
  port_ = port;
  work_.notify_all();
}

TrafficCounts Traffic::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

Traffic::Wait Traffic::wait(std::int64_t finished, Clock::time_point end) {
  std::unique_lock lock(mutex_);
  const bool reached =
      progress_.wait_until(lock, end, [&] { return counts_.finished >= finished; });
  return reached ? Wait::finished : Wait::time_is_up;
}

std::vector<Order> Traffic::take_orders() {
  end_clients();
  return std::move(orders_);
}

void Traffic::end_clients() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    work_.notify_all();
  }
  for (std::thread& client : clients_)
    client.join();
  clients_.clear();
}

void Traffic::run_client(unsigned number) {
  std::minstd_rand random{options_.seed * 1'000 + number + 1};
  Connection connection;
  while (const std::optional<Delivery> delivery = next()) {
    std::optional<Reply> reply = send(connection, *delivery, random);
    if (reply && is_final(reply->status)) {
      take_reply(*delivery, *std::move(reply));
    } else {
      send_again(*delivery, random);
    }
  }
}

std::optional<Traffic::Delivery> Traffic::next() {
  std::unique_lock lock(mutex_);
  while (!ended_) {
    if (port_ == 0 || deliveries_.empty()) {
      work_.wait(lock);
    } else if (const Clock::time_point due = deliveries_.top().due; due > Clock::now()) {
      work_.wait_until(lock, due);
    } else {
      const Delivery delivery = deliveries_.top();
      deliveries_.pop();
      return delivery;
    }
  }
  return std::nullopt;
}

std::optional<Traffic::Reply> Traffic::send(Connection& connection, const Delivery& delivery,
                                            std::minstd_rand& random) {
  const Order& order = orders_[delivery.order];
  const bool hang_up = std::bernoulli_distribution{options_.drop_probability}(random);
  int port = 0;
  {
    const std::lock_guard lock(mutex_);
    port = port_;
    if (port == 0) return std::nullopt;
    ++counts_.requests;
    if (hang_up) ++counts_.dropped;
  }
  httplib::Client& client = connection.to(port);
  if (hang_up) {  // some time after sending, whatever the service is doing by then
    client.set_read_timeout(microseconds{std::uniform_int_distribution<int>{0, 20'000}(random)});
  }
  const httplib::Result answer =
      client.Post(order.path, delivery.misuse ? order.misuse_body : order.body, "application/json");
  const bool read = answer && !hang_up;
  if (!read) connection.close();
  if (!read) return std::nullopt;
  return Reply{answer->status, answer->body, answer->has_header("Idempotent-Replayed")};
}

void Traffic::take_reply(const Delivery& delivery, Reply reply) {
  const std::lock_guard lock(mutex_);
  Order& order = orders_[delivery.order];
  if (reply.replayed) ++counts_.replayed;
  if (delivery.misuse) {
    order.misuse_status = reply.status;
  } else if (order.final_status == 0) {
    order.final_status = reply.status;
    order.final_body = std::move(reply.body);
  } else if (order.final_status != reply.status || order.final_body != reply.body) {
    order.replies_differ = true;
  }
  if (!delivery.misuse && !order.misuse_body.empty() && --order.copies == 0) {
    deliveries_.push({.due = Clock::now(), .order = delivery.order, .misuse = true});
    work_.notify_one();
    return;  // the misuse takes the last copy's place in the count
  }
  ++counts_.finished;
  progress_.notify_all();
}

void Traffic::send_again(Delivery delivery, std::minstd_rand& random) {
  const int longest = std::min(200, 10 << std::min(delivery.attempt, 5));
  ++delivery.attempt;
  delivery.due =
      Clock::now() + milliseconds{std::uniform_int_distribution<int>{5, longest}(random)};
  const std::lock_guard lock(mutex_);
  deliveries_.push(delivery);
  work_.notify_one();
}

}  // namespace shop
