#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "idempotency/lease.hpp"
#include "idempotency/patterns/saga_progress.hpp"
#include "idempotency/record.hpp"
#include "idempotency/store.hpp"

namespace idempotency {
inline namespace v0 {

/// A saga's name: that of its definition, and its own among the sagas of that definition. Bytes that are compared as they are.
struct SagaName {
  static constexpr std::size_t max_definition_bytes = 59;
  static constexpr std::size_t max_id_bytes = 128;

  std::string definition = {};
  std::string id = {};
  friend bool operator==(const SagaName&, const SagaName&) = default;
};

/// One saga as its journal holds it: the authority on how far it has come.
///
/// Thread safety: a value.
struct SagaRow {
  SagaName name = {};
  std::string plan = {};  ///< digest of the names of its steps, in order
  std::uint32_t steps = 0;
  std::string input = {};
  SagaProgress progress = {};
  std::string note = {};  ///< why it waits or was parked, for people
  Ownership claim = {};   ///< who wrote last; the fence rises with every write
  std::uint32_t claims =
      0;  ///< since the last progress or decision: how many workers had it, and said nothing
  Timestamp created_at{};
  Timestamp updated_at{};                          ///< last progress or decision
  std::optional<Timestamp> due_at = std::nullopt;  ///< nobody works on it before; absent: never
  Timestamp read_at{};                             ///< the journal's clock when this was read
  friend bool operator==(const SagaRow&, const SagaRow&) = default;
};

/// A saga to be made.
struct SagaStart {
  static constexpr std::size_t max_input_bytes = std::size_t{1} << 20U;

  SagaName name = {};
  std::string plan = {};
  std::uint32_t steps = 1;
  std::string input = {};
};

/// What a worker asks for: the saga of that definition and plan that has been due for longest, or the one named `id`.
struct SagaClaim {
  std::string definition = {};
  std::string plan = {};
  std::optional<std::string> id = std::nullopt;
  OwnerToken worker = {};  ///< new for each claim
  std::chrono::milliseconds lease{30'000};
};

/// What a worker found out.
struct SagaChange {
  static constexpr std::size_t max_note_bytes = 1024;  ///< longer ones are cut by the journal

  SagaProgress to = {};
  std::string note = {};
  std::optional<std::chrono::milliseconds> due_in = std::nullopt;  ///< absent: never
};

/// What a person decided, for the audit.
struct SagaVerdict {
  static constexpr std::size_t max_who_bytes = 255;
  static constexpr std::size_t max_why_bytes = 1024;

  SagaDecision decision = SagaDecision::resume;
  std::string who = {};
  std::string why = {};
  OwnerToken by = {};  ///< new for each decision
};

/// One line of the audit: who decided what about which step.
struct SagaAudit {
  SagaDecision decision = SagaDecision::resume;
  SagaProgress about = {};
  std::string who = {};
  std::string why = {};
  Timestamp at{};
  friend bool operator==(const SagaAudit&, const SagaAudit&) = default;
};

namespace detail {

/// Refuse what no journal can keep, before anything is written.
///
/// Errors: `Errc::invalid_argument`, `Errc::too_large`.
void check(const SagaName& name);
void check(const SagaStart& start);
void check(const SagaClaim& claim);
void check(const SagaVerdict& verdict);
[[nodiscard]] std::string cut(std::string note);
/// What a decision makes of a parked saga: due at once, unless that was its end.
[[nodiscard]] SagaChange change_of(const SagaRow& seen, const SagaVerdict& verdict);

template <class J>
concept CanCreateSaga = requires(J& journal, const SagaStart& start) {
  { journal.create(start) } -> std::same_as<SagaRow>;
};
template <class J>
concept CanClaimSaga = requires(J& journal, const SagaClaim& claim) {
  { journal.claim(claim) } -> std::same_as<std::optional<SagaRow>>;
};
template <class J>
concept CanAdvanceSaga = requires(J& journal, const SagaRow& seen, const SagaChange& change) {
  { journal.advance(seen, change) } -> std::same_as<std::optional<SagaRow>>;
};
template <class J>
concept CanDecideSaga = requires(J& journal, const SagaRow& seen, const SagaVerdict& verdict) {
  { journal.decide(seen, verdict) } -> std::same_as<WriteOutcome>;
};
template <class J>
concept CanFindSaga = requires(J& journal, const SagaName& name) {
  { journal.find(name) } -> std::same_as<std::optional<SagaRow>>;
};
template <class J>
concept CanListParkedSagas = requires(J& journal, std::string_view definition,
                                      std::string_view after, std::size_t limit) {
  { journal.list_parked(definition, after, limit) } -> std::same_as<std::vector<SagaRow>>;
};
template <class J>
concept CanTellSagaHistory = requires(J& journal, const SagaName& name) {
  { journal.history(name) } -> std::same_as<std::vector<SagaAudit>>;
};
template <class J>
concept CanCleanSagas = requires(J& journal, std::string_view definition,
                                 std::chrono::milliseconds ended_for, std::size_t limit) {
  { journal.clean(definition, ended_for, limit) } -> std::same_as<std::size_t>;
};

}  // namespace detail

/// Where the progress of sagas is kept, and the queue of those that are due.
///
/// Each operation is one atomic step, judged by the journal's clock; every call may be repeated after a lost reply and answers
/// as the first one did, but for `claim`, which may claim another: the first one is due again after the lease. Errors of all: those of the store behind it; `Errc::invalid_argument` or `Errc::too_large` for what cannot
/// be kept, before anything is written.
///
/// - `create(start)`: the saga of that name, made now and due at once, or as it was made before, whatever its input then was.
/// - `claim(claim)`: a saga that is due, which is then the worker's own for the lease; nothing when there is none. What a worker has
///   claimed is due again when the lease has run out, so that the work of a dead one goes on.
/// - `advance(seen, change)`: by the worker that has written last, and nobody else since; nothing when that is not so any
///   more. The row is the worker's own until `due_in` has passed.
/// - `decide(seen, verdict)`: moves a parked saga that nobody has written since it was seen, and writes the line of the audit, both or
///   neither.
/// - `find(name)`, `history(name)`, `list_parked(definition, after, limit)`: for people; parked ones by id, byte by byte, behind `after`.
/// - `clean(definition, ended_for, limit)`: removes sagas that ended that long ago; says how many. The audit stays.
template <class J>
concept SagaJournal = detail::CanCreateSaga<J> && detail::CanClaimSaga<J> &&
    detail::CanAdvanceSaga<J> && detail::CanDecideSaga<J> && detail::CanFindSaga<J> &&
    detail::CanListParkedSagas<J> && detail::CanTellSagaHistory<J> && detail::CanCleanSagas<J>;

}  // namespace v0
}  // namespace idempotency
