#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "idempotency/clock.hpp"
#include "idempotency/patterns/saga_journal.hpp"

namespace idempotency {
inline namespace v0 {

/// Sagas that live in this process only: for tests, and for what ends with the process anyway.
///
/// Errors: those of `SagaJournal`.
/// Thread safety: all members may be called concurrently.
/// Lifetime: borrows the clock.
class MemorySagas {
 public:
  MemorySagas() : MemorySagas(system_clock()) {}
  explicit MemorySagas(const Clock& clock) : clock_(&clock) {}
  explicit MemorySagas(const Clock&& clock) = delete;

  SagaRow create(const SagaStart& start);
  [[nodiscard]] std::optional<SagaRow> claim(const SagaClaim& claim);
  [[nodiscard]] std::optional<SagaRow> advance(const SagaRow& seen, const SagaChange& change);
  [[nodiscard]] WriteOutcome decide(const SagaRow& seen, const SagaVerdict& verdict);
  [[nodiscard]] std::optional<SagaRow> find(const SagaName& name) const;
  [[nodiscard]] std::vector<SagaRow> list_parked(std::string_view definition,
                                                 std::string_view after, std::size_t limit) const;
  [[nodiscard]] std::vector<SagaAudit> history(const SagaName& name) const;
  std::size_t clean(std::string_view definition, std::chrono::milliseconds ended_for,
                    std::size_t limit);

 private:
  using Name = std::pair<std::string, std::string>;

  static Name name_of(const SagaName& name) { return {name.definition, name.id}; }
  [[nodiscard]] SagaRow read(const SagaRow& row) const;
  [[nodiscard]] SagaRow* due(const SagaClaim& claim);

  const Clock* clock_;
  mutable std::mutex mutex_;
  std::map<Name, SagaRow> rows_;
  std::map<Name, std::vector<SagaAudit>> audit_;
};
static_assert(SagaJournal<MemorySagas>);

}  // namespace v0
}  // namespace idempotency
