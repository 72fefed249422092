#include "idempotency/detail/cache_table.hpp"

#include <time.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <variant>

#include "caching/cache_stripe.hpp"
#include "core/fork_generation.hpp"
#include "idempotency/error.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail {

namespace {

using Kind = EntryParts::Kind;
using std::chrono::milliseconds;

constexpr std::size_t most_stripes = 16;
constexpr std::size_t least_bytes_of_a_stripe = std::size_t{1} << 20U;

/// The steady clock as the system last wrote it down: a hit costs a fifth less than with an exact reading.
class CoarseSteadyClock final : public Clock {
 public:
  [[nodiscard]] Timestamp now() const noexcept override {
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
    const auto exact = std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
    return Timestamp(std::chrono::floor<milliseconds>(exact));
  }
  /// How far it may be behind.
  [[nodiscard]] static milliseconds lag() noexcept {
    timespec step{};
    clock_getres(CLOCK_MONOTONIC_COARSE, &step);
    const auto exact = std::chrono::seconds(step.tv_sec) + std::chrono::nanoseconds(step.tv_nsec);
    return std::chrono::ceil<milliseconds>(2 * exact);
  }
};

const Clock& coarse_steady_clock() noexcept {
  static const CoarseSteadyClock clock;
  return clock;
}

std::optional<std::string_view> view_of(const std::optional<std::string>& text) noexcept {
  if (!text) return std::nullopt;
  return std::string_view(*text);
}

std::optional<std::string> copy_of(const std::optional<std::string_view>& text) {
  if (!text) return std::nullopt;
  return std::string(*text);
}

EntryParts entry_of(const Key& key, const std::optional<Fingerprint::Part>& fingerprint) noexcept {
  EntryParts parts;
  parts.key = key.text();
  parts.fingerprint = fingerprint;
  return parts;
}

RecordFacts facts_of(const EntryParts& parts) noexcept {
  return RecordFacts{
      .state = parts.kind == Kind::success ? RecordState::success : RecordState::failed,
      .retryability = Retryability::permanent,
      .mode = RecordMode::hold,
      .effect_marked = false,
      .ownership = parts.ownership,
      .fingerprint = parts.fingerprint,
      .lease_until = never,
      .expires_at = parts.ends};
}

/// Whether an entry that was just made may take the place of one that counts.
bool replaces(const EntryParts& made, const EntryParts& kept) noexcept {
  if (kept.kind == Kind::note) return true;
  if (made.kind == Kind::note) return false;
  return made.ends >= kept.ends;
}

}  // namespace

class CacheTable::Impl {
 public:
  Impl(std::size_t max_bytes, const Clock* clock)
      : clock_(clock != nullptr ? *clock : coarse_steady_clock()),
        lag_(clock != nullptr ? milliseconds{0} : CoarseSteadyClock::lag()),
        stripe_count_(std::bit_floor(
            std::clamp<std::size_t>(max_bytes / least_bytes_of_a_stripe, 1, most_stripes))),
        stripe_bytes_(max_bytes / stripe_count_),
        hash_(OwnerToken::generate()),
        stripes_(std::make_unique<CacheStripe[]>(stripe_count_)) {}

  [[nodiscard]] Timestamp now() const noexcept { return clock_.now(); }

  std::optional<BeginOutcome> answer(const BeginRequest& request) {
    if (is_of_the_parent()) return std::nullopt;
    const std::uint64_t hash = hash_(request.key.text());
    CacheStripe& stripe = stripe_of(hash);
    const std::scoped_lock lock(stripe.mutex);
    const std::size_t index = stripe.find(hash, request.key.text());
    if (index == CacheStripe::npos) {
      ++stripe.misses;
      return std::nullopt;
    }
    std::optional<BeginOutcome> outcome = answer_from(stripe, index, request);
    ++(outcome ? stripe.hits : stripe.misses);
    return outcome;
  }

  void put(EntryParts parts) noexcept {
    if (is_of_the_parent()) return;
    parts.ends -= lag_;  // the entry must not outlive the record when the clock is behind
    const std::uint64_t hash = hash_(parts.key);
    CacheStripe& stripe = stripe_of(hash);
    const std::scoped_lock lock(stripe.mutex);
    const Timestamp now = clock_.now();
    if (parts.ends <= now) return;
    const std::size_t index = stripe.find(hash, parts.key);
    if (index != CacheStripe::npos) {
      const EntryParts kept = CacheEntry::read(stripe.at(index));
      if (kept.ends > now && !replaces(parts, kept)) return;
    }
    stripe.put(hash_, hash, parts, {stripe_bytes_, now});
  }

  std::optional<Note> take_note(const Key& key, const Ownership& by) noexcept {
    if (is_of_the_parent()) return std::nullopt;
    const std::uint64_t hash = hash_(key.text());
    CacheStripe& stripe = stripe_of(hash);
    const std::scoped_lock lock(stripe.mutex);
    const std::size_t index = stripe.find(hash, key.text());
    if (index == CacheStripe::npos) return std::nullopt;
    const EntryParts parts = CacheEntry::read(stripe.at(index));
    if (parts.kind != Kind::note || parts.ownership != by) return std::nullopt;
    const Note note{parts.fingerprint};
    stripe.erase(hash_, index);
    return note;
  }

  void forget(const Key& key) noexcept {
    if (is_of_the_parent()) return;
    const std::uint64_t hash = hash_(key.text());
    CacheStripe& stripe = stripe_of(hash);
    const std::scoped_lock lock(stripe.mutex);
    const std::size_t index = stripe.find(hash, key.text());
    if (index != CacheStripe::npos) stripe.erase(hash_, index);
  }

  [[nodiscard]] CacheStatistics statistics() const {
    CacheStatistics sum;
    if (is_of_the_parent()) return sum;
    for (std::size_t i = 0; i < stripe_count_; ++i) {
      CacheStripe& stripe = stripes_[i];
      const std::scoped_lock lock(stripe.mutex);
      sum.hits += stripe.hits;
      sum.misses += stripe.misses;
      sum.evictions += stripe.evictions;
      sum.entries += stripe.entries();
      sum.bytes += stripe.bytes();
    }
    return sum;
  }

 private:
  // a lock that another thread held at the moment of the fork is never released in the child
  [[nodiscard]] bool is_of_the_parent() const noexcept { return made_in_ != fork_generation(); }

  [[nodiscard]] CacheStripe& stripe_of(std::uint64_t hash) const noexcept {
    return stripes_[(hash >> 56U) & (stripe_count_ - 1)];
  }

  std::optional<BeginOutcome> answer_from(CacheStripe& stripe, std::size_t index,
                                          const BeginRequest& request) {
    std::byte* entry = stripe.at(index);
    const EntryParts parts = CacheEntry::read(entry);
    if (parts.kind == Kind::note) return std::nullopt;
    const Timestamp now = clock_.now();
    const RecordFacts facts = facts_of(parts);
    const BeginVerdict verdict = judge_begin(&facts, request, now);
    if (verdict.mismatch) {
      CacheEntry::set_visited(entry, true);
      return *verdict.mismatch;
    }
    switch (verdict.transition.answer) {
      case Answer::completed:
        CacheEntry::set_visited(entry, true);
        return Completed{.result = copy_of(parts.result),
                         .retention_remaining = parts.ends - now,
                         .fence = parts.ownership.fence,
                         .fingerprint = parts.fingerprint};
      case Answer::failed:
        CacheEntry::set_visited(entry, true);
        return Failed{.failure = {.retryability = Retryability::permanent,
                                  .reason = std::string(parts.reason),
                                  .result = copy_of(parts.result)},
                      .retention_remaining = parts.ends - now,
                      .fence = parts.ownership.fence,
                      .fingerprint = parts.fingerprint};
      default:  // it has ended
        stripe.erase(hash_, index);
        return std::nullopt;
    }
  }

  const Clock& clock_;
  milliseconds lag_;
  std::size_t stripe_count_;
  std::size_t stripe_bytes_;
  std::uint64_t made_in_ = fork_generation();
  ByteHash hash_;
  std::unique_ptr<CacheStripe[]> stripes_;
};

CacheTable::CacheTable(std::size_t max_bytes, const Clock* clock) : impl_(nullptr) {
  if (max_bytes == 0) {
    throw Error(Errc::invalid_argument, "CachingStoreOptions: max_bytes must be at least 1");
  }
  impl_ = new Impl(max_bytes, clock);
}

CacheTable::~CacheTable() { delete impl_; }

Timestamp CacheTable::now() const noexcept { return impl_->now(); }

std::optional<BeginOutcome> CacheTable::answer(const BeginRequest& request) {
  return impl_->answer(request);
}

void CacheTable::learn(const BeginRequest& request, const BeginOutcome& outcome,
                       Timestamp sent) noexcept {
  if (const auto* completed = std::get_if<Completed>(&outcome)) {
    EntryParts parts = entry_of(request.key, completed->fingerprint);
    parts.kind = Kind::success;
    parts.ownership.fence = completed->fence;
    parts.ends = add_saturating(sent, completed->retention_remaining);
    parts.result = view_of(completed->result);
    impl_->put(parts);
  } else if (const auto* failed = std::get_if<Failed>(&outcome)) {
    if (failed->failure.retryability != Retryability::permanent) return;
    EntryParts parts = entry_of(request.key, failed->fingerprint);
    parts.kind = Kind::failure;
    parts.ownership.fence = failed->fence;
    parts.ends = add_saturating(sent, failed->retention_remaining);
    parts.result = view_of(failed->failure.result);
    parts.reason = failed->failure.reason;
    impl_->put(parts);
  } else if (const auto* acquired = std::get_if<Acquired>(&outcome)) {
    if (acquired->fence != 1) return;  // a record that was there before may carry another scheme's
    EntryParts parts = entry_of(request.key, std::nullopt);
    if (request.fingerprint) parts.fingerprint = request.fingerprint->current();
    parts.ownership = {request.owner, acquired->fence};
    impl_->put(parts);
  }
}

std::optional<CacheTable::Note> CacheTable::take_note(const Key& key,
                                                      const Ownership& by) noexcept {
  return impl_->take_note(key, by);
}

void CacheTable::keep(const Key& key, std::uint64_t fence, const Note& note,
                      const Completion& completion, Timestamp sent) noexcept {
  EntryParts parts = entry_of(key, note.fingerprint);
  parts.kind = Kind::success;
  parts.ownership.fence = fence;
  parts.ends = add_saturating(sent, completion.retention);
  parts.result = view_of(completion.result);
  impl_->put(parts);
}

void CacheTable::keep(const Key& key, std::uint64_t fence, const Note& note, const Failure& failure,
                      milliseconds retention, Timestamp sent) noexcept {
  if (failure.retryability != Retryability::permanent) return;
  EntryParts parts = entry_of(key, note.fingerprint);
  parts.kind = Kind::failure;
  parts.ownership.fence = fence;
  parts.ends = add_saturating(sent, retention);
  parts.result = view_of(failure.result);
  parts.reason = failure.reason;
  impl_->put(parts);
}

void CacheTable::forget(const Key& key) noexcept { impl_->forget(key); }

CacheStatistics CacheTable::statistics() const { return impl_->statistics(); }

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
