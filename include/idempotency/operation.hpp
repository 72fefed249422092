#pragma once

#include <optional>
#include <string>

#include "idempotency/fingerprint.hpp"
#include "idempotency/key.hpp"
#include "idempotency/policy.hpp"

namespace idempotency {
inline namespace v0 {

/// What is to be done once: `guard.run({.key = {"payment", order.id}}, handler)`.
struct Operation {
  Key key;
  /// What the request means. Absent: requests with the same key are not told apart.
  std::optional<Fingerprint> fingerprint = std::nullopt;
  /// Kept with the record to find the request in logs (for example a W3C traceparent). At most 255 bytes; longer
  /// text is cut.
  std::string trace = {};
  /// What this operation wants different from its type's policy.
  PolicyOverride policy = {};
  /// `issued`: a key that nobody issued or began before makes no record and runs nothing (`RunStatus::not_issued`). A
  /// store that cannot be asked is an error then, whatever the policy says of its failure.
  Admission admission = Admission::any;
  /// After which failures `begin` is sent again, as often as `GuardOptions` say.
  BeginRepetition repeat_begin = BeginRepetition::after_any_failure;
};

}  // namespace v0
}  // namespace idempotency
