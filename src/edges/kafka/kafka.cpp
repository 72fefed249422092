#include "idempotency/edges/kafka.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "edges/consumer/adapter_loop.hpp"
#include "edges/kafka/kafka_parts.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail {

namespace {

using kafka::ListPtr;
using kafka::MessagePtr;
using std::chrono::milliseconds;
using SteadyTime = std::chrono::steady_clock::time_point;
using Headers = std::vector<std::pair<std::string, std::string>>;

constexpr std::array<std::string_view, 6> own_settings{
    "bootstrap.servers",    "group.id",          "enable.auto.commit", "enable.auto.offset.store",
    "enable.partition.eof", "auto.commit.enable"};

KafkaOptions checked(KafkaOptions options) {
  const bool has_empty_topic = std::any_of(options.topics.begin(), options.topics.end(),
                                           [](const std::string& topic) { return topic.empty(); });
  if (options.brokers.empty() || options.group.empty() || options.topics.empty() ||
      has_empty_topic) {
    throw Error(Errc::invalid_argument, "KafkaOptions: brokers, group and topics must be named");
  }
  if (std::find(options.topics.begin(), options.topics.end(), options.dead_letter_topic) !=
      options.topics.end()) {
    throw Error(Errc::invalid_argument,
                "KafkaOptions: dead letters must not go to a topic that they come from");
  }
  constexpr milliseconds least{1};
  constexpr milliseconds most = std::chrono::hours{24};
  if (options.wait < least || options.wait > most || options.batch < 1 ||
      options.produce_timeout < least || options.produce_timeout > most) {
    throw Error(Errc::invalid_argument,
                "KafkaOptions: batch must be at least 1, times from 1 ms to a day");
  }
  for (const auto& [name, value] : options.settings) {
    if (std::find(own_settings.begin(), own_settings.end(), name) != own_settings.end()) {
      throw Error(Errc::invalid_argument,
                  "KafkaOptions: this setting is the consumer's own business", name);
    }
  }
  return options;
}

std::string text_of(const void* bytes, std::size_t size) {
  return bytes == nullptr ? std::string() : std::string(static_cast<const char*>(bytes), size);
}

Headers headers_of(const rd_kafka_message_t& message) {
  Headers headers;
  rd_kafka_headers_t* list = nullptr;  // the message owns it
  if (rd_kafka_message_headers(&message, &list) != RD_KAFKA_RESP_ERR_NO_ERROR) return headers;
  const char* name = nullptr;
  const void* value = nullptr;
  std::size_t size = 0;
  for (std::size_t at = 0;
       rd_kafka_header_get_all(list, at, &name, &value, &size) == RD_KAFKA_RESP_ERR_NO_ERROR;
       ++at) {
    headers.emplace_back(name, text_of(value, size));
  }
  return headers;
}

}  // namespace

class KafkaImpl {
 public:
  explicit KafkaImpl(KafkaOptions options) : options_(checked(std::move(options))) {
    static_cast<void>(consumer_conf());  // refuses what librdkafka does not take
  }
  KafkaImpl(const KafkaImpl&) = delete;
  KafkaImpl& operator=(const KafkaImpl&) = delete;
  ~KafkaImpl() { leave(); }

  PolledMessages poll(const MessageCallback& handle, const std::stop_token& stop) {
    return poll_with([&](PolledMessages& polled) { poll_joined(handle, stop, polled); });
  }
  PolledMessages poll_batch(const MessageBatchCallback& handle, const std::stop_token& stop) {
    return poll_with([&](PolledMessages& polled) { poll_batch_joined(handle, stop, polled); });
  }

  /// Commits what is settled and leaves the group; what waits in memory is delivered again to whoever owns its partition then.
  void leave() noexcept {
    if (!client_) return;
    blocked_.clear();
    paused_.clear();
    gathered_.clear();
    commit(Commit::now);
    if (is_closed_within(longest_farewell)) return client_.reset();
    // With a commit under way and its coordinator gone, closing would never end. What was not committed is delivered again.
    rd_kafka_destroy_flags(client_.release(), RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
  }

 private:
  using PartitionName = std::pair<std::string, std::int32_t>;
  enum class Commit : std::uint8_t { behind, now };

  /// A message with how often it has been handed over.
  struct Delivery {
    MessagePtr message;
    std::uint32_t count = 0;
    bool passed_over = false;  ///< it was in a batch and did not get its turn
  };

  /// A message that has to be handed over again, and with it its partition.
  struct Blocked {
    Delivery first;
    SteadyTime until{};
    std::deque<Delivery> behind = {};  ///< of the same partition, not handled yet
  };

  /// What one round has gathered. A partition that is taken away meanwhile cannot be: that happens in calls of librdkafka only.
  class Batch final : public MessageBatch {
   public:
    Batch(KafkaImpl& group, std::deque<Delivery> deliveries, const std::stop_token& stop,
          PolledMessages& polled)
        : group_(group),
          deliveries_(std::move(deliveries)),
          stop_(stop),
          polled_(polled),
          settled_(deliveries_.size()) {
      for (Delivery& delivery : deliveries_) {
        messages_.push_back(received_from(*delivery.message, ++delivery.count));
        partitions_.push_back(partition_of(*delivery.message));
      }
    }
    [[nodiscard]] const std::vector<ReceivedMessage>& messages() const noexcept override {
      return messages_;
    }
    [[nodiscard]] bool may_be_handled(std::size_t place) const noexcept override {
      return place < settled_.size() && !settled_[place] && !stop_.stop_requested() &&
             is_next(place);
    }
    [[nodiscard]] bool was_passed_over(std::size_t place) const noexcept override {
      return deliveries_[place].passed_over;
    }
    void settle(std::size_t place, const MessageDisposition& disposition) override {
      check_place(place, settled_);
      if (!is_next(place)) {
        throw Error(Errc::invalid_argument,
                    "a message of the same partition before it is not settled; ask "
                    "may_be_handled() first",
                    messages_[place].id);
      }
      Delivery& delivery = deliveries_[place];
      if (disposition.action == MessageAction::dead_letter) {
        group_.put_aside(*delivery.message, messages_[place], disposition);
      }
      settled_[place] = true;
      ++polled_.handled;
      if (disposition.flow == MessageFlow::stop) polled_.flow = MessageFlow::stop;
      group_.settle_or_block(delivery, disposition);
    }
    /// What was not settled waits in memory, each behind what is before it in its partition.
    void keep_the_rest() {
      for (std::size_t place = 0; place < deliveries_.size(); ++place) {
        if (settled_[place]) continue;
        --deliveries_[place].count;
        deliveries_[place].passed_over = true;
        group_.block_behind(std::move(deliveries_[place]));
      }
    }

   private:
    /// Whether all before it in its partition is settled: an offset that is committed is behind all of them.
    [[nodiscard]] bool is_next(std::size_t place) const {
      if (group_.is_blocked(partitions_[place])) return false;
      for (std::size_t before = 0; before < place; ++before) {
        if (!settled_[before] && partitions_[before] == partitions_[place]) return false;
      }
      return true;
    }

    KafkaImpl& group_;
    std::deque<Delivery> deliveries_;
    const std::stop_token& stop_;
    PolledMessages& polled_;
    std::vector<ReceivedMessage> messages_;
    std::vector<PartitionName> partitions_;
    std::vector<bool> settled_;
  };

  template <class Round>
  PolledMessages poll_with(Round round) {
    join();
    PolledMessages polled;
    try {
      round(polled);
    } catch (...) {
      commit(Commit::behind);  // what was settled before
      throw;
    }
    commit(Commit::behind);
    return polled;
  }

  static constexpr milliseconds longest_farewell{10'000};

  [[nodiscard]] bool is_closed_within(milliseconds most) noexcept {
    const kafka::QueuePtr queue(rd_kafka_queue_new(client_.get()));
    const kafka::ErrorPtr error(rd_kafka_consumer_close_queue(client_.get(), queue.get()));
    const SteadyTime end = std::chrono::steady_clock::now() + most;
    constexpr int step = 50;
    while (!error && rd_kafka_consumer_closed(client_.get()) == 0 &&
           std::chrono::steady_clock::now() < end) {
      // Rebalances are served here; what else comes is a message that another member gets again.
      const MessagePtr dropped(rd_kafka_consume_queue(queue.get(), step));
    }
    return rd_kafka_consumer_closed(client_.get()) != 0;
  }

  kafka::ConfPtr consumer_conf() const {
    kafka::Settings settings{{"auto.offset.reset", "earliest"}};
    settings.insert(settings.end(), options_.settings.begin(), options_.settings.end());
    settings.insert(settings.end(), {{"bootstrap.servers", options_.brokers},
                                     {"group.id", options_.group},
                                     {"enable.auto.commit", "false"},
                                     {"enable.auto.offset.store", "false"}});
    return kafka::make_conf(settings);
  }

  void join() {
    if (client_) return;
    kafka::ConfPtr conf = consumer_conf();
    rd_kafka_conf_set_opaque(conf.get(), this);
    rd_kafka_conf_set_rebalance_cb(
        conf.get(), [](rd_kafka_t* /*client*/, rd_kafka_resp_err_t event,
                       rd_kafka_topic_partition_list_t* partitions, void* opaque) {
          static_cast<KafkaImpl*>(opaque)->on_rebalance(event, *partitions);
        });
    client_ = kafka::make_client(RD_KAFKA_CONSUMER, std::move(conf));
    rd_kafka_poll_set_consumer(client_.get());
    const ListPtr topics(
        rd_kafka_topic_partition_list_new(static_cast<int>(options_.topics.size())));
    for (const std::string& topic : options_.topics) {
      rd_kafka_topic_partition_list_add(topics.get(), topic.c_str(), RD_KAFKA_PARTITION_UA);
    }
    const rd_kafka_resp_err_t error = rd_kafka_subscribe(client_.get(), topics.get());
    if (error != RD_KAFKA_RESP_ERR_NO_ERROR) {
      client_.reset();
      kafka::throw_error(error, "subscribe");
    }
  }

  /// Called within `rd_kafka_consumer_poll` and `rd_kafka_consumer_close`, so never in the middle of a handler.
  void on_rebalance(rd_kafka_resp_err_t event, rd_kafka_topic_partition_list_t& partitions) {
    const char* protocol = rd_kafka_rebalance_protocol(client_.get());
    const bool incremental =
        protocol != nullptr && std::string_view(protocol) == std::string_view("COOPERATIVE");
    if (event == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS) {
      if (incremental) {
        const kafka::ErrorPtr ignored(rd_kafka_incremental_assign(client_.get(), &partitions));
      } else {
        rd_kafka_assign(client_.get(), &partitions);
      }
      return;
    }
    for (int at = 0; at < partitions.cnt; ++at) {
      const PartitionName name{partitions.elems[at].topic, partitions.elems[at].partition};
      blocked_.erase(name);
      std::erase_if(gathered_,
                    [&](const Delivery& one) { return partition_of(*one.message) == name; });
      if (paused_.erase(name) != 0) {  // the next assignment must not begin paused
        const ListPtr list(rd_kafka_topic_partition_list_new(1));
        rd_kafka_topic_partition_list_add(list.get(), name.first.c_str(), name.second);
        static_cast<void>(rd_kafka_resume_partitions(client_.get(), list.get()));
      }
    }
    // Of what is lost already another may have committed more.
    if (rd_kafka_assignment_lost(client_.get()) == 0) commit(Commit::now);
    if (incremental) {
      const kafka::ErrorPtr ignored(rd_kafka_incremental_unassign(client_.get(), &partitions));
    } else {
      rd_kafka_assign(client_.get(), nullptr);
    }
  }

  void poll_joined(const MessageCallback& handle, const std::stop_token& stop,
                   PolledMessages& polled) {
    hand_over_again(handle, stop, polled);
    milliseconds wait = polled.handled == 0 ? options_.wait : milliseconds{0};
    while (polled.handled < options_.batch && polled.flow == MessageFlow::proceed &&
           !stop.stop_requested()) {
      MessagePtr message(
          rd_kafka_consumer_poll(client_.get(), static_cast<int>(until_due(wait).count())));
      if (!message) break;
      if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR) {
        check(*message);
        continue;
      }
      wait = milliseconds{0};
      Delivery delivery{std::move(message)};
      hand_over(handle, delivery, polled);
    }
  }

  /// Gathers what is due again and what the brokers have, and hands it over together.
  void poll_batch_joined(const MessageBatchCallback& handle, const std::stop_token& stop,
                         PolledMessages& polled) {
    gathered_.clear();
    while (std::optional<Blocked> due = take_due()) {
      gathered_.push_back(std::move(due->first));
      std::move(due->behind.begin(), due->behind.end(), std::back_inserter(gathered_));
    }
    milliseconds wait = gathered_.empty() ? options_.wait : milliseconds{0};
    try {
      while (gathered_.size() < options_.batch && !stop.stop_requested()) {
        MessagePtr message(
            rd_kafka_consumer_poll(client_.get(), static_cast<int>(until_due(wait).count())));
        if (!message) break;
        if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR) {
          check(*message);
          continue;
        }
        wait = milliseconds{0};
        gathered_.push_back({std::move(message)});
      }
    } catch (...) {
      for (Delivery& delivery : gathered_)
        block_behind(std::move(delivery));
      gathered_.clear();
      throw;
    }
    if (gathered_.empty()) return;
    Batch batch(*this, std::exchange(gathered_, {}), stop, polled);
    try {
      handle(batch);
    } catch (...) {
      batch.keep_the_rest();
      throw;
    }
    batch.keep_the_rest();
  }

  void hand_over_again(const MessageCallback& handle, const std::stop_token& stop,
                       PolledMessages& polled) {
    while (polled.handled < options_.batch && polled.flow == MessageFlow::proceed &&
           !stop.stop_requested()) {
      std::optional<Blocked> due = take_due();
      if (!due) return;
      try {
        hand_over(handle, due->first, polled);
      } catch (...) {
        block_behind(std::move(due->behind));
        throw;
      }
      block_behind(std::move(due->behind));
    }
  }

  /// A partition whose first message may be handed over again.
  [[nodiscard]] std::optional<Blocked> take_due() {
    const SteadyTime now = std::chrono::steady_clock::now();
    for (auto found = blocked_.begin(); found != blocked_.end(); ++found) {
      if (found->second.until > now) continue;
      std::optional<Blocked> due(std::move(found->second));
      blocked_.erase(found);
      return due;
    }
    return std::nullopt;
  }

  [[nodiscard]] static PartitionName partition_of(const rd_kafka_message_t& message) {
    return {rd_kafka_topic_name(message.rkt), message.partition};
  }
  [[nodiscard]] bool is_blocked(const PartitionName& name) const { return blocked_.contains(name); }

  /// Not longer than until a message is due again.
  [[nodiscard]] milliseconds until_due(milliseconds wait) const {
    for (const auto& [name, blocked] : blocked_) {
      const auto left =
          std::chrono::ceil<milliseconds>(blocked.until - std::chrono::steady_clock::now());
      wait = std::clamp(left, milliseconds{0}, wait);
    }
    return wait;
  }

  void hand_over(const MessageCallback& handle, Delivery& delivery, PolledMessages& polled) {
    const ReceivedMessage received = received_from(*delivery.message, ++delivery.count);
    MessageDisposition disposition;
    try {
      disposition = handle(received);
      if (disposition.action == MessageAction::dead_letter) {
        put_aside(*delivery.message, received, disposition);
      }
    } catch (...) {
      block(std::move(delivery), milliseconds{1'000});
      throw;
    }
    ++polled.handled;
    polled.flow = disposition.flow;
    settle_or_block(delivery, disposition);
  }

  /// Behind the dead letter, where there is one.
  void settle_or_block(Delivery& delivery, const MessageDisposition& disposition) {
    switch (disposition.action) {
      case MessageAction::acknowledge:
      case MessageAction::dead_letter:
        return settle(*delivery.message);
      case MessageAction::redeliver_later:
      case MessageAction::requeue:
        return block(std::move(delivery), disposition.delay);
    }
  }

  [[nodiscard]] static ReceivedMessage received_from(const rd_kafka_message_t& message,
                                                     std::uint32_t deliveries) {
    const std::string topic = rd_kafka_topic_name(message.rkt);
    return {.id = topic + "/" + std::to_string(message.partition) + "/" +
                  std::to_string(message.offset),
            .key = text_of(message.key, message.key_len),
            .body = text_of(message.payload, message.len),
            .headers = headers_of(message),
            .delivery_count = deliveries,
            .source = topic};
  }

  /// Everything before it in its partition is settled, too, because a partition stands still behind a message that is not. A partition
  /// that has been taken away takes no offset any more.
  void settle(const rd_kafka_message_t& message) {
    const ListPtr list = kafka::one_partition(message);
    if (rd_kafka_assignment_lost(client_.get()) == 0) {
      list->elems[0].offset = message.offset + 1;
      static_cast<void>(rd_kafka_offsets_store(client_.get(), list.get()));
      has_settled_ = true;
    }
    // Where nothing is paused, resuming would fetch what has been handed over once more.
    if (paused_.erase({rd_kafka_topic_name(message.rkt), message.partition}) != 0) {
      static_cast<void>(rd_kafka_resume_partitions(client_.get(), list.get()));
    }
  }

  void block(Delivery delivery, milliseconds delay) {
    const ListPtr list = kafka::one_partition(*delivery.message);
    const PartitionName name = partition_of(*delivery.message);
    if (paused_.insert(name).second) {
      static_cast<void>(rd_kafka_pause_partitions(client_.get(), list.get()));
    }
    constexpr milliseconds longest = std::chrono::hours{24 * 365};
    blocked_[name] = Blocked{std::move(delivery), std::chrono::steady_clock::now() +
                                                      std::clamp(delay, milliseconds{0}, longest)};
  }
  /// Behind what its partition stands still for, or due at once.
  void block_behind(Delivery delivery) {
    const auto found = blocked_.find(partition_of(*delivery.message));
    if (found == blocked_.end()) return block(std::move(delivery), milliseconds{0});
    found->second.behind.push_back(std::move(delivery));
  }
  void block_behind(std::deque<Delivery> behind) {
    for (Delivery& delivery : behind)
      block_behind(std::move(delivery));
  }

  void put_aside(const rd_kafka_message_t& message, const ReceivedMessage& received,
                 const MessageDisposition& disposition) {
    kafka::HeadersPtr headers(rd_kafka_headers_new(received.headers.size() + 6));
    const auto add = [&](std::string_view name, std::string_view value) {
      rd_kafka_header_add(headers.get(), name.data(), static_cast<ssize_t>(name.size()),
                          value.data(), static_cast<ssize_t>(value.size()));
    };
    for (const auto& [name, value] : received.headers)
      add(name, value);
    add("dead-letter-reason", to_string(disposition.reason));
    add("dead-letter-detail", disposition.detail);
    add("dead-letter-attempts", std::to_string(disposition.attempts));
    add("dead-letter-id", received.id);
    add("dead-letter-group", options_.group);
    if (!producer_) producer_.emplace(options_);
    const std::string topic =
        options_.dead_letter_topic.empty() ? received.source + ".dead" : options_.dead_letter_topic;
    producer_->produce(topic, message, std::move(headers));
  }

  /// What is no message: most of it librdkafka mends by itself.
  void check(const rd_kafka_message_t& event) const {
    std::array<char, 512> words{};
    const rd_kafka_resp_err_t fatal =
        rd_kafka_fatal_error(client_.get(), words.data(), words.size());
    if (fatal != RD_KAFKA_RESP_ERR_NO_ERROR) {
      kafka::throw_error(RD_KAFKA_RESP_ERR__FATAL, words.data());
    }
    if (kafka::is_refusal(event.err) || event.err == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART) {
      kafka::throw_error(event.err, rd_kafka_message_errstr(&event));
    }
  }

  /// A commit that fails, as of a partition that is lost, costs a repetition that the record answers.
  void commit(Commit when) noexcept {
    if (!client_ || !has_settled_) return;
    has_settled_ = false;
    static_cast<void>(rd_kafka_commit(client_.get(), nullptr, when == Commit::behind ? 1 : 0));
  }

  KafkaOptions options_;
  kafka::ClientPtr client_;
  std::optional<kafka::Producer> producer_;
  std::map<PartitionName, Blocked> blocked_;
  std::set<PartitionName> paused_;
  std::deque<Delivery> gathered_;  ///< for the batch of this round
  bool has_settled_ = false;
};

}  // namespace detail

KafkaConsumer::KafkaConsumer(KafkaOptions options)
    : impl_(std::make_unique<detail::KafkaImpl>(std::move(options))) {}

KafkaConsumer::~KafkaConsumer() = default;

PolledMessages KafkaConsumer::poll(const MessageCallback& handle) {
  return impl_->poll(handle, {});
}

PolledMessages KafkaConsumer::poll_batch(const MessageBatchCallback& handle) {
  return impl_->poll_batch(handle, {});
}

ConsumeEnd KafkaConsumer::run(const std::stop_token& stop, const MessageCallback& handle) {
  const ConsumeEnd end =
      detail::poll_until_stopped(stop, [&] { return impl_->poll(handle, stop); });
  impl_->leave();
  return end;
}

ConsumeEnd KafkaConsumer::run_batches(const std::stop_token& stop,
                                      const MessageBatchCallback& handle) {
  const ConsumeEnd end =
      detail::poll_until_stopped(stop, [&] { return impl_->poll_batch(handle, stop); });
  impl_->leave();
  return end;
}

}  // namespace v0
}  // namespace idempotency
