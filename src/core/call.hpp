#pragma once

#include <exception>
#include <optional>

#include "core/cancellation.hpp"
#include "core/engine_parts.hpp"
#include "idempotency/execution.hpp"
#include "idempotency/protocol.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail {

/// What a handler's exception means for the record.
struct Judgement {
  Disposition disposition = Disposition::uncertain;
  std::string reason;
};

/// Judges the exception that is being handled, after DESIGN's rules and the policy's classifier.
/// `effect_begun`: the point of no return is behind, or nobody can tell (`hold` without `Execution&`).
[[nodiscard]] Judgement judge_exception(const Policy& policy, bool effect_begun) noexcept;

/// One call of `run`: performs what the protocol says.
class Call final : private ExecutionPort {
 public:
  Call(Engine::Parts& parts, Operation operation, HandlerPort& handler);

  [[nodiscard]] RunOutcome run();

 private:
  // one function for each action that does more than report
  ProtocolEvent join();
  ProtocolEvent await_leader(SteadyTime deadline);
  ProtocolEvent begin();
  ProtocolEvent wait_until(SteadyTime at);
  ProtocolEvent run_handler(SteadyTime lease_end);
  ProtocolEvent run_unprotected();
  ProtocolEvent write();
  ProtocolEvent find();
  RunOutcome finish(const ProtocolAction& action);

  ProtocolEvent answered(BeginOutcome outcome);
  ProtocolEvent perform(const ProtocolAction& action);
  ProtocolAction drive(ProtocolAction action);
  HandlerReport invoke();
  void settle_exception(Judgement judged) noexcept;
  void prepare_write(Disposition disposition, std::optional<std::string> result,
                     std::string reason);
  void deliver(RunStatus status);
  void leave_to_background() noexcept;
  void report_error(StoreCall call, const Error& error) noexcept;

  // ExecutionPort
  std::stop_token stop_token() override;
  void point_of_no_return() override;
  std::optional<std::string> find_step(std::string_view name) override;
  std::optional<std::string> record_step(std::string_view name, std::string result) override;

  [[nodiscard]] Timestamp life();
  [[nodiscard]] SteadyTime now() const noexcept { return std::chrono::steady_clock::now(); }

  CancellationShield shield_;  // lifted while the handler runs and while others are waited for
  Engine::Parts& parts_;
  HandlerPort& handler_;
  Policy policy_;
  BeginRepetition repeat_begin_;
  BeginRequest request_;
  SteadyTime started_;
  Protocol protocol_;
  std::optional<WaitingRoom::Ticket> ticket_;
  std::optional<HeldLease> held_;
  Acquired acquired_{};
  std::optional<Timestamp> life_;
  EndWrite end_write_;
  RunOutcome outcome_;
  std::exception_ptr store_error_;
  std::uint32_t errors_seen_ = 0;
  bool effect_begun_ = false;
};

/// The policy of an operation: the table's with the operation's own wishes over it.
[[nodiscard]] Policy policy_of(const GuardOptions& options, const Operation& operation);

/// The request that asks for `operation`, with a new owner token.
[[nodiscard]] BeginRequest request_of(Operation&& operation, const Policy& policy);

[[noreturn]] void throw_unknown_scheme(const Mismatch& mismatch);

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
