#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "idempotency/detail/lock_row.hpp"
#include "idempotency/error.hpp"
#include "idempotency/patterns/lock_carrier.hpp"

namespace idempotency {
inline namespace v0 {

namespace detail {

/// Calls `call(0)` to `call(count - 1)` at once, each on a thread of its own, and waits for all.
void at_once(std::size_t count, const std::function<void(std::size_t)>& call);

[[noreturn]] void throw_no_majority(const std::string& first_error);
/// Errors: `Errc::invalid_argument` for fewer than three or an even number.
void check_redlock_size(std::size_t servers);

}  // namespace detail

/// One lock on several independent servers, held by who has it on the most of them: it outlives the loss of a minority.
///
/// It offers NO FENCE: the servers know nothing of each other, so that there is no number which rises over all of them. The locks it
/// gives have no `fence()`, and nothing can refuse an effect that comes too late. Where that matters, use one carrier with a fence.
/// Its servers must not be replicas of each other, and a server that comes back from a crash without what it had must stay away for
/// the longest lease: otherwise two may hold the lock.
///
/// All servers are asked at once; the slowest of them is waited for, so give their stores a `command_timeout` and a `connect_timeout` that
/// are short beside the lease. Servers are asked for a hundredth and 2 ms more than the lease, by which their clocks may go
/// faster than this one's. What only a minority has granted is given back at once.
///
/// Errors: `Errc::invalid_argument` as those of the carriers, for a lease that would be longer than a day with this addition as
/// well; `Errc::store_undecidable` when too few servers answer for a
/// majority.
/// Thread safety: all members may be called concurrently.
/// Lifetime: refers to the carriers.
/// Source: "Distributed Locks with Redis", redis.io; M. Kleppmann, "How to do distributed locking", 2016, for what it cannot do.
template <LockCarrier CarrierT>
class Redlock {
 public:
  /// Errors: `Errc::invalid_argument` for fewer than three servers or an even number.
  explicit Redlock(std::vector<CarrierT*> servers) : servers_(std::move(servers)) {
    detail::check_redlock_size(servers_.size());
  }

  [[nodiscard]] LockOutcome acquire(const Key& key, const OwnerToken& owner,
                                    std::chrono::milliseconds lease) {
    detail::check_lock_lease(with_drift(lease));
    const auto answers = ask<LockOutcome>([&](CarrierT& server, std::size_t) {
      return server.acquire(key, owner, with_drift(lease));
    });
    Fences fences;
    std::size_t refused = 0;
    auto remaining = std::chrono::milliseconds::max();
    for (const auto& answer : answers.of_servers) {
      fences.push_back(std::nullopt);
      if (!answer) continue;
      if (const auto* acquired = std::get_if<LockAcquired>(&*answer)) {
        fences.back() = acquired->fence;
      } else {
        ++refused;
        remaining = std::min(remaining, std::get<LockRefused>(*answer).remaining);
      }
    }
    const std::size_t granted = answers.answered() - refused;
    if (is_majority(granted)) {
      const std::scoped_lock lock(mutex_);
      fences_[owner.bytes()] = std::move(fences);
      return LockAcquired{};
    }
    static_cast<void>(release_everywhere(key, owner));
    if (!is_majority(granted + refused)) detail::throw_no_majority(answers.first_error);
    return LockRefused{remaining};
  }
  [[nodiscard]] WriteOutcome renew(const Key& key, const Ownership& by,
                                   std::chrono::milliseconds lease) {
    detail::check_lock_lease(with_drift(lease));
    const Fences fences = fences_of(by.owner);
    if (fences.empty()) return WriteOutcome::lost;
    return of_majority(ask<WriteOutcome>([&](CarrierT& server, std::size_t at) {
      if (!fences[at]) return WriteOutcome::lost;
      return server.renew(key, {by.owner, *fences[at]}, with_drift(lease));
    }));
  }
  WriteOutcome release(const Key& key, const OwnerToken& owner) {
    {
      const std::scoped_lock lock(mutex_);
      fences_.erase(owner.bytes());
    }
    return of_majority(release_everywhere(key, owner));
  }
  /// Always 0: there is no fence.
  std::uint64_t force_release(const Key& key) {
    const auto answers = ask<std::uint64_t>(
        [&](CarrierT& server, std::size_t) { return server.force_release(key); });
    if (!is_majority(answers.answered())) detail::throw_no_majority(answers.first_error);
    return 0;
  }

 private:
  /// Where the lock was granted, and at which of the servers' own fences.
  using Fences = std::vector<std::optional<std::uint64_t>>;

  template <class T>
  struct Answers {
    std::vector<std::optional<T>> of_servers;  ///< nothing: an error
    std::string first_error;
    [[nodiscard]] std::size_t answered() const {
      return static_cast<std::size_t>(std::count_if(
          of_servers.begin(), of_servers.end(), [](const auto& one) { return one.has_value(); }));
    }
  };

  static std::chrono::milliseconds with_drift(std::chrono::milliseconds lease) {
    return lease + lease / 100 + std::chrono::milliseconds{2};
  }
  [[nodiscard]] bool is_majority(std::size_t count) const noexcept {
    return count > servers_.size() / 2;
  }
  template <class T, class Call>
  [[nodiscard]] Answers<T> ask(Call call) {
    Answers<T> answers{std::vector<std::optional<T>>(servers_.size()), {}};
    std::mutex mutex;
    detail::at_once(servers_.size(), [&](std::size_t at) {
      try {
        const T answer = call(*servers_[at], at);
        const std::scoped_lock lock(mutex);
        answers.of_servers[at] = answer;
      } catch (const std::exception& error) {
        const std::scoped_lock lock(mutex);
        if (answers.first_error.empty()) answers.first_error = error.what();
      }
    });
    return answers;
  }
  [[nodiscard]] Answers<WriteOutcome> release_everywhere(const Key& key, const OwnerToken& owner) {
    return ask<WriteOutcome>(
        [&](CarrierT& server, std::size_t) { return server.release(key, owner); });
  }
  [[nodiscard]] WriteOutcome of_majority(const Answers<WriteOutcome>& answers) const {
    const auto stored = static_cast<std::size_t>(std::count(
        answers.of_servers.begin(), answers.of_servers.end(), std::optional(WriteOutcome::stored)));
    if (is_majority(stored)) return WriteOutcome::stored;
    const std::size_t unknown = servers_.size() - answers.answered();
    if (is_majority(stored + unknown)) detail::throw_no_majority(answers.first_error);
    return WriteOutcome::lost;
  }
  [[nodiscard]] Fences fences_of(const OwnerToken& owner) {
    const std::scoped_lock lock(mutex_);
    const auto found = fences_.find(owner.bytes());
    return found == fences_.end() ? Fences() : found->second;
  }

  std::vector<CarrierT*> servers_;
  std::mutex mutex_;
  std::map<OwnerToken::Bytes, Fences> fences_;
};

}  // namespace v0
}  // namespace idempotency
