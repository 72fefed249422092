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

/// What a store may say of a `resolve` that it sent more than once. A record that was freed does not stay the resolver's, so
/// who asks again may find the next owner there.
///
/// Errors: `Errc::store_reply_lost` when it cannot be known.
[[nodiscard]] inline WriteOutcome outcome_of_resolve(WriteOutcome last,
                                                     const Resolution& resolution,
                                                     bool is_repeated) {
  if (last == WriteOutcome::lost && is_repeated &&
      resolution.verdict == Resolution::Verdict::retry) {
    throw Error(Errc::store_reply_lost,
                "the answer to a first request was lost, and by now the record is another's: look "
                "at it again");
  }
  return last;
}

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
