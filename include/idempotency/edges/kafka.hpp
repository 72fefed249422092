#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "idempotency/edges/consumer_message.hpp"

namespace idempotency {
inline namespace v0 {

/// How a `KafkaConsumer` is set up.
struct KafkaOptions {
  /// host:port of some brokers, with ',' between them.
  std::string brokers = {};
  std::string group = {};
  std::vector<std::string> topics = {};
  /// Where messages go that are put aside. Empty: the name of the topic that they come from and ".dead".
  std::string dead_letter_topic = {};
  /// How long a round waits for messages, and so how long `run` takes to stop. At least 1 ms.
  std::chrono::milliseconds wait{1'000};
  /// How many messages a round hands over before it commits. At least 1.
  std::size_t batch = 64;
  /// How long brokers may take to confirm a dead letter. At least 1 ms.
  std::chrono::milliseconds produce_timeout{10'000};
  /// More properties of librdkafka's, by its names: security, session.timeout.ms, partition.assignment.strategy. Those that decide what is
  /// committed are refused.
  std::vector<std::pair<std::string, std::string>> settings = {};
};

namespace detail {
class KafkaImpl;
}  // namespace detail

/// A member of a Kafka consumer group.
///
/// What is committed of a partition is always a prefix whose messages are all settled. Acknowledged: the next offset is committed at the end of
/// the round. Redelivered and requeued: the partition is paused and the message handed over again after its delay, from memory; other
/// partitions go on. Dead letter: produced to the dead-letter topic with the reason in headers, and the offset moves on only when the
/// brokers have confirmed it.
///
/// A partition may be taken away in the middle of a handler: nothing more is committed for it, the new owner gets the message again,
/// and the record answers. `key` is the message's key, `id` is `topic/partition/offset`. Kafka counts no deliveries:
/// `delivery_count` counts those of this process.
///
/// A handler that takes longer than `max.poll.interval.ms` (5 minutes) costs the membership.
///
/// Errors of the members: codes of a store's, said of the broker. When made, `Errc::invalid_argument` for unusable options.
/// Thread safety: none; one thread uses it. Any number may work for one group.
/// Lifetime: not to be used in a child of `fork()`.
///
/// Example: see `docs/consumers.md`.
class KafkaConsumer {
 public:
  explicit KafkaConsumer(KafkaOptions options);
  KafkaConsumer(const KafkaConsumer&) = delete;
  KafkaConsumer& operator=(const KafkaConsumer&) = delete;
  /// Leaves the group. Where its brokers cannot be reached that ends after 10 s: what was not committed is delivered again.
  ~KafkaConsumer();

  /// One round: hands over what is due again and what the brokers have, waiting for the first message for `wait` at most.
  ///
  /// Errors: `Errc::store_unavailable` when a dead letter was not confirmed, for topics that are not there yet; librdkafka itself reconnects to brokers.
  /// `Errc::store_refused` for rights, credentials and fatal errors.
  PolledMessages poll(const MessageCallback& handle);
  /// The same, with all messages of the round handed over together, up to `batch`: mostly to `IdempotentConsumer::handle_batch`. What the
  /// callback does not settle is delivered again.
  PolledMessages poll_batch(const MessageBatchCallback& handle);
  /// Rounds until `stop`, or until a disposition says `MessageFlow::stop`; then leaves the group.
  ///
  /// Errors: those of `poll` that are not safe to retry.
  ConsumeEnd run(const std::stop_token& stop, const MessageCallback& handle);
  /// The same with `poll_batch`.
  ConsumeEnd run_batches(const std::stop_token& stop, const MessageBatchCallback& handle);

 private:
  std::unique_ptr<detail::KafkaImpl> impl_;
};

}  // namespace v0
}  // namespace idempotency
