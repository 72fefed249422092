#pragma once

#include <concepts>
#include <cstddef>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "idempotency/detail/engine.hpp"
#include "idempotency/detail/handler.hpp"
#include "idempotency/detail/ports.hpp"
#include "idempotency/detail/transaction_port_of.hpp"
#include "idempotency/key_resolver.hpp"
#include "idempotency/operation.hpp"
#include "idempotency/run_result.hpp"
#include "idempotency/store.hpp"

namespace idempotency {
inline namespace v0 {

/// Runs that were begun together; see `IdempotencyGuard::begin_many`.
///
/// Thread safety: none; a batch belongs to one thread.
/// Lifetime: ends before its guard. A run that has not had its turn by then does not take place: what it acquired is given back.
class RunBatch {
 public:
  /// How many operations there are. Places are counted from 0, in their order.
  [[nodiscard]] std::size_t size() const noexcept { return runs_.size(); }

  /// The turn of one of them, each once and in any order; otherwise as `IdempotencyGuard::run`.
  ///
  /// Errors: also `Errc::invalid_argument` for a place that is not there or has had its turn.
  template <class Fn>
  auto run(std::size_t place, Fn&& handler) -> detail::RunResultOf<Fn> {
    return run(place, std::forward<Fn>(handler), detail::AlwaysSuccess{});
  }
  template <class Fn, class ResultClassifier>
  auto run(std::size_t place, Fn&& handler, ResultClassifier&& classifier)
      -> detail::RunResultOf<Fn> {
    return detail::run_behind_port(
        handler, classifier, [&](detail::HandlerPort& port) { return runs_.run(place, port); });
  }

 private:
  template <class StoreT>
  friend class IdempotencyGuard;
  explicit RunBatch(detail::BegunRuns runs) noexcept : runs_(std::move(runs)) {}

  detail::BegunRuns runs_;
};

/// Makes handlers take effect once for each key, over one store.
///
/// Errors: `Error` with a store's code when the store cannot be asked (the handler then did not run, unless
/// the policy says `run_unprotected`); `Errc::invalid_policy` for an operation's contradictory wishes;
/// `Errc::codec_mismatch` when the recorded result is of another type. The handler's own exceptions pass through.
/// Thread safety: all members may be called concurrently.
/// Lifetime: borrows the store; store, observer and guard must outlive every call; unusable in a child of `fork()`.
///
/// Example: see `examples/01_quickstart`.
template <class StoreT>
class IdempotencyGuard {
  static_assert(Store<StoreT>,
                "idempotency: the guard needs a Store: a class with begin, complete, fail, doubt, "
                "mark_effect, renew, release (noexcept) and find as in idempotency/store.hpp.");

 public:
  explicit IdempotencyGuard(StoreT& store, GuardOptions options = {})
      : store_(&store), port_(store), engine_(port_, std::move(options)) {}
  explicit IdempotencyGuard(const StoreT&& store, GuardOptions options = {}) = delete;
  IdempotencyGuard(const IdempotencyGuard&) = delete;
  IdempotencyGuard& operator=(const IdempotencyGuard&) = delete;

  /// Runs `handler` unless the operation is finished, running or uncertain; see `RunStatus`.
  ///
  /// `handler` takes nothing or `Execution&` and returns a value with a `Codec`, or nothing.
  template <class Fn>
  auto run(Operation operation, Fn&& handler) -> detail::RunResultOf<Fn> {
    return run(std::move(operation), std::forward<Fn>(handler), detail::AlwaysSuccess{});
  }

  /// The same, for handlers that return failures: `classifier(const Result&)` gives the `Disposition` of what
  /// was returned. A classifier must not throw.
  template <class Fn, class ResultClassifier>
  auto run(Operation operation, Fn&& handler, ResultClassifier&& classifier)
      -> detail::RunResultOf<Fn> {
    if constexpr (Store<StoreT>) {
      return detail::run_behind_port(handler, classifier, [&](detail::HandlerPort& port) {
        return engine_.run(std::move(operation), port);
      });
    } else {
      return detail::RunResultOf<Fn>({}, std::nullopt);
    }
  }

  /// Begins many operations in one exchange with the store, where it is a `BatchBeginStore`; the runs then have their turns one by
  /// one. For batches of messages: duplicates that are finished cost nothing more.
  ///
  /// What is acquired waits for its turn under a lease that is renewed. A run of the same key as one before it in the batch
  /// is asked for again at its turn, and so is what another has in work. Under `hold` a run marks its record before its handler starts (one
  /// exchange more), so that what has not started when the process dies is taken over and not uncertain. When the
  /// store cannot be asked, each run asks for itself.
  ///
  /// Errors: those of one run, an invalid policy as well, are told at its turn.
  /// Lifetime: the batch borrows the guard and must end before it.
  ///
  /// Example: `auto batch = guard.begin_many(operations); auto first = batch.run(0, handler);`
  [[nodiscard]] RunBatch begin_many(std::vector<Operation> operations) {
    return RunBatch(engine_.begin_many(std::move(operations)));
  }

  /// The policy that a run of `operation` would have.
  ///
  /// Errors: `Errc::invalid_policy` for contradictory wishes.
  [[nodiscard]] Policy policy_of(const Operation& operation) const {
    return engine_.policy_of(operation);
  }

  /// A callable that runs `handler(request)`, or `handler(request, Execution&)`, once for each key that `resolver` finds.
  ///
  /// Lifetime: the callable refers to this guard.
  template <class Resolver, class Fn>
  [[nodiscard]] auto wrap(Resolver resolver, Fn handler) {
    return [this, resolver = std::move(resolver),
            handler = std::move(handler)]<class Request>(const Request& request) mutable {
      Operation operation{.key = resolver.key(request),
                          .fingerprint = resolver.fingerprint(request)};
      if constexpr (std::invocable<Fn&, const Request&, Execution&>) {
        return this->run(std::move(operation),
                         [&](Execution& execution) { return handler(request, execution); });
      } else {
        return this->run(std::move(operation), [&] { return handler(request); });
      }
    };
  }

  /// Runs `handler(transaction)` and records its result in the same transaction of the store's: on that database the
  /// effect happens exactly once.
  ///
  /// When the database ends the transaction (conflict, lost connection) nothing was written and the whole is repeated, at
  /// most three times, so `handler` should do nothing but database work. Nothing is renewed or fenced.
  template <class Fn>
  auto run_in_transaction(Operation operation, Fn&& handler) {
    return transact(std::move(operation), handler,
                    []<class Own>(Own& store) { return detail::TransactionPortOf<Own>(store); });
  }

  /// The same on the caller's own connection (`StoreT::Connection`). In a transaction already: the record joins it,
  /// the status is `executed_pending_commit`, and the caller commits or rolls back both.
  template <class Connection, class Fn>
  auto run_in_transaction(Operation operation, Connection connection, Fn&& handler) {
    return transact(std::move(operation), handler, [&]<class Own>(Own& store) {
      return detail::TransactionPortOf<Own>(store, typename Own::Connection(connection));
    });
  }

 private:
  template <class Fn, class MakePort>
  auto transact(Operation operation, Fn& handler, MakePort make_port) {
    static_assert(TransactionalStore<StoreT>,
                  "idempotency: run_in_transaction needs a TransactionalStore, such as SqliteStore "
                  "or MySqlStore; this store's records cannot share the handler's transaction.");
    if constexpr (TransactionalStore<StoreT>) {
      using Transaction = typename StoreT::Transaction;
      using Result = detail::HandlerResult<Fn, Transaction&>;
      if constexpr (detail::check_result<Result>()) {
        auto transaction = make_port(*store_);
        auto call = [&](Execution& /*execution*/) -> Result {
          if constexpr (std::invocable<Fn&, Transaction&>) {
            return handler(transaction.transaction());
          } else {
            return handler();
          }
        };
        const detail::AlwaysSuccess judge;
        detail::HandlerPortOf<Result, decltype(call), const detail::AlwaysSuccess> port(call, judge,
                                                                                        false);
        detail::RunOutcome outcome =
            engine_.run_in_transaction(std::move(operation), transaction, port);
        return detail::to_result<Result>(std::move(outcome), port.value());
      } else {
        return RunResult<std::remove_reference_t<Result>>({}, std::nullopt);
      }
    } else {
      return RunResult<void>({}, std::nullopt);
    }
  }

  StoreT* store_;
  detail::StorePortFor<StoreT> port_;
  detail::Engine engine_;
};

namespace detail {

/// Marks a guard that was given a temporary store, so that our sentence is the only error.
template <class StoreT>
struct Temporary {};

}  // namespace detail

template <class StoreT>
class IdempotencyGuard<detail::Temporary<StoreT>> : public IdempotencyGuard<StoreT> {
  static_assert(sizeof(StoreT) == 0,
                "idempotency: the guard borrows its store, which must outlive it: give the store a "
                "name of its own first.");

 public:
  explicit IdempotencyGuard(const StoreT&& store, GuardOptions options = {})
      : IdempotencyGuard<StoreT>(const_cast<StoreT&>(store), std::move(options)) {}
};

template <class StoreT>
IdempotencyGuard(const StoreT&&, GuardOptions = {}) -> IdempotencyGuard<detail::Temporary<StoreT>>;

}  // namespace v0
}  // namespace idempotency
