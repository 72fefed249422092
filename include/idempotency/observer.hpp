#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>

#include "idempotency/error.hpp"
#include "idempotency/key.hpp"

namespace idempotency {
inline namespace v0 {

/// How one call of `run` ended.
enum class RunStatus : std::uint8_t {
  executed,              ///< ran now; the result is recorded
  executed_failed,       ///< ran now and returned a classified failure; `value()` is it
  executed_unrecorded,   ///< ran now; the store did not confirm the result, which is retried behind
  executed_unprotected,  ///< ran now without a record, because the policy allows it
  executed_pending_commit,  ///< ran now in the caller's own transaction, which is still open
  replayed,                 ///< ran before; `value()` is the recorded result
  replayed_without_result,  ///< ran before; its result was not kept
  in_progress,              ///< another call is running it; `retry_after()` says when to ask again
  mismatch,                 ///< the key belongs to a request of another meaning
  failed,                   ///< failed before, for good; `failure()` says why
  uncertain,                ///< the effect may have happened; blocked until settled
  superseded,   ///< ran now, but the lease was lost; `value()` is what is recorded, if finished
  undecidable,  ///< a store that may know the key cannot be asked; did not run
  not_issued,  ///< only keys that were issued are admitted, and this one was not, or has expired; did not run
};
[[nodiscard]] std::string_view to_string(RunStatus status) noexcept;

/// Which store call an observation is about.
enum class StoreCall : std::uint8_t {
  begin,
  complete,
  fail,
  doubt,
  mark_effect,
  renew,
  release,
  find,
  commit,
};
[[nodiscard]] std::string_view to_string(StoreCall call) noexcept;

/// Whether a `BreakerStore` lets new work through to its store.
enum class BreakerState : std::uint8_t {
  closed,     ///< everything goes through
  open,       ///< new work is refused at once
  half_open,  ///< one call tries; other new work is refused
};
[[nodiscard]] std::string_view to_string(BreakerState state) noexcept;

/// Watches what the library does: the place for metrics, logs and traces.
///
/// Every hook does nothing by default. Hooks are called on the thread that does the work, some on the
/// library's own, so they must be quick and must not call the guard that is observed.
///
/// Thread safety: hooks are called concurrently.
/// Lifetime: must outlive the guard or store it is given to.
class Observer {
 public:
  Observer() = default;
  Observer(const Observer&) = delete;
  Observer& operator=(const Observer&) = delete;
  virtual ~Observer() = default;

  /// A call of `run` ended without an exception of the handler's or the store's.
  virtual void on_finished(const Key& /*key*/, RunStatus /*status*/,
                           std::chrono::nanoseconds /*total*/) noexcept {}
  /// The handler returned or threw.
  virtual void on_handler_ended(const Key& /*key*/, std::chrono::nanoseconds /*took*/) noexcept {}
  /// A call of `run` let time pass until another call, which runs the same key, had ended or fallen silent.
  virtual void on_waited(const Key& /*key*/, std::chrono::nanoseconds /*waited*/) noexcept {}
  /// A store call was answered; errors are told by `on_store_error`, renewals by `on_lease_renewed`. `begin` within a
  /// transaction includes the wait for the row.
  virtual void on_store_answered(const Key& /*key*/, StoreCall /*call*/,
                                 std::chrono::nanoseconds /*took*/) noexcept {}
  /// The handler threw. Its exception reaches the caller.
  virtual void on_handler_threw(const Key& /*key*/, std::string_view /*disposition*/) noexcept {}
  /// A store call failed; `attempt` counts from 1.
  virtual void on_store_error(const Key& /*key*/, StoreCall /*call*/, const Error& /*error*/,
                              std::uint32_t /*attempt*/) noexcept {}
  /// A lease was renewed.
  virtual void on_lease_renewed(const Key& /*key*/, std::uint64_t /*fence*/) noexcept {}
  /// A lease is lost or about to end unrenewed; the handler's `stop_token` has been set. Called once for a run.
  virtual void on_lease_lost(const Key& /*key*/, std::uint64_t /*fence*/) noexcept {}
  /// What became of an outcome that `run` left to be written behind: `recorded`; `lost`, since the record is another's by
  /// then; or `given up`, since the store refuses the write or holds a record that cannot be judged.
  virtual void on_settled_behind(const Key& /*key*/, std::string_view /*outcome*/) noexcept {}
  /// The set-up of a store or policy can lose records or promises less than it seems; `what` says how to mend it.
  virtual void on_hazard(std::string_view /*what*/) noexcept {}
  /// A `BreakerStore` was made, or has changed its state. Called under its lock: never call the store from here.
  virtual void on_breaker_changed(std::string_view /*name*/, BreakerState /*state*/) noexcept {}
  /// An operator or reconciler settled a record.
  virtual void on_resolved(const Key& /*key*/, std::string_view /*verdict*/) noexcept {}
};

}  // namespace v0
}  // namespace idempotency
