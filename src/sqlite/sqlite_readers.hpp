#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "sqlite/sqlite_lane.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail::sqlite {

/// A reading connection with its statements.
struct Reader {
  explicit Reader(Shared& shared)
      : connection(shared.options, Purpose::reading),
        records(connection.handle(), shared.record_table) {}

  Connection connection;
  Records records;
};

/// Reading connections, opened when needed and up to a number; the one used last is used first.
///
/// Thread safety: `read` may be called concurrently.
class Readers {
 public:
  explicit Readers(Shared& shared) noexcept : shared_(shared) {}

  /// What `work(reader)` gives. A connection on which something went wrong is discarded.
  ///
  /// Errors: `Errc::store_busy` when none becomes free in time.
  template <class Work>
  auto read(Work work) {
    std::unique_ptr<Reader> reader = take();
    try {
      auto result = work(*reader);
      give_back(std::move(reader));
      return result;
    } catch (...) {
      reader.reset();
      give_back(nullptr);
      throw;
    }
  }

 private:
  [[nodiscard]] std::unique_ptr<Reader> take();
  void give_back(std::unique_ptr<Reader> reader) noexcept;

  Shared& shared_;
  std::mutex mutex_;
  std::condition_variable freed_;
  std::vector<std::unique_ptr<Reader>> idle_;
  std::size_t open_ = 0;
  std::size_t waiting_ = 0;
};

}  // namespace detail::sqlite
}  // namespace v0
}  // namespace idempotency
