#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "idempotency/clock.hpp"
#include "idempotency/observer.hpp"
#include "idempotency/store.hpp"

namespace idempotency {
inline namespace v0 {

struct MemoryStoreOptions {
  /// What records and their table may take, in bytes. When it is used up, new keys are refused with
  /// `Errc::store_full`; nothing that still counts is forgotten. At least 1.
  std::size_t max_bytes = std::size_t{256} << 20U;
  /// Judges leases and retentions; null is `system_clock()`. Must outlive the store.
  const Clock* clock = nullptr;
  /// Told of hazards and resolutions; may be null. Must outlive the store.
  Observer* observer = nullptr;
};

/// Records in the memory of this process: as fast as it gets, and gone when the process ends.
///
/// The bound holds for new keys. Settling a key that is already there is never refused for it, so that no
/// outcome is lost: the results of what was running when the store became full may exceed `max_bytes`.
/// A record past its retention is absent at once; its memory is taken back a little at a time by later
/// first calls, all at once when the store is full, and by `purge`.
///
/// `list` reads all records for each page and sees each at a moment of its own.
///
/// Errors: `Errc::store_full` for a new key, or when the process has no memory; `Errc::used_after_fork`
/// in a child process, whose copy would know nothing of the parent's calls.
/// Thread safety: all members may be called concurrently.
/// Lifetime: must outlive the guards and decorators that borrow it.
class MemoryStore {
 public:
  MemoryStore();
  /// Errors: `Errc::invalid_argument` when `max_bytes` is 0.
  explicit MemoryStore(const MemoryStoreOptions& options);
  MemoryStore(const MemoryStore&) = delete;
  MemoryStore& operator=(const MemoryStore&) = delete;
  ~MemoryStore();

  [[nodiscard]] BeginOutcome begin(const BeginRequest& request);
  [[nodiscard]] std::vector<std::optional<BeginOutcome>> begin_many(
      const std::vector<BeginRequest>& requests);
  [[nodiscard]] WriteOutcome issue(const IssueRequest& request);
  [[nodiscard]] WriteOutcome complete(const Key& key, const Ownership& by,
                                      const Completion& completion);
  [[nodiscard]] WriteOutcome fail(const Key& key, const Ownership& by, const Failure& failure,
                                  std::chrono::milliseconds retention);
  [[nodiscard]] WriteOutcome doubt(const Key& key, const Ownership& by);
  [[nodiscard]] WriteOutcome mark_effect(const Key& key, const Ownership& by);
  [[nodiscard]] WriteOutcome renew(const Key& key, const Ownership& by,
                                   std::chrono::milliseconds lease);
  [[nodiscard]] std::vector<WriteOutcome> renew_many(const std::vector<Renewal>& renewals);
  ReleaseOutcome release(const Key& key, const Ownership& by,
                         std::chrono::milliseconds retention) noexcept;
  [[nodiscard]] std::optional<Record> find(const Key& key);

  /// `limit` counts as at least 1.
  [[nodiscard]] RecordPage list(const RecordFilter& filter, const std::string& cursor,
                                std::size_t limit);
  [[nodiscard]] WriteOutcome resolve(const Record& seen, const Resolution& resolution);
  std::size_t purge(std::size_t limit);
  [[nodiscard]] StoreStatistics statistics();

 private:
  class Impl;
  Impl* impl_;
};

static_assert(Store<MemoryStore>);
static_assert(IssuingStore<MemoryStore>);
static_assert(AdminStore<MemoryStore>);
static_assert(BatchStore<MemoryStore>);
static_assert(BatchBeginStore<MemoryStore>);

}  // namespace v0
}  // namespace idempotency
