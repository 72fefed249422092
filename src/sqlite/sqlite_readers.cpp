#include "sqlite/sqlite_readers.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail::sqlite {

std::unique_ptr<Reader> Readers::take() {
  std::unique_lock lock(mutex_);
  if (idle_.empty() && open_ == shared_.options.connections) {
    const SteadyTime deadline = shared_.deadline();
    const auto can_go_on = [&] { return !idle_.empty() || open_ < shared_.options.connections; };
    ++waiting_;
    const bool free = freed_.wait_until(lock, deadline, can_go_on);
    --waiting_;
    if (!free) {
      throw Error(
          Errc::store_busy,
          "sqlite store: all reading connections are in use; repeat the call, or allow more "
          "connections");
    }
  }
  if (!idle_.empty()) {
    std::unique_ptr<Reader> reader = std::move(idle_.back());
    idle_.pop_back();
    return reader;
  }
  idle_.reserve(++open_);  // so that giving back cannot fail
  lock.unlock();
  try {
    return std::make_unique<Reader>(shared_);
  } catch (...) {
    give_back(nullptr);
    throw;
  }
}

void Readers::give_back(std::unique_ptr<Reader> reader) noexcept {
  const std::scoped_lock lock(mutex_);
  if (reader) {
    idle_.push_back(std::move(reader));
  } else {
    --open_;
  }
  if (waiting_ > 0) freed_.notify_one();
}

}  // namespace detail::sqlite
}  // namespace v0
}  // namespace idempotency
