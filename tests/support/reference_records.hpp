#pragma once

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "idempotency/detail/judge.hpp"
#include "idempotency/detail/key_order.hpp"
#include "idempotency/store.hpp"
#include "support/broken_rule.hpp"

namespace idempotency::testing_support {

/// The contract of a store in its plainest form: a map, the table, and no locks. One rule can be broken on purpose.
///
/// Thread safety: none; `ReferenceStore` adds it.
class ReferenceRecords {
  using Rule = BrokenRule;
  using Facts = detail::RecordFacts;
  using milliseconds = std::chrono::milliseconds;

 public:
  explicit ReferenceRecords(BrokenRule broken = BrokenRule::none) noexcept : broken_(broken) {}

  /// Forgets a record, as no store may.
  void forget(const Key& key) { entries_.erase(identity(key)); }
  [[nodiscard]] bool breaks(BrokenRule rule) const noexcept { return broken_ == rule; }

  struct Entry {
    Key key;
    Facts facts = {};
    Ownership replaced = {};  ///< who had it before
    Timestamp noted_lease{};  ///< the lease without what repeated calls of `begin` made of it
    std::uint32_t attempt = 0;
    Timestamp updated_at{};
    std::optional<std::string> result = std::nullopt;
    std::string reason = {};
    std::string trace = {};
  };

  /// What `begin` has read. A store that is not broken writes at the same moment.
  struct Judged {
    const Entry* entry;
    std::optional<Mismatch> mismatch;
    Transition step;
  };

  [[nodiscard]] Judged judge(const BeginRequest& request, Timestamp now) const;
  BeginOutcome apply(const BeginRequest& request, const Judged& judged, Timestamp now);
  BeginOutcome begin(const BeginRequest& request, Timestamp now) {
    return apply(request, judge(request, now), now);
  }

  WriteOutcome complete(const Key& key, const Ownership& by, const Completion& completion,
                        Timestamp now);
  WriteOutcome fail(const Key& key, const Ownership& by, const Failure& failure,
                    milliseconds retention, Timestamp now);
  WriteOutcome doubt(const Key& key, const Ownership& by, Timestamp now);
  WriteOutcome mark_effect(const Key& key, const Ownership& by, Timestamp now);
  WriteOutcome renew(const Key& key, const Ownership& by, milliseconds lease, Timestamp now);
  WriteOutcome release(const Key& key, const Ownership& by, milliseconds retention, Timestamp now);
  WriteOutcome resolve(const Record& seen, const Resolution& resolution, Timestamp now);

  [[nodiscard]] std::optional<Record> find(const Key& key, Timestamp now) const;
  [[nodiscard]] RecordPage list(const RecordFilter& filter, const std::string& cursor,
                                std::size_t limit, Timestamp now) const;
  std::size_t purge(std::size_t limit, Timestamp now);
  [[nodiscard]] StoreStatistics statistics(Timestamp now) const;

  void remove_deadline(const Key& key) {
    if (Entry* entry = lookup(key)) entry->facts.lease_until = detail::never;
  }

 private:
  [[nodiscard]] std::string identity(const Key& key) const;
  [[nodiscard]] Entry* lookup(const Key& key) {
    const auto found = entries_.find(identity(key));
    return found == entries_.end() ? nullptr : &found->second;
  }
  [[nodiscard]] const Entry* lookup(const Key& key) const {
    const auto found = entries_.find(identity(key));
    return found == entries_.end() ? nullptr : &found->second;
  }
  [[nodiscard]] std::optional<Facts> seen_by(const BeginRequest& request, const Entry& entry,
                                             Timestamp now) const;
  [[nodiscard]] Transition bent(Transition step, const BeginRequest& request,
                                const Entry* entry) const;
  Entry& let_in(const BeginRequest& request, const Transition& step, Timestamp now);
  [[nodiscard]] BeginOutcome answer(Answer answer, Entry& entry, Timestamp now);
  [[nodiscard]] Transition judge_write(Entry* entry, Event event, Ownership by,
                                       Timestamp now) const;
  [[nodiscard]] Ownership bent(Ownership by, const Entry& entry, Event event, Timestamp now) const;
  [[nodiscard]] bool refuses(const Entry* entry, Event event, Timestamp now) const;
  void end(Entry& entry, const Transition& step, const Ownership& by, milliseconds retention,
           Timestamp now) const;
  [[nodiscard]] Record bent(Record seen, const Entry& entry) const;
  [[nodiscard]] Transition bent_resolution(const Transition& step, const Entry& entry,
                                           const Record& seen, const Resolution& resolution,
                                           Timestamp now) const;
  [[nodiscard]] std::optional<std::string> bent(std::optional<std::string> result) const;
  [[nodiscard]] bool fits(const RecordFilter& filter, const Entry& entry, Timestamp now) const;
  [[nodiscard]] Record to_record(const Entry& entry) const;
  [[nodiscard]] Timestamp later(Timestamp now, milliseconds span, Rule rounding) const;
  [[nodiscard]] static bool is_absent(const Entry& entry, Timestamp now) {
    return detail::phase_of(entry.facts, now) == Phase::absent;
  }

  BrokenRule broken_;
  std::map<std::string, Entry, detail::KeyOrder> entries_;
};

}  // namespace idempotency::testing_support
