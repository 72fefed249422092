#include "idempotency/edges/kafka.hpp"

#include <gtest/gtest.h>
#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "idempotency/edges/consumer.hpp"
#include "idempotency/idempotency.hpp"
#include "idempotency/stores/memory.hpp"
#include "support/error_of.hpp"
#include "support/event.hpp"
#include "support/patience.hpp"

namespace idempotency {
namespace {

using namespace std::chrono_literals;
using testing_support::Event;
using testing_support::Patience;

struct Destroy {
  void operator()(rd_kafka_t* client) const noexcept { rd_kafka_destroy(client); }
};
using Client = std::unique_ptr<rd_kafka_t, Destroy>;
struct Forget {
  void operator()(rd_kafka_topic_t* topic) const noexcept { rd_kafka_topic_destroy(topic); }
};
using Topic = std::unique_ptr<rd_kafka_topic_t, Forget>;

/// The cluster that librdkafka brings along for tests, with a producer on it.
class MockCluster {
 public:
  MockCluster() {
    rd_kafka_conf_t* conf = rd_kafka_conf_new();
    std::array<char, 256> words{};
    rd_kafka_conf_set(conf, "test.mock.num.brokers", "1", words.data(), words.size());
    rd_kafka_conf_set(conf, "linger.ms", "1000", words.data(), words.size());  // until `flush`
    rd_kafka_conf_set_log_cb(conf, [](const rd_kafka_t*, int, const char*, const char*) {});
    producer_.reset(rd_kafka_new(RD_KAFKA_PRODUCER, conf, words.data(), words.size()));
    if (!producer_) throw std::runtime_error(words.data());
  }

  [[nodiscard]] std::string brokers() const { return rd_kafka_mock_cluster_bootstraps(cluster()); }
  /// The producer looks at once where the partitions are: what it is given before it knows, it
  /// sends in as many requests as it likes.
  void create(const std::string& topic, int partitions) {
    ASSERT_EQ(rd_kafka_mock_topic_create(cluster(), topic.c_str(), partitions, 1),
              RD_KAFKA_RESP_ERR_NO_ERROR);
    topics_.emplace_back(rd_kafka_topic_new(producer_.get(), topic.c_str(), nullptr));
    const rd_kafka_metadata_t* found = nullptr;
    ASSERT_EQ(rd_kafka_metadata(producer_.get(), 0, topics_.back().get(), &found, 30'000),
              RD_KAFKA_RESP_ERR_NO_ERROR);
    rd_kafka_metadata_destroy(found);
  }
  void send(const std::string& topic, std::int32_t partition, const std::string& key,
            const std::string& body) const {
    produce(topic, partition, key, body);
    ASSERT_EQ(rd_kafka_flush(producer_.get(), 30'000), RD_KAFKA_RESP_ERR_NO_ERROR);
  }
  /// So that one fetch brings them all.
  void send_together(const std::string& topic, std::int32_t partition,
                     const std::vector<std::string>& keys) const {
    for (const std::string& key : keys)
      produce(topic, partition, key, "");
    ASSERT_EQ(rd_kafka_flush(producer_.get(), 30'000), RD_KAFKA_RESP_ERR_NO_ERROR);
  }
  /// The offset that the group has committed; -1001 for none.
  [[nodiscard]] std::int64_t committed(const std::string& group, const std::string& topic,
                                       std::int32_t partition) const {
    rd_kafka_conf_t* conf = rd_kafka_conf_new();
    std::array<char, 256> words{};
    rd_kafka_conf_set(conf, "bootstrap.servers", brokers().c_str(), words.data(), words.size());
    rd_kafka_conf_set(conf, "group.id", group.c_str(), words.data(), words.size());
    const Client client(rd_kafka_new(RD_KAFKA_CONSUMER, conf, words.data(), words.size()));
    rd_kafka_topic_partition_list_t* list = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(list, topic.c_str(), partition);
    EXPECT_EQ(rd_kafka_committed(client.get(), list, 30'000), RD_KAFKA_RESP_ERR_NO_ERROR);
    const std::int64_t offset = list->elems[0].offset;
    rd_kafka_topic_partition_list_destroy(list);
    return offset;
  }
  void fail_next_produce(rd_kafka_resp_err_t error) const {
    constexpr std::int16_t produce = 0;
    rd_kafka_mock_push_request_errors(cluster(), produce, 1, error);
  }
  void set_reachable(bool reachable) const {
    if (reachable) {
      rd_kafka_mock_broker_set_up(cluster(), 1);
    } else {
      rd_kafka_mock_broker_set_down(cluster(), 1);
    }
  }

 private:
  void produce(const std::string& topic, std::int32_t partition, const std::string& key,
               const std::string& body) const {
    std::array<rd_kafka_vu_t, 6> parts{};
    parts[0].vtype = RD_KAFKA_VTYPE_TOPIC;
    parts[0].u.cstr = topic.c_str();
    parts[1].vtype = RD_KAFKA_VTYPE_PARTITION;
    parts[1].u.i32 = partition;
    parts[2].vtype = RD_KAFKA_VTYPE_KEY;
    parts[2].u.mem = {const_cast<char*>(key.data()), key.size()};
    parts[3].vtype = RD_KAFKA_VTYPE_VALUE;
    parts[3].u.mem = {const_cast<char*>(body.data()), body.size()};
    parts[4].vtype = RD_KAFKA_VTYPE_HEADER;
    parts[4].u.header = {"kind", "order", -1};
    parts[5].vtype = RD_KAFKA_VTYPE_MSGFLAGS;
    parts[5].u.i = RD_KAFKA_MSG_F_COPY;
    ASSERT_EQ(rd_kafka_produceva(producer_.get(), parts.data(), parts.size()), nullptr);
  }
  [[nodiscard]] rd_kafka_mock_cluster_t* cluster() const {
    return rd_kafka_handle_mock_cluster(producer_.get());
  }
  Client producer_;
  std::vector<Topic> topics_;  ///< known to the producer as long as they live
};

class Kafka : public ::testing::Test {
 protected:
  void SetUp() override {
    cluster_.create("orders", 2);
    cluster_.create("orders.dead", 1);
  }
  [[nodiscard]] KafkaOptions options() const {
    return {.brokers = cluster_.brokers(),
            .group = "billing",
            .topics = {"orders"},
            .wait = 20ms,
            .settings = {{"session.timeout.ms", "6000"}, {"heartbeat.interval.ms", "100"}}};
  }
  template <class Handle>
  static void poll_until(KafkaConsumer& source, std::size_t messages, Handle handle) {
    std::size_t handled = 0;
    for (const Patience patience; patience.lasts() && handled < messages;) {
      handled += source.poll(handle).handled;
    }
    EXPECT_EQ(handled, messages);
  }
  static auto order_key() { return key_of("order", &ReceivedMessage::key); }

  MockCluster cluster_;
  MemoryStore store_;
  IdempotencyGuard<MemoryStore> guard_{store_};
};

const auto acknowledge = [](const ReceivedMessage&) { return MessageDisposition{}; };

TEST_F(Kafka, HandsAMessageOverWithAllThatItHolds) {
  const std::string body("a\0b", 3);
  cluster_.send("orders", 1, "7", body);
  KafkaConsumer source{options()};
  ReceivedMessage seen;

  poll_until(source, 1, [&](const ReceivedMessage& message) {
    seen = message;
    return MessageDisposition{};
  });

  EXPECT_EQ(seen.id, "orders/1/0");
  EXPECT_EQ(seen.key, "7");
  EXPECT_EQ(seen.body, body);
  EXPECT_EQ(seen.source, "orders");
  EXPECT_EQ(seen.delivery_count, 1U);
  EXPECT_EQ(seen.headers, (std::vector<std::pair<std::string, std::string>>{{"kind", "order"}}));
}

TEST_F(Kafka, HandlesAnOrderOnceThatItsProducerSentTwice) {
  cluster_.send("orders", 0, "7", "");
  cluster_.send("orders", 1, "7", "");
  cluster_.send("orders", 1, "8", "");
  IdempotentConsumer consumer{guard_, order_key()};
  int runs = 0;
  {
    KafkaConsumer source{options()};
    poll_until(source, 3, [&](const ReceivedMessage& message) {
      return consumer.handle(message, [&](const ReceivedMessage&) { ++runs; });
    });
  }

  EXPECT_EQ(runs, 2);
  EXPECT_EQ(cluster_.committed("billing", "orders", 0), 1);
  EXPECT_EQ(cluster_.committed("billing", "orders", 1), 2);
}

TEST_F(Kafka, RetriesInPlaceAndLetsOtherPartitionsGoOn) {
  cluster_.send("orders", 0, "a", "");
  cluster_.send("orders", 0, "b", "");
  cluster_.send("orders", 1, "c", "");
  cluster_.send("orders", 1, "d", "");
  KafkaConsumer source{options()};
  std::vector<std::string> order;
  std::map<std::string, std::uint32_t> deliveries;

  poll_until(source, 6, [&](const ReceivedMessage& message) {
    order.push_back(message.key);
    deliveries[message.key] = message.delivery_count;
    if (message.key == "a" && message.delivery_count < 3) {
      return MessageDisposition{.action = MessageAction::requeue, .delay = 30ms};
    }
    return MessageDisposition{};
  });

  EXPECT_EQ(deliveries,
            (std::map<std::string, std::uint32_t>{{"a", 3}, {"b", 1}, {"c", 1}, {"d", 1}}));
  EXPECT_EQ(order.back(), "b") << "what lies behind a message waits for it";
}

TEST_F(Kafka, CommitsNothingBehindAMessageThatIsNotSettled) {
  cluster_.send("orders", 0, "a", "");
  cluster_.send("orders", 0, "b", "");
  cluster_.send("orders", 0, "c", "");
  {
    KafkaConsumer source{options()};
    std::vector<std::string> seen;
    poll_until(source, 2, [&](const ReceivedMessage& message) {
      seen.push_back(message.key);
      if (message.key == "a") return MessageDisposition{};
      return MessageDisposition{.action = MessageAction::redeliver_later, .delay = 1h};
    });
    for (int round = 0; round < 5; ++round)
      EXPECT_EQ(source.poll(acknowledge).handled, 0U);
    EXPECT_EQ(seen, (std::vector<std::string>{"a", "b"}));
  }
  EXPECT_EQ(cluster_.committed("billing", "orders", 0), 1);
  std::vector<std::string> seen;
  KafkaConsumer heir{options()};

  poll_until(heir, 2, [&](const ReceivedMessage& message) {
    seen.push_back(message.key);
    return MessageDisposition{};
  });

  EXPECT_EQ(seen, (std::vector<std::string>{"b", "c"}));
}

TEST_F(Kafka, PutsADeadLetterAsideWithItsReason) {
  cluster_.send("orders", 0, "7", "payload");
  {
    KafkaConsumer source{options()};
    poll_until(source, 1, [](const ReceivedMessage&) {
      return MessageDisposition{.action = MessageAction::dead_letter,
                                .reason = MessageReason::mismatch,
                                .attempts = 3,
                                .detail = "order:7"};
    });
  }
  KafkaOptions grave = options();
  grave.topics = {"orders.dead"};
  KafkaConsumer mourner{grave};
  ReceivedMessage dead;

  poll_until(mourner, 1, [&](const ReceivedMessage& message) {
    dead = message;
    return MessageDisposition{};
  });

  EXPECT_EQ(dead.key, "7");
  EXPECT_EQ(dead.body, "payload");
  EXPECT_EQ(dead.headers,
            (std::vector<std::pair<std::string, std::string>>{{"kind", "order"},
                                                              {"dead-letter-reason", "mismatch"},
                                                              {"dead-letter-detail", "order:7"},
                                                              {"dead-letter-attempts", "3"},
                                                              {"dead-letter-id", "orders/0/0"},
                                                              {"dead-letter-group", "billing"}}));
  EXPECT_EQ(cluster_.committed("billing", "orders", 0), 1);
}

TEST_F(Kafka, KeepsAMessageWhoseDeadLetterWasNotConfirmed) {
  cluster_.send("orders", 0, "7", "");
  cluster_.send("orders", 0, "8", "");
  {
    KafkaConsumer source{options()};
    cluster_.fail_next_produce(RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED);
    EXPECT_EQ(testing_support::code_of([&] {
                poll_until(source, 1, [](const ReceivedMessage&) {
                  return MessageDisposition{.action = MessageAction::dead_letter};
                });
              }),
              Errc::store_refused);
  }
  EXPECT_LT(cluster_.committed("billing", "orders", 0), 0) << "nothing is committed";
}

TEST_F(Kafka, StopsWhereTheSetUpIsWrongAndLosesNothing) {
  cluster_.send("orders", 0, "7", "");
  KafkaConsumer source{options()};

  const ConsumeEnd end = source.run({}, [](const ReceivedMessage&) {
    return MessageDisposition{.action = MessageAction::redeliver_later,
                              .reason = MessageReason::refused,
                              .flow = MessageFlow::stop,
                              .delay = 1ms};
  });

  EXPECT_EQ(end, ConsumeEnd::refused);
  poll_until(source, 1, acknowledge);
}

TEST_F(Kafka, LeavesTheMessageWhereItIsWhenTheCallbackThrows) {
  cluster_.send("orders", 0, "7", "");
  {
    KafkaConsumer source{options()};
    EXPECT_THROW(poll_until(source, 1,
                            [](const ReceivedMessage&) -> MessageDisposition {
                              throw std::runtime_error("not allowed");
                            }),
                 std::runtime_error);
  }
  KafkaConsumer heir{options()};

  poll_until(heir, 1, acknowledge);
}

// A partition is taken away from a consumer that is in the middle of a handler for too long.
TEST_F(Kafka, RunsAMessageOnceWhosePartitionIsTakenAwayInTheMiddleOfItsHandler) {
  constexpr int messages = 6;
  for (int number = 0; number < messages; ++number) {
    cluster_.send("orders", number % 2, std::to_string(number), "");
  }
  IdempotentConsumer consumer{
      guard_, order_key(), {.first_delay = 10ms, .longest_delay = 20ms, .policy = {.lease = 3s}}};
  KafkaOptions impatient = options();
  impatient.settings = {{"session.timeout.ms", "5000"},
                        {"max.poll.interval.ms", "5000"},
                        {"heartbeat.interval.ms", "100"}};
  std::mutex mutex;
  std::multiset<std::string> runs;
  const auto note = [&](const ReceivedMessage& message) {
    const std::scoped_lock lock(mutex);
    runs.insert(message.key);
  };
  Event started;
  Event second_has_asked;
  std::atomic<bool> settled{false};
  std::thread first([&] {
    KafkaConsumer slow{impatient};
    std::stop_source stop;
    while (!settled) {
      static_cast<void>(slow.poll([&](const ReceivedMessage& message) {
        return consumer.handle(message, [&](const ReceivedMessage& handled) {
          note(handled);
          if (started.has_happened()) return;
          started.set();
          EXPECT_TRUE(second_has_asked.wait(60s)) << "nobody else got the message";
        });
      }));
    }
  });
  ASSERT_TRUE(started.wait());

  KafkaConsumer other{options()};
  for (const Patience patience; patience.lasts() && !settled;) {
    static_cast<void>(other.poll([&](const ReceivedMessage& message) {
      const MessageDisposition disposition = consumer.handle(message, note);
      if (disposition.reason == MessageReason::running_elsewhere) second_has_asked.set();
      return disposition;
    }));
    const std::scoped_lock lock(mutex);
    settled = runs.size() >= messages && consumer.counts().of(MessageReason::done) >= messages;
  }
  second_has_asked.set();
  first.join();

  for (int number = 0; number < messages; ++number) {
    EXPECT_EQ(runs.count(std::to_string(number)), 1U) << "order " << number;
  }
  EXPECT_GE(consumer.counts().of(MessageReason::running_elsewhere), 1U);
}

TEST_F(Kafka, SharesTheWorkWithAMemberThatJoinsAndLeaves) {
  constexpr int messages = 40;
  for (int number = 0; number < messages; ++number) {
    cluster_.send("orders", number % 2, std::to_string(number), "");
  }
  IdempotentConsumer consumer{guard_, order_key()};
  std::atomic<int> runs{0};
  const auto handle = [&](const ReceivedMessage& message) {
    return consumer.handle(message, [&](const ReceivedMessage&) { ++runs; });
  };
  KafkaOptions small = options();
  small.batch = 1;
  std::stop_source stop;
  std::thread joining([&] {
    KafkaConsumer guest{small};
    for (int round = 0; round < 20 && runs < messages; ++round)
      static_cast<void>(guest.poll(handle));
  });

  KafkaConsumer host{small};
  for (const Patience patience; patience.lasts() && runs < messages;)
    static_cast<void>(host.poll(handle));
  joining.join();

  EXPECT_EQ(runs, messages);
}

TEST_F(Kafka, EndsAlsoWhenItsBrokersHaveGone) {
  cluster_.send("orders", 0, "7", "");
  cluster_.send("orders", 1, "8", "");
  {
    KafkaConsumer source{options()};
    poll_until(source, 2, [&](const ReceivedMessage& message) {
      if (message.key == "8") {
        return MessageDisposition{.action = MessageAction::requeue, .delay = 1h};
      }
      return MessageDisposition{};
    });
    cluster_.send("orders", 0, "9", "");
    poll_until(source, 1, [&](const ReceivedMessage&) {
      cluster_.set_reachable(false);
      return MessageDisposition{};
    });
    EXPECT_EQ(source.poll(acknowledge).handled, 0U);
  }
  cluster_.set_reachable(true);
  KafkaConsumer heir{options()};

  std::set<std::string> seen;
  for (const Patience patience; patience.lasts() && !seen.contains("8");) {
    static_cast<void>(heir.poll([&](const ReceivedMessage& message) {
      seen.insert(message.key);
      return MessageDisposition{};
    }));
  }

  EXPECT_TRUE(seen.contains("8"));
}

TEST_F(Kafka, KeepsTheOrderOfAPartitionInBatchesWhoseFirstMessageFails) {
  for (const char* id : {"a", "b", "c"})
    cluster_.send("orders", 0, id, "");
  cluster_.send("orders", 1, "d", "");
  IdempotentConsumer consumer{guard_, order_key(), {.first_delay = 1ms, .longest_delay = 1ms}};
  std::vector<std::string> handled;
  int failures = 2;
  {
    KafkaConsumer source{options()};
    for (const Patience patience; patience.lasts() && handled.size() < 6;) {
      source.poll_batch([&](MessageBatch& batch) {
        consumer.handle_batch(batch, [&](const ReceivedMessage& message) {
          handled.push_back(message.key);
          if (message.key == "a" && failures-- > 0) throw RetryableFailure("later");
        });
      });
    }
  }

  std::vector<std::string> of_first;
  std::copy_if(handled.begin(), handled.end(), std::back_inserter(of_first),
               [](const std::string& key) { return key != "d"; });
  EXPECT_EQ(of_first, (std::vector<std::string>{"a", "a", "a", "b", "c"}));
  EXPECT_EQ(handled.size(), 6U);
  EXPECT_EQ(cluster_.committed("billing", "orders", 0), 3);
  EXPECT_EQ(cluster_.committed("billing", "orders", 1), 1);
}

TEST_F(Kafka, HandsWhatABatchDidNotSettleOverAgainAsIfForTheFirstTime) {
  for (const char* id : {"a", "b", "c"})
    cluster_.send("orders", 0, id, "");
  std::vector<std::string> first;
  std::set<std::uint32_t> deliveries;
  {
    KafkaConsumer source{options()};
    for (const Patience patience; patience.lasts() && first.size() < 2;) {
      source.poll_batch([&](MessageBatch& batch) {
        first.push_back(batch.messages().front().key);
        for (const ReceivedMessage& message : batch.messages())
          deliveries.insert(message.delivery_count);
        batch.settle(0, {});
      });
    }
  }

  EXPECT_EQ(first, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(deliveries, (std::set<std::uint32_t>{1})) << "nobody had handled them";
  EXPECT_EQ(cluster_.committed("billing", "orders", 0), 2);
}

TEST_F(Kafka, HandlesAnOrderThatWasSentTwiceAndFailsOnceInABatch) {
  IdempotentConsumer consumer{
      guard_, order_key(), {.first_delay = 1ms, .longest_delay = 1ms, .policy = {.lease = 100ms}}};
  cluster_.send_together("orders", 0, {"a", "a", "b"});
  std::vector<std::string> handled;
  bool failed = false;
  std::size_t largest = 0;
  {
    KafkaConsumer source{options()};
    for (const Patience patience; patience.lasts() && handled.size() < 3;) {
      source.poll_batch([&](MessageBatch& batch) {
        largest = std::max(largest, batch.messages().size());
        consumer.handle_batch(batch, [&](const ReceivedMessage& message) {
          handled.push_back(message.key);
          if (!std::exchange(failed, true)) throw RetryableFailure("once");
        });
      });
    }
  }
  EXPECT_EQ(largest, 3U);
  EXPECT_EQ(handled, (std::vector<std::string>{"a", "a", "b"}))
      << "running_elsewhere: "
      << consumer.counts().by_reason[static_cast<std::size_t>(MessageReason::running_elsewhere)];
  EXPECT_EQ(cluster_.committed("billing", "orders", 0), 3);
}

TEST_F(Kafka, GivesEachMessageOfABatchItsAttemptsWhateverStoodBeforeIt) {
  IdempotentConsumer consumer{
      guard_, order_key(), {.max_attempts = 3, .first_delay = 1ms, .longest_delay = 1ms}};
  cluster_.send_together("orders", 0, {"a", "b", "c"});
  std::map<std::string, int> tries;
  {
    KafkaConsumer source{options()};
    for (const Patience patience; patience.lasts() && tries["c"] == 0;) {
      source.poll_batch([&](MessageBatch& batch) {
        consumer.handle_batch(batch, [&](const ReceivedMessage& message) {
          const int tried = ++tries[message.key];
          if (message.key == "a" && tried <= 2) throw RetryableFailure("twice");
          if (message.key == "b" && tried <= 1) throw RetryableFailure("once");
        });
      });
    }
  }
  EXPECT_EQ(tries["a"], 3);
  EXPECT_EQ(tries["b"], 2) << "it failed once, and max_attempts is 3";
  EXPECT_EQ(consumer.counts().dead_lettered, 0U);
}

TEST_F(Kafka, RefusesToSettleAMessageBeforeThoseInFrontOfIt) {
  cluster_.send_together("orders", 0, {"a", "b"});
  cluster_.send_together("orders", 1, {"c"});
  std::size_t largest = 0;
  {
    KafkaConsumer source{options()};
    for (const Patience patience; patience.lasts() && largest < 2;) {
      static_cast<void>(source.poll_batch([&](MessageBatch& batch) {
        for (std::size_t place = 0; place < batch.messages().size(); ++place) {
          const std::string& key = batch.messages()[place].key;
          largest = std::max(largest, key == "c" ? std::size_t{0} : batch.messages().size());
          EXPECT_EQ(batch.may_be_handled(place), key != "b") << key;
          if (key != "b") continue;
          EXPECT_EQ(testing_support::code_of([&] { batch.settle(place, {}); }),
                    Errc::invalid_argument);
        }
      }));
    }
  }

  EXPECT_GE(largest, 2U);
  EXPECT_LT(cluster_.committed("billing", "orders", 0), 0) << "nothing is settled";
}

TEST_F(Kafka, RefusesWhatCannotWork) {
  const auto code = [](const KafkaOptions& wrong) {
    return testing_support::code_of([&] { KafkaConsumer source{wrong}; });
  };
  KafkaOptions nameless = options();
  nameless.group.clear();
  KafkaOptions circular = options();
  circular.dead_letter_topic = "orders";
  KafkaOptions meddling = options();
  meddling.settings = {{"enable.auto.commit", "true"}};
  KafkaOptions unknown = options();
  unknown.settings = {{"no.such.setting", "1"}};

  EXPECT_EQ(code(nameless), Errc::invalid_argument);
  EXPECT_EQ(code(circular), Errc::invalid_argument);
  EXPECT_EQ(code(meddling), Errc::invalid_argument);
  EXPECT_EQ(code(unknown), Errc::invalid_argument);
}

}  // namespace
}  // namespace idempotency
