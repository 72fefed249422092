#include "core/background_writer.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace idempotency {
inline namespace v0 {
namespace detail {

namespace {

using std::chrono::milliseconds;
constexpr milliseconds first_pause{20};
constexpr milliseconds longest_pause{1'000};

}  // namespace

BackgroundWriter::~BackgroundWriter() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void BackgroundWriter::take(Work work) {
  auto pending = std::make_unique<Pending>(*leases_, std::move(work));
  pending->held.arm();
  const std::lock_guard lock(mutex_);
  arrived_.push_back(std::move(pending));
  if (!thread_.joinable()) thread_ = std::thread([this] { repeat(); });
  changed_.notify_all();
}

void BackgroundWriter::repeat() {
  std::vector<PendingPtr> pending;
  milliseconds pause = first_pause;
  std::unique_lock lock(mutex_);
  while (true) {
    if (pending.empty()) {
      changed_.wait(lock, [&] { return stopping_ || !arrived_.empty(); });
      pause = first_pause;
    } else {
      changed_.wait_for(lock, pause, [&] { return stopping_; });
      pause = std::min(pause * 2, longest_pause);
    }
    if (stopping_) return;
    std::move(arrived_.begin(), arrived_.end(), std::back_inserter(pending));
    arrived_.clear();
    lock.unlock();
    std::erase_if(pending, [&](PendingPtr& each) { return settled(*each); });
    lock.lock();
  }
}

bool BackgroundWriter::settled(Pending& pending) {
  const Work& work = pending.work;
  pending.held.disarm();
  try {
    const WriteOutcome outcome = send(*store_, work.key, work.ownership, work.write);
    if (observer_ != nullptr) {
      observer_->on_settled_behind(work.key, outcome == WriteOutcome::stored ? "recorded" : "lost");
    }
    return true;
  } catch (const Error& error) {
    ++pending.attempts;
    if (observer_ != nullptr) {
      observer_->on_store_error(work.key, call_of(work.write), error, pending.attempts);
    }
    if (!error.safe_to_retry()) {
      if (observer_ != nullptr) observer_->on_settled_behind(work.key, "given up");
      return true;
    }
  }
  pending.held.arm();
  return false;
}

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
