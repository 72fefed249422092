#pragma once

#include <grpcpp/support/status.h>

#include <array>
#include <cstdint>
#include <string_view>

#include "idempotency/edges/http_problem.hpp"

namespace idempotency {
inline namespace v0 {

/// What a handler's status says of the effect.
enum class GrpcMeaning : std::uint8_t {
  recorded,   ///< the answer to this request, for good: replayed
  retryable,  ///< no effect: sent to the client, and the next attempt runs
  uncertain,  ///< the effect may have happened: sent to the client, and blocked until settled
};

/// What each status code means.
///
/// By default recorded: `OK`, `INVALID_ARGUMENT`, `NOT_FOUND`, `ALREADY_EXISTS`, `PERMISSION_DENIED`, `FAILED_PRECONDITION`,
/// `OUT_OF_RANGE`, `UNIMPLEMENTED`: the same request would be refused again. Retryable: `RESOURCE_EXHAUSTED`, `ABORTED`,
/// `UNAVAILABLE`, and `UNAUTHENTICATED`, which is said of this attempt's credentials and not of the request. Uncertain: `CANCELLED`,
/// `UNKNOWN`, `DEADLINE_EXCEEDED`, `INTERNAL`, `DATA_LOSS`, which a handler often passes on from a service behind it that may
/// have done the work. For the same reason a handler must not pass on the `UNAVAILABLE` or `ABORTED` of such a service: a
/// broken connection is told as `UNAVAILABLE`, too.
///
/// Source: https://grpc.github.io/grpc/core/md_doc_statuscodes.html
/// Thread safety: a value.
class GrpcStatusPolicy {
 public:
  GrpcStatusPolicy();
  /// Every status is recorded and replayed.
  [[nodiscard]] static GrpcStatusPolicy recording_all();

  /// Errors: `Errc::invalid_argument` for what is no status code, and for `OK` as anything but recorded.
  GrpcStatusPolicy& set(grpc::StatusCode code, GrpcMeaning meaning);

  /// `uncertain` for what is no status code.
  [[nodiscard]] GrpcMeaning of(grpc::StatusCode code) const noexcept;

 private:
  std::array<GrpcMeaning, 17> meanings_{};
};

/// Why a call was answered without its handler's status. Its name is sent as `idempotency-problem`, so that a client can tell it
/// from the same status code of the business.
enum class GrpcProblem : std::uint8_t {
  key_missing,    ///< a key is required
  key_malformed,  ///< not a String, empty, too long, or more than one
  key_not_issued,  ///< only issued keys are accepted, and this one was not, is another's, or is too old
  principal_missing,  ///< nobody is known to whom the key could belong
  key_reused,         ///< the key belongs to another request
  in_progress,        ///< the first call is still running
  store_unavailable,  ///< the records cannot be asked; nothing was done
  outcome_unknown,    ///< the first call may have taken effect: somebody has to look
  result_not_kept,    ///< the first call has ended, its reply could not be kept
  failed,             ///< the first call failed for good, without effect
  failed_for_now,     ///< this attempt failed without effect; the next one runs
  record_unreadable,  ///< there is a record that this version cannot read; nothing was done
};

/// `key-missing`, `key-reused`, ...
[[nodiscard]] std::string_view to_string(GrpcProblem problem) noexcept;
[[nodiscard]] KeyAdvice advice_of(GrpcProblem problem) noexcept;

/// The status code of each problem; none of them `OK`.
///
/// `in_progress` is `UNAVAILABLE`, because that is what gRPC keeps for "the client can retry just the failing call", and what clients'
/// retry policies name. `key_reused` is `FAILED_PRECONDITION`, not `INVALID_ARGUMENT`: the same request is right under
/// another key, and nobody retries it. `outcome_unknown` is `UNKNOWN`: every other code would say that nothing was done, or invite to
/// begin anew. `result_not_kept` is `ALREADY_EXISTS`: it has been done.
struct GrpcProblemStatuses {
  grpc::StatusCode key_missing = grpc::StatusCode::INVALID_ARGUMENT;
  grpc::StatusCode key_malformed = grpc::StatusCode::INVALID_ARGUMENT;
  grpc::StatusCode key_not_issued = grpc::StatusCode::INVALID_ARGUMENT;
  grpc::StatusCode principal_missing = grpc::StatusCode::UNAUTHENTICATED;
  grpc::StatusCode key_reused = grpc::StatusCode::FAILED_PRECONDITION;
  grpc::StatusCode in_progress = grpc::StatusCode::UNAVAILABLE;
  grpc::StatusCode store_unavailable = grpc::StatusCode::UNAVAILABLE;
  grpc::StatusCode outcome_unknown = grpc::StatusCode::UNKNOWN;
  grpc::StatusCode result_not_kept = grpc::StatusCode::ALREADY_EXISTS;
  grpc::StatusCode failed = grpc::StatusCode::FAILED_PRECONDITION;
  grpc::StatusCode failed_for_now = grpc::StatusCode::UNAVAILABLE;
  grpc::StatusCode record_unreadable = grpc::StatusCode::INTERNAL;

  [[nodiscard]] grpc::StatusCode of(GrpcProblem problem) const noexcept;
};

/// What a client is told of a problem. It says nothing of the first call and does not repeat the key.
[[nodiscard]] grpc::Status problem_status(GrpcProblem problem, grpc::StatusCode code);

}  // namespace v0
}  // namespace idempotency
