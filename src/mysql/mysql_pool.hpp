#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>

#include "core/idle_connections.hpp"
#include "mysql/mysql_connection.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail::mysql {

using SteadyTime = std::chrono::steady_clock::time_point;

/// Whether a connection may be one that has been idle.
enum class Freshness : std::uint8_t { any, fresh };
/// Renewals do not wait behind the calls whose leases they renew: theirs are places of their own, as many as there are threads
/// that renew.
enum class Place : std::uint8_t { usual, of_renewals };

/// A bounded number of connections. Who waits longest is served first.
///
/// Thread safety: all members may be called concurrently.
class Pool {
 public:
  explicit Pool(const MySqlOptions& options) : options_(options) {}

  /// One whose statements wait for locks no longer than `lock_wait`, unless they say so themselves.
  ///
  /// Errors: `Errc::store_busy` when none is free by `deadline`; those of connecting.
  [[nodiscard]] std::unique_ptr<Connection> take(Autocommit autocommit,
                                                 std::chrono::milliseconds lock_wait,
                                                 Freshness freshness, SteadyTime deadline,
                                                 Place place = Place::usual);
  /// A broken connection is closed.
  void give_back(std::unique_ptr<Connection> connection) noexcept;
  /// Closes what is idle. Preconditions: nobody uses the pool any more.
  void close() noexcept;
  /// In the child of a fork: forgets all without a word to the server.
  void abandon() noexcept;

 private:
  void wait_for_place(std::unique_lock<std::mutex>& lock, SteadyTime deadline);
  [[nodiscard]] std::unique_ptr<Connection> idle(Autocommit autocommit) noexcept;
  void set_up(Connection& connection, Autocommit autocommit,
              std::chrono::milliseconds lock_wait) const;
  [[nodiscard]] bool is_ready(Connection& connection, Autocommit autocommit,
                              std::chrono::milliseconds lock_wait) const;
  void leave_place() noexcept;

  const MySqlOptions& options_;
  std::mutex mutex_;
  std::deque<std::condition_variable*> waiting_;
  IdleConnections<Connection> idle_;
  std::size_t taken_ =
      0;  ///< in use, or promised to one who waits; more than there are with renewals
};

/// A connection for one call.
class PooledConnection {
 public:
  PooledConnection(Pool& pool, std::unique_ptr<Connection> connection) noexcept
      : pool_(&pool), connection_(std::move(connection)) {}
  PooledConnection(const PooledConnection&) = delete;
  PooledConnection& operator=(const PooledConnection&) = delete;
  ~PooledConnection() { pool_->give_back(std::move(connection_)); }

  [[nodiscard]] Connection& operator*() const noexcept { return *connection_; }
  [[nodiscard]] Connection* operator->() const noexcept { return connection_.get(); }

 private:
  Pool* pool_;
  std::unique_ptr<Connection> connection_;
};

}  // namespace detail::mysql
}  // namespace v0
}  // namespace idempotency
