#include "idempotency/edges/rabbitmq.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>
#include <utility>
#include <vector>

#include "edges/consumer/adapter_loop.hpp"
#include "edges/rabbitmq/rabbitmq_link.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail {

namespace {

using rabbitmq::as_bytes;
using rabbitmq::as_text;
using rabbitmq::as_timeval;
using rabbitmq::channel;
using rabbitmq::Link;
using rabbitmq::Publisher;
using std::chrono::milliseconds;

constexpr std::string_view deliveries_header = "x-idempotency-deliveries";
constexpr std::string_view routing_key_header = "x-idempotency-routing-key";

[[noreturn]] void refuse(const char* why) { throw Error(Errc::invalid_argument, why); }

void check_encryption(const RabbitMqOptions& options) {
  const RabbitMqTls& tls = options.tls;
  for (const std::string* text :
       {&options.host, &tls.ca_file, &tls.certificate_file, &tls.key_file, &tls.server_name}) {
    if (text->find('\0') != std::string::npos) {
      refuse("RabbitMqOptions: a host, file or name holds no NUL byte");
    }
  }
  if (options.encryption == RabbitMqEncryption::off) {
    if (!tls.ca_file.empty() || !tls.certificate_file.empty() || !tls.key_file.empty() ||
        !tls.server_name.empty()) {
      refuse("RabbitMqOptions::tls is set, but RabbitMqOptions::encryption is off");
    }
    return;
  }
  if (tls.certificate_file.empty() != tls.key_file.empty()) {
    refuse("RabbitMqTls::certificate_file and RabbitMqTls::key_file belong together");
  }
}

RabbitMqOptions checked(RabbitMqOptions options) {
  if (options.host.empty()) refuse("RabbitMqOptions: the host must be named");
  if (options.queue.empty()) {
    refuse("RabbitMqOptions: the queue must be named");
  }
  if (options.dead_letter_queue.empty()) options.dead_letter_queue = options.queue + ".dead";
  if (options.dead_letter_queue == options.queue) {
    refuse("RabbitMqOptions: dead letters must not go to the queue that they come from");
  }
  constexpr milliseconds least{1};
  if (options.prefetch < 1 || options.retry_step < least || options.wait < least ||
      options.connect_timeout < least || options.reply_timeout < least ||
      options.heartbeat < std::chrono::seconds{0}) {
    refuse(
        "RabbitMqOptions: prefetch must be at least 1, times at least 1 ms, and heartbeat not "
        "negative");
  }
  constexpr milliseconds longest_step = std::chrono::hours{24};
  if (options.retry_step > longest_step) {
    refuse("RabbitMqOptions: retry_step must be at most a day");
  }
  check_encryption(options);
  return options;
}

/// The length of the retry queue that keeps a message for `delay` at least.
std::int32_t retry_length(milliseconds step, milliseconds delay) noexcept {
  milliseconds length = step;
  constexpr milliseconds longest =
      std::chrono::hours{24 * 12};  // doubled it still fits into 31 bits
  while (length < delay && length < longest)
    length *= 2;
  return static_cast<std::int32_t>(length.count());
}

/// Text, numbers and bool; what a key cannot be made of is left out.
bool to_text(const amqp_field_value_t& value, std::string& text) {
  switch (value.kind) {
    case AMQP_FIELD_KIND_UTF8:
    case AMQP_FIELD_KIND_BYTES:
      text = as_text(value.value.bytes);
      return true;
    case AMQP_FIELD_KIND_BOOLEAN:
      text = value.value.boolean != 0 ? "true" : "false";
      return true;
    case AMQP_FIELD_KIND_I8:
      text = std::to_string(value.value.i8);
      return true;
    case AMQP_FIELD_KIND_U8:
      text = std::to_string(value.value.u8);
      return true;
    case AMQP_FIELD_KIND_I16:
      text = std::to_string(value.value.i16);
      return true;
    case AMQP_FIELD_KIND_U16:
      text = std::to_string(value.value.u16);
      return true;
    case AMQP_FIELD_KIND_I32:
      text = std::to_string(value.value.i32);
      return true;
    case AMQP_FIELD_KIND_U32:
      text = std::to_string(value.value.u32);
      return true;
    case AMQP_FIELD_KIND_I64:
    case AMQP_FIELD_KIND_TIMESTAMP:
      text = std::to_string(value.value.i64);
      return true;
    case AMQP_FIELD_KIND_U64:
      text = std::to_string(value.value.u64);
      return true;
    default:
      return false;
  }
}

std::uint32_t to_count(std::string_view text) noexcept {
  std::uint64_t count = 0;
  for (const char digit : text.substr(0, 10)) {
    if (digit < '0' || digit > '9') return 0;
    count = count * 10 + static_cast<std::uint64_t>(digit - '0');
  }
  constexpr std::uint64_t most = 1'000'000'000;
  return static_cast<std::uint32_t>(std::min(count, most));
}

/// What would send a copy elsewhere, and what is said anew of it.
bool is_left_out(std::string_view name) noexcept {
  return name == "CC" || name == "BCC" || name == "x-death" || name.starts_with("x-first-death-") ||
         name.starts_with("x-last-death-") || name == "x-delivery-count" ||
         name == deliveries_header || name == routing_key_header ||
         name.starts_with("dead-letter-");
}

class Envelope {
 public:
  Envelope() = default;
  Envelope(const Envelope&) = delete;
  Envelope& operator=(const Envelope&) = delete;
  ~Envelope() { amqp_destroy_envelope(&envelope_); }
  [[nodiscard]] amqp_envelope_t* get() noexcept { return &envelope_; }
  [[nodiscard]] const amqp_basic_properties_t& properties() const noexcept {
    return envelope_.message.properties;
  }
  [[nodiscard]] const amqp_envelope_t& operator*() const noexcept { return envelope_; }
  [[nodiscard]] std::vector<amqp_table_entry_t> headers() const {
    if ((properties()._flags & AMQP_BASIC_HEADERS_FLAG) == 0) return {};
    const amqp_table_t& table = properties().headers;
    return {table.entries, table.entries + table.num_entries};
  }

 private:
  amqp_envelope_t envelope_{};
};

ReceivedMessage message_of(const Envelope& envelope, const std::string& queue) {
  ReceivedMessage message;
  message.source = queue;
  message.key = as_text((*envelope).routing_key);
  message.body = as_text((*envelope).message.body);
  if ((envelope.properties()._flags & AMQP_BASIC_MESSAGE_ID_FLAG) != 0) {
    message.id = as_text(envelope.properties().message_id);
  }
  std::uint32_t copies = 0;
  std::uint32_t again = (*envelope).redelivered != 0 ? 1 : 0;
  for (const amqp_table_entry_t& entry : envelope.headers()) {
    const std::string_view name = as_text(entry.key);
    std::string value;
    if (!to_text(entry.value, value)) continue;
    if (name == deliveries_header) {
      copies = to_count(value);
    } else if (name == routing_key_header) {
      message.key = std::move(value);
    } else {
      if (name == "x-delivery-count") again = std::max(again, to_count(value));
      message.headers.emplace_back(name, std::move(value));
    }
  }
  message.delivery_count = 1 + copies + again;
  return message;
}

amqp_table_entry_t text_entry(std::string_view name, std::string_view value) noexcept {
  amqp_table_entry_t entry{};
  entry.key = as_bytes(name);
  entry.value.kind = AMQP_FIELD_KIND_UTF8;
  entry.value.value.bytes = as_bytes(value);
  return entry;
}

}  // namespace

class RabbitMqImpl {
 public:
  explicit RabbitMqImpl(RabbitMqOptions options) : options_(checked(std::move(options))) {}

  PolledMessages poll(const MessageBatchCallback& handle, const std::stop_token& stop) {
    try {
      return poll_connected(handle, stop);
    } catch (...) {
      disconnect();  // the server takes back what was not settled
      throw;
    }
  }

  void disconnect() noexcept {
    link_.reset();
    publisher_.reset();
  }

 private:
  /// What one round has received.
  class Batch final : public MessageBatch {
   public:
    Batch(RabbitMqImpl& queue, const std::stop_token& stop) : queue_(queue), stop_(stop) {}
    void add(std::unique_ptr<Envelope> envelope) {
      messages_.push_back(message_of(*envelope, queue_.options_.queue));
      envelopes_.push_back(std::move(envelope));
      settled_.push_back(false);
    }
    [[nodiscard]] const std::vector<ReceivedMessage>& messages() const noexcept override {
      return messages_;
    }
    [[nodiscard]] bool may_be_handled(std::size_t place) const noexcept override {
      return place < settled_.size() && !settled_[place] && !stop_.stop_requested();
    }
    void settle(std::size_t place, const MessageDisposition& disposition) override {
      check_place(place, settled_);
      queue_.settle(*envelopes_[place], messages_[place], disposition);
      settled_[place] = true;
      ++polled_.handled;
      if (disposition.flow == MessageFlow::stop) polled_.flow = MessageFlow::stop;
    }
    /// Received, but not handled: back to the queue.
    void give_back() {
      for (std::size_t place = 0; place < envelopes_.size(); ++place) {
        if (!settled_[place]) queue_.give_back(*envelopes_[place]);
      }
    }
    [[nodiscard]] const PolledMessages& polled() const noexcept { return polled_; }

   private:
    RabbitMqImpl& queue_;
    const std::stop_token& stop_;
    std::vector<std::unique_ptr<Envelope>> envelopes_;
    std::vector<ReceivedMessage> messages_;
    std::vector<bool> settled_;
    PolledMessages polled_;
  };

  void connect() {
    if (link_) return;
    auto link = std::make_unique<Link>(options_);
    if (options_.declare == RabbitMqQueue::existing) {
      constexpr amqp_boolean_t passive = 1;
      static_cast<void>(amqp_queue_declare(link->state(), channel, as_bytes(options_.queue),
                                           passive, 0, 0, 0, amqp_empty_table));
      link->check_reply("queue");
    } else {
      const bool quorum = options_.declare == RabbitMqQueue::declared_quorum;
      link->declare(options_.queue, {.type = quorum ? "quorum" : ""});
    }
    static_cast<void>(amqp_basic_qos(link->state(), channel, 0, options_.prefetch, 0));
    link->check_reply("prefetch");
    static_cast<void>(amqp_basic_consume(link->state(), channel, as_bytes(options_.queue),
                                         amqp_empty_bytes, 0, 0, 0, amqp_empty_table));
    link->check_reply("consume");
    link_ = std::move(link);
  }

  PolledMessages poll_connected(const MessageBatchCallback& handle, const std::stop_token& stop) {
    connect();
    Batch batch(*this, stop);
    milliseconds wait = options_.wait;
    while (batch.messages().size() < options_.prefetch && !stop.stop_requested()) {
      auto envelope = std::make_unique<Envelope>();
      if (!receive(*envelope, wait)) break;
      wait = milliseconds{0};
      batch.add(std::move(envelope));
    }
    if (batch.messages().empty()) return {};
    handle(batch);
    batch.give_back();
    return batch.polled();
  }

  bool receive(Envelope& envelope, milliseconds wait) {
    const auto deadline = std::chrono::steady_clock::now() + wait;
    while (true) {
      const auto left =
          std::chrono::ceil<milliseconds>(deadline - std::chrono::steady_clock::now());
      const timeval time = as_timeval(std::max(milliseconds{0}, left));
      amqp_maybe_release_buffers(link_->state());
      const amqp_rpc_reply_t reply = amqp_consume_message(link_->state(), envelope.get(), &time, 0);
      if (reply.reply_type == AMQP_RESPONSE_NORMAL) return true;
      if (reply.reply_type != AMQP_RESPONSE_LIBRARY_EXCEPTION) Link::fail(reply, "consume");
      const int status = rabbitmq::status_of(reply);
      if (status == AMQP_STATUS_TIMEOUT) return false;
      if (status != AMQP_STATUS_UNEXPECTED_STATE) Link::fail(reply, "consume");
      amqp_frame_t frame{};  // something else than a message
      Link::check_status(amqp_simple_wait_frame_noblock(link_->state(), &frame, &time), "consume");
      Link::check_frame(frame);
    }
  }

  void settle(const Envelope& envelope, const ReceivedMessage& message,
              const MessageDisposition& disposition) {
    switch (disposition.action) {
      case MessageAction::acknowledge:
        break;
      case MessageAction::redeliver_later:
      case MessageAction::requeue:
        send_back(envelope, message, disposition.delay);
        break;
      case MessageAction::dead_letter:
        put_aside(envelope, message, disposition);
        break;
    }
    Link::check_status(amqp_basic_ack(link_->state(), channel, (*envelope).delivery_tag, 0), "ack");
  }

  void give_back(const Envelope& envelope) {
    constexpr amqp_boolean_t requeue = 1;
    Link::check_status(
        amqp_basic_nack(link_->state(), channel, (*envelope).delivery_tag, 0, requeue), "nack");
  }

  void send_back(const Envelope& envelope, const ReceivedMessage& message, milliseconds delay) {
    const std::int32_t length = retry_length(options_.retry_step, delay);
    const std::string queue = options_.queue + ".retry." + std::to_string(length);
    publisher().declare(queue, {.ttl = length, .returns_to = options_.queue});
    publish_copy(envelope, message, queue, {});
  }

  void put_aside(const Envelope& envelope, const ReceivedMessage& message,
                 const MessageDisposition& disposition) {
    const std::string attempts = std::to_string(disposition.attempts);
    publisher().declare(options_.dead_letter_queue, {});
    publish_copy(envelope, message, options_.dead_letter_queue,
                 {text_entry("dead-letter-reason", to_string(disposition.reason)),
                  text_entry("dead-letter-detail", disposition.detail),
                  text_entry("dead-letter-attempts", attempts),
                  text_entry("dead-letter-queue", options_.queue)});
  }

  void publish_copy(const Envelope& envelope, const ReceivedMessage& message,
                    const std::string& queue, std::vector<amqp_table_entry_t> more) {
    std::vector<amqp_table_entry_t> headers = envelope.headers();
    std::erase_if(headers,
                  [](const amqp_table_entry_t& entry) { return is_left_out(as_text(entry.key)); });
    headers.insert(headers.end(), more.begin(), more.end());
    headers.push_back(text_entry(routing_key_header, message.key));
    amqp_table_entry_t deliveries{};
    deliveries.key = as_bytes(deliveries_header);
    deliveries.value.kind = AMQP_FIELD_KIND_I64;
    deliveries.value.value.i64 = message.delivery_count;
    headers.push_back(deliveries);

    amqp_basic_properties_t properties = envelope.properties();
    properties._flags &=
        ~static_cast<amqp_flags_t>(AMQP_BASIC_EXPIRATION_FLAG | AMQP_BASIC_USER_ID_FLAG);
    properties._flags |= AMQP_BASIC_HEADERS_FLAG | AMQP_BASIC_DELIVERY_MODE_FLAG;
    properties.delivery_mode = AMQP_DELIVERY_PERSISTENT;
    properties.headers.entries = headers.data();
    properties.headers.num_entries = static_cast<int>(headers.size());
    publisher().publish(queue, properties, (*envelope).message.body);
  }

  /// A connection of its own: what comes back on it are confirmations and nothing else.
  Publisher& publisher() {
    if (!publisher_) publisher_ = std::make_unique<Publisher>(options_);
    return *publisher_;
  }

  RabbitMqOptions options_;
  std::unique_ptr<Link> link_;
  std::unique_ptr<Publisher> publisher_;
};

}  // namespace detail

RabbitMqConsumer::RabbitMqConsumer(RabbitMqOptions options)
    : impl_(std::make_unique<detail::RabbitMqImpl>(std::move(options))) {}

RabbitMqConsumer::~RabbitMqConsumer() = default;

PolledMessages RabbitMqConsumer::poll(const MessageCallback& handle) {
  return impl_->poll(detail::one_by_one(handle), {});
}

PolledMessages RabbitMqConsumer::poll_batch(const MessageBatchCallback& handle) {
  return impl_->poll(handle, {});
}

ConsumeEnd RabbitMqConsumer::run(const std::stop_token& stop, const MessageCallback& handle) {
  return run_batches(stop, detail::one_by_one(handle));
}

ConsumeEnd RabbitMqConsumer::run_batches(const std::stop_token& stop,
                                         const MessageBatchCallback& handle) {
  const ConsumeEnd end =
      detail::poll_until_stopped(stop, [&] { return impl_->poll(handle, stop); });
  impl_->disconnect();
  return end;
}

}  // namespace v0
}  // namespace idempotency
