#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "core/idle_connections.hpp"
#include "redis/redis_connection.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail::redis {

/// A bounded number of connections, lent to one caller each: first come, first served.
class Pool {
 public:
  /// A connection lent out, given back when this ends.
  class Loan {
   public:
    enum class Origin : std::uint8_t { opened, idle };

    Loan(Loan&& other) noexcept = default;
    Loan& operator=(Loan&&) = delete;
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;
    ~Loan() {
      if (pool_ != nullptr) pool_->give_back(std::move(connection_));
    }

    [[nodiscard]] Connection& connection() const noexcept { return *connection_; }
    /// Whether it had been idle, so that the server may have closed it since.
    [[nodiscard]] Origin origin() const noexcept { return origin_; }
    /// Closes it instead of giving it back.
    void discard() noexcept { connection_.reset(); }

   private:
    friend class Pool;
    struct Return {
      void operator()(Pool*) const noexcept {}
    };
    Loan(Pool& pool, std::unique_ptr<Connection> connection, Origin origin) noexcept
        : pool_(&pool), connection_(std::move(connection)), origin_(origin) {}

    std::unique_ptr<Pool, Return> pool_;
    std::unique_ptr<Connection> connection_;
    Origin origin_;
  };

  /// `greet` is called with every new connection before it is lent out.
  Pool(const RedisOptions& options, std::function<void(Connection&)> greet);

  /// Errors: `Errc::store_busy` when all stay in use, and those of connecting.
  [[nodiscard]] Loan take();
  /// Closes what is idle: others of the same age are likely as dead as the one that was met.
  void close_idle() noexcept;

 private:
  /// A place among `max_connections`, with or without a connection in it.
  struct Waiter {
    std::condition_variable woken;
    bool has_place = false;
    std::unique_ptr<Connection> connection;
  };

  [[nodiscard]] std::unique_ptr<Connection> take_place();
  void give_back(std::unique_ptr<Connection> connection) noexcept;

  const RedisOptions& options_;
  std::function<void(Connection&)> greet_;
  std::mutex mutex_;
  std::size_t places_taken_ = 0;
  IdleConnections<Connection> idle_;
  std::deque<Waiter*> waiters_;
};

}  // namespace detail::redis
}  // namespace v0
}  // namespace idempotency
