#pragma once

#include <concepts>
#include <cstddef>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_set>
#include <utility>
#include <vector>

#include "idempotency/detail/consumer_core.hpp"
#include "idempotency/detail/handler.hpp"
#include "idempotency/edges/consumer_message.hpp"
#include "idempotency/edges/consumer_options.hpp"
#include "idempotency/execution.hpp"
#include "idempotency/key_resolver.hpp"
#include "idempotency/operation.hpp"
#include "idempotency/policy.hpp"
#include "idempotency/run_result.hpp"

namespace idempotency {
inline namespace v0 {

/// Runs a handler once for each message, however often a broker delivers it, and says what the broker is to do.
///
/// The key is the business key that `resolver` finds in the message, so that a message that was sent twice by its producer is one, too;
/// the message's own id goes into the record's trace. `docs/consumers.md` has the table of dispositions.
///
/// `handler` takes `(const Message&)` or `(const Message&, Execution&)` and returns nothing, or a value with a `Codec`. What it
/// throws is judged as the guard judges it and does not come out of `handle`.
///
/// Message: any type that the resolver reads. Its members `id` (text) and `delivery_count` (a number) are used where it has them.
///
/// Errors: when made, `Errc::invalid_argument` for options that contradict each other. `handle` throws nothing but the unwinding of a
/// cancelled thread.
/// Thread safety: all members may be called concurrently.
/// Lifetime: borrows the guard, which must outlive it.
///
/// Example: `IdempotentConsumer consumer{guard, key_of("order", json_pointer("/order/id"))};`
template <class Guard, class Resolver>
class IdempotentConsumer {
 public:
  IdempotentConsumer(Guard& guard, Resolver resolver, const ConsumerOptions& options = {})
      : guard_(&guard), resolver_(std::move(resolver)), core_(options) {}
  IdempotentConsumer(const IdempotentConsumer&) = delete;
  IdempotentConsumer& operator=(const IdempotentConsumer&) = delete;

  /// Handles one delivery.
  template <class Message, class Handler>
  [[nodiscard]] MessageDisposition handle(const Message& message, Handler&& handler) {
    return handle(message, std::forward<Handler>(handler), detail::AlwaysSuccess{});
  }
  /// The same for handlers that return failures: `classifier(const Result&)` gives the `Disposition` of what was returned.
  template <class Message, class Handler, class ResultClassifier>
  [[nodiscard]] MessageDisposition handle(const Message& message, Handler&& handler,
                                          ResultClassifier&& classifier) {
    return guarded(message, [&](Operation operation, detail::DeliveryState& delivery) {
      return run(delivery, message, handler, classifier, [&](auto&& call, auto&& judge) {
        return guard_->run(std::move(operation), call, judge);
      });
    });
  }

  /// Handles a batch of an adapter's, one message after the other, and settles each as soon as it is handled. Their records are
  /// begun in one exchange where the store can do that, so that finished duplicates cost nothing more; see
  /// `IdempotencyGuard::begin_many`. A message that was delivered before is begun at its turn. Where a broker counts no
  /// deliveries and its consumers keep dying, being begun counts as an attempt, and `max_deliveries` is the limit instead of `max_attempts`.
  /// Ends early behind a disposition that says `MessageFlow::stop`.
  ///
  /// Errors: those of `MessageBatch::settle`.
  template <class Handler>
  void handle_batch(MessageBatch& batch, Handler&& handler) {
    handle_each(
        batch.messages(), handler, [&](std::size_t place) { return batch.may_be_handled(place); },
        [&](std::size_t place) { return batch.was_passed_over(place); },
        [&](std::size_t place, const MessageDisposition& disposition) {
          batch.settle(place, disposition);
        });
  }
  /// The same for messages that come from elsewhere: a disposition for each, in their order. Behind one that says
  /// `MessageFlow::stop` none is handled, and all are to be delivered again.
  template <class Messages, class Handler>
    requires(!std::derived_from<Messages, MessageBatch>)
  [[nodiscard]] std::vector<MessageDisposition> handle_batch(const Messages& messages,
                                                             Handler&& handler) {
    const MessageDisposition untouched{.action = MessageAction::redeliver_later,
                                       .reason = MessageReason::refused,
                                       .flow = MessageFlow::stop,
                                       .delay = core_.options().first_delay};
    std::vector<MessageDisposition> dispositions(
        static_cast<std::size_t>(std::distance(std::begin(messages), std::end(messages))),
        untouched);
    handle_each(
        messages, handler, [](std::size_t) { return true; }, [](std::size_t) { return false; },
        [&](std::size_t place, const MessageDisposition& disposition) {
          dispositions[place] = disposition;
        });
    return dispositions;
  }

  /// Handles one delivery in a transaction of the guard's store: what the handler does on that database and the record are
  /// committed together. `handler` takes `(const Message&, StoreT::Transaction&)`; see `run_in_transaction`.
  template <class Message, class Handler>
  [[nodiscard]] MessageDisposition handle_in_transaction(const Message& message,
                                                         Handler&& handler) {
    return guarded(message, [&](Operation operation, detail::DeliveryState& delivery) {
      delivery.silence = Silence::no_effect;  // it is rolled back
      return guard_->run_in_transaction(
          std::move(operation), [&]<class Transaction>(Transaction& transaction) {
            return called(delivery, [&] { return handler(message, transaction); });
          });
    });
  }

  /// Asks before the first message whether records of this business type answer for as long as its messages may come again.
  ///
  /// Errors: `Errc::invalid_policy` when they do not; `Errc::invalid_key` for no business type.
  void check_retention(std::string_view type) const {
    core_.check_retention(
        guard_->policy_of({.key = Key(type, "check"), .policy = core_.options().policy}));
  }

  [[nodiscard]] ConsumerCounts counts() const noexcept { return core_.counts(); }

 private:
  using Stage = detail::DeliveryState::Stage;
  using Silence = detail::DeliveryState::Silence;

  template <class Message, class Run>
  MessageDisposition guarded(const Message& message, Run run_it) {
    detail::DeliveryState delivery = state_of(message);
    return judged(delivery, [&] { return run_it(operation_of(message, delivery), delivery); });
  }

  /// What becomes of a delivery, from how its run ended.
  template <class Run>
  MessageDisposition judged(const detail::DeliveryState& delivery, Run run_it) {
    try {
      const auto result = run_it();
      return core_.judge(delivery, {result.status(), result.retry_after(), result.failure()});
    } catch (...) {
      return core_.judge_exception(delivery);
    }
  }

  /// What is asked of the guard for a message. Errors: those of key resolvers and policies.
  template <class Message>
  Operation operation_of(const Message& message, detail::DeliveryState& delivery) {
    Operation operation{.key = resolver_.key(message),
                        .fingerprint = resolver_.fingerprint(message),
                        .trace = std::string(delivery.id),
                        .policy = core_.options().policy};
    delivery.key = operation.key.text();
    delivery.stage = Stage::checking;
    const Policy policy = guard_->policy_of(operation);
    core_.check_retention(policy);
    delivery.classify = policy.classify;
    if (policy.on_expired_lease == RecordMode::hold) delivery.silence = Silence::unknown_effect;
    delivery.stage = Stage::asked;
    return operation;
  }

  /// A message of a batch before its turn.
  struct Waiting {
    detail::DeliveryState delivery;
    std::optional<Operation> alone = std::nullopt;  ///< begun at its turn
    std::size_t place = 0;  ///< otherwise: among the runs that were begun ahead
    std::optional<MessageDisposition> disposition = std::nullopt;
  };

  /// Begins ahead what may be: what comes again may stand behind one that ended the process and is begun at its turn, so that
  /// waiting counts as no try; and so is a second message of the same key, which would stand in the way of the first.
  template <class Messages, class WasPassedOver>
  std::vector<Operation> sort_out(const Messages& messages, WasPassedOver was_passed_over,
                                  std::vector<Waiting>& waiting) {
    std::vector<Operation> ahead;
    std::unordered_set<std::string> keys;
    for (const auto& message : messages) {
      Waiting& one = waiting.emplace_back(Waiting{.delivery = state_of(message)});
      try {
        Operation operation = operation_of(message, one.delivery);
        const bool is_new = keys.insert(one.delivery.key).second;
        if (!is_new || one.delivery.deliveries > 1 || was_passed_over(waiting.size() - 1)) {
          one.alone = std::move(operation);
          one.delivery.waits = 1;
          continue;
        }
        one.place = ahead.size();
        ahead.push_back(std::move(operation));
        one.delivery.begun_ahead = true;
      } catch (...) {
        one.disposition = core_.judge_exception(one.delivery);
      }
    }
    return ahead;
  }

  template <class Messages, class Handler, class MayBeHandled, class WasPassedOver, class Settle>
  void handle_each(const Messages& messages, Handler& handler, MayBeHandled may_be_handled,
                   WasPassedOver was_passed_over, Settle settle) {
    std::vector<Waiting> waiting;
    std::vector<Operation> ahead = sort_out(messages, was_passed_over, waiting);
    const auto begin = [&] { return guard_->begin_many(std::move(ahead)); };
    std::optional<decltype(begin())> runs;
    try {
      runs.emplace(begin());
    } catch (...) {
      for (Waiting& one : waiting) {
        if (one.delivery.begun_ahead) one.disposition = core_.judge_exception(one.delivery);
      }
    }
    const detail::AlwaysSuccess classifier;
    std::size_t at = 0;
    for (const auto& message : messages) {
      const std::size_t place = at++;
      if (!may_be_handled(place)) continue;
      Waiting& one = waiting[place];
      if (!one.disposition) {
        one.disposition = judged(one.delivery, [&] {
          return run(one.delivery, message, handler, classifier, [&](auto&& call, auto&& judge) {
            return one.alone ? guard_->run(*std::move(one.alone), call, judge)
                             : runs->run(one.place, call, judge);
          });
        });
      }
      settle(place, *one.disposition);
      if (one.disposition->flow == MessageFlow::stop) return;
    }
  }

  /// Makes the call of the guard's and the judge of its results, and gives both to `start`.
  template <class Message, class Handler, class ResultClassifier, class Start>
  auto run(detail::DeliveryState& delivery, const Message& message, Handler& handler,
           ResultClassifier& classifier, Start start) {
    const auto judge = [&](const auto& result) {
      const Disposition judged = std::as_const(classifier)(result);
      delivery.returned = judged;
      return judged;
    };
    const auto with_execution = [&](Execution& execution) {
      delivery.attempt = execution.attempt();
      return called(delivery, [&] {
        if constexpr (std::invocable<Handler&, const Message&, Execution&>) {
          return handler(message, execution);
        } else {
          return handler(message);
        }
      });
    };
    if constexpr (std::invocable<Handler&, const Message&, Execution&>) {
      delivery.silence = Silence::no_effect;  // it can say where its effect begins
      return start(with_execution, judge);
    } else {
      static_assert(std::invocable<Handler&, const Message&>,
                    "idempotency: the handler of a message must be callable with (const Message&) "
                    "or (const Message&, Execution&).");
      // Under `hold` the guard takes an exception of a handler without Execution& for an unknown effect, so it must not see one
      // that the handler did not ask for; under `take_over` it makes no difference.
      if (delivery.silence == Silence::no_effect) return start(with_execution, judge);
      return start([&] { return called(delivery, [&] { return handler(message); }); }, judge);
    }
  }

  /// Calls the handler unless the message has been tried too often, and notes how far it came.
  template <class Call>
  auto called(detail::DeliveryState& delivery, Call call) -> decltype(call()) {
    core_.check_attempts(delivery);
    delivery.stage = Stage::in_handler;
    if constexpr (std::is_void_v<decltype(call())>) {
      call();
      delivery.stage = Stage::handler_returned;
    } else {
      auto result = call();
      delivery.stage = Stage::handler_returned;
      return result;
    }
  }

  template <class Message>
  static detail::DeliveryState state_of(const Message& message) {
    detail::DeliveryState delivery;
    if constexpr (requires { std::string_view(message.id); }) delivery.id = message.id;
    if constexpr (requires { static_cast<std::uint32_t>(message.delivery_count); }) {
      delivery.deliveries = static_cast<std::uint32_t>(message.delivery_count);
    }
    return delivery;
  }

  Guard* guard_;
  Resolver resolver_;
  detail::ConsumerCore core_;
};

template <class Guard, class Resolver>
IdempotentConsumer(Guard&, Resolver) -> IdempotentConsumer<Guard, Resolver>;
template <class Guard, class Resolver>
IdempotentConsumer(Guard&, Resolver, const ConsumerOptions&) -> IdempotentConsumer<Guard, Resolver>;

}  // namespace v0
}  // namespace idempotency
