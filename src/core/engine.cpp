#include "idempotency/detail/engine.hpp"

#include <utility>

#include "core/call.hpp"
#include "core/engine_parts.hpp"
#include "core/fork_generation.hpp"
#include "core/transaction_call.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail {

void refuse_after_fork(const Engine::Parts& parts) {
  if (parts.made_in == fork_generation()) return;
  throw Error(
      Errc::used_after_fork,
      "this guard was made before fork(); make a guard and a store of its own in the child");
}

namespace {

GuardOptions checked(GuardOptions options) {
  constexpr std::uint32_t most_attempts = 100;
  if (options.begin_attempts < 1 || options.begin_attempts > most_attempts ||
      options.write_budget < std::chrono::milliseconds{1}) {
    throw Error(
        Errc::invalid_argument,
        "GuardOptions: begin_attempts must be from 1 to 100 and write_budget at least 1 ms");
  }
  return options;
}

}  // namespace

// Nobody who asks `begins_many()` first comes here; one by one, each would have an error of its own to tell.
std::vector<std::optional<BeginOutcome>> StorePort::begin_many(
    const std::vector<BeginRequest>& requests) {
  return std::vector<std::optional<BeginOutcome>>(requests.size());
}

WriteOutcome StorePort::issue(const IssueRequest& /*request*/) {
  throw Error(Errc::store_refused,
              "this store cannot issue keys; use one that can, or signed tokens");
}

Engine::Parts::Parts(StorePort& port, GuardOptions guard_options)
    : store(guard_options.observer == nullptr
                ? port
                : static_cast<StorePort&>(timed.emplace(port, *guard_options.observer))),
      options(checked(std::move(guard_options))),
      made_in(fork_generation()),
      leases(port, options.observer),
      behind(store, leases, options.observer) {}

Engine::Engine(StorePort& store, GuardOptions options)
    : parts_(new Parts(store, std::move(options))) {}

Engine::~Engine() {
  if (parts_->made_in == fork_generation())
    delete parts_;  // in a forked child its threads are not there
}

Policy Engine::policy_of(const Operation& operation) const {
  return detail::policy_of(parts_->options, operation);
}

RunOutcome Engine::run(Operation operation, HandlerPort& handler) {
  refuse_after_fork(*parts_);
  return with_timed_handler(parts_->options.observer, handler, [&](HandlerPort& timed) {
    return Call(*parts_, std::move(operation), timed).run();
  });
}

RunOutcome Engine::run_in_transaction(Operation operation, TransactionPort& transaction,
                                      HandlerPort& handler) {
  refuse_after_fork(*parts_);
  if (Observer* observer = parts_->options.observer; observer != nullptr) {
    TimedHandlerPort timed_handler(handler, *observer);
    TimedTransactionPort timed(transaction, *observer);
    return TransactionCall(*parts_, std::move(operation), timed, timed_handler).run();
  }
  return TransactionCall(*parts_, std::move(operation), transaction, handler).run();
}

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
