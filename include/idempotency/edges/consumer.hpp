#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "idempotency/detail/handler.hpp"
#include "idempotency/edges/consumer_message.hpp"
#include "idempotency/execution.hpp"
#include "idempotency/key_resolver.hpp"
#include "idempotency/operation.hpp"
#include "idempotency/policy.hpp"
#include "idempotency/run_result.hpp"

namespace idempotency {
inline namespace v0 {

/// What a consumer does with a message that failed for good.
enum class PermanentFailureAction : std::uint8_t {
  acknowledge,  ///< the record keeps the reason; the message is done with
  dead_letter,  ///< somebody wants to see it
};

/// Hears what became of every delivery.
///
/// Thread safety: the hook is called concurrently, on the thread that handles the message.
/// Lifetime: must outlive the consumer that it is given to.
class MessageObserver {
 public:
  MessageObserver() = default;
  MessageObserver(const MessageObserver&) = delete;
  MessageObserver& operator=(const MessageObserver&) = delete;
  virtual ~MessageObserver() = default;

  /// `id`: the message's, as its trace has it.
  virtual void on_message(std::string_view /*id*/,
                          const MessageDisposition& /*disposition*/) noexcept {}
};

/// How an `IdempotentConsumer` works.
struct ConsumerOptions {
  /// A message that failed this often, or was delivered this often when it failed, is dead-lettered. At least 1.
  std::uint32_t max_attempts = 10;
  /// A message that is not finished is not tried any more after this many deliveries: what ends a message that kills its
  /// consumer each time where the record cannot count (in a transaction). At least `max_attempts`.
  std::uint32_t max_deliveries = 1'000;
  /// The most that the first delay lasts; doubles with each attempt. At least 1 ms.
  std::chrono::milliseconds first_delay{1'000};
  /// No delay of the consumer's own choosing is longer. At least `first_delay`.
  std::chrono::milliseconds longest_delay{std::chrono::minutes{5}};
  PermanentFailureAction on_permanent_failure = PermanentFailureAction::acknowledge;
  /// How long after its first delivery the broker may deliver a message again: its own retention, or the longest outage that is to be
  /// survived. Records must answer longer, which is checked before a handler runs. What the delays above add up
  /// to is the least.
  std::chrono::milliseconds redelivery_span{0};
  /// Of all messages; see `Operation`.
  PolicyOverride policy = {};
  /// May be null.
  MessageObserver* observer = nullptr;
};

/// How many deliveries ended in which way since the consumer was made.
struct ConsumerCounts {
  std::uint64_t acknowledged = 0;
  std::uint64_t redelivered = 0;
  std::uint64_t requeued = 0;
  std::uint64_t dead_lettered = 0;
  std::array<std::uint64_t, message_reasons> by_reason = {};

  [[nodiscard]] std::uint64_t of(MessageReason reason) const noexcept {
    return by_reason[static_cast<std::size_t>(reason)];
  }
};

namespace detail {

/// What is known of one delivery while it is handled.
struct DeliveryState {
  enum class Stage : std::uint8_t { resolving, checking, asked, in_handler, handler_returned };
  /// What an exception that says nothing itself means when it comes out of the handler.
  enum class Silence : std::uint8_t { no_effect, unknown_effect };

  std::string_view id = {};
  std::uint32_t deliveries = 1;
  std::uint32_t attempt = 0;  ///< of the record; 0 where it does not count
  Stage stage = Stage::resolving;
  Silence silence = Silence::no_effect;
  Classifier classify = nullptr;
  std::string key = {};
  std::optional<Disposition> returned = std::nullopt;  ///< what the classifier said of a result
};

/// What does not depend on guard, resolver and message.
class ConsumerCore {
 public:
  explicit ConsumerCore(const ConsumerOptions& options);

  /// Errors: `Errc::invalid_policy` when the policy forgets a message sooner than it can come again.
  void check_retention(const Policy& policy) const;
  /// Throws when the message has been tried too often to try once more.
  void check_attempts(const DeliveryState& delivery) const;

  struct Ended {
    RunStatus status = RunStatus::executed;
    std::chrono::milliseconds retry_after{0};
    std::string_view failure = {};
  };
  [[nodiscard]] MessageDisposition judge(const DeliveryState& delivery, const Ended& ended);
  /// Within a handler of an exception; lets a cancelled thread's unwinding pass.
  [[nodiscard]] MessageDisposition judge_exception(const DeliveryState& delivery);
  [[nodiscard]] ConsumerCounts counts() const noexcept;
  [[nodiscard]] const ConsumerOptions& options() const noexcept { return options_; }
  /// The most that a delay lasts after so many attempts.
  [[nodiscard]] std::chrono::milliseconds delay_bound(std::uint32_t attempts) const noexcept;

 private:
  [[nodiscard]] MessageDisposition judge_error(const DeliveryState& delivery, const Error& error);
  [[nodiscard]] MessageDisposition judge_failure(const DeliveryState& delivery,
                                                 Disposition disposition);
  [[nodiscard]] MessageDisposition later(const DeliveryState& delivery, MessageReason reason) const;
  void tell(std::string_view id, const MessageDisposition& disposition) noexcept;

  ConsumerOptions options_;
  std::array<std::atomic<std::uint64_t>, 4> by_action_{};
  std::array<std::atomic<std::uint64_t>, message_reasons> by_reason_{};
};

}  // namespace detail

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
      return run(std::move(operation), delivery, message, handler, classifier);
    });
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
    try {
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
      const auto result = run_it(std::move(operation), delivery);
      return core_.judge(delivery, {result.status(), result.retry_after(), result.failure()});
    } catch (...) {
      return core_.judge_exception(delivery);
    }
  }

  template <class Message, class Handler, class ResultClassifier>
  auto run(Operation operation, detail::DeliveryState& delivery, const Message& message,
           Handler& handler, ResultClassifier& classifier) {
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
      return guard_->run(std::move(operation), with_execution, judge);
    } else {
      static_assert(std::invocable<Handler&, const Message&>,
                    "idempotency: the handler of a message must be callable with (const Message&) "
                    "or (const Message&, Execution&).");
      // Under `hold` the guard takes an exception of a handler without Execution& for an unknown effect, so it must not see one
      // that the handler did not ask for; under `take_over` it makes no difference.
      if (delivery.silence == Silence::no_effect) {
        return guard_->run(std::move(operation), with_execution, judge);
      }
      return guard_->run(
          std::move(operation), [&] { return called(delivery, [&] { return handler(message); }); },
          judge);
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
