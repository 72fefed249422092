#include "idempotency/edges/rabbitmq.hpp"

#include <amqp.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "edges/rabbitmq/rabbitmq_link.hpp"
#include "idempotency/edges/consumer.hpp"
#include "idempotency/idempotency.hpp"
#include "idempotency/stores/memory.hpp"
#include "support/error_of.hpp"
#include "support/event.hpp"
#include "support/rabbitmq_server.hpp"
#include "support/tcp_relay.hpp"

namespace idempotency {
namespace {

using namespace std::chrono_literals;
using detail::rabbitmq::as_bytes;
using detail::rabbitmq::as_text;
using detail::rabbitmq::channel;
using testing_support::Event;
using testing_support::RabbitMqServer;

/// A producer, and somebody who looks into queues, on a queue of the test's own.
class RabbitMq : public ::testing::Test {
 protected:
  RabbitMq()
      : queue_(::testing::UnitTest::GetInstance()->current_test_info()->name()),
        link_(server().options()) {}
  static RabbitMqServer& server() { return RabbitMqServer::shared(); }

  [[nodiscard]] RabbitMqOptions options() const {
    RabbitMqOptions options = server().options();
    options.queue = queue_;
    options.retry_step = 10ms;
    options.wait = 20ms;
    return options;
  }
  void send(const std::string& order, const std::string& body = "100",
            std::vector<std::pair<std::string, std::string>> more = {}) {
    link_.declare(queue_, {});
    std::vector<amqp_table_entry_t> headers;
    more.emplace_back("order", order);
    for (const auto& [name, value] : more) {
      amqp_table_entry_t entry{};
      entry.key = as_bytes(name);
      entry.value.kind = AMQP_FIELD_KIND_UTF8;
      entry.value.value.bytes = as_bytes(value);
      headers.push_back(entry);
    }
    amqp_basic_properties_t properties{};
    properties._flags = AMQP_BASIC_MESSAGE_ID_FLAG | AMQP_BASIC_HEADERS_FLAG |
                        AMQP_BASIC_EXPIRATION_FLAG | AMQP_BASIC_USER_ID_FLAG;
    const std::string id = "message-" + order;
    properties.message_id = as_bytes(id);
    properties.expiration = as_bytes("600000");
    properties.user_id = as_bytes("guest");
    properties.headers.entries = headers.data();
    properties.headers.num_entries = static_cast<int>(headers.size());
    ASSERT_EQ(amqp_basic_publish(link_.state(), channel, amqp_empty_bytes, as_bytes(queue_), 1, 0,
                                 &properties, as_bytes(body)),
              AMQP_STATUS_OK);
  }
  /// How many wait in a queue, those left out that a consumer holds.
  [[nodiscard]] std::size_t depth(const std::string& queue) const {
    const amqp_queue_declare_ok_t* answer =
        amqp_queue_declare(link_.state(), channel, as_bytes(queue), 1, 0, 0, 0, amqp_empty_table);
    link_.check_reply("depth");
    return answer->message_count;
  }
  template <class Handle>
  static void poll_until(RabbitMqConsumer& source, std::size_t messages, Handle handle) {
    std::size_t handled = 0;
    for (int round = 0; round < 2'000 && handled < messages; ++round) {
      handled += source.poll(handle).handled;
    }
    EXPECT_EQ(handled, messages);
  }
  static auto order_key() { return key_of("order", header("order")); }

  std::string queue_;
  detail::rabbitmq::Link link_;
  MemoryStore store_;
  IdempotencyGuard<MemoryStore> guard_{store_};
};

TEST_F(RabbitMq, HandsAMessageOverWithAllThatItHolds) {
  const std::string body("a\0b", 3);
  send("7", body);
  RabbitMqConsumer source{options()};
  ReceivedMessage seen;

  poll_until(source, 1, [&](const ReceivedMessage& message) {
    seen = message;
    return MessageDisposition{};
  });

  EXPECT_EQ(seen.id, "message-7");
  EXPECT_EQ(seen.key, queue_);
  EXPECT_EQ(seen.body, body);
  EXPECT_EQ(seen.source, queue_);
  EXPECT_EQ(seen.delivery_count, 1U);
  EXPECT_EQ(seen.headers, (std::vector<std::pair<std::string, std::string>>{{"order", "7"}}));
}

TEST_F(RabbitMq, HandlesAnOrderOnceThatItsProducerSentTwice) {
  send("7");
  send("7");
  send("8");
  RabbitMqConsumer source{options()};
  IdempotentConsumer consumer{guard_, order_key()};
  int runs = 0;

  poll_until(source, 3, [&](const ReceivedMessage& message) {
    return consumer.handle(message, [&](const ReceivedMessage&) { ++runs; });
  });

  EXPECT_EQ(runs, 2);
}

TEST_F(RabbitMq, SendsAMessageBackForItsDelayAndCountsItsDeliveries) {
  send("7", "payload");
  RabbitMqConsumer source{options()};
  std::vector<ReceivedMessage> seen;

  poll_until(source, 3, [&](const ReceivedMessage& message) {
    seen.push_back(message);
    if (seen.size() == 3) return MessageDisposition{};
    return MessageDisposition{.action = MessageAction::requeue, .delay = 15ms};
  });

  ASSERT_EQ(seen.size(), 3U);
  EXPECT_EQ(seen[1].delivery_count, 2U);
  EXPECT_EQ(seen[2].delivery_count, 3U);
  EXPECT_EQ(seen[2].body, "payload");
  EXPECT_EQ(seen[2].id, "message-7");
  EXPECT_EQ(seen[2].key, seen[0].key) << "the producer's routing key";
  EXPECT_EQ(depth(queue_ + ".retry.20"), 0U) << "15 ms are rounded up to 20";
  EXPECT_EQ(depth(queue_), 0U);
}

TEST_F(RabbitMq, KeepsAMessageInTheQueueOfItsDelay) {
  send("7");
  RabbitMqConsumer source{options()};

  poll_until(source, 1, [](const ReceivedMessage&) {
    return MessageDisposition{.action = MessageAction::redeliver_later, .delay = 1h};
  });

  EXPECT_EQ(depth(queue_ + ".retry.5242880"), 1U);
  EXPECT_EQ(depth(queue_), 0U);
}

TEST_F(RabbitMq, PutsADeadLetterAsideWithItsReason) {
  send("7", "payload");
  RabbitMqConsumer source{options()};

  poll_until(source, 1, [](const ReceivedMessage&) {
    return MessageDisposition{.action = MessageAction::dead_letter,
                              .reason = MessageReason::uncertain,
                              .attempts = 3,
                              .detail = "order:7"};
  });

  RabbitMqOptions grave = options();
  grave.queue = queue_ + ".dead";
  grave.declare = RabbitMqQueue::existing;
  RabbitMqConsumer mourner{grave};
  std::map<std::string, std::string> headers;
  poll_until(mourner, 1, [&](const ReceivedMessage& message) {
    EXPECT_EQ(message.body, "payload");
    headers = {message.headers.begin(), message.headers.end()};
    return MessageDisposition{};
  });
  EXPECT_EQ(headers, (std::map<std::string, std::string>{{"order", "7"},
                                                         {"dead-letter-reason", "uncertain"},
                                                         {"dead-letter-detail", "order:7"},
                                                         {"dead-letter-attempts", "3"},
                                                         {"dead-letter-queue", queue_}}));
}

TEST_F(RabbitMq, SurvivesThatTheConnectionBreaksInTheMiddleOfAHandler) {
  send("7");
  testing_support::TcpRelay relay(server().port());
  RabbitMqOptions through_relay = options();
  through_relay.port = relay.port();
  RabbitMqConsumer source{through_relay};
  IdempotentConsumer consumer{guard_, order_key()};
  std::stop_source stop;
  int runs = 0;
  std::vector<std::uint32_t> deliveries;

  const ConsumeEnd end = source.run(stop.get_token(), [&](const ReceivedMessage& message) {
    deliveries.push_back(message.delivery_count);
    const MessageDisposition disposition = consumer.handle(message, [&](const ReceivedMessage&) {
      ++runs;
      relay.cut();
    });
    if (disposition.reason == MessageReason::done_before) stop.request_stop();
    return disposition;
  });

  EXPECT_EQ(end, ConsumeEnd::stop_requested);
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(deliveries, (std::vector<std::uint32_t>{1, 2}));
  EXPECT_EQ(depth(queue_), 0U);
}

TEST_F(RabbitMq, GivesBackWhatItHasFetchedWhenItEnds) {
  for (const std::string order : {"1", "2", "3"})
    send(order);
  std::set<std::string> seen;
  std::stop_source stop;
  {
    RabbitMqConsumer source{options()};
    EXPECT_EQ(source.run(stop.get_token(),
                         [&](const ReceivedMessage& message) {
                           seen.insert(message.headers.front().second);
                           stop.request_stop();
                           return MessageDisposition{};
                         }),
              ConsumeEnd::stop_requested);
  }
  EXPECT_EQ(seen.size(), 1U);

  RabbitMqConsumer heir{options()};
  poll_until(heir, 2, [&](const ReceivedMessage& message) {
    seen.insert(message.headers.front().second);
    return MessageDisposition{};
  });

  EXPECT_EQ(seen, (std::set<std::string>{"1", "2", "3"}));
}

TEST_F(RabbitMq, LeavesTheMessageWithTheServerWhenTheCallbackThrows) {
  send("7");
  RabbitMqConsumer source{options()};
  EXPECT_THROW(poll_until(source, 1,
                          [](const ReceivedMessage&) -> MessageDisposition {
                            throw std::runtime_error("not allowed");
                          }),
               std::runtime_error);

  poll_until(source, 1, [](const ReceivedMessage& message) {
    EXPECT_EQ(message.delivery_count, 2U);
    return MessageDisposition{};
  });
}

TEST_F(RabbitMq, StopsWhereTheSetUpIsWrongAndLosesNothing) {
  send("7");
  send("8");
  RabbitMqConsumer source{options()};

  const ConsumeEnd end = source.run({}, [](const ReceivedMessage&) {
    return MessageDisposition{.action = MessageAction::redeliver_later,
                              .reason = MessageReason::refused,
                              .flow = MessageFlow::stop,
                              .delay = 1ms};
  });

  EXPECT_EQ(end, ConsumeEnd::refused);
  poll_until(source, 2, [](const ReceivedMessage&) { return MessageDisposition{}; });
}

// TC-12
TEST_F(RabbitMq, DeliversAMessageLaterThatTwoConsumersHadAtOnceAndTheFirstFailed) {
  send("7");
  send("7");
  IdempotentConsumer consumer{
      guard_, order_key(), {.first_delay = 1ms, .longest_delay = 1ms, .policy = {.lease = 200ms}}};
  RabbitMqOptions one = options();
  one.prefetch = 1;
  Event started;
  Event may_fail;
  int done = 0;
  std::thread running([&] {
    RabbitMqConsumer slow{one};
    poll_until(slow, 1, [&](const ReceivedMessage& message) {
      return consumer.handle(message, [&](const ReceivedMessage&) {
        started.set();
        EXPECT_TRUE(may_fail.wait());
        throw std::runtime_error("broken");
      });
    });
  });
  ASSERT_TRUE(started.wait());
  RabbitMqConsumer other{one};
  MessageDisposition second;

  poll_until(other, 1, [&](const ReceivedMessage& message) {
    second = consumer.handle(message, [&](const ReceivedMessage&) { ++done; });
    return second;
  });
  may_fail.set();
  running.join();
  poll_until(other, 2, [&](const ReceivedMessage& message) {
    return consumer.handle(message, [&](const ReceivedMessage&) { ++done; });
  });

  EXPECT_EQ(second.reason, MessageReason::running_elsewhere);
  EXPECT_EQ(done, 1);
  EXPECT_EQ(consumer.counts().of(MessageReason::done_before), 1U);
}

TEST_F(RabbitMq, MakesARetryQueueAnewThatWasRemoved) {
  send("7");
  RabbitMqConsumer source{options()};
  std::stop_source stop;
  int deliveries = 0;

  static_cast<void>(source.run(stop.get_token(), [&](const ReceivedMessage&) {
    if (++deliveries == 2) {
      amqp_queue_delete(link_.state(), channel, as_bytes(queue_ + ".retry.10"), 0, 0);
    }
    if (deliveries >= 4) {
      stop.request_stop();
      return MessageDisposition{};
    }
    return MessageDisposition{.action = MessageAction::requeue, .delay = 1ms};
  }));

  EXPECT_EQ(deliveries, 4);
  EXPECT_EQ(depth(queue_), 0U);
}

TEST_F(RabbitMq, CountsTheDeliveriesOfAQuorumQueue) {
  RabbitMqOptions quorum = options();
  quorum.declare = RabbitMqQueue::declared_quorum;
  std::vector<std::uint32_t> deliveries;
  {
    RabbitMqConsumer maker{quorum};
    EXPECT_EQ(maker.poll([](const ReceivedMessage&) { return MessageDisposition{}; }).handled, 0U);
  }
  amqp_basic_properties_t none{};
  ASSERT_EQ(amqp_basic_publish(link_.state(), channel, amqp_empty_bytes, as_bytes(queue_), 1, 0,
                               &none, as_bytes("body")),
            AMQP_STATUS_OK);

  for (int attempt = 0; attempt < 3; ++attempt) {
    RabbitMqConsumer dying{quorum};
    EXPECT_THROW(poll_until(dying, 1,
                            [&](const ReceivedMessage& message) -> MessageDisposition {
                              deliveries.push_back(message.delivery_count);
                              throw std::runtime_error("as if the process had died");
                            }),
                 std::runtime_error);
  }

  EXPECT_EQ(deliveries, (std::vector<std::uint32_t>{1, 2, 3}));
}

TEST_F(RabbitMq, HandsABatchOverAndGivesBackWhatWasNotSettled) {
  for (const char* id : {"7", "8", "7", "9"})
    send(id);
  RabbitMqOptions set_up = options();
  set_up.wait = 10s;  // for the first message of a round
  IdempotentConsumer consumer{guard_, order_key()};
  std::vector<std::string> handled;
  std::size_t settled = 0;
  RabbitMqConsumer source{set_up};

  for (int round = 0; round < 100 && settled < 4; ++round) {
    settled += source
                   .poll_batch([&](MessageBatch& batch) {
                     if (round == 0) return;  // nothing is settled
                     consumer.handle_batch(batch, [&](const ReceivedMessage& message) {
                       handled.push_back(message.headers.front().second);
                     });
                   })
                   .handled;
  }

  EXPECT_EQ(settled, 4U);
  EXPECT_EQ(std::set<std::string>(handled.begin(), handled.end()),
            (std::set<std::string>{"7", "8", "9"}));
  EXPECT_EQ(handled.size(), 3U);
  EXPECT_EQ(depth(queue_), 0U);
}

TEST_F(RabbitMq, RefusesWhatCannotWork) {
  const auto code = [](const RabbitMqOptions& wrong) {
    return testing_support::code_of([&] {
      RabbitMqConsumer source{wrong};
      static_cast<void>(
          source.run({}, [](const ReceivedMessage&) { return MessageDisposition{}; }));
    });
  };
  RabbitMqOptions nameless = options();
  nameless.queue.clear();
  RabbitMqOptions circular = options();
  circular.dead_letter_queue = circular.queue;
  RabbitMqOptions stranger = options();
  stranger.password = "wrong";
  RabbitMqOptions absent = options();
  absent.queue = "absent";
  absent.declare = RabbitMqQueue::existing;
  RabbitMqOptions nowhere = options();
  nowhere.virtual_host = "nowhere";

  EXPECT_EQ(code(nameless), Errc::invalid_argument);
  EXPECT_EQ(code(circular), Errc::invalid_argument);
  EXPECT_EQ(code(stranger), Errc::store_refused);
  EXPECT_EQ(code(absent), Errc::store_refused);
  EXPECT_EQ(code(nowhere), Errc::store_refused);
}

TEST_F(RabbitMq, SaysThatAServerIsNotThere) {
  RabbitMqOptions nowhere = options();
  nowhere.port = 1;
  nowhere.connect_timeout = 200ms;
  RabbitMqConsumer source{nowhere};

  EXPECT_EQ(
      testing_support::code_of([&] {
        static_cast<void>(source.poll([](const ReceivedMessage&) { return MessageDisposition{}; }));
      }),
      Errc::store_unavailable);
}

}  // namespace
}  // namespace idempotency
