#include "idempotency/stores/memory.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>

#include "core/fork_generation.hpp"
#include "idempotency/detail/key_order.hpp"
#include "memory/record_stripe.hpp"

namespace idempotency {
inline namespace v0 {

namespace {

using detail::RecordBlock;
using detail::RecordFacts;
using detail::RecordParts;
using detail::RecordStripe;
using std::chrono::milliseconds;

constexpr std::size_t stripe_bits = 8;
constexpr std::size_t stripe_count = std::size_t{1} << stripe_bits;
constexpr std::size_t slots_looked_at_by_a_first_call = 4;
constexpr std::size_t most_bytes = std::size_t{1} << 62U;
constexpr std::size_t all = std::numeric_limits<std::size_t>::max();

/// How a finished record answers from now on.
struct Ending {
  std::optional<std::string_view> result;
  std::string_view reason;
  milliseconds retention{0};
};

std::optional<std::string_view> view_of(const std::optional<std::string>& text) noexcept {
  if (!text) return std::nullopt;
  return std::string_view(*text);
}

WriteOutcome outcome_of(const Transition& transition) noexcept {
  return transition.answer == Answer::stored ? WriteOutcome::stored : WriteOutcome::lost;
}

std::optional<std::string> copy_of(const std::optional<std::string_view>& text) {
  if (!text) return std::nullopt;
  return std::string(*text);
}

BeginOutcome failed_answer(const RecordParts& parts, milliseconds remaining) {
  return Failed{.failure = {.retryability = parts.facts.retryability,
                            .reason = std::string(parts.reason),
                            .result = copy_of(parts.result)},
                .retention_remaining = remaining,
                .fence = parts.facts.ownership.fence,
                .fingerprint = parts.facts.fingerprint};
}

BeginOutcome completed_answer(const RecordParts& parts, milliseconds remaining) {
  return Completed{.result = copy_of(parts.result),
                   .retention_remaining = remaining,
                   .fence = parts.facts.ownership.fence,
                   .fingerprint = parts.facts.fingerprint};
}

/// What the record of `request` looks like when it has been acquired. `before` is null for a new life.
RecordParts acquired_parts(const BeginRequest& request, const Transition& transition,
                           const RecordParts* before, Timestamp now) {
  RecordParts parts;
  if (before != nullptr) {
    parts.facts.ownership.fence = before->facts.ownership.fence;
    parts.attempt = before->attempt;
    parts.facts.created_at = before->facts.created_at;
    parts.facts.fingerprint = before->facts.fingerprint;
    parts.trace = before->trace;
  } else {
    parts.facts.created_at = now;
    parts.trace = request.trace;
  }
  if (!parts.facts.fingerprint && request.fingerprint) {
    parts.facts.fingerprint = request.fingerprint->current();
  }
  parts.facts.ownership = detail::ownership_after(transition, parts.facts.ownership, request.owner);
  parts.attempt += 1;
  parts.facts.mode = request.mode;
  parts.updated_at = now;
  parts.facts.lease_until = detail::add_saturating(now, request.lease);
  parts.key = request.key.text();
  parts.type_size = request.key.type().size();
  return parts;
}

RecordParts issued_parts(const IssueRequest& request, Timestamp now) {
  RecordParts parts;
  parts.facts.state = RecordState::issued;
  parts.facts.ownership = {request.issuer, 0};
  parts.facts.created_at = now;
  parts.facts.expires_at = detail::add_saturating(now, request.lifetime);
  parts.updated_at = now;
  parts.key = request.key.text();
  parts.type_size = request.key.type().size();
  return parts;
}

void apply_ending(RecordParts& parts, Phase to, const Ending& ending, Timestamp now) {
  parts.facts.state = to == Phase::success ? RecordState::success : RecordState::failed;
  parts.facts.retryability =
      to == Phase::failed_permanent ? Retryability::permanent : Retryability::retryable;
  parts.result = ending.result;
  parts.reason = ending.reason;
  parts.updated_at = now;
  parts.facts.lease_until = detail::never;
  parts.facts.expires_at = detail::add_saturating(now, ending.retention);
  if (to == Phase::success &&
      detail::planted(detail::PlantedBug::fingerprint_dropped_on_completion)) {
    parts.facts.fingerprint.reset();
  }
}

bool fits(const RecordFilter& filter, const RecordParts& parts, Timestamp now) noexcept {
  if (filter.type && parts.key.substr(0, parts.type_size) != *filter.type) return false;
  if (filter.state && parts.facts.state != *filter.state) return false;
  return !filter.unchanged_for || now - parts.updated_at >= *filter.unchanged_for;
}

}  // namespace

class MemoryStore::Impl {
 public:
  explicit Impl(const MemoryStoreOptions& options)
      : clock_(options.clock != nullptr ? *options.clock : system_clock()),
        observer_(options.observer),
        max_bytes_(std::min<std::size_t>(options.max_bytes, most_bytes)),
        hash_(OwnerToken::generate()),
        budget_(max_bytes_, stripe_count),
        stripes_(std::make_unique<RecordStripe[]>(stripe_count)) {
    if (observer_ != nullptr) {
      observer_->on_hazard(
          "records of a MemoryStore end with this process; use a durable store where a restart "
          "must "
          "not run an operation again");
    }
  }

  BeginOutcome begin(const BeginRequest& request) {
    const Place place = place_of(request.key);
    std::unique_lock lock(place.stripe.mutex);
    const Timestamp now = clock_.now();
    const std::size_t index = place.stripe.find(place.hash, request.key.text());
    if (index != RecordStripe::npos) return begin_existing(request, place.stripe, index, now);
    if (request.admission == Admission::issued) return NotIssued{};
    if (const std::optional<Acquired> acquired = begin_new(request, place, now)) return *acquired;
    lock.unlock();
    return begin_when_full(request, place);
  }

  WriteOutcome issue(const IssueRequest& request) {
    detail::check_issue(request);
    const Place place = place_of(request.key);
    if (const std::optional<WriteOutcome> outcome = try_issue(request, place)) return *outcome;
    reclaim();
    if (const std::optional<WriteOutcome> outcome = try_issue(request, place)) return *outcome;
    throw_full();
  }

  WriteOutcome end(const Key& key, Event event, const Ownership& by, const Ending& ending) {
    const auto judge = [&](const RecordFacts* facts, Timestamp now) -> Transition {
      if (detail::planted(detail::PlantedBug::stored_result_overwritten) &&
          event == Event::complete && facts != nullptr && facts->state == RecordState::success) {
        return {Phase::success, Answer::stored};
      }
      return detail::judge_write(facts, event, by, now);
    };
    return write(key, judge, by.owner, ending);
  }

  /// A write that may settle the record: judged by `judge(facts, now)`, then applied.
  template <class Judge>
  WriteOutcome write(const Key& key, Judge judge, const OwnerToken& caller, const Ending& ending) {
    const Place place = place_of(key);
    const std::scoped_lock lock(place.stripe.mutex);
    const Timestamp now = clock_.now();
    const std::size_t index = place.stripe.find(place.hash, key.text());
    if (index == RecordStripe::npos) return outcome_of(judge(nullptr, now));
    RecordParts parts = RecordBlock::read(place.stripe.at(index));
    const RecordFacts& facts = parts.facts;
    const Transition transition = judge(&facts, now);
    const bool repeated = transition.to == detail::phase_of(facts, now) &&
                          !detail::planted(detail::PlantedBug::stored_result_overwritten);
    if (transition.answer != Answer::stored || repeated) return outcome_of(transition);
    parts.facts.ownership = detail::ownership_after(transition, parts.facts.ownership, caller);
    apply_ending(parts, transition.to, ending, now);
    place.stripe.replace(budget_, index, parts);
    return WriteOutcome::stored;
  }

  /// A write that changes neither owner nor size: `apply(block, now)` when it is stored.
  template <class Apply>
  WriteOutcome touch(const Key& key, Event event, const Ownership& by, Apply apply) {
    const Place place = place_of(key);
    const std::scoped_lock lock(place.stripe.mutex);
    const Timestamp now = clock_.now();
    const std::size_t index = place.stripe.find(place.hash, key.text());
    if (index == RecordStripe::npos) return WriteOutcome::lost;
    std::byte* block = place.stripe.at(index);
    const RecordFacts facts = RecordBlock::read(block).facts;
    const Transition transition = detail::judge_write(&facts, event, by, now);
    if (transition.answer == Answer::stored) apply(block, now, facts);
    return outcome_of(transition);
  }

  std::optional<Record> find(const Key& key) {
    const Place place = place_of(key);
    const std::scoped_lock lock(place.stripe.mutex);
    const std::size_t index = place.stripe.find(place.hash, key.text());
    if (index == RecordStripe::npos) return std::nullopt;
    const RecordParts parts = RecordBlock::read(place.stripe.at(index));
    if (detail::phase_of(parts.facts, clock_.now()) == Phase::absent) {
      return std::nullopt;
    }
    return detail::record_of(parts);
  }

  RecordPage list(const RecordFilter& filter, const std::string& cursor, std::size_t limit) {
    const std::size_t wanted = std::max<std::size_t>(limit, 1);
    detail::check_cursor(cursor);
    const detail::KeyOrder before;
    const auto by_key = [&](const Record& a, const Record& b) {
      return before(a.key.text(), b.key.text());
    };
    std::vector<Record>
        heap;  // the smallest keys after the cursor, one more than wanted, largest on top
    each_record([&](const RecordParts& parts, Timestamp now) {
      if (!fits(filter, parts, now)) return;
      if (!cursor.empty() && !before(cursor, parts.key)) return;
      if (heap.size() > wanted) {
        if (!before(parts.key, heap.front().key.text())) return;
        std::pop_heap(heap.begin(), heap.end(), by_key);
        heap.pop_back();
      }
      heap.push_back(detail::record_of(parts));
      std::push_heap(heap.begin(), heap.end(), by_key);
    });
    std::sort_heap(heap.begin(), heap.end(), by_key);
    RecordPage page;
    if (heap.size() > wanted) {
      heap.pop_back();
      page.cursor = heap.back().key.text();
    }
    page.records = std::move(heap);
    return page;
  }

  WriteOutcome resolve(const Record& seen, const Resolution& resolution) {
    Ending ending{
        .result = std::nullopt, .reason = resolution.reason, .retention = resolution.retention};
    if (resolution.verdict == Resolution::Verdict::succeeded) {
      ending.result = view_of(resolution.result);
      ending.reason = {};
    }
    bool settled_now = false;
    const auto judge = [&](const RecordFacts* facts, Timestamp now) {
      const Transition transition = detail::judge_resolve(facts, seen, resolution, now);
      settled_now = transition.owner == OwnerStep::caller;
      return transition;
    };
    const WriteOutcome outcome = write(seen.key, judge, resolution.resolver, ending);
    if (settled_now && observer_ != nullptr) {
      constexpr std::array<std::string_view, 3> names{"succeeded", "failed", "retry"};
      observer_->on_resolved(seen.key, names[static_cast<std::size_t>(resolution.verdict)]);
    }
    return outcome;
  }

  std::size_t purge(std::size_t limit) {
    refuse_after_fork();
    std::size_t removed = 0;
    for (std::size_t i = 0; i < stripe_count && removed < limit; ++i) {
      const std::scoped_lock lock(stripes_[i].mutex);
      removed += sweep(stripes_[i], limit - removed);
    }
    return removed;
  }

  StoreStatistics statistics() {
    StoreStatistics statistics;
    std::int64_t unused = 0;
    each_record([&](const RecordParts& parts, Timestamp) { statistics.add(parts.facts.state); });
    for (std::size_t i = 0; i < stripe_count; ++i) {
      const std::scoped_lock lock(stripes_[i].mutex);
      unused += static_cast<std::int64_t>(stripes_[i].share.unused);
    }
    statistics.bytes = static_cast<std::uint64_t>(
        std::max<std::int64_t>(0, static_cast<std::int64_t>(max_bytes_) - budget_.left() - unused));
    return statistics;
  }

 private:
  struct Place {
    std::uint64_t hash;
    RecordStripe& stripe;
  };

  Place place_of(const Key& key) {
    refuse_after_fork();
    const std::uint64_t hash = hash_(key.text());
    return {hash, stripes_[hash >> (64 - stripe_bits)]};
  }

  void refuse_after_fork() const {
    if (made_in_ == detail::fork_generation()) return;
    throw Error(
        Errc::used_after_fork,
        "this memory store was made before fork() and the child has only a copy; make a store "
        "of its own in the child");
  }

  BeginOutcome begin_when_full(const BeginRequest& request, Place place) {
    reclaim();
    const std::scoped_lock lock(place.stripe.mutex);
    const Timestamp now = clock_.now();
    const std::size_t index = place.stripe.find(place.hash, request.key.text());
    if (index != RecordStripe::npos) return begin_existing(request, place.stripe, index, now);
    if (const std::optional<Acquired> acquired = begin_new(request, place, now)) return *acquired;
    throw_full();
  }

  [[noreturn]] static void throw_full() {
    throw Error(
        Errc::store_full,
        "the memory store is full and refuses new keys rather than forgetting old ones; raise "
        "MemoryStoreOptions::max_bytes or shorten the policy's retention");
  }

  /// Nothing when there is no room for a new key.
  std::optional<WriteOutcome> try_issue(const IssueRequest& request, Place place) {
    RecordStripe& stripe = place.stripe;
    const std::scoped_lock lock(stripe.mutex);
    const Timestamp now = clock_.now();
    const std::size_t index = stripe.find(place.hash, request.key.text());
    RecordFacts facts;
    if (index != RecordStripe::npos) facts = RecordBlock::read(stripe.at(index)).facts;
    const RecordFacts* known = index != RecordStripe::npos ? &facts : nullptr;
    const Transition transition = detail::judge_issue(known, request.issuer, now);
    if (transition.owner == OwnerStep::keep) return outcome_of(transition);
    const RecordParts parts = issued_parts(request, now);
    if (known != nullptr) {
      stripe.replace(budget_, index, parts);
      return WriteOutcome::stored;
    }
    stripe.sweep(budget_, hash_, now, {slots_looked_at_by_a_first_call, all});
    if (stripe.insert(budget_, hash_, place.hash, parts) == detail::MemoryBudget::Grant::refused) {
      return std::nullopt;
    }
    return WriteOutcome::stored;
  }

  BeginOutcome begin_existing(const BeginRequest& request, RecordStripe& stripe, std::size_t index,
                              Timestamp now) {
    std::byte* block = stripe.at(index);
    const RecordParts parts = RecordBlock::read(block);
    const RecordFacts& facts = parts.facts;
    const detail::BeginVerdict verdict = detail::judge_begin(&facts, request, now);
    if (verdict.mismatch) return *verdict.mismatch;
    const Transition& transition = verdict.transition;
    switch (transition.answer) {
      case Answer::acquired:
        if (transition.owner == OwnerStep::keep) {  // a repeated call
          RecordBlock::set_deadline(block, detail::add_saturating(now, request.lease));
          return Acquired{parts.facts.ownership.fence, parts.attempt};
        }
        return take_place(request, transition, stripe, index, parts, now);
      case Answer::in_progress:
        return InProgress{std::max(parts.deadline() - now, milliseconds{1})};
      case Answer::completed:
        return completed_answer(parts, parts.deadline() - now);
      case Answer::failed:
        return failed_answer(parts, parts.deadline() - now);
      case Answer::uncertain:
        if (parts.facts.state == RecordState::uncertain) {
          return Uncertain{parts.facts.ownership.fence, parts.updated_at};
        }
        RecordBlock::make_uncertain(block, now);
        return Uncertain{parts.facts.ownership.fence, now};
      case Answer::stored:
      case Answer::lost:
        break;
    }
    return detail::not_admitted(request);
  }

  /// Nothing when there is no room for a new key.
  std::optional<Acquired> begin_new(const BeginRequest& request, Place place, Timestamp now) {
    RecordStripe& stripe = place.stripe;
    stripe.sweep(budget_, hash_, now, {slots_looked_at_by_a_first_call, all});
    const detail::BeginVerdict verdict = detail::judge_begin(nullptr, request, now);
    const RecordParts parts = acquired_parts(request, verdict.transition, nullptr, now);
    if (stripe.insert(budget_, hash_, place.hash, parts) == detail::MemoryBudget::Grant::refused) {
      return std::nullopt;
    }
    return Acquired{parts.facts.ownership.fence, parts.attempt};
  }

  BeginOutcome take_place(const BeginRequest& request, const Transition& transition,
                          RecordStripe& stripe, std::size_t index, const RecordParts& before,
                          Timestamp now) {
    const bool new_life = transition.fence == FenceStep::first;
    const RecordParts parts =
        acquired_parts(request, transition, new_life ? nullptr : &before, now);
    stripe.replace(budget_, index, parts);
    return Acquired{parts.facts.ownership.fence, parts.attempt};
  }

  /// Preconditions: the stripe is locked.
  std::size_t sweep(RecordStripe& stripe, std::size_t limit) {
    // twice round: what the hand has passed in its present round is looked at in the next
    return stripe.sweep(budget_, hash_, clock_.now(), {2 * stripe.capacity() + 2, limit});
  }

  /// Takes back all that has expired, and what stripes hold in reserve.
  void reclaim() {
    for (std::size_t i = 0; i < stripe_count; ++i) {
      const std::scoped_lock lock(stripes_[i].mutex);
      sweep(stripes_[i], all);
      budget_.return_unused(stripes_[i].share);
    }
  }

  template <class Visit>
  void each_record(Visit visit) {
    refuse_after_fork();
    for (std::size_t i = 0; i < stripe_count; ++i) {
      RecordStripe& stripe = stripes_[i];
      const std::scoped_lock lock(stripe.mutex);
      const Timestamp now = clock_.now();
      for (std::size_t index = 0; index < stripe.capacity(); ++index) {
        if (stripe.at(index) == nullptr) continue;
        const RecordParts parts = RecordBlock::read(stripe.at(index));
        if (detail::phase_of(parts.facts, now) != Phase::absent) visit(parts, now);
      }
    }
  }

  const Clock& clock_;
  Observer* observer_;
  std::size_t max_bytes_;
  std::uint64_t made_in_ = detail::fork_generation();
  detail::ByteHash hash_;
  detail::MemoryBudget budget_;
  std::unique_ptr<RecordStripe[]> stripes_;
};

namespace {

const MemoryStoreOptions& checked(const MemoryStoreOptions& options) {
  if (options.max_bytes == 0) {
    throw Error(Errc::invalid_argument, "MemoryStoreOptions: max_bytes must be at least 1");
  }
  return options;
}

}  // namespace

MemoryStore::MemoryStore() : MemoryStore(MemoryStoreOptions{}) {}
MemoryStore::MemoryStore(const MemoryStoreOptions& options) : impl_(new Impl(checked(options))) {}
MemoryStore::~MemoryStore() { delete impl_; }

BeginOutcome MemoryStore::begin(const BeginRequest& request) { return impl_->begin(request); }

WriteOutcome MemoryStore::issue(const IssueRequest& request) { return impl_->issue(request); }

WriteOutcome MemoryStore::complete(const Key& key, const Ownership& by,
                                   const Completion& completion) {
  return impl_->end(key, Event::complete, by,
                    {view_of(completion.result), {}, completion.retention});
}

WriteOutcome MemoryStore::fail(const Key& key, const Ownership& by, const Failure& failure,
                               milliseconds retention) {
  return impl_->end(key, detail::event_of(failure.retryability), by,
                    {view_of(failure.result), failure.reason, retention});
}

WriteOutcome MemoryStore::doubt(const Key& key, const Ownership& by) {
  return impl_->touch(key, Event::doubt, by,
                      [](std::byte* block, Timestamp now, const RecordFacts& facts) {
                        if (facts.state == RecordState::uncertain) return;
                        RecordBlock::make_uncertain(block, now);
                      });
}

WriteOutcome MemoryStore::mark_effect(const Key& key, const Ownership& by) {
  return impl_->touch(
      key, Event::mark_effect, by,
      [](std::byte* block, Timestamp, const RecordFacts&) { RecordBlock::mark_effect(block); });
}

WriteOutcome MemoryStore::renew(const Key& key, const Ownership& by, milliseconds lease) {
  return impl_->touch(key, Event::renew, by,
                      [lease](std::byte* block, Timestamp now, const RecordFacts&) {
                        RecordBlock::set_deadline(block, detail::add_saturating(now, lease));
                      });
}

std::vector<std::optional<BeginOutcome>> MemoryStore::begin_many(
    const std::vector<BeginRequest>& requests) {
  std::vector<std::optional<BeginOutcome>> outcomes(requests.size());
  for (std::size_t at = 0; at < requests.size(); ++at) {
    try {
      outcomes[at] = begin(requests[at]);
    } catch (const Error&) {  // full: `begin` says so
      continue;
    }
  }
  return outcomes;
}

std::vector<WriteOutcome> MemoryStore::renew_many(const std::vector<Renewal>& renewals) {
  std::vector<WriteOutcome> outcomes;
  outcomes.reserve(renewals.size());
  for (const Renewal& renewal : renewals) {
    outcomes.push_back(renew(renewal.key, renewal.ownership, renewal.lease));
  }
  return outcomes;
}

ReleaseOutcome MemoryStore::release(const Key& key, const Ownership& by,
                                    milliseconds retention) noexcept {
  try {
    const WriteOutcome outcome = impl_->end(key, Event::release, by, {std::nullopt, {}, retention});
    return outcome == WriteOutcome::stored ? ReleaseOutcome::released : ReleaseOutcome::lost;
  } catch (const Error&) {
    return ReleaseOutcome::unknown;
  }
}

std::optional<Record> MemoryStore::find(const Key& key) { return impl_->find(key); }

RecordPage MemoryStore::list(const RecordFilter& filter, const std::string& cursor,
                             std::size_t limit) {
  return impl_->list(filter, cursor, limit);
}

WriteOutcome MemoryStore::resolve(const Record& seen, const Resolution& resolution) {
  return impl_->resolve(seen, resolution);
}

std::size_t MemoryStore::purge(std::size_t limit) { return impl_->purge(limit); }
StoreStatistics MemoryStore::statistics() { return impl_->statistics(); }

}  // namespace v0
}  // namespace idempotency
