#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "idempotency/detail/ports.hpp"
#include "idempotency/observer.hpp"
#include "idempotency/operation.hpp"
#include "idempotency/policy.hpp"
#include "idempotency/run_result.hpp"

namespace idempotency {
inline namespace v0 {

/// How a guard works.
struct GuardOptions {
  PolicyTable policies = {};
  /// Told of everything that happens; may be null. Must outlive the guard.
  Observer* observer = nullptr;
  /// How long the write that ends a run is repeated before `run` returns `executed_unrecorded`. It goes on being
  /// repeated behind. At least 1 ms.
  std::chrono::milliseconds write_budget{2'000};
  /// How often `begin` is sent before its failure is reported, with pauses of at most 250 ms. From 1 to 100.
  std::uint32_t begin_attempts = 3;
};

namespace detail {

/// What the engine knows of a run when it has ended.
struct RunOutcome {
  RunReport report;
  std::optional<std::string> recorded;  ///< encoded result from the record
  bool own_value = false;               ///< the handler's own value is the answer
};

/// Runs whose `begin`s were sent together, each of which waits for its turn under its own lease.
///
/// Thread safety: none. Lifetime: ends before its engine; what was acquired and has not run is given back then.
class BegunRuns {
 public:
  struct Parts;
  explicit BegunRuns(Parts* parts) noexcept : parts_(parts) {}
  BegunRuns(BegunRuns&& other) noexcept : parts_(std::exchange(other.parts_, nullptr)) {}
  BegunRuns& operator=(BegunRuns&&) = delete;
  ~BegunRuns();

  [[nodiscard]] std::size_t size() const noexcept;
  /// Errors: also `Errc::invalid_argument` for a place that is not there or has had its turn.
  [[nodiscard]] RunOutcome run(std::size_t place, HandlerPort& handler);

 private:
  friend class Engine;
  Parts* parts_;
};

/// Runs handlers under the protocol: the blocking driver, without templates.
///
/// Thread safety: `run`, `begin_many` and `run_in_transaction` may be called concurrently.
/// Lifetime: borrows the store; must outlive its calls; unusable in a child of `fork()`.
class Engine {
 public:
  Engine(StorePort& store, GuardOptions options);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  ~Engine();

  [[nodiscard]] RunOutcome run(Operation operation, HandlerPort& handler);
  [[nodiscard]] BegunRuns begin_many(std::vector<Operation> operations);
  [[nodiscard]] RunOutcome run_in_transaction(Operation operation, TransactionPort& transaction,
                                              HandlerPort& handler);

  [[nodiscard]] Policy policy_of(const Operation& operation) const;

  struct Parts;

 private:
  Parts* parts_;
};

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
