#include "edges/rabbitmq/rabbitmq_link.hpp"

#include <amqp_tcp_socket.h>

#include <algorithm>
#include <array>
#include <new>

namespace idempotency {
inline namespace v0 {
namespace detail::rabbitmq {

namespace {

using std::chrono::milliseconds;

std::string described(std::string_view what, std::string_view words) {
  return std::string(what) + ": " + std::string(words);
}

/// The codes of AMQP 0-9-1, 1.2: which of them pass.
Errc code_of(std::uint16_t reply) noexcept {
  switch (reply) {
    case AMQP_CONNECTION_FORCED:  // the server goes down, or an operator closed the connection
    case AMQP_INTERNAL_ERROR:
      return Errc::store_unavailable;
    case AMQP_RESOURCE_LOCKED:
    case AMQP_RESOURCE_ERROR:
      return Errc::store_busy;
    default:
      return Errc::store_refused;
  }
}

[[noreturn]] void throw_closed(std::uint16_t code, const amqp_bytes_t& words,
                               std::string_view what) {
  const Errc error = code_of(code);
  throw Error(error,
              error == Errc::store_refused
                  ? "rabbitmq: the server refuses; look at credentials, rights and queues"
                  : "rabbitmq: the server ended the connection; what was not settled comes again",
              described(what, as_text(words)));
}

}  // namespace

amqp_bytes_t as_bytes(std::string_view text) noexcept {
  amqp_bytes_t bytes{};
  bytes.len = text.size();
  bytes.bytes = const_cast<char*>(text.data());
  return bytes;
}

timeval as_timeval(milliseconds span) noexcept {
  timeval time{};
  time.tv_sec = static_cast<decltype(time.tv_sec)>(span.count() / 1000);
  time.tv_usec = static_cast<decltype(time.tv_usec)>(span.count() % 1000 * 1000);
  return time;
}

Link::Link(const RabbitMqOptions& options) : state_(amqp_new_connection()) {
  if (!state_) throw std::bad_alloc();
  if (options.encryption == RabbitMqEncryption::tls) {
    tls_ = std::make_unique<Tls>(state(), options);
  }
  amqp_socket_t* socket = tls_ ? tls_->socket() : amqp_tcp_socket_new(state());
  if (socket == nullptr) throw std::bad_alloc();  // the connection owns it
  const timeval connecting = as_timeval(options.connect_timeout);
  const timeval answering = as_timeval(options.reply_timeout);
  check_status(amqp_set_handshake_timeout(state(), &answering), "set-up");
  check_status(amqp_set_rpc_timeout(state(), &answering), "set-up");
  const int opened =
      amqp_socket_open_noblock(socket, options.host.c_str(), options.port, &connecting);
  if (opened != AMQP_STATUS_OK) {
    if (tls_) tls_->check_handshake(opened);
    throw Error(Errc::store_unavailable,
                "rabbitmq: the server cannot be reached; repeat the call when it is there",
                amqp_error_string2(opened));
  }
  constexpr int frame_bytes = 131'072;
  const amqp_rpc_reply_t login =
      amqp_login(state(), options.virtual_host.c_str(), 0, frame_bytes,
                 static_cast<int>(options.heartbeat.count()), AMQP_SASL_METHOD_PLAIN,
                 options.username.c_str(), options.password.c_str());
  if (login.reply_type != AMQP_RESPONSE_NORMAL) {
    if (tls_) tls_->check_login(status_of(login));
    fail(login, "login");
  }
  static_cast<void>(amqp_channel_open(state(), channel));
  check_reply("channel");
}

void Link::check_reply(std::string_view what) const {
  const amqp_rpc_reply_t reply = amqp_get_rpc_reply(state());
  if (reply.reply_type != AMQP_RESPONSE_NORMAL) fail(reply, what);
}

void Link::fail(const amqp_rpc_reply_t& reply, std::string_view what) {
  if (reply.reply_type == AMQP_RESPONSE_SERVER_EXCEPTION) {
    if (reply.reply.id == AMQP_CONNECTION_CLOSE_METHOD) {
      const auto& closed = *static_cast<amqp_connection_close_t*>(reply.reply.decoded);
      throw_closed(closed.reply_code, closed.reply_text, what);
    }
    if (reply.reply.id == AMQP_CHANNEL_CLOSE_METHOD) {
      const auto& closed = *static_cast<amqp_channel_close_t*>(reply.reply.decoded);
      throw_closed(closed.reply_code, closed.reply_text, what);
    }
  }
  check_status(status_of(reply), what);
  throw Error(Errc::store_reply_lost, "rabbitmq: the server answered in an unexpected form",
              std::string(what));
}

void Link::check_status(int status, std::string_view what) {
  if (status == AMQP_STATUS_OK) return;
  throw Error(Errc::store_reply_lost,
              "rabbitmq: the connection broke; what was not settled comes again",
              described(what, amqp_error_string2(status)));
}

void Link::check_frame(const amqp_frame_t& frame) {
  if (frame.frame_type != AMQP_FRAME_METHOD) return;
  if (frame.payload.method.id == AMQP_CHANNEL_CLOSE_METHOD) {
    const auto& closed = *static_cast<amqp_channel_close_t*>(frame.payload.method.decoded);
    if (closed.reply_code ==
        AMQP_PRECONDITION_FAILED) {  // nothing was asked: an acknowledgement came too late
      throw Error(
          Errc::store_unavailable,
          "rabbitmq: the server took a message away, as from a handler that was longer than "
          "its consumer_timeout",
          std::string(as_text(closed.reply_text)));
    }
    throw_closed(closed.reply_code, closed.reply_text, "channel closed");
  }
  if (frame.payload.method.id == AMQP_CONNECTION_CLOSE_METHOD) {
    const auto& closed = *static_cast<amqp_connection_close_t*>(frame.payload.method.decoded);
    throw_closed(closed.reply_code, closed.reply_text, "connection closed");
  }
  if (frame.payload.method.id == AMQP_BASIC_CANCEL_METHOD) {
    throw Error(Errc::store_unavailable, "rabbitmq: the queue has been removed or moved");
  }
}

void Link::declare(std::string_view queue, const Arguments& arguments) {
  std::array<amqp_table_entry_t, 4> entries{};
  amqp_table_t table{0, entries.data()};
  const auto add = [&](std::string_view name) -> amqp_field_value_t& {
    amqp_table_entry_t& entry = entries[static_cast<std::size_t>(table.num_entries++)];
    entry.key = as_bytes(name);
    return entry.value;
  };
  const auto add_text = [&](std::string_view name, std::string_view text) {
    amqp_field_value_t& value = add(name);
    value.kind = AMQP_FIELD_KIND_UTF8;
    value.value.bytes = as_bytes(text);
  };
  if (arguments.ttl) {
    amqp_field_value_t& value = add("x-message-ttl");
    value.kind = AMQP_FIELD_KIND_I32;
    value.value.i32 = *arguments.ttl;
  }
  if (!arguments.returns_to.empty()) {
    add_text("x-dead-letter-exchange", "");
    add_text("x-dead-letter-routing-key", arguments.returns_to);
  }
  if (!arguments.type.empty()) add_text("x-queue-type", arguments.type);
  constexpr amqp_boolean_t yes = 1;
  constexpr amqp_boolean_t no = 0;
  static_cast<void>(amqp_queue_declare(state(), channel, as_bytes(queue), no, yes, no, no, table));
  check_reply("declare");
}

Publisher::Publisher(const RabbitMqOptions& options)
    : link_(options), patience_(options.reply_timeout) {
  static_cast<void>(amqp_confirm_select(link_.state(), channel));
  link_.check_reply("confirm");
}

void Publisher::declare(std::string_view queue, const Link::Arguments& arguments) {
  if (declared_.contains(queue)) return;
  link_.declare(queue, arguments);
  declared_.emplace(queue);
}

void Publisher::publish(std::string_view queue, const amqp_basic_properties_t& properties,
                        const amqp_bytes_t& body) {
  constexpr amqp_boolean_t mandatory = 1;
  constexpr amqp_boolean_t immediate = 0;
  Link::check_status(amqp_basic_publish(link_.state(), channel, amqp_empty_bytes, as_bytes(queue),
                                        mandatory, immediate, &properties, body),
                     "publish");
  wait_for_confirmation();
}

void Publisher::wait_for_confirmation() {
  const auto deadline = std::chrono::steady_clock::now() + patience_;
  bool returned = false;
  while (true) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - std::chrono::steady_clock::now());
    const timeval wait = as_timeval(std::max(milliseconds{0}, left));
    amqp_frame_t frame{};
    Link::check_status(amqp_simple_wait_frame_noblock(link_.state(), &frame, &wait), "confirm");
    Link::check_frame(frame);
    if (frame.frame_type != AMQP_FRAME_METHOD) continue;
    if (frame.payload.method.id == AMQP_BASIC_RETURN_METHOD) {  // its confirmation comes behind it
      returned = true;
      amqp_message_t message{};
      const amqp_rpc_reply_t read = amqp_read_message(link_.state(), channel, &message, 0);
      if (read.reply_type != AMQP_RESPONSE_NORMAL) Link::fail(read, "returned message");
      amqp_destroy_message(&message);
    } else if (frame.payload.method.id == AMQP_BASIC_NACK_METHOD) {
      throw Error(Errc::store_busy, "rabbitmq: the server declined a message; repeat it later");
    } else if (frame.payload.method.id == AMQP_BASIC_ACK_METHOD) {
      amqp_maybe_release_buffers(link_.state());
      if (!returned) return;
      throw Error(
          Errc::store_unavailable,
          "rabbitmq: a queue for retries or dead letters has been removed; it is made anew");
    }
  }
}

}  // namespace detail::rabbitmq
}  // namespace v0
}  // namespace idempotency
