#include "idempotency/observer.hpp"
#include "idempotency/record.hpp"
#include "idempotency/run_result.hpp"

namespace idempotency {
inline namespace v0 {

std::string_view to_string(RecordState state) noexcept {
  switch (state) {
    case RecordState::processing:
      return "processing";
    case RecordState::success:
      return "success";
    case RecordState::failed:
      return "failed";
    case RecordState::uncertain:
      return "uncertain";
    case RecordState::issued:
      return "issued";
  }
  return "unknown";
}

std::string_view to_string(RecordMode mode) noexcept {
  switch (mode) {
    case RecordMode::take_over:
      return "take_over";
    case RecordMode::hold:
      return "hold";
  }
  return "unknown";
}

std::string_view to_string(BreakerState state) noexcept {
  switch (state) {
    case BreakerState::closed:
      return "closed";
    case BreakerState::open:
      return "open";
    case BreakerState::half_open:
      return "half_open";
  }
  return "unknown";
}

std::string_view to_string(RunStatus status) noexcept {
  switch (status) {
    case RunStatus::executed:
      return "executed";
    case RunStatus::executed_failed:
      return "executed_failed";
    case RunStatus::executed_unrecorded:
      return "executed_unrecorded";
    case RunStatus::executed_unprotected:
      return "executed_unprotected";
    case RunStatus::executed_pending_commit:
      return "executed_pending_commit";
    case RunStatus::replayed:
      return "replayed";
    case RunStatus::replayed_without_result:
      return "replayed_without_result";
    case RunStatus::in_progress:
      return "in_progress";
    case RunStatus::mismatch:
      return "mismatch";
    case RunStatus::failed:
      return "failed";
    case RunStatus::uncertain:
      return "uncertain";
    case RunStatus::superseded:
      return "superseded";
    case RunStatus::undecidable:
      return "undecidable";
    case RunStatus::not_issued:
      return "not_issued";
  }
  return "unknown";
}

std::string_view to_string(StoreCall call) noexcept {
  switch (call) {
    case StoreCall::begin:
      return "begin";
    case StoreCall::complete:
      return "complete";
    case StoreCall::fail:
      return "fail";
    case StoreCall::doubt:
      return "doubt";
    case StoreCall::mark_effect:
      return "mark_effect";
    case StoreCall::renew:
      return "renew";
    case StoreCall::release:
      return "release";
    case StoreCall::find:
      return "find";
    case StoreCall::commit:
      return "commit";
  }
  return "unknown";
}

namespace detail {

void throw_no_value(RunStatus status) {
  throw Error(Errc::no_value, "this run has no value: its status is " +
                                  std::string(to_string(status)) +
                                  "; look at status() before value()");
}

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
