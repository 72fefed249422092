#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "idempotency/error.hpp"
#include "idempotency/observer.hpp"

namespace idempotency {
inline namespace v0 {

/// A message as a broker's adapter hands it over. Key resolvers read it: `header("order-id")`, `json_pointer("/order/id")`,
/// `&ReceivedMessage::key`.
struct ReceivedMessage {
  /// The broker's own name for it, or the producer's message id. It changes when a message is sent again, so it is no key.
  std::string id = {};
  /// What the producer said the message is about: Kafka's key, RabbitMQ's routing key. Empty where there is none.
  std::string key = {};
  std::string body = {};
  std::vector<std::pair<std::string, std::string>> headers = {};
  /// Which delivery of this message this is, as far as the broker knows; at least 1.
  std::uint32_t delivery_count = 1;
  /// Queue, stream or topic.
  std::string source = {};
};

/// What the broker is to do with a message that was handed over.
enum class MessageAction : std::uint8_t {
  acknowledge,      ///< it is settled: never deliver it again
  redeliver_later,  ///< nothing was tried for this delivery: deliver it again after the delay
  requeue,          ///< an attempt failed without effect: deliver it again after the delay
  dead_letter,      ///< put it aside with the reason for somebody to look at
};
/// The enumerator's name, for logs and metrics.
[[nodiscard]] std::string_view to_string(MessageAction action) noexcept;

/// Why a message got its action.
enum class MessageReason : std::uint8_t {
  done,               ///< ran now, with success
  done_unrecorded,    ///< ran now with success, but the store has not confirmed the record yet
  done_unprotected,   ///< ran now without a record, because the policy allows it
  done_before,        ///< a duplicate of a finished message
  failed_for_good,    ///< ran now and failed for good
  failed_before,      ///< a duplicate of a message that failed for good
  running_elsewhere,  ///< another delivery of it is being handled
  handler_failed,     ///< the handler failed, without effect as far as is known
  out_of_attempts,    ///< it failed, or was delivered, too often
  uncertain,          ///< the effect may have happened; somebody has to settle the record
  mismatch,           ///< the key belongs to a message of another meaning
  no_key,             ///< the message holds no usable key or fingerprint
  unreadable_record,  ///< the record or its result cannot be read
  lease_lost,         ///< the lease was lost on the way; another delivery tells what became of it
  store_failed,       ///< the store could not be asked or did not confirm
  refused,            ///< the set-up is wrong: rights, schema, policy, retention
};
inline constexpr std::size_t message_reasons = 16;
/// The enumerator's name, for logs and metrics.
[[nodiscard]] std::string_view to_string(MessageReason reason) noexcept;

/// Whether it makes sense to hand over the next message.
enum class MessageFlow : std::uint8_t {
  proceed,
  stop,  ///< every message would meet the same: an operator has to mend the set-up first
};

/// What is to become of one delivery of a message.
///
/// Thread safety: a value.
struct MessageDisposition {
  static constexpr std::size_t max_detail_bytes = 4096;

  MessageAction action = MessageAction::acknowledge;
  MessageReason reason = MessageReason::done;
  MessageFlow flow = MessageFlow::proceed;
  /// For `redeliver_later` and `requeue`: how long the message should stay away; zero otherwise.
  std::chrono::milliseconds delay{0};
  /// How the run ended; nothing when the handler or the store threw, or when it did not come to a run.
  std::optional<RunStatus> status = std::nullopt;
  /// The code of the library's error; nothing when there was none.
  std::optional<Errc> error = std::nullopt;
  /// How often the message was tried or delivered, whichever is more.
  std::uint32_t attempts = 1;
  /// The business key and what an exception said. May hold personal data: for protected logs and dead-letter queues only.
  /// At most `max_detail_bytes` where a consumer has made it.
  std::string detail = {};
};

/// What an adapter calls with each message: mostly `consumer.handle(message, handler)`.
///
/// Preconditions: throws nothing. An adapter that meets an exception leaves the message with the broker and lets it pass.
using MessageCallback = std::function<MessageDisposition(const ReceivedMessage&)>;

/// Messages that an adapter hands over together, in the order in which it got them.
///
/// Thread safety: none; it belongs to the thread that it is handed to. Lifetime: the callback's.
class MessageBatch {
 public:
  MessageBatch() = default;
  MessageBatch(const MessageBatch&) = delete;
  MessageBatch& operator=(const MessageBatch&) = delete;
  virtual ~MessageBatch() = default;

  [[nodiscard]] virtual const std::vector<ReceivedMessage>& messages() const noexcept = 0;
  /// False while a message before it is not settled, or has to be handled again first, where the broker keeps an order; when the adapter is to
  /// stop; and for what has been settled.
  [[nodiscard]] virtual bool may_be_handled(std::size_t place) const noexcept = 0;
  /// Whether it was in a batch of this adapter's before and did not get its turn.
  [[nodiscard]] virtual bool was_passed_over(std::size_t /*place*/) const noexcept { return false; }
  /// Tells the broker what is to become of one message. Errors: those of the adapter's `poll`.
  virtual void settle(std::size_t place, const MessageDisposition& disposition) = 0;
};

/// What an adapter calls with each batch: mostly `consumer.handle_batch(batch, handler)`. What it does not settle is delivered again.
using MessageBatchCallback = std::function<void(MessageBatch&)>;

/// What one round of an adapter has done.
struct PolledMessages {
  std::size_t handled = 0;  ///< handed to the callback and settled with the broker
  MessageFlow flow = MessageFlow::proceed;
};

/// Why an adapter's `run` has returned.
enum class ConsumeEnd : std::uint8_t {
  stop_requested,  ///< the stop token said so
  refused,         ///< a disposition said `MessageFlow::stop`; the message stays with the broker
};
[[nodiscard]] std::string_view to_string(ConsumeEnd end) noexcept;

}  // namespace v0
}  // namespace idempotency
