#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "idempotency/lease.hpp"
#include "idempotency/patterns/saga_journal.hpp"
#include "idempotency/store.hpp"

namespace idempotency {
inline namespace v0 {

/// What people do about the parked sagas of one definition. It needs the journal and no definition, so a tool can have it.
///
/// A decision is about the saga as it was seen: when it has moved since, by a worker or another person, the answer is `lost` and
/// nothing is written; look again. Who decided and why stands in the audit, written with the decision or not at all.
///
/// Errors: those of the journal; `Errc::invalid_argument` for a decision without a name or a reason.
/// Thread safety: all members may be called concurrently.
/// Lifetime: borrows the journal.
template <class JournalT>
class SagaDesk {
  static_assert(SagaJournal<JournalT>,
                "idempotency: SagaDesk needs a SagaJournal, such as MemorySagas or SqlSagas.");

 public:
  SagaDesk(JournalT& journal, std::string definition)
      : journal_(&journal), definition_(std::move(definition)) {}
  SagaDesk(const JournalT&& journal, std::string definition) = delete;

  /// By id, byte by byte, behind `after`; the row's note says why it is parked.
  [[nodiscard]] std::vector<SagaRow> list_parked(std::size_t limit, std::string_view after = {}) {
    return journal_->list_parked(definition_, after, limit);
  }
  [[nodiscard]] std::optional<SagaRow> find(std::string id) {
    return journal_->find({definition_, std::move(id)});
  }
  [[nodiscard]] std::vector<SagaAudit> history(std::string id) {
    return journal_->history({definition_, std::move(id)});
  }

  /// Tries the step again, `max_attempts` times. An uncertain action has to be settled first, in the store of the guard, under
  /// `saga_key`: its record says what is to be done.
  [[nodiscard]] WriteOutcome resume(const SagaRow& seen, std::string who, std::string why) {
    return decide(seen, SagaDecision::resume, std::move(who), std::move(why));
  }
  /// Goes on behind the step: the next action when running, the compensation of the step before it when compensating. Nothing that
  /// the step may have done is undone.
  [[nodiscard]] WriteOutcome skip(const SagaRow& seen, std::string who, std::string why) {
    return decide(seen, SagaDecision::skip, std::move(who), std::move(why));
  }
  /// Undoes what was done before the step, in either direction: whoever decides so has made sure that its action has no effect. The
  /// action's record is believed first, so an uncertain one has to be settled, and a success is compensated.
  [[nodiscard]] WriteOutcome give_up(const SagaRow& seen, std::string who, std::string why) {
    return decide(seen, SagaDecision::give_up, std::move(who), std::move(why));
  }

 private:
  WriteOutcome decide(const SagaRow& seen, SagaDecision decision, std::string who,
                      std::string why) {
    const SagaVerdict verdict{.decision = decision,
                              .who = std::move(who),
                              .why = std::move(why),
                              .by = OwnerToken::generate()};
    while (true) {  // a worker that notes its alert writes, too, and moves nothing
      const std::optional<SagaRow> row = journal_->find(seen.name);
      if (!row || row->created_at != seen.created_at || row->progress != seen.progress ||
          !is_parked(row->progress.state)) {
        return WriteOutcome::lost;
      }
      if (journal_->decide(*row, verdict) == WriteOutcome::stored) return WriteOutcome::stored;
    }
  }

  JournalT* journal_;
  std::string definition_;
};

}  // namespace v0
}  // namespace idempotency
