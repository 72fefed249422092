#include "idempotency/patterns/distributed_lock.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include "core/cancellation.hpp"
#include "core/fork_generation.hpp"
#include "idempotency/detail/lock_row.hpp"
#include "idempotency/patterns/retry.hpp"
#include "idempotency/protocol.hpp"
#include "patterns/lock_parts.hpp"

namespace idempotency {
inline namespace v0 {

using std::chrono::milliseconds;

namespace detail {

namespace {

constexpr milliseconds first_pause{4};
constexpr milliseconds longest_pause{200};

LockOptions checked(LockOptions options) {
  check_lock_lease(options.lease);
  if (options.max_total_hold < options.lease) {
    throw Error(Errc::invalid_argument, "a lock's max_total_hold is no shorter than its lease");
  }
  return options;
}

SteadyTime plus(SteadyTime from, milliseconds span) noexcept {
  // Milliseconds count further than the clock does.
  const auto most = std::chrono::floor<milliseconds>(SteadyTime::max() - from);
  return span > most ? SteadyTime::max() : from + span;
}

}  // namespace

SteadyTime deadline_after(milliseconds wait) noexcept {
  return plus(std::chrono::steady_clock::now(), std::max(wait, milliseconds{0}));
}

void SeenFences::note(const Key& key, std::uint64_t fence) {
  if (fence == 0) return;
  const std::scoped_lock lock(mutex_);
  if (fences_.size() >= most) forget_the_lower_half();
  const auto [seen, is_new] = fences_.try_emplace(key.text(), fence);
  if (is_new) return;
  if (fence <= seen->second) {
    throw Error(Errc::store_corrupt,
                "a lock's fence is not above one that was handed out before: its carrier has lost "
                "what it had acknowledged, in a fail-over perhaps",
                key.text());
  }
  seen->second = fence;
}

void SeenFences::forget_the_lower_half() {
  std::vector<std::uint64_t> fences;
  fences.reserve(fences_.size());
  for (const auto& [name, fence] : fences_)
    fences.push_back(fence);
  const auto middle = fences.begin() + static_cast<std::ptrdiff_t>(fences.size() / 2);
  std::nth_element(fences.begin(), middle, fences.end());
  std::erase_if(fences_, [&](const auto& seen) { return seen.second <= *middle; });
}

void LockListener::on_store_error(const Key& key, StoreCall call, const Error& error,
                                  std::uint32_t attempt) noexcept {
  if (options_->observer != nullptr) options_->observer->on_store_error(key, call, error, attempt);
}

void LockListener::on_lease_renewed(const Key& key, std::uint64_t fence) noexcept {
  if (options_->observer != nullptr) options_->observer->on_lease_renewed(key, fence);
}

void LockListener::on_lease_lost(const Key& key, std::uint64_t fence) noexcept {
  if (options_->observer != nullptr) options_->observer->on_lease_lost(key, fence);
  if (options_->on_lost) options_->on_lost(key, fence);
}

std::vector<WriteOutcome> LockRenewals::renew_many(const std::vector<Renewal>& renewals) {
  std::vector<WriteOutcome> outcomes;
  outcomes.reserve(renewals.size());
  for (const Renewal& renewal : renewals)
    outcomes.push_back(port_->renew(renewal.key, renewal.ownership, renewal.lease));
  return outcomes;
}

LockParts::LockParts(LockPort& lock_port, LockOptions lock_options)
    : port(lock_port),
      options(checked(std::move(lock_options))),
      made_in(fork_generation()),
      listener(options),
      renewals(lock_port),
      lane(renewals, &listener) {}

bool LockParts::is_inherited() const noexcept { return made_in != fork_generation(); }

ReleaseOutcome LockParts::give_back(const Key& key, const OwnerToken& owner) noexcept {
  const CancellationShield shield;
  try {
    return port.release(key, owner) == WriteOutcome::stored ? ReleaseOutcome::released
                                                            : ReleaseOutcome::lost;
  } catch (const Error& error) {
    listener.on_store_error(key, StoreCall::release, error, 1);
  } catch (const std::exception&) {  // out of memory
  }
  return ReleaseOutcome::unknown;
}

/// A call whose answer is lost is made once more with the same token, which the carrier knows again. When that fails, too, what may be held
/// is given back.
LockParts::Answer LockParts::ask(const Key& key, const OwnerToken& owner) {
  const auto send = [&](std::uint32_t attempt) -> Answer {
    const SteadyTime sent = std::chrono::steady_clock::now();
    try {
      return {port.acquire(key, owner, options.lease), sent};
    } catch (const Error& error) {
      listener.on_store_error(key, StoreCall::begin, error, attempt);
      throw;
    }
  };
  try {
    return send(1);
  } catch (const Error& lost) {
    if (!lost.effect_possible()) throw;
    try {
      return send(2);
    } catch (const Error&) {
      give_back(key, owner);
    }
    throw;  // the first one, which says that the lock may be held until its lease ends
  }
}

LockParts::Attempt LockParts::attempt(const Key& key) {
  const OwnerToken owner = OwnerToken::generate();
  const auto [outcome, sent] = ask(key, owner);
  if (const auto* refused = std::get_if<LockRefused>(&outcome)) {
    return {nullptr, refused->remaining, false};
  }
  const std::uint64_t fence = std::get<LockAcquired>(outcome).fence;
  LockHoldPtr hold(new LockHold(*this, key, Ownership{owner, fence}, sent));
  if (hold->remaining() <= milliseconds{0}) return {nullptr, longest_pause, true};
  seen.note(key, fence);
  hold->arm();
  return {std::move(hold), milliseconds{0}, false};
}

LockHold::LockHold(LockParts& parts, const Key& key, const Ownership& by, SteadyTime sent)
    : parts_(&parts),
      key_(key),
      by_(by),
      lease_(parts.lane, key_, by_, parts.options.lease, sent + parts.options.lease,
             plus(sent, parts.options.max_total_hold - parts.options.lease)) {}

void EndLockHold::operator()(LockHold* hold) const noexcept {
  if (!hold->is_inherited()) delete hold;
}

ReleaseOutcome LockHold::release() noexcept {
  const std::scoped_lock lock(releasing_);
  if (!outcome_) {
    lease_.disarm();
    outcome_ = parts_->give_back(key_, by_.owner);
    is_released_ = true;
  }
  return *outcome_;
}

milliseconds LockHold::remaining() const {
  if (is_released_ || lease_.lost()) return milliseconds{0};
  const auto left =
      lease_.ends_at() - Protocol::margin(parts_->options.lease) - std::chrono::steady_clock::now();
  return std::max(milliseconds{0}, std::chrono::ceil<milliseconds>(left));
}

LockEngine::LockEngine(LockPort& port, LockOptions options)
    : parts_(std::make_unique<LockParts>(port, std::move(options))) {}

LockEngine::~LockEngine() {
  // In the child of a fork() the parent's threads are not there to be ended.
  if (parts_->is_inherited()) static_cast<void>(parts_.release());
}

const LockOptions& LockEngine::options() const noexcept { return parts_->options; }

LockHoldPtr LockEngine::acquire(const Key& key, SteadyTime deadline) {
  if (parts_->is_inherited()) {
    throw Error(Errc::used_after_fork,
                "this lock was made before fork(); make the child's own after it");
  }
  for (milliseconds pause = first_pause;; pause = std::min(longest_pause, pause * 2)) {
    LockParts::Attempt attempt = parts_->attempt(key);
    if (attempt.hold) return std::move(attempt.hold);
    const SteadyTime now = std::chrono::steady_clock::now();
    if (now >= deadline) {
      if (!attempt.is_late) return nullptr;
      throw Error(Errc::lease_too_short,
                  "a lock was granted too late to be used; use a longer lease or a nearer carrier");
    }
    const milliseconds jittered = pause / 2 + RetryClock::of_machine().any_up_to(pause / 2);
    const milliseconds needed = std::max(milliseconds{1}, attempt.remaining);
    parts_->port.wait(key, std::min(deadline, now + std::min(jittered, needed)));
  }
}

std::uint64_t LockEngine::force_release(const Key& key, std::string_view who,
                                        std::string_view why) {
  if (who.empty() || why.empty()) {
    throw Error(Errc::invalid_argument, "who takes a lock from its holder says so, and why");
  }
  const auto audit = [&](std::optional<std::uint64_t> fence) {
    if (parts_->options.on_force_release) parts_->options.on_force_release({key, who, why, fence});
  };
  try {
    const std::uint64_t fence = parts_->port.force_release(key);
    audit(fence);
    return fence;
  } catch (const Error& error) {
    if (error.effect_possible()) audit(std::nullopt);
    throw;
  }
}

}  // namespace detail

const Key& UnfencedLock::key() const noexcept { return hold_->key(); }
std::stop_token UnfencedLock::stop_token() const { return hold_->stop_token(); }
milliseconds UnfencedLock::remaining() const { return hold_->remaining(); }

ReleaseOutcome UnfencedLock::release() noexcept {
  if (hold_->is_inherited()) return ReleaseOutcome::lost;
  return hold_->release();
}

std::uint64_t HeldLock::fence() const noexcept { return hold_->fence(); }

}  // namespace v0
}  // namespace idempotency
