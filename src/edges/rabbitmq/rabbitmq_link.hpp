#pragma once

#include <amqp.h>

#include <chrono>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "edges/rabbitmq/rabbitmq_tls.hpp"
#include "idempotency/edges/rabbitmq.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail::rabbitmq {

inline constexpr amqp_channel_t channel = 1;

/// Bytes as rabbitmq-c takes them; it writes nothing through the pointer.
[[nodiscard]] amqp_bytes_t as_bytes(std::string_view text) noexcept;
[[nodiscard]] inline std::string_view as_text(const amqp_bytes_t& bytes) noexcept {
  return {static_cast<const char*>(bytes.bytes), bytes.len};
}
[[nodiscard]] timeval as_timeval(std::chrono::milliseconds span) noexcept;
/// What the client itself says of a reply that is `AMQP_RESPONSE_LIBRARY_EXCEPTION`: an `amqp_status_enum`.
[[nodiscard]] inline int status_of(const amqp_rpc_reply_t& reply) noexcept {
  const auto& [kind, answer, status] = reply;
  return status;
}

/// A connection with one channel: logged in, or not there at all.
///
/// Errors: `Error`, after which it must be thrown away.
class Link {
 public:
  explicit Link(const RabbitMqOptions& options);

  [[nodiscard]] amqp_connection_state_t state() const noexcept { return state_.get(); }
  /// Throws unless the last call that waits for an answer got one.
  void check_reply(std::string_view what) const;
  /// Throws what a reply says.
  [[noreturn]] static void fail(const amqp_rpc_reply_t& reply, std::string_view what);
  /// Throws for a status that is an error.
  static void check_status(int status, std::string_view what);
  /// Throws what a frame says with which the server ends channel or connection; nothing for any other.
  static void check_frame(const amqp_frame_t& frame);

  struct Arguments {
    std::optional<std::int32_t> ttl = std::nullopt;
    std::string_view returns_to = {};
    std::string_view type = {};
  };
  void declare(std::string_view queue, const Arguments& arguments);

 private:
  struct Destroy {
    void operator()(amqp_connection_state_t state) const noexcept {
      static_cast<void>(amqp_destroy_connection(state));
    }
  };
  struct Pointer {
    using pointer = amqp_connection_state_t;
    void operator()(amqp_connection_state_t state) const noexcept { Destroy{}(state); }
  };
  std::unique_ptr<Tls> tls_;
  std::unique_ptr<amqp_connection_state_t_, Pointer> state_;
};

/// Publishes to queues and waits until the server has taken responsibility.
class Publisher {
 public:
  explicit Publisher(const RabbitMqOptions& options);

  /// Errors: `Errc::store_reply_lost` when there was no confirmation in time, `Errc::store_busy` when the server declined;
  /// `Errc::store_refused` when there is no such queue.
  void publish(std::string_view queue, const amqp_basic_properties_t& properties,
               const amqp_bytes_t& body);
  void declare(std::string_view queue, const Link::Arguments& arguments);

 private:
  void wait_for_confirmation();

  Link link_;
  std::chrono::milliseconds patience_;
  std::set<std::string, std::less<>> declared_;
};

}  // namespace detail::rabbitmq
}  // namespace v0
}  // namespace idempotency
