#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "idempotency/edges/consumer_message.hpp"
#include "idempotency/operation.hpp"
#include "idempotency/policy.hpp"

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

}  // namespace v0
}  // namespace idempotency
