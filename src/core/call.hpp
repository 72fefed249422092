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

/// What came of a `begin` that was sent before its call's turn, together with others.
struct Begun {
  /// Gives the answer of `begin`, or takes the error for its first try; neither: it is not known whether it was sent.
  std::optional<BeginOutcome> outcome = std::nullopt;
  std::optional<Error> error = std::nullopt;
};

/// One call of `run`: performs what the protocol says.
class Call final : private ExecutionPort {
 public:
  Call(Engine::Parts& parts, Operation operation, HandlerPort& handler);
  /// A call whose `begin` was sent as `request`, under `policy`; what it acquired lasts until `lease_end` as far as is known.
  Call(Engine::Parts& parts, const Policy& policy, BeginRequest request, Begun begun,
       SteadyTime lease_end, BeginRepetition repeat_begin, HandlerPort& handler);

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

  ProtocolEvent begun_before(Begun begun);
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
  /// Repeats it within the budget of writes. Errors: `Errc::lease_lost`, and those of the store.
  void mark_effect();
  /// Whether the lease has not ended yet, by this caller's clock.
  [[nodiscard]] bool is_usable() const noexcept;

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
  std::optional<Begun> begun_;  ///< what the first `begin` comes to, when it was sent before
  SteadyTime started_;
  SteadyTime begin_sent_;  ///< of that one; otherwise when the call began
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
