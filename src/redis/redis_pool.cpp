#include "redis/redis_pool.hpp"

#include <algorithm>
#include <utility>

namespace idempotency {
inline namespace v0 {
namespace detail::redis {

Pool::Pool(const RedisOptions& options, std::function<void(Connection&)> greet)
    : options_(options), greet_(std::move(greet)) {
  idle_.reserve(options_.max_connections);  // so that giving back cannot fail
}

Pool::Loan Pool::take() {
  std::unique_ptr<Connection> connection = take_place();
  if (connection && connection->is_quiet()) {
    return Loan(*this, std::move(connection), Loan::Origin::idle);
  }
  try {
    connection = std::make_unique<Connection>(options_);
    greet_(*connection);
  } catch (...) {
    give_back(nullptr);
    throw;
  }
  return Loan(*this, std::move(connection), Loan::Origin::opened);
}

std::unique_ptr<Connection> Pool::take_place() {
  std::unique_lock lock(mutex_);
  if (waiters_.empty() && places_taken_ < options_.max_connections) {
    ++places_taken_;
    return idle_.take();
  }
  Waiter waiter;
  waiters_.push_back(&waiter);
  waiter.woken.wait_for(lock, options_.pool_wait, [&] { return waiter.has_place; });
  if (waiter.has_place) return std::move(waiter.connection);
  waiters_.erase(std::find(waiters_.begin(), waiters_.end(), &waiter));
  throw Error(Errc::store_busy,
              "redis store: all connections stayed in use; repeat the call, or allow more of them");
}

void Pool::give_back(std::unique_ptr<Connection> connection) noexcept {
  const std::scoped_lock lock(mutex_);
  if (!waiters_.empty()) {
    Waiter& next = *waiters_.front();
    waiters_.pop_front();
    next.connection = std::move(connection);
    next.has_place = true;
    next.woken.notify_one();  // under the lock: the waiter may end as soon as it is released
    return;
  }
  --places_taken_;
  if (connection) idle_.push(std::move(connection));
}

void Pool::close_idle() noexcept {
  const std::scoped_lock lock(mutex_);
  idle_.clear();
}

}  // namespace detail::redis
}  // namespace v0
}  // namespace idempotency
