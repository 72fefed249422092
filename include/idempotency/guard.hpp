#pragma once

#include <concepts>
#include <optional>
#include <type_traits>
#include <utility>

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
  auto run(Operation operation, Fn&& handler)
      -> RunResult<std::remove_reference_t<detail::HandlerResult<Fn, Execution&>>> {
    return run(std::move(operation), std::forward<Fn>(handler), detail::AlwaysSuccess{});
  }

  /// The same, for handlers that return failures: `classifier(const Result&)` gives the `Disposition` of what
  /// was returned. A classifier must not throw.
  template <class Fn, class ResultClassifier>
  auto run(Operation operation, Fn&& handler, ResultClassifier&& classifier)
      -> RunResult<std::remove_reference_t<detail::HandlerResult<Fn, Execution&>>> {
    using Result = detail::HandlerResult<Fn, Execution&>;
    if constexpr (Store<StoreT> && detail::check_result<Result>()) {
      constexpr bool takes_execution = std::invocable<Fn&, Execution&>;
      auto call = [&](Execution& execution) -> Result {
        if constexpr (takes_execution) {
          return handler(execution);
        } else {
          return handler();
        }
      };
      detail::HandlerPortOf<Result, decltype(call), std::remove_reference_t<ResultClassifier>> port(
          call, classifier, takes_execution);
      detail::RunOutcome outcome = engine_.run(std::move(operation), port);
      return detail::to_result<Result>(std::move(outcome), port.value());
    } else {
      return RunResult<std::remove_reference_t<Result>>({}, std::nullopt);
    }
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
