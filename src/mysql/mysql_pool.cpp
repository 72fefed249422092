#include "mysql/mysql_pool.hpp"

#include <algorithm>
#include <utility>

#include "mysql/mysql_options.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail::mysql {

void Pool::wait_for_place(std::unique_lock<std::mutex>& lock, SteadyTime deadline) {
  if (waiting_.empty() && taken_ < options_.connections) {
    ++taken_;
    return;
  }
  std::condition_variable mine;
  waiting_.push_back(&mine);
  const auto is_waiting = [&] {
    return std::find(waiting_.begin(), waiting_.end(), &mine) != waiting_.end();
  };
  if (mine.wait_until(lock, deadline, [&] { return !is_waiting(); })) return;  // promised
  waiting_.erase(std::find(waiting_.begin(), waiting_.end(), &mine));
  throw Error(Errc::store_busy,
              "mysql store: all connections are in use; repeat the call, allow more connections or "
              "a longer wait");
}

/// The place goes to the one who waits longest.
void Pool::leave_place() noexcept {
  if (waiting_.empty() || taken_ > options_.connections) {
    --taken_;
    return;
  }
  std::condition_variable* next = waiting_.front();
  waiting_.pop_front();
  next->notify_one();
}

std::unique_ptr<Connection> Pool::idle(Autocommit autocommit) noexcept {
  std::unique_ptr<Connection> connection =
      idle_.take([&](const Connection& candidate) { return candidate.autocommit() == autocommit; });
  const bool has_room = idle_.size() + taken_ <= options_.connections;
  if (connection || has_room) return connection;
  return idle_.take();
}

void Pool::set_up(Connection& connection, Autocommit autocommit,
                  std::chrono::milliseconds lock_wait) const {
  connection.set_autocommit(autocommit);
  if (connection.traits().sets_for_statement) return;
  connection.set_lock_wait(lock_wait_seconds(options_, lock_wait));
}

/// Of one that was idle: the server may have closed it since.
bool Pool::is_ready(Connection& connection, Autocommit autocommit,
                    std::chrono::milliseconds lock_wait) const {
  if (!connection.settle()) return false;
  try {
    set_up(connection, autocommit, lock_wait);
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::unique_ptr<Connection> Pool::take(Autocommit autocommit, std::chrono::milliseconds lock_wait,
                                       Freshness freshness, SteadyTime deadline, Place place) {
  std::unique_ptr<Connection> connection;
  IdleConnections<Connection> stale;
  {
    std::unique_lock lock(mutex_);
    if (place == Place::usual) {
      wait_for_place(lock, deadline);
    } else {
      ++taken_;
    }
    if (freshness == Freshness::fresh) {
      stale.swap(idle_);  // what broke one of them has probably broken all
    } else {
      connection = idle(autocommit);
    }
  }
  try {
    const ClientUse use;
    stale.clear();
    if (connection && !is_ready(*connection, autocommit, lock_wait)) connection.reset();
    if (!connection) {
      connection = std::make_unique<Connection>(options_);
      set_up(*connection, autocommit, lock_wait);
    }
    return connection;
  } catch (...) {
    connection.reset();
    const std::scoped_lock lock(mutex_);
    leave_place();
    throw;
  }
}

void Pool::give_back(std::unique_ptr<Connection> connection) noexcept {
  if (!connection) return;
  if (connection->is_broken()) {
    try {
      const ClientUse use;
      connection.reset();
    } catch (const std::exception&) {
      static_cast<void>(connection.release());  // the client does not start: nothing can be closed
    }
  }
  const std::scoped_lock lock(mutex_);
  if (connection) {
    try {
      idle_.push(std::move(connection));
    } catch (const std::exception&) {  // out of memory: closed
    }
  }
  leave_place();
}

void Pool::close() noexcept {
  try {
    const ClientUse use;
    idle_.clear();
  } catch (const std::exception&) {
    abandon();
  }
}

void Pool::abandon() noexcept {
  idle_.each([](Connection& connection) { connection.abandon(); });
}

}  // namespace detail::mysql
}  // namespace v0
}  // namespace idempotency
