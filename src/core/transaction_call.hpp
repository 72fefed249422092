#pragma once

#include <optional>

#include "core/cancellation.hpp"
#include "core/engine_parts.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail {

/// One call of `run_in_transaction`: record and business statements commit together.
class TransactionCall {
 public:
  TransactionCall(Engine::Parts& parts, Operation operation, TransactionPort& transaction,
                  HandlerPort& handler);

  [[nodiscard]] RunOutcome run();

 private:
  enum class Ending : std::uint8_t { done, again, in_progress };

  [[nodiscard]] RunOutcome repeat_until_done();
  [[nodiscard]] bool answered_before();
  [[nodiscard]] bool may_ask_again();
  [[nodiscard]] Ending attempt();
  [[nodiscard]] BeginOutcome open_and_begin();
  void pause(std::chrono::nanoseconds most);
  [[nodiscard]] HandlerReport invoke(const Ownership& by);
  [[nodiscard]] Ending conclude(HandlerReport report, const Ownership& by);
  [[nodiscard]] WriteOutcome complete(Completion completion, const Ownership& by);
  [[nodiscard]] Ending settle_unknown_commit(const Ownership& committing);
  [[nodiscard]] Ending repeat_or_give_up() const;
  [[nodiscard]] BeginOutcome begin_and_roll_back();
  [[nodiscard]] bool is_owned_by(const OwnerToken& owner);
  void take(BeginOutcome outcome);
  void settle_exception(const Ownership& by);
  [[nodiscard]] bool doubt(const Ownership& by) noexcept;
  void make_uncertain(const Ownership& by) noexcept;
  void record_afterwards(Disposition disposition, std::string reason,
                         std::optional<std::string> result) noexcept;
  void report_error(StoreCall call, const Error& error) noexcept;
  [[nodiscard]] RunOutcome finish();

  CancellationShield shield_;  // lifted while the handler runs and while another's is waited for
  Engine::Parts& parts_;
  TransactionPort& transaction_;
  HandlerPort& handler_;
  Policy policy_;
  BeginRepetition repeat_begin_;
  BeginRequest request_;
  SteadyTime started_;
  std::chrono::milliseconds pause_{2};
  RunOutcome outcome_;
  std::uint32_t attempts_ = 0;
  bool is_open_ = false;
  bool commit_is_unsettled_ = false;  ///< one was sent, and nothing has been heard of it yet
};

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
