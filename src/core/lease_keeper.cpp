#include "core/lease_keeper.hpp"

#include <pthread.h>

#include <algorithm>
#include <iterator>
#include <system_error>
#include <utility>

namespace idempotency {
inline namespace v0 {
namespace detail {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds soon{50};  ///< until it is tried again to start a thread

/// The process's one scheduling thread. It lives from the first armed lease until the last lane ends.
class Scheduler {
 public:
  static Scheduler& instance() {
    static Scheduler& scheduler = *new Scheduler;  // never destroyed: guards may be static, too
    return scheduler;
  }

  void add(LeaseLane& lane) {
    const std::lock_guard lock(mutex_);
    lanes_.push_back(&lane);
  }

  void remove(LeaseLane& lane) {
    std::thread ended;
    {
      const std::lock_guard lock(mutex_);
      std::erase(lanes_, &lane);
      if (lanes_.empty() && thread_.joinable()) {
        ++epoch_;
        next_look_.store(SteadyTime::max());
        ended = std::exchange(thread_, std::thread{});
        changed_.notify_all();
      }
    }
    if (ended.joinable()) ended.join();
  }

  /// Makes sure that a look happens no later than `due`.
  void look_by(SteadyTime due) {
    if (due >= next_look_.load()) return;
    const std::lock_guard lock(mutex_);
    if (!thread_.joinable()) {
      thread_ = std::thread([this, epoch = epoch_] { run(epoch); });
    }
    if (due >= next_look_.load()) return;
    next_look_.store(due);
    changed_.notify_all();
  }

  [[nodiscard]] std::size_t threads() {
    const std::lock_guard lock(mutex_);
    return thread_.joinable() ? 1 : 0;
  }

 private:
  Scheduler() {
    pthread_atfork([] { instance().mutex_.lock(); }, [] { instance().mutex_.unlock(); },
                   [] { instance().after_fork(); });
  }

  /// In the child only the forking thread lives on: the parent's lanes and thread are not its own.
  void after_fork() {
    static_cast<void>(
        new std::thread(std::move(thread_)));  // a handle of the parent's: never joined
    thread_ = std::thread{};
    lanes_.clear();
    next_look_.store(SteadyTime::max());
    ++epoch_;
    mutex_.unlock();
  }

  void run(std::uint64_t epoch) {
    std::unique_lock lock(mutex_);
    while (epoch == epoch_) {
      const SteadyTime at = next_look_.load();
      if (at == SteadyTime::max()) {
        changed_.wait(lock);
      } else if (std::chrono::steady_clock::now() < at) {
        changed_.wait_until(lock, at);
      } else {
        look();
      }
    }
  }

  void look() {
    // Whoever arms from here on sees "never" and comes through `look_by`, which waits for this look to end.
    next_look_.store(SteadyTime::max());
    SteadyTime next = SteadyTime::max();
    for (LeaseLane* lane : lanes_)
      next = std::min(next, lane->sweep(std::chrono::steady_clock::now()));
    next_look_.store(next);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<LeaseLane*> lanes_;
  std::thread thread_;
  std::uint64_t epoch_ = 0;
  std::atomic<SteadyTime> next_look_{SteadyTime::max()};
};

std::size_t shard_of_this_thread(std::size_t count) noexcept {
  static std::atomic<std::size_t> next{0};
  thread_local const std::size_t mine = next.fetch_add(1, std::memory_order_relaxed);
  return mine % count;
}

}  // namespace

std::size_t scheduling_threads() noexcept { return Scheduler::instance().threads(); }

HeldLease::HeldLease(LeaseLane& lane, const Key& key, const Ownership& ownership,
                     milliseconds lease, SteadyTime ends_at, SteadyTime hold_until) noexcept
    : lane_(&lane),
      key_(&key),
      ownership_(ownership),
      lease_(lease),
      ends_at_(ends_at),
      next_renewal_(ends_at - lease + lease / 3),
      hold_until_(hold_until),
      shard_(shard_of_this_thread(LeaseLane::shard_count)) {}

void HeldLease::arm() {
  SteadyTime due;
  {
    const std::lock_guard lock(shard().mutex);
    if (armed_) return;
    armed_ = true;
    before_ = nullptr;
    after_ = std::exchange(shard().first, this);
    if (after_ != nullptr) after_->before_ = this;
    due = next_renewal_;
  }
  Scheduler::instance().look_by(due);
}

void HeldLease::disarm() noexcept {
  if (!armed_) return;  // only the run's own thread arms and disarms
  const std::lock_guard lock(shard().mutex);
  armed_ = false;
  (before_ == nullptr ? shard().first : before_->after_) = after_;
  if (after_ != nullptr) after_->before_ = before_;
  before_ = after_ = nullptr;
  if (job_) job_->held = nullptr;
  job_.reset();
}

bool HeldLease::lost() const noexcept {
  const std::lock_guard lock(shard().mutex);
  return lost_;
}

SteadyTime HeldLease::ends_at() const noexcept {
  const std::lock_guard lock(shard().mutex);
  return ends_at_;
}

std::stop_token HeldLease::stop_token() {
  std::vector<LeaseLoss> losses;
  const SteadyTime now = std::chrono::steady_clock::now();
  std::unique_lock lock(shard().mutex);
  // After a pause of the whole process this thread may look before the keeper's has run again.
  if (armed_ && !lost_ && now >= ends_at_ - Protocol::margin(lease_)) {
    LeaseLane::mark_lost(*this, losses);
  }
  if (!stop_) {
    stop_.emplace();
    if (lost_) stop_->request_stop();  // nobody can have registered a callback yet
  }
  std::stop_source stop = *stop_;
  const bool is_lost = lost_;
  lock.unlock();
  if (is_lost) stop.request_stop();  // whoever is to tell it may be busy with another's loss
  lane_->tell_soon(losses);
  return stop.get_token();
}

LossTeller::~LossTeller() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

bool LossTeller::tell_soon(const std::vector<LeaseLoss>& losses) {
  const std::lock_guard lock(mutex_);
  losses_.insert(losses_.end(), losses.begin(), losses.end());
  return start();
}

bool LossTeller::try_again() {
  const std::lock_guard lock(mutex_);
  return losses_.empty() || start();
}

bool LossTeller::start() {
  if (!thread_.joinable()) {
    try {
      thread_ = std::thread([this] { tell_all(); });
    } catch (const std::system_error&) {
      return false;
    }
  }
  changed_.notify_all();
  return true;
}

void LossTeller::tell_all() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return ends_ || !losses_.empty(); });
    if (losses_.empty()) return;
    const std::vector<LeaseLoss> now = std::exchange(losses_, {});
    lock.unlock();
    for (const LeaseLoss& loss : now)
      tell_(loss);
    lock.lock();
  }
}

namespace {

void set_stop(const LeaseLoss& loss) {
  if (loss.stop) std::stop_source(*loss.stop).request_stop();
}

}  // namespace

LeaseLane::LeaseLane(RenewalPort& store, Observer* observer)
    : store_(&store),
      observer_(observer),
      stops_(set_stop),
      reports_([this](const auto& loss) { tell(loss); }) {
  Scheduler::instance().add(*this);
}

LeaseLane::~LeaseLane() {
  Scheduler::instance().remove(*this);
  {
    const std::lock_guard lock(queue_mutex_);
    stopping_ = true;
    queue_.clear();
  }
  queue_filled_.notify_all();
  for (std::thread& worker : workers_)
    worker.join();
}

SteadyTime LeaseLane::sweep(SteadyTime now) {
  Jobs due;
  std::vector<LeaseLoss> losses;
  SteadyTime next = SteadyTime::max();
  for (std::size_t at = 0; at < shard_count; ++at) {
    const std::lock_guard lock(shards_[at].mutex);
    for (HeldLease* held = shards_[at].first; held != nullptr; held = held->after_) {
      next = std::min(next, look_at(*held, now, at, due, losses));
    }
  }
  tell_soon(losses);
  if (!enqueue(due)) next = std::min(next, postpone(due, now));
  const bool is_told = stops_.try_again() && reports_.try_again();
  return is_told ? next : std::min(next, now + soon);
}

SteadyTime LeaseLane::postpone(const Jobs& due, SteadyTime now) {
  for (const auto& job : due) {
    const std::lock_guard lock(shards_[job->shard].mutex);
    if (job->held == nullptr) continue;
    job->held->job_.reset();
    job->held->next_renewal_ = now + soon;
    job->held = nullptr;
  }
  return now + soon;
}

SteadyTime LeaseLane::look_at(HeldLease& held, SteadyTime now, std::size_t shard, Jobs& due,
                              std::vector<LeaseLoss>& losses) {
  if (held.lost_) return SteadyTime::max();
  const SteadyTime last_moment = held.ends_at_ - Protocol::margin(held.lease_);
  if (now >= last_moment) {
    mark_lost(held, losses);
    return SteadyTime::max();
  }
  if (held.job_ || now >= held.hold_until_) return last_moment;
  if (now < held.next_renewal_) return std::min(held.next_renewal_, last_moment);
  held.job_ = std::make_shared<RenewalJob>(
      RenewalJob{&held, shard, Renewal{*held.key_, held.ownership_, held.lease_}, held.alone_});
  due.push_back(held.job_);
  return last_moment;
}

void LeaseLane::mark_lost(HeldLease& held, std::vector<LeaseLoss>& losses) {
  held.lost_ = true;
  losses.push_back({*held.key_, held.ownership_.fence, held.stop_});
}

/// Stop callbacks and observers may block or call the library: the thread that schedules must not wait for them.
void LeaseLane::tell_soon(std::vector<LeaseLoss>& losses) noexcept {
  if (losses.empty()) return;
  try {
    std::vector<LeaseLoss> awaited;
    std::copy_if(losses.begin(), losses.end(), std::back_inserter(awaited),
                 [](const LeaseLoss& loss) { return loss.stop.has_value(); });
    if (!awaited.empty()) static_cast<void>(stops_.tell_soon(awaited));
    static_cast<void>(reports_.tell_soon(losses));
  } catch (const std::
               exception&) {  // no memory is to be had: whoever asks for a stop token learns of it
    return;
  }
}

/// The stop first, whoever else is about to set it.
void LeaseLane::tell(const LeaseLoss& loss) noexcept {
  set_stop(loss);
  if (observer_ != nullptr) observer_->on_lease_lost(loss.key, loss.fence);
}

bool LeaseLane::enqueue(Jobs& due) {
  if (due.empty()) return true;
  {
    const std::lock_guard lock(queue_mutex_);
    if (stopping_) return true;
    const std::size_t most_workers = store_->most_at_once();
    const std::size_t queued = queue_.size();
    queue_.insert(queue_.end(), due.begin(), due.end());
    const auto alone = static_cast<std::size_t>(
        std::count_if(due.begin(), due.end(), [](const auto& job) { return job->alone; }));
    const std::size_t wanted =
        std::min(store_->batches() ? 1 + alone : queue_.size(), most_workers);
    while (idle_workers_ < wanted && workers_.size() < most_workers) {
      try {
        workers_.emplace_back([this] { work(); });
      } catch (const std::system_error&) {  // no thread is to be had; those that are there do it
        break;
      }
      ++idle_workers_;
    }
    if (workers_.empty()) {
      queue_.resize(queued);
      return false;
    }
  }
  queue_filled_.notify_all();
  return true;
}

void LeaseLane::work() {
  std::unique_lock lock(queue_mutex_);  // the one that started this thread has counted it as idle
  while (true) {
    queue_filled_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
    if (stopping_) return;
    Jobs batch = next_batch();
    --idle_workers_;
    lock.unlock();
    renew(batch);
    lock.lock();
    ++idle_workers_;
  }
}

LeaseLane::Jobs LeaseLane::next_batch() {
  const std::size_t most = store_->batches() && !queue_.front()->alone ? largest_batch : 1;
  const auto last = queue_.begin() + static_cast<std::ptrdiff_t>(std::min(most, queue_.size()));
  const auto end =
      std::find_if(queue_.begin() + 1, last, [](const auto& job) { return job->alone; });
  Jobs batch(queue_.begin(), end);
  queue_.erase(queue_.begin(), end);
  return batch;
}

void LeaseLane::renew_each_alone(Jobs& batch) {
  for (const auto& job : batch) {
    const std::lock_guard lock(shards_[job->shard].mutex);
    job->alone = true;
    if (job->held != nullptr) job->held->alone_ = true;
  }
  static_cast<void>(enqueue(batch));  // this thread takes them, if no other does
}

void LeaseLane::drop_ended(Jobs& batch) {
  std::erase_if(batch, [&](const std::shared_ptr<RenewalJob>& job) {
    const std::lock_guard lock(shards_[job->shard].mutex);
    return job->held == nullptr;
  });
}

void LeaseLane::renew(Jobs& batch) {
  drop_ended(batch);
  if (batch.empty()) return;
  std::vector<Renewal> renewals;
  renewals.reserve(batch.size());
  for (const auto& job : batch)
    renewals.push_back(job->renewal);
  const SteadyTime sent = std::chrono::steady_clock::now();
  std::vector<std::optional<WriteOutcome>> outcomes(batch.size());
  try {
    const std::vector<WriteOutcome> answers = store_->renew_many(renewals);
    std::copy_n(answers.begin(), std::min(answers.size(), outcomes.size()), outcomes.begin());
  } catch (const Error& error) {
    for (const Renewal& renewal : renewals) {
      if (observer_ != nullptr) observer_->on_store_error(renewal.key, StoreCall::renew, error, 1);
    }
    if (batch.size() > 1) return renew_each_alone(batch);
  } catch (const std::exception&) {  // not an answer: the renewal is repeated while the lease lasts
    outcomes.assign(batch.size(), std::nullopt);
  }
  for (std::size_t at = 0; at < batch.size(); ++at)
    settle(*batch[at], outcomes[at], sent);
}

void LeaseLane::settle(RenewalJob& job, std::optional<WriteOutcome> outcome, SteadyTime sent) {
  std::vector<LeaseLoss> losses;
  SteadyTime due = SteadyTime::max();
  bool renewed = false;
  {
    const std::lock_guard lock(shards_[job.shard].mutex);
    HeldLease* held = job.held;
    if (held == nullptr) return;
    held->job_.reset();
    job.held = nullptr;
    if (outcome == WriteOutcome::lost) {
      if (!held->lost_) mark_lost(*held, losses);
    } else if (outcome == WriteOutcome::stored) {
      renewed = true;
      held->alone_ = false;
      held->ends_at_ = sent + held->lease_;
      due = held->next_renewal_ = sent + held->lease_ / 3;
    } else {  // no answer: again soon, within what is left
      due = held->next_renewal_ =
          std::chrono::steady_clock::now() + std::max(held->lease_ / 12, milliseconds{1});
    }
  }
  if (renewed && observer_ != nullptr) {
    observer_->on_lease_renewed(job.renewal.key, job.renewal.ownership.fence);
  }
  tell_soon(losses);
  if (due != SteadyTime::max()) Scheduler::instance().look_by(due);
}

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
