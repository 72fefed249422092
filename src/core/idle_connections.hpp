#pragma once

#include <cstddef>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace idempotency {
inline namespace v0 {
namespace detail {

/// Open connections that nobody uses. A thread gets the one that it used last: the server's thread for it is then likely to
/// be woken on the same processor, which at 64 threads on two processors is worth a fifth. Otherwise the one used last by any, so
/// that those beyond the usual need grow old.
///
/// Thread safety: none; the pool's lock is held around each call.
template <class Connection>
class IdleConnections {
 public:
  /// So many can be pushed without an error.
  void reserve(std::size_t count) { entries_.reserve(count); }
  void push(std::unique_ptr<Connection> connection) {
    entries_.push_back({std::move(connection), std::this_thread::get_id()});
  }
  /// One for which `is_wanted(connection)` is true; nothing when there is none.
  template <class Predicate>
  [[nodiscard]] std::unique_ptr<Connection> take(Predicate is_wanted) noexcept {
    const std::thread::id self = std::this_thread::get_id();
    std::size_t found = entries_.size();
    for (std::size_t at = entries_.size(); at-- > 0;) {
      const bool is_own = entries_[at].user == self;
      if ((found != entries_.size() && !is_own) || !is_wanted(*entries_[at].connection)) continue;
      found = at;
      if (is_own) break;
    }
    if (found == entries_.size()) return nullptr;
    std::unique_ptr<Connection> connection = std::move(entries_[found].connection);
    entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(found));
    return connection;
  }
  [[nodiscard]] std::unique_ptr<Connection> take() noexcept {
    return take([](const Connection&) { return true; });
  }

  [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }
  void clear() noexcept { entries_.clear(); }
  void swap(IdleConnections& other) noexcept { entries_.swap(other.entries_); }
  /// Calls `work(connection)` with each.
  template <class Work>
  void each(Work work) const {
    for (const Entry& entry : entries_)
      work(*entry.connection);
  }

 private:
  struct Entry {
    std::unique_ptr<Connection> connection;
    std::thread::id user;  ///< who gave it back
  };

  std::vector<Entry> entries_;
};

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
