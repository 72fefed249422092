#pragma once

#include <google/protobuf/message_lite.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/status.h>

#include <chrono>
#include <concepts>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>

#include "idempotency/detail/grpc_edge.hpp"
#include "idempotency/edges/grpc_options.hpp"
#include "idempotency/edges/grpc_response.hpp"
#include "idempotency/execution.hpp"
#include "idempotency/patterns/token_service.hpp"

namespace idempotency {
inline namespace v0 {

/// Makes the unary calls of a gRPC service take effect once for each key in the metadata `idempotency-key`, over any guard.
///
/// `run` stands inside a service's method: it reads the key, fingerprints the request, runs the handler under the guard, and records
/// and replays its status and reply. What a client is told besides stands in the trailing metadata: `idempotent-replayed: true` with
/// a recorded answer; `idempotency-problem` with every answer of its own; `idempotency-advice` (`keep-key`, `new-key`, `done`) with
/// every answer under a key that is no success; and `grpc-retry-pushback-ms`, which gRPC's own retry policy obeys (gRFC A6): when to
/// ask again, or -1 where asking again by itself is of no use.
///
/// It asks the store as often as `guard.run` does: once for a duplicate, twice for a first call.
///
/// Errors: the constructor throws `Errc::invalid_argument` for options that are none. `run` throws what the handler throws, but
/// `PermanentFailure`, `RetryableFailure` and `OutcomeUnknown`, which become statuses (of other exceptions gRPC makes `UNKNOWN`);
/// and of the guard's errors those that only the programmer can mend (`invalid_policy`, `invalid_argument`, `invalid_key`,
/// `used_after_fork`).
/// Thread safety: all members may be called concurrently.
/// Lifetime: borrows the guard.
///
/// Example: see `examples/18_grpc_charge.cpp`.
template <class Guard>
class GrpcIdempotency {
 public:
  explicit GrpcIdempotency(Guard& guard, GrpcOptions options = {})
      : guard_(&guard), edge_(std::move(options)) {}
  explicit GrpcIdempotency(const Guard&& guard, GrpcOptions options = {}) = delete;

  /// Answers a call: with what `next` produces now, what it produced before, or a problem's status. Give back what it gives.
  ///
  /// `next` takes nothing, or `Execution*` (null where the call is passed on unprotected), fills `reply` and returns a `grpc::Status`.
  /// Without `Execution*` an exception of a type that the library does not know leaves the record uncertain under `hold`. Only a
  /// reply with `OK` is recorded. A handler that has begun goes on to its end when the client has gone: its record must be
  /// settled; a call whose client has gone before is not begun.
  ///
  /// Blocks as `guard.run` does, and no longer than the call's deadline while it waits for another: with the callback API call it
  /// from a thread of your own.
  ///
  /// Errors: also `Errc::invalid_argument` when `call.method` is no full name.
  template <class Next>
  [[nodiscard]] grpc::Status run(grpc::ServerContextBase& context, const GrpcCall& call,
                                 const google::protobuf::MessageLite& request,
                                 google::protobuf::MessageLite& reply, Next&& next) {
    constexpr bool is_handler = gives_status<Next, Execution*> || gives_status<Next>;
    static_assert(is_handler,
                  "idempotency: the gRPC handler takes nothing or Execution*, and returns a "
                  "grpc::Status.");
    if constexpr (is_handler) {
      HandlerOf<std::remove_reference_t<Next>> handler(next);
      return run_handler(context, call, request, reply, handler);
    } else {
      return {};
    }
  }

  /// How many calls were passed on unprotected because they brought no key and none was required.
  [[nodiscard]] std::uint64_t passed_without_key() const noexcept {
    return edge_.passed_without_key();
  }

 private:
  template <class Next, class... Arguments>
  static constexpr bool gives_status = requires(Next& next, Arguments... arguments) {
    { next(arguments...) } -> std::convertible_to<grpc::Status>;
  };

  template <class Next>
  class HandlerOf final : public detail::GrpcHandler {
   public:
    explicit HandlerOf(Next& next) noexcept : next_(&next) {}
    grpc::Status call([[maybe_unused]] Execution* execution) override {
      if constexpr (gives_status<Next, Execution*>) {
        return (*next_)(execution);
      } else {
        return (*next_)();
      }
    }
    [[nodiscard]] bool takes_execution() const noexcept override {
      return gives_status<Next, Execution*>;
    }

   private:
    Next* next_;
  };

  /// One piece of code for all methods of all services.
  grpc::Status run_handler(grpc::ServerContextBase& context, const GrpcCall& call,
                           const google::protobuf::MessageLite& request,
                           google::protobuf::MessageLite& reply, detail::GrpcHandler& handler) {
    detail::GrpcAdmission admission = edge_.admit(context, call, request);
    if (admission.refusal) return *std::move(admission.refusal);
    if (!admission.operation) return handler.call(nullptr);
    detail::GrpcRun run(edge_, context, reply, handler);
    try {
      const detail::GrpcWait wait(context, guard_->policy_of(*admission.operation).wait);
      while (true) {
        const RunResult<GrpcResponse> result = under_guard(admission, wait.next(), run, handler);
        if (result.status() != RunStatus::in_progress || !wait.goes_on()) {
          return run.answer(result);
        }
        if (context.IsCancelled()) return detail::cancelled_status();
      }
    } catch (const Error& error) {
      if (std::optional<grpc::Status> status = run.answer(error)) return *std::move(status);
      throw;
    }
  }

  /// The guard as a token service runs it, with the judgement of responses.
  struct JudgingGuard {
    Guard* guard;
    const detail::GrpcEdge* edge;

    [[nodiscard]] Policy policy_of(const Operation& operation) const {
      return guard->policy_of(operation);
    }
    template <class Handler>
    auto run(Operation operation, Handler&& handler) {
      return guard->run(std::move(operation), std::forward<Handler>(handler),
                        [this](const GrpcResponse& response) { return edge->judge(response); });
    }
  };

  RunResult<GrpcResponse> under_guard(const detail::GrpcAdmission& admission,
                                      std::chrono::milliseconds wait, detail::GrpcRun& run,
                                      const detail::GrpcHandler& handler) {
    if (handler.takes_execution()) {
      auto with_execution = [&](Execution& execution) { return run.record(&execution); };
      return under_guard(admission, wait, with_execution);
    }
    auto without_execution = [&] { return run.record(nullptr); };
    return under_guard(admission, wait, without_execution);
  }

  template <class Handler>
  RunResult<GrpcResponse> under_guard(const detail::GrpcAdmission& admission,
                                      std::chrono::milliseconds wait, Handler& handler) {
    JudgingGuard judging{guard_, &edge_};
    if (TokenService* tokens = edge_.options().tokens; tokens != nullptr) {
      PresentedToken token = admission.token;
      token.policy.wait = wait;
      return tokens->run(judging, token, handler);
    }
    Operation operation = *admission.operation;
    operation.policy.wait = wait;
    return judging.run(std::move(operation), handler);
  }

  Guard* guard_;
  detail::GrpcEdge edge_;
};

}  // namespace v0
}  // namespace idempotency
