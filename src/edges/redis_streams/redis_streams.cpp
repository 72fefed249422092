#include "idempotency/edges/redis_streams.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>
#include <vector>

#include "edges/consumer/adapter_loop.hpp"
#include "redis/redis_connection.hpp"
#include "redis/redis_options.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail {

namespace {

using redis::Broken;
using redis::Commands;
using redis::Connection;
using redis::ErrorReply;
using redis::ReplyPtr;
using std::chrono::milliseconds;
using SteadyTime = std::chrono::steady_clock::time_point;

RedisStreamOptions checked(RedisStreamOptions options) {
  redis::check_options(options.server);
  if (options.stream.empty() || options.group.empty() || options.group_start.empty()) {
    throw Error(Errc::invalid_argument,
                "RedisStreamOptions: stream, group and group_start must be named");
  }
  if (options.redelivery_idle < milliseconds{1} || options.block < milliseconds{1} ||
      options.batch < 1) {
    throw Error(Errc::invalid_argument,
                "RedisStreamOptions: redelivery_idle and block must be at least 1 ms, batch at "
                "least 1");
  }
  if (options.dead_letter_stream.empty()) options.dead_letter_stream = options.stream + ":dead";
  if (options.dead_letter_stream == options.stream) {
    throw Error(Errc::invalid_argument,
                "RedisStreamOptions: dead letters must not go to the stream that they come from");
  }
  if (options.consumer.empty()) {
    constexpr std::string_view digits = "0123456789abcdef";
    const OwnerToken token = OwnerToken::generate();
    options.consumer = "c-" + std::to_string(::getpid()) + "-";
    for (std::size_t at = 0; at < 6; ++at) {
      const auto byte = static_cast<unsigned>(token.bytes()[at]);
      options.consumer += digits[byte >> 4U];
      options.consumer += digits[byte & 0xfU];
    }
  }
  return options;
}

/// Only a message that is still pending becomes a dead letter, and only one of it, whoever else handles it.
const RedisScript& dead_letter_script() {
  static const RedisScript script(R"lua(
if #redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[2], ARGV[2], 1) == 0 then return 0 end
redis.call('XADD', KEYS[2], '*', unpack(ARGV, 3))
return redis.call('XACK', KEYS[1], ARGV[1], ARGV[2])
)lua");
  return script;
}

/// A blocking command may take its own time on top of what every command may take.
RedisOptions with_patience(RedisOptions options, milliseconds block) {
  options.command_timeout += block;
  return options;
}

}  // namespace

class RedisStreamImpl {
 public:
  explicit RedisStreamImpl(RedisStreamOptions options)
      : options_(checked(std::move(options))),
        connecting_(with_patience(options_.server, options_.block)),
        idle_(std::to_string(options_.redelivery_idle.count())),
        batch_(std::to_string(options_.batch)),
        claim_interval_(
            std::clamp(options_.redelivery_idle / 8, milliseconds{1}, milliseconds{1'000})) {}

  PolledMessages poll(const MessageBatchCallback& handle, const std::stop_token& stop) {
    try {
      return poll_connected(handle, stop);
    } catch (const Broken& broken) {
      connection_.reset();
      const bool sent = broken.progress == Broken::Progress::sent;
      throw Error(sent ? Errc::store_reply_lost : Errc::store_unavailable,
                  "redis streams: the connection broke; what was not settled comes again",
                  broken.words);
    } catch (const ErrorReply& reply) {
      if (reply.words.starts_with("NOGROUP")) {  // the stream was removed: it is made anew
        connection_.reset();
        throw Error(Errc::store_unavailable,
                    "redis streams: stream or group have been removed; they are made again",
                    reply.words);
      }
      if (reply.meaning.fate == redis::ConnectionFate::discard) connection_.reset();
      throw redis::make_error(reply);
    }
  }

  [[nodiscard]] const RedisStreamOptions& options() const noexcept { return options_; }

 private:
  struct Entry {
    std::string id = {};
    ReceivedMessage message = {};
    bool is_gone = false;  ///< deleted from the stream while it was pending
  };

  /// What one round has fetched.
  class Batch final : public MessageBatch {
   public:
    Batch(RedisStreamImpl& stream, std::vector<Entry> entries, const std::stop_token& stop)
        : stream_(stream), entries_(std::move(entries)), stop_(stop), settled_(entries_.size()) {
      messages_.reserve(entries_.size());
      for (Entry& entry : entries_)
        messages_.push_back(std::move(entry.message));
    }
    [[nodiscard]] const std::vector<ReceivedMessage>& messages() const noexcept override {
      return messages_;
    }
    [[nodiscard]] bool may_be_handled(std::size_t place) const noexcept override {
      return place < settled_.size() && !settled_[place] && !stop_.stop_requested();
    }
    void settle(std::size_t place, const MessageDisposition& disposition) override {
      check_place(place, settled_);
      stream_.settle(messages_[place], disposition);
      settled_[place] = true;
      ++polled_.handled;
      if (disposition.flow == MessageFlow::stop) polled_.flow = MessageFlow::stop;
    }
    /// Fetched, but not handled: others may have them at once.
    void give_back() {
      for (std::size_t place = 0; place < entries_.size(); ++place) {
        if (!settled_[place]) stream_.delay(messages_[place].id, milliseconds{0});
      }
    }
    [[nodiscard]] const PolledMessages& polled() const noexcept { return polled_; }

   private:
    RedisStreamImpl& stream_;
    std::vector<Entry> entries_;
    const std::stop_token& stop_;
    std::vector<bool> settled_;
    std::vector<ReceivedMessage> messages_;
    PolledMessages polled_;
  };

  void connect() {
    if (connection_) return;
    auto connection = std::make_unique<Connection>(connecting_);
    const ReplyPtr made =
        std::move(connection
                      ->exchange(Commands({"XGROUP", "CREATE", options_.stream, options_.group,
                                           options_.group_start, "MKSTREAM"}))
                      .front());
    if (redis::is_error(*made) &&
        !std::string_view(made->str, made->len).starts_with("BUSYGROUP")) {
      redis::throw_if_error(*made);
    }
    connection_ = std::move(connection);
    next_claim_ = {};
  }

  PolledMessages poll_connected(const MessageBatchCallback& handle, const std::stop_token& stop) {
    connect();
    std::vector<Entry> entries;
    if (std::chrono::steady_clock::now() >= next_claim_) entries = claim();
    if (entries.empty()) entries = read_new();
    std::erase_if(entries, [this](const Entry& entry) {
      if (entry.is_gone) acknowledge(entry.id);
      return entry.is_gone;
    });
    if (entries.empty()) return {};
    Batch batch(*this, std::move(entries), stop);
    handle(batch);
    batch.give_back();
    return batch.polled();
  }

  /// What a dead consumer left, and what has been away for as long as it should.
  std::vector<Entry> claim() {
    const ReplyPtr reply =
        connection_->ask(Commands({"XAUTOCLAIM", options_.stream, options_.group, options_.consumer,
                                   idle_, claim_cursor_, "COUNT", batch_}));
    const std::string_view cursor = redis::as_text(redis::element(*reply, 0)).value_or("0-0");
    claim_cursor_ = std::string(cursor);
    std::vector<Entry> entries = entries_of(redis::element(*reply, 1));
    if (claim_cursor_ == "0-0") {
      next_claim_ = std::chrono::steady_clock::now() + claim_interval_;
    }
    if (!entries.empty()) add_delivery_counts(entries);
    return entries;
  }

  void add_delivery_counts(std::vector<Entry>& entries) {
    Commands commands;
    for (const Entry& entry : entries) {
      commands.add({"XPENDING", options_.stream, options_.group, entry.id, entry.id, "1"});
    }
    const std::vector<ReplyPtr> replies = connection_->exchange(commands);
    for (std::size_t at = 0; at < entries.size(); ++at) {
      redis::throw_if_error(*replies[at]);
      if (replies[at]->type != REDIS_REPLY_ARRAY || replies[at]->elements == 0) continue;
      const std::int64_t count =
          redis::as_integer(redis::element(redis::element(*replies[at], 0), 3));
      entries[at].message.delivery_count =
          static_cast<std::uint32_t>(std::clamp<std::int64_t>(count, 1, std::int64_t{UINT32_MAX}));
    }
  }

  std::vector<Entry> read_new() {
    const auto until_claim =
        std::chrono::ceil<milliseconds>(next_claim_ - std::chrono::steady_clock::now());
    const std::string block =
        std::to_string(std::clamp(until_claim, milliseconds{1}, options_.block).count());
    const ReplyPtr reply = connection_->ask(
        Commands({"XREADGROUP", "GROUP", options_.group, options_.consumer, "COUNT", batch_,
                  "BLOCK", block, "STREAMS", options_.stream, ">"}));
    if (reply->type == REDIS_REPLY_NIL) return {};
    return entries_of(redis::element(redis::element(*reply, 0), 1));
  }

  std::vector<Entry> entries_of(const redisReply& list) const {
    std::vector<Entry> entries;
    if (list.type != REDIS_REPLY_ARRAY) return entries;
    for (std::size_t at = 0; at < list.elements; ++at) {
      const redisReply& pair = *list.element[at];
      if (pair.type == REDIS_REPLY_NIL) continue;  // Redis 6.2: deleted, and without its name
      entries.push_back(entry_of(pair));
    }
    return entries;
  }

  [[nodiscard]] Entry entry_of(const redisReply& pair) const {
    Entry entry{.id = std::string(redis::as_text(redis::element(pair, 0)).value_or(""))};
    const redisReply& fields = redis::element(pair, 1);
    entry.is_gone = fields.type != REDIS_REPLY_ARRAY;
    entry.message.id = entry.id;
    entry.message.source = options_.stream;
    for (std::size_t at = 0; !entry.is_gone && at + 1 < fields.elements; at += 2) {
      std::string name(redis::as_text(*fields.element[at]).value_or(""));
      std::string value(redis::as_text(*fields.element[at + 1]).value_or(""));
      if (name == options_.body_field) entry.message.body = value;
      entry.message.headers.emplace_back(std::move(name), std::move(value));
    }
    return entry;
  }

  void settle(const ReceivedMessage& message, const MessageDisposition& disposition) {
    switch (disposition.action) {
      case MessageAction::acknowledge:
        return acknowledge(message.id);
      case MessageAction::redeliver_later:
      case MessageAction::requeue:
        return delay(message.id, disposition.delay);
      case MessageAction::dead_letter:
        return put_aside(message, disposition);
    }
  }

  void acknowledge(const std::string& id) {
    static_cast<void>(connection_->ask(Commands({"XACK", options_.stream, options_.group, id})));
  }

  /// JUSTID: the group's count of deliveries is left alone.
  void delay(const std::string& id, milliseconds span) {
    const milliseconds idle =
        std::max(milliseconds{0}, options_.redelivery_idle - std::max(span, milliseconds{0}));
    static_cast<void>(
        connection_->ask(Commands({"XCLAIM", options_.stream, options_.group, options_.consumer,
                                   "0", id, "IDLE", std::to_string(idle.count()), "JUSTID"})));
  }

  void put_aside(const ReceivedMessage& message, const MessageDisposition& disposition) {
    const std::string attempts = std::to_string(disposition.attempts);
    Commands::Words words{"2", options_.stream, options_.dead_letter_stream, options_.group,
                          message.id};
    for (const auto& [name, value] : message.headers) {
      words.insert(words.end(), {name, value});
    }
    words.insert(words.end(), {"dead-letter-reason", to_string(disposition.reason),
                               "dead-letter-detail", disposition.detail, "dead-letter-attempts",
                               attempts, "dead-letter-id", message.id, "dead-letter-stream",
                               options_.stream, "dead-letter-group", options_.group});
    constexpr std::size_t most_in_a_script = 7'000;  // of what Lua's stack takes
    if (words.size() <= most_in_a_script) {
      static_cast<void>(connection_->run(dead_letter_script(), words));
      return;
    }
    Commands::Words add{"XADD", options_.dead_letter_stream, "*"};
    add.insert(add.end(), words.begin() + 5, words.end());
    static_cast<void>(connection_->ask(Commands(add)));
    acknowledge(message.id);
  }

  RedisStreamOptions options_;
  RedisOptions connecting_;
  std::string idle_;
  std::string batch_;
  milliseconds claim_interval_;
  std::unique_ptr<Connection> connection_;
  std::string claim_cursor_ = "0-0";
  SteadyTime next_claim_{};
};

}  // namespace detail

RedisStreamConsumer::RedisStreamConsumer(RedisStreamOptions options)
    : impl_(std::make_unique<detail::RedisStreamImpl>(std::move(options))) {}

RedisStreamConsumer::~RedisStreamConsumer() = default;

PolledMessages RedisStreamConsumer::poll(const MessageCallback& handle) {
  return impl_->poll(detail::one_by_one(handle), {});
}

PolledMessages RedisStreamConsumer::poll_batch(const MessageBatchCallback& handle) {
  return impl_->poll(handle, {});
}

ConsumeEnd RedisStreamConsumer::run(const std::stop_token& stop, const MessageCallback& handle) {
  return run_batches(stop, detail::one_by_one(handle));
}

ConsumeEnd RedisStreamConsumer::run_batches(const std::stop_token& stop,
                                            const MessageBatchCallback& handle) {
  return detail::poll_until_stopped(stop, [&] { return impl_->poll(handle, stop); });
}

const std::string& RedisStreamConsumer::name() const noexcept { return impl_->options().consumer; }

}  // namespace v0
}  // namespace idempotency
