#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "sqlite/sqlite_lane.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail::sqlite {

/// Who of this process may write: one at a time, first come, first served.
///
/// Thread safety: `acquire` and `release` may be called concurrently; the turn may end on another
/// thread than it began.
class WriteTurn {
 public:
  /// False when the deadline passed first.
  [[nodiscard]] bool acquire(SteadyTime deadline);
  void release() noexcept;

 private:
  struct Waiter {
    std::condition_variable wake;
    bool granted = false;
  };

  std::mutex mutex_;
  std::list<Waiter*> waiters_;
  bool taken_ = false;
};

/// Writes of many threads, several to a commit.
///
/// There is no thread of its own: whoever finds nobody writing leads. The leader takes what has
/// gathered, executes it in one transaction, commits, and only then hands out the answers; the one
/// who waits longest leads next.
///
/// Thread safety: `write` may be called concurrently.
class GroupWriter {
 public:
  GroupWriter(Shared& shared, WriteTurn& turn) noexcept : shared_(shared), turn_(turn) {}

  /// The result of `perform(records, now)`, once it is committed.
  ///
  /// What `perform` throws concerns its own call alone; when the commit fails, every call in it
  /// throws.
  template <class Perform>
  auto write(Perform perform) {
    CallOf<std::invoke_result_t<Perform&, Records&, Timestamp>, Perform> call(perform);
    submit(call);
    return std::move(*call.result);
  }

 private:
  struct Call {
    Call() = default;
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    virtual ~Call() = default;
    virtual void perform(Records& records, Timestamp now) = 0;

    std::condition_variable wake;
    std::exception_ptr failure;
    bool done = false;
  };
  template <class Result, class Perform>
  struct CallOf final : Call {
    explicit CallOf(Perform& perform_it) noexcept : function(&perform_it) {}
    void perform(Records& records, Timestamp now) override {
      result.emplace((*function)(records, now));
    }

    Perform* function;
    std::optional<Result> result;
  };

  void submit(Call& call);
  void lead(Call& own) noexcept;
  void gather();
  void execute(const std::vector<Call*>& batch);
  [[nodiscard]] std::vector<Call*> take_batch();
  void fail_alone(Call& call) noexcept;

  Shared& shared_;
  WriteTurn& turn_;
  std::unique_ptr<Lane> lane_;  ///< the leader's
  std::mutex mutex_;
  std::deque<Call*> queue_;
  std::size_t last_batch_ = 0;
  std::chrono::nanoseconds last_commit_{0};  ///< the leader's
  bool leading_ = false;
};

}  // namespace detail::sqlite
}  // namespace v0
}  // namespace idempotency
