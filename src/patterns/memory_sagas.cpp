#include "idempotency/patterns/memory_sagas.hpp"

namespace idempotency {
inline namespace v0 {

SagaRow MemorySagas::read(const SagaRow& row) const {
  SagaRow copy = row;
  copy.read_at = clock_->now();
  return copy;
}

SagaRow MemorySagas::create(const SagaStart& start) {
  detail::check(start);
  const std::scoped_lock lock(mutex_);
  const auto [found, is_new] = rows_.try_emplace(name_of(start.name));
  if (is_new) {
    const Timestamp now = clock_->now();
    found->second = SagaRow{.name = start.name,
                            .plan = start.plan,
                            .steps = start.steps,
                            .input = start.input,
                            .progress = {},
                            .note = {},
                            .claim = {OwnerToken{}, 1},
                            .created_at = now,
                            .updated_at = now,
                            .due_at = now};
  }
  return read(found->second);
}

SagaRow* MemorySagas::due(const SagaClaim& claim) {
  const Timestamp now = clock_->now();
  SagaRow* oldest = nullptr;
  for (auto& [name, row] : rows_) {
    if (row.name.definition != claim.definition || row.plan != claim.plan) continue;
    if (claim.id && row.name.id != *claim.id) continue;
    if (!row.due_at || *row.due_at > now) continue;
    if (oldest == nullptr || *row.due_at < *oldest->due_at) oldest = &row;
  }
  return oldest;
}

std::optional<SagaRow> MemorySagas::claim(const SagaClaim& claim) {
  detail::check(claim);
  const std::scoped_lock lock(mutex_);
  SagaRow* row = due(claim);
  if (row == nullptr) return std::nullopt;
  row->claim = {claim.worker, row->claim.fence + 1};
  ++row->claims;
  row->due_at = clock_->now() + claim.lease;
  return read(*row);
}

std::optional<SagaRow> MemorySagas::advance(const SagaRow& seen, const SagaChange& change) {
  const std::scoped_lock lock(mutex_);
  const auto found = rows_.find(name_of(seen.name));
  if (found == rows_.end()) return std::nullopt;
  SagaRow& row = found->second;
  const Ownership next{seen.claim.owner, seen.claim.fence + 1};
  if (row.claim == next) return read(row);  // a repetition
  if (row.claim != seen.claim) return std::nullopt;
  row.claim = next;
  row.claims = 0;
  row.progress = change.to;
  row.note = detail::cut(change.note);
  row.updated_at = clock_->now();
  row.due_at.reset();
  if (change.due_in) row.due_at = row.updated_at + *change.due_in;
  return read(row);
}

WriteOutcome MemorySagas::decide(const SagaRow& seen, const SagaVerdict& verdict) {
  detail::check(verdict);
  const std::scoped_lock lock(mutex_);
  const auto found = rows_.find(name_of(seen.name));
  if (found == rows_.end()) return WriteOutcome::lost;
  SagaRow& row = found->second;
  const Ownership next{verdict.by, seen.claim.fence + 1};
  if (row.claim == next) return WriteOutcome::stored;  // a repetition
  if (row.claim != seen.claim || !is_parked(row.progress.state)) return WriteOutcome::lost;
  const SagaChange change = detail::change_of(seen, verdict);
  row.updated_at = clock_->now();
  audit_[found->first].push_back(
      {verdict.decision, row.progress, verdict.who, verdict.why, row.updated_at});
  row.claim = next;
  row.claims = 0;
  row.progress = change.to;
  row.note = change.note;
  row.due_at.reset();
  if (change.due_in) row.due_at = row.updated_at + *change.due_in;
  return WriteOutcome::stored;
}

std::optional<SagaRow> MemorySagas::find(const SagaName& name) const {
  const std::scoped_lock lock(mutex_);
  const auto found = rows_.find(name_of(name));
  if (found == rows_.end()) return std::nullopt;
  return read(found->second);
}

std::vector<SagaRow> MemorySagas::list_parked(std::string_view definition, std::string_view after,
                                              std::size_t limit) const {
  const std::scoped_lock lock(mutex_);
  std::vector<SagaRow> parked;
  for (auto at = rows_.upper_bound({std::string(definition), std::string(after)});
       at != rows_.end() && at->first.first == definition && parked.size() < limit; ++at) {
    if (is_parked(at->second.progress.state)) parked.push_back(read(at->second));
  }
  return parked;
}

std::vector<SagaAudit> MemorySagas::history(const SagaName& name) const {
  const std::scoped_lock lock(mutex_);
  const auto found = audit_.find(name_of(name));
  return found == audit_.end() ? std::vector<SagaAudit>{} : found->second;
}

std::size_t MemorySagas::clean(std::string_view definition, std::chrono::milliseconds ended_for,
                               std::size_t limit) {
  const std::scoped_lock lock(mutex_);
  const Timestamp now = clock_->now();
  std::size_t removed = 0;
  for (auto at = rows_.begin(); at != rows_.end() && removed < limit;) {
    const SagaRow& row = at->second;
    const bool old = row.name.definition == definition && is_ended(row.progress.state) &&
                     now - row.updated_at >= ended_for;
    removed += old ? 1 : 0;
    at = old ? rows_.erase(at) : std::next(at);
  }
  return removed;
}

}  // namespace v0
}  // namespace idempotency
