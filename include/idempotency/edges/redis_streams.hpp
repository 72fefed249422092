#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <stop_token>
#include <string>

#include "idempotency/edges/consumer_message.hpp"
#include "idempotency/stores/redis.hpp"

namespace idempotency {
inline namespace v0 {

/// How a `RedisStreamConsumer` is set up.
struct RedisStreamOptions {
  RedisOptions server = {};
  std::string stream = {};
  /// Made when it is not there, together with the stream.
  std::string group = {};
  /// Where a group that is made begins: "0" with all that the stream holds, "$" with what comes from now on.
  std::string group_start = "0";
  /// One name for each consumer that runs. Empty: one that nobody else has.
  std::string consumer = {};
  /// The field whose value becomes `ReceivedMessage::body`. All fields are its headers.
  std::string body_field = "body";
  /// Where messages go that are put aside. Empty: the stream's name and ":dead". In a cluster both names need the same hash tag.
  std::string dead_letter_stream = {};
  /// A message that a consumer has had for longer than this, without settling it, is given to another; no delay of a disposition lasts
  /// longer. Make it longer than handlers take. At least 1 ms.
  std::chrono::milliseconds redelivery_idle{std::chrono::minutes{1}};
  /// How long a round waits for messages, and so how long `run` takes to stop. At least 1 ms.
  std::chrono::milliseconds block{1'000};
  /// How many messages are fetched at once. At least 1.
  std::size_t batch = 16;
};

namespace detail {
class RedisStreamImpl;
}  // namespace detail

/// A consumer group on a Redis stream (Redis 6.2 or newer): new messages with XREADGROUP, and with XAUTOCLAIM those that a dead
/// consumer left and those whose delay is over.
///
/// Acknowledged: XACK. Redelivered and requeued: the message stays pending and its idle time is set so that it reaches
/// `redelivery_idle` when the delay is over. Dead letter: one script adds the message with the reason to the dead-letter stream and
/// acknowledges it. `delivery_count` is the group's own count.
///
/// A message that is with a slow handler may be given to another consumer; the record answers `in_progress` there.
///
/// Errors of the members: codes of a store's, said of the broker. When made, `Errc::invalid_argument` for unusable options.
/// Thread safety: none; one thread uses it. Any number may work for one group.
/// Lifetime: not to be used in a child of `fork()`.
///
/// Example: see `examples/17_redis_stream_consumer.cpp`.
class RedisStreamConsumer {
 public:
  explicit RedisStreamConsumer(RedisStreamOptions options);
  RedisStreamConsumer(const RedisStreamConsumer&) = delete;
  RedisStreamConsumer& operator=(const RedisStreamConsumer&) = delete;
  /// What was fetched and not handled stays pending.
  ~RedisStreamConsumer();

  /// One round: fetches up to a batch, waiting for the first message for `block` at most, hands each over and settles it.
  ///
  /// Errors: `Errc::store_unavailable`, `store_reply_lost` when the connection broke: what was not settled comes again, and the next
  /// round connects anew. `Errc::store_refused` for rights, and a key that holds no stream.
  PolledMessages poll(const MessageCallback& handle);
  /// The same, with all messages of the round handed over together, up to `batch`: mostly to `IdempotentConsumer::handle_batch`. What the
  /// callback does not settle is delivered again.
  PolledMessages poll_batch(const MessageBatchCallback& handle);
  /// Rounds until `stop`, or until a disposition says `MessageFlow::stop`. Waits for a broker that cannot be reached.
  ///
  /// Errors: those of `poll` that are not safe to retry.
  ConsumeEnd run(const std::stop_token& stop, const MessageCallback& handle);
  /// The same with `poll_batch`.
  ConsumeEnd run_batches(const std::stop_token& stop, const MessageBatchCallback& handle);

  /// The name that this consumer has in its group.
  [[nodiscard]] const std::string& name() const noexcept;

 private:
  std::unique_ptr<detail::RedisStreamImpl> impl_;
};

}  // namespace v0
}  // namespace idempotency
