#pragma once

#include <string_view>

#include "idempotency/error.hpp"
#include "idempotency/store.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail {

/// What `Observer::on_resolved` is told.
[[nodiscard]] constexpr std::string_view name_of(Resolution::Verdict verdict) noexcept {
  switch (verdict) {
    case Resolution::Verdict::succeeded:
      return "succeeded";
    case Resolution::Verdict::failed:
      return "failed";
    case Resolution::Verdict::retry:
      return "retry";
  }
  return "retry";
}

/// What a store may say of a `resolve` or `release` that it sent more than once: the first may have been done, and the record begun anew
/// since, or have ended.
///
/// Errors: `Errc::store_reply_lost` when it cannot be known.
[[nodiscard]] inline WriteOutcome outcome_of_repeated(WriteOutcome last, bool is_repeated) {
  if (last == WriteOutcome::lost && is_repeated) {
    throw Error(Errc::store_reply_lost,
                "the answer to a first request was lost, and by now the record is another's: look "
                "at it again");
  }
  return last;
}

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
