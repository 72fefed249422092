#include "idempotency/patterns/saga_journal.hpp"

#include "idempotency/error.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail {

namespace {

constexpr std::chrono::milliseconds longest_lease = std::chrono::hours{24};

void check_definition(std::string_view definition) {
  if (definition.empty()) {
    throw Error(Errc::invalid_argument, "a saga has the name of its definition and one of its own");
  }
  if (definition.size() > SagaName::max_definition_bytes) {
    throw Error(Errc::too_large, "the name of a saga's definition has at most 59 bytes");
  }
}

}  // namespace

void check(const SagaName& name) {
  check_definition(name.definition);
  if (name.id.empty()) {
    throw Error(Errc::invalid_argument, "a saga has the name of its definition and one of its own");
  }
  if (name.id.size() > SagaName::max_id_bytes) {
    throw Error(Errc::too_large, "a saga's own name has at most 128 bytes");
  }
}

void check(const SagaStart& start) {
  check(start.name);
  if (start.steps == 0) throw Error(Errc::invalid_argument, "a saga has at least one step");
  if (start.input.size() > SagaStart::max_input_bytes) {
    throw Error(Errc::too_large, "a saga's input has at most 1 MiB: keep more elsewhere");
  }
}

void check(const SagaClaim& claim) {
  if (claim.id) {
    check(SagaName{claim.definition, *claim.id});
  } else {
    check_definition(claim.definition);
  }
  if (claim.lease < std::chrono::milliseconds{1} || claim.lease > longest_lease) {
    throw Error(Errc::invalid_argument, "the lease on a saga is from 1 ms to 1 day");
  }
  if (claim.worker == OwnerToken{}) {
    throw Error(Errc::invalid_argument, "a worker claims with a token that it has generated");
  }
}

void check(const SagaVerdict& verdict) {
  if (verdict.who.empty() || verdict.why.empty()) {
    throw Error(Errc::invalid_argument, "the audit needs to know who decides, and why");
  }
  if (verdict.who.size() > SagaVerdict::max_who_bytes ||
      verdict.why.size() > SagaVerdict::max_why_bytes) {
    throw Error(Errc::too_large, "the audit keeps 255 bytes of who decides and 1024 of why");
  }
  if (verdict.by == OwnerToken{}) {
    throw Error(Errc::invalid_argument, "a decision has a token that was generated for it");
  }
}

std::string cut(std::string note) {
  if (note.size() > SagaChange::max_note_bytes) note.resize(SagaChange::max_note_bytes);
  return note;
}

SagaChange change_of(const SagaRow& seen, const SagaVerdict& verdict) {
  SagaChange change{.to = saga_decided(seen.progress, verdict.decision, seen.steps)};
  if (!is_ended(change.to.state)) change.due_in = std::chrono::milliseconds{0};
  return change;
}

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
