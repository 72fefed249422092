#pragma once

#include <google/protobuf/message_lite.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/status.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "idempotency/edges/grpc_options.hpp"
#include "idempotency/edges/grpc_response.hpp"
#include "idempotency/edges/grpc_status.hpp"
#include "idempotency/execution.hpp"
#include "idempotency/operation.hpp"
#include "idempotency/patterns/token_service.hpp"
#include "idempotency/run_result.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail {

/// What is to be done with a call: refuse it, run it under an operation, or (neither) pass it on.
struct GrpcAdmission {
  std::optional<grpc::Status> refusal = std::nullopt;
  std::optional<Operation> operation = std::nullopt;
  PresentedToken token = {};  ///< with a token service: what the client brought
};

/// `GrpcIdempotency` without its templates.
class GrpcEdge {
 public:
  explicit GrpcEdge(GrpcOptions options);

  [[nodiscard]] GrpcAdmission admit(grpc::ServerContextBase& context, const GrpcCall& call,
                                    const google::protobuf::MessageLite& request) const;
  /// What the record makes of a response.
  [[nodiscard]] Disposition judge(const GrpcResponse& response) const noexcept;
  /// The status of a problem; what else is said of it goes into the trailing metadata.
  [[nodiscard]] grpc::Status problem(grpc::ServerContextBase& context, GrpcProblem problem) const;
  /// The same, with the time when to ask again.
  [[nodiscard]] grpc::Status problem(grpc::ServerContextBase& context, GrpcProblem problem,
                                     std::chrono::milliseconds retry_after) const;
  [[nodiscard]] const GrpcOptions& options() const noexcept { return options_; }
  [[nodiscard]] std::uint64_t passed_without_key() const noexcept {
    return passed_without_key_.load(std::memory_order_relaxed);
  }

 private:
  [[nodiscard]] std::string principal_of(const grpc::ServerContextBase& context) const;

  GrpcOptions options_;
  mutable std::atomic<std::uint64_t> passed_without_key_{0};
};

/// A service's handler, whatever its type.
class GrpcHandler {
 public:
  GrpcHandler() = default;
  GrpcHandler(const GrpcHandler&) = delete;
  GrpcHandler& operator=(const GrpcHandler&) = delete;
  virtual ~GrpcHandler() = default;

  virtual grpc::Status call(Execution* execution) = 0;
  [[nodiscard]] virtual bool takes_execution() const noexcept = 0;
};

/// One call under the guard: keeps what is sent but not recorded.
class GrpcRun {
 public:
  /// Lifetime: borrows all of them.
  GrpcRun(const GrpcEdge& edge, grpc::ServerContextBase& context,
          google::protobuf::MessageLite& reply, GrpcHandler& handler) noexcept
      : edge_(&edge), context_(&context), reply_(&reply), handler_(&handler) {}
  GrpcRun(const GrpcRun&) = delete;
  GrpcRun& operator=(const GrpcRun&) = delete;

  /// Calls the handler; gives what is to be recorded.
  [[nodiscard]] GrpcResponse record(Execution* execution);
  [[nodiscard]] grpc::Status answer(const RunResult<GrpcResponse>& result);
  /// Nothing for an error that the caller should see.
  [[nodiscard]] std::optional<grpc::Status> answer(const Error& error) const;

 private:
  [[nodiscard]] grpc::Status replay(const GrpcResponse& response);
  [[nodiscard]] grpc::Status answer_of_another(const RunResult<GrpcResponse>& result);
  [[nodiscard]] std::optional<grpc::Status> answer_before_handler(const Error& error) const;

  const GrpcEdge* edge_;
  grpc::ServerContextBase* context_;
  google::protobuf::MessageLite* reply_;
  GrpcHandler* handler_;
  std::optional<grpc::Status> own_;  ///< there when the handler has returned
  bool handler_threw_ = false;
};

/// How long a repeated call may still wait for the first one: never beyond its own deadline, and in pieces, between which it
/// is seen whether the client has gone.
class GrpcWait {
 public:
  GrpcWait(const grpc::ServerContextBase& context, std::chrono::milliseconds wait) noexcept;

  /// The next piece; zero: the store is asked without waiting.
  [[nodiscard]] std::chrono::milliseconds next() const noexcept;
  [[nodiscard]] bool goes_on() const { return left() > std::chrono::milliseconds{0}; }

 private:
  [[nodiscard]] std::chrono::milliseconds left() const noexcept;

  std::chrono::steady_clock::time_point started_;
  std::chrono::milliseconds total_;
};

/// The status of a call whose client has gone.
[[nodiscard]] grpc::Status cancelled_status();

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
