#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>

#include "idempotency/edges/consumer_message.hpp"

namespace idempotency {
inline namespace v0 {

/// What becomes of the queue itself when a consumer connects.
enum class RabbitMqQueue : std::uint8_t {
  existing,          ///< it is there; `Errc::store_refused` otherwise
  declared_classic,  ///< made, durable, when it is not there
  declared_quorum,   ///< the same as a quorum queue
};

/// Whether the connections to the server are encrypted.
enum class RabbitMqEncryption : std::uint8_t {
  off,
  tls,  ///< TLS 1.2 or newer, mostly on port 5671; the server's certificate and the name in it are always checked
};

/// What an encrypted connection trusts and shows: names of PEM files, read for each new connection.
struct RabbitMqTls {
  /// The authorities that are trusted. Empty: those of the system.
  std::string ca_file = {};
  /// Our own certificate, with those between it and its authority, for servers that ask for one. It is no login: name and password are needed
  /// as without it.
  std::string certificate_file = {};
  /// Its key, without a passphrase.
  std::string key_file = {};
  /// Whom the server's certificate is for. Empty: the host.
  std::string server_name = {};
};

/// How a `RabbitMqConsumer` is set up.
struct RabbitMqOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 5672;
  std::string username = "guest";
  std::string password = "guest";
  std::string virtual_host = "/";
  std::string queue = {};
  RabbitMqQueue declare = RabbitMqQueue::declared_classic;
  /// Where messages go that are put aside; made when it is not there. Empty: the queue's name and ".dead".
  std::string dead_letter_queue = {};
  /// How many messages the server hands out before the first of them is settled. At least 1.
  std::uint16_t prefetch = 16;
  /// Delays are rounded up to this times a power of two, because each length has a queue of its own, named after the queue, ".retry." and the
  /// milliseconds. At least 1 ms.
  std::chrono::milliseconds retry_step{1'000};
  /// How long a round waits for messages, and so how long `run` takes to stop. At least 1 ms.
  std::chrono::milliseconds wait{1'000};
  /// How long connecting may take, and encrypting the connection.
  std::chrono::milliseconds connect_timeout{2'000};
  /// How long the server may take to answer, also to confirm a message that was published.
  std::chrono::milliseconds reply_timeout{5'000};
  /// 0: none. They are sent between messages only, so that a longer one must be longer than two handlers take.
  std::chrono::seconds heartbeat{0};
  RabbitMqEncryption encryption = RabbitMqEncryption::off;
  RabbitMqTls tls = {};
};

namespace detail {
class RabbitMqImpl;
}  // namespace detail

/// A consumer of one RabbitMQ queue (3.8 or newer), with manual acknowledgements.
///
/// Acknowledged: basic.ack. Redelivered and requeued: a copy is published to a queue whose messages return to the first one when
/// their time is over (a TTL and a dead-letter exchange), and the original is acknowledged when the server has confirmed the copy. Dead
/// letter: the same to the dead-letter queue, with the reason in headers. Copies are persistent; they leave out what would send them
/// elsewhere or let them vanish: expiration, user id, CC, BCC and x-death.
///
/// `key` is the routing key that the producer used, also in a copy; `id` the message id. `delivery_count` counts copies, the
/// `redelivered` flag, and on quorum queues the server's x-delivery-count.
///
/// When the connection breaks in the middle of a handler, the server delivers the message again, and the record answers.
///
/// Errors of the members: codes of a store's, said of the broker. When made, `Errc::invalid_argument` for unusable options.
/// Thread safety: none; one thread uses it. Any number may work on one queue.
/// Lifetime: not to be used in a child of `fork()`.
///
/// Example: see `docs/consumers.md`.
class RabbitMqConsumer {
 public:
  explicit RabbitMqConsumer(RabbitMqOptions options);
  RabbitMqConsumer(const RabbitMqConsumer&) = delete;
  RabbitMqConsumer& operator=(const RabbitMqConsumer&) = delete;
  /// What was fetched and not handled goes back to the queue.
  ~RabbitMqConsumer();

  /// One round: waits for the first message for `wait` at most, then hands over what the server has sent, up to `prefetch`.
  ///
  /// Errors: `Errc::store_unavailable` or `store_reply_lost` when the connection broke or a copy was not confirmed: what was not settled
  /// comes again, and the next round connects anew. `Errc::store_refused` for credentials, rights and queues that cannot be used,
  /// for a certificate that is not trusted or for another name, and for files of `RabbitMqTls` that cannot be used.
  PolledMessages poll(const MessageCallback& handle);
  /// The same, with all messages of the round handed over together, up to `prefetch`: mostly to `IdempotentConsumer::handle_batch`. What the
  /// callback does not settle is delivered again.
  PolledMessages poll_batch(const MessageBatchCallback& handle);
  /// Rounds until `stop`, or until a disposition says `MessageFlow::stop`; then disconnects. Waits for a broker that cannot be reached.
  ///
  /// Errors: those of `poll` that are not safe to retry.
  ConsumeEnd run(const std::stop_token& stop, const MessageCallback& handle);
  /// The same with `poll_batch`.
  ConsumeEnd run_batches(const std::stop_token& stop, const MessageBatchCallback& handle);

 private:
  std::unique_ptr<detail::RabbitMqImpl> impl_;
};

}  // namespace v0
}  // namespace idempotency
