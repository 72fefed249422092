#include "sqlite/sqlite_writer.hpp"

#include <algorithm>
#include <thread>

namespace idempotency {
inline namespace v0 {
namespace detail::sqlite {

namespace {

/// The same failure for each call of a batch: a copy each, since each is thrown on a thread of its
/// own.
std::exception_ptr copy_of(const Error& error) {
  return std::make_exception_ptr(Error(error.code(), error.what(), error.detail()));
}

/// A store's call is repeated with its token, whatever became of the commit.
Error as_call_error(const Error& error) {
  if (error.code() != Errc::commit_unknown) return error;
  return Error(Errc::store_reply_lost,
               "sqlite store: the commit was not confirmed; repeat the call with the same token",
               error.detail());
}

}  // namespace

bool WriteTurn::acquire(SteadyTime deadline) {
  std::unique_lock lock(mutex_);
  if (!taken_) {
    taken_ = true;
    return true;
  }
  Waiter waiter;
  const auto place = waiters_.insert(waiters_.end(), &waiter);
  while (!waiter.granted) {
    if (waiter.wake.wait_until(lock, deadline) == std::cv_status::timeout && !waiter.granted) {
      waiters_.erase(place);
      return false;
    }
  }
  return true;
}

void WriteTurn::release() noexcept {
  const std::scoped_lock lock(mutex_);
  if (waiters_.empty()) {
    taken_ = false;
    return;
  }
  Waiter* next = waiters_.front();
  waiters_.pop_front();
  next->granted = true;
  next->wake.notify_one();  // under the lock: the waiter's stack may be gone after it
}

void GroupWriter::submit(Call& call) {
  std::unique_lock lock(mutex_);
  queue_.push_back(&call);
  while (!call.done) {
    if (leading_) {
      call.wake.wait(lock);
      continue;
    }
    leading_ = true;
    lock.unlock();
    lead(call);
    lock.lock();
    leading_ = false;
    if (!queue_.empty()) queue_.front()->wake.notify_one();
  }
  lock.unlock();
  if (call.failure) std::rethrow_exception(call.failure);
}

/// One batch. What keeps it from starting concerns the leader's own call only: the next leader has
/// a deadline of its own.
void GroupWriter::lead(Call& own) noexcept {
  const SteadyTime deadline = shared_.deadline();
  gather();
  bool turn = false;
  try {
    turn = turn_.acquire(deadline);
    if (!turn) {
      throw Error(Errc::store_busy,
                  "sqlite store: another transaction of this process holds the write lock for too "
                  "long; repeat the call");
    }
    if (!lane_) lane_ = std::make_unique<Lane>(shared_);
    lane_->begin(deadline);
  } catch (...) {
    fail_alone(own);
    if (turn) turn_.release();
    return;
  }
  const std::vector<Call*> batch = take_batch();
  execute(batch);
  turn_.release();
  const std::scoped_lock lock(mutex_);
  for (Call* call : batch) {
    call->done = true;
    if (call != &own) call->wake.notify_one();
  }
}

/// After a shared commit its callers come back one by one: waiting for them a fraction of a
/// commit's time makes the next one shared too, instead of one for the first and one for the rest.
void GroupWriter::gather() {
  const auto until = std::chrono::steady_clock::now() + last_commit_ / 8;
  while (true) {
    {
      const std::scoped_lock lock(mutex_);
      if (queue_.size() >= last_batch_) return;
    }
    if (std::chrono::steady_clock::now() >= until) return;
    std::this_thread::yield();
  }
}

std::vector<GroupWriter::Call*> GroupWriter::take_batch() {
  const std::scoped_lock lock(mutex_);
  const std::size_t count = std::min(queue_.size(), shared_.options.max_batch);
  const auto end = queue_.begin() + static_cast<std::ptrdiff_t>(count);
  std::vector<Call*> batch(queue_.begin(), end);
  queue_.erase(queue_.begin(), end);
  last_batch_ = count;
  return batch;
}

void GroupWriter::execute(const std::vector<Call*>& batch) {
  const SteadyTime started = std::chrono::steady_clock::now();
  try {
    for (Call* call : batch) {
      try {
        call->perform(lane_->records(), shared_.clock->now());
      } catch (const Error& error) {
        if (!lane_->in_transaction()) throw;  // it took the others' writes with it
        call->failure = copy_of(error);
      } catch (const std::exception&) {
        call->failure = std::current_exception();
      }
    }
    lane_->commit();
  } catch (const Error& error) {
    const Error failure = as_call_error(error);
    for (Call* call : batch)
      call->failure = copy_of(failure);
    lane_->rollback();
    if (failure.code() != Errc::store_busy) lane_.reset();
    return;
  }
  last_commit_ = std::chrono::steady_clock::now() - started;
}

void GroupWriter::fail_alone(Call& call) noexcept {
  call.failure = std::current_exception();
  const std::scoped_lock lock(mutex_);
  queue_.erase(std::remove(queue_.begin(), queue_.end(), &call), queue_.end());
  call.done = true;
}

}  // namespace detail::sqlite
}  // namespace v0
}  // namespace idempotency
