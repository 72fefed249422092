#include "idempotency/edges/redis_streams.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
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
#include "support/redis_server.hpp"

namespace idempotency {
namespace {

using namespace std::chrono_literals;
using testing_support::Event;
using testing_support::Patience;
using testing_support::RedisServer;

class RedisStreams : public ::testing::Test {
 protected:
  static RedisServer& server() { return RedisServer::shared(); }
  void SetUp() override { server().ask({"FLUSHALL"}); }

  [[nodiscard]] static RedisStreamOptions options(std::chrono::milliseconds idle = 1h) {
    return {.server = server().options(),
            .stream = "orders",
            .group = "billing",
            .redelivery_idle = idle,
            .block = 5ms};
  }
  static std::string send(const std::string& order, const std::string& body = "100") {
    return server().text({"XADD", "orders", "*", "order", order, "body", body});
  }
  static std::int64_t pending() {
    const auto reply = server().ask({"XPENDING", "orders", "billing"});
    return reply->type == REDIS_REPLY_ARRAY ? reply->element[0]->integer : -1;
  }
  /// Of the one message that is pending: since when it has been idle, and how often it was delivered.
  static std::pair<std::int64_t, std::int64_t> the_pending_one() {
    const auto reply = server().ask({"XPENDING", "orders", "billing", "-", "+", "10"});
    EXPECT_EQ(reply->elements, 1U);
    if (reply->elements != 1) return {};
    return {reply->element[0]->element[2]->integer, reply->element[0]->element[3]->integer};
  }
  /// Rounds until so many messages have been handed over.
  template <class Handle>
  static void poll_until(RedisStreamConsumer& source, std::size_t messages, Handle handle) {
    std::size_t handled = 0;
    for (const Patience patience; patience.lasts() && handled < messages;) {
      handled += source.poll(handle).handled;
    }
    EXPECT_EQ(handled, messages);
  }
  static auto order_key() { return key_of("order", header("order")); }

  MemoryStore store_;
  IdempotencyGuard<MemoryStore> guard_{store_};
};

TEST_F(RedisStreams, HandAMessageOverWithAllThatItHolds) {
  RedisStreamConsumer source{options()};
  const std::string body("a\0b\r\n", 5);
  const std::string id = send("7", body);
  ReceivedMessage seen;

  poll_until(source, 1, [&](const ReceivedMessage& message) {
    seen = message;
    return MessageDisposition{};
  });

  EXPECT_EQ(seen.id, id);
  EXPECT_EQ(seen.body, body);
  EXPECT_EQ(seen.source, "orders");
  EXPECT_EQ(seen.delivery_count, 1U);
  EXPECT_EQ(seen.headers,
            (std::vector<std::pair<std::string, std::string>>{{"order", "7"}, {"body", body}}));
  EXPECT_EQ(pending(), 0);
}

TEST_F(RedisStreams, HandleAnOrderOnceThatItsProducerSentTwice) {
  RedisStreamConsumer source{options()};
  IdempotentConsumer consumer{guard_, order_key()};
  int runs = 0;
  send("7");
  send("7");
  send("8");

  poll_until(source, 3, [&](const ReceivedMessage& message) {
    return consumer.handle(message, [&](const ReceivedMessage&) { ++runs; });
  });

  EXPECT_EQ(runs, 2);
  EXPECT_EQ(pending(), 0);
}

TEST_F(RedisStreams, GiveADeadConsumersMessagesToAnother) {
  {
    RedisStreamConsumer dying{options()};
    send("7");
    send("8");
    EXPECT_THROW(dying.poll([](const ReceivedMessage&) -> MessageDisposition {
      throw std::runtime_error("as if the process had died");
    }),
                 std::runtime_error);
    EXPECT_EQ(pending(), 2);
  }
  RedisStreamConsumer heir{options(1ms)};
  std::map<std::string, std::uint32_t> deliveries;

  poll_until(heir, 2, [&](const ReceivedMessage& message) {
    deliveries[message.headers.front().second] = message.delivery_count;
    return MessageDisposition{};
  });

  EXPECT_EQ(deliveries, (std::map<std::string, std::uint32_t>{{"7", 2}, {"8", 2}}));
  EXPECT_EQ(pending(), 0);
}

TEST_F(RedisStreams, KeepAMessageAwayForItsDelay) {
  RedisStreamConsumer source{options(1h)};
  send("7");

  poll_until(source, 1, [](const ReceivedMessage&) {
    return MessageDisposition{.action = MessageAction::requeue, .delay = 59min};
  });
  const auto [idle, deliveries] = the_pending_one();

  EXPECT_GE(idle, 60'000) << "a minute of the hour has passed already";
  EXPECT_LT(idle, 60'000 + 600'000);
  EXPECT_EQ(deliveries, 1);
}

TEST_F(RedisStreams, DeliverAgainWhenTheDelayIsOver) {
  RedisStreamConsumer source{options(1h)};
  send("7");
  std::vector<std::uint32_t> deliveries;

  // Claims are a second apart for so long an idle time; what is wanted here is that they find the message.
  poll_until(source, 3, [&](const ReceivedMessage& message) {
    deliveries.push_back(message.delivery_count);
    if (deliveries.size() == 3) return MessageDisposition{};
    return MessageDisposition{.action = MessageAction::redeliver_later, .delay = 1ms};
  });

  EXPECT_EQ(deliveries, (std::vector<std::uint32_t>{1, 2, 3}));
  EXPECT_EQ(pending(), 0);
}

TEST_F(RedisStreams, LimitADelayToTheIdleTime) {
  RedisStreamConsumer source{options(1h)};
  send("7");

  poll_until(source, 1, [](const ReceivedMessage&) {
    return MessageDisposition{.action = MessageAction::requeue, .delay = 48h};
  });

  EXPECT_EQ(pending(), 1);
  EXPECT_LT(the_pending_one().first, 60'000);
}

TEST_F(RedisStreams, PutADeadLetterAsideWithItsReason) {
  RedisStreamConsumer source{options()};
  const std::string id = send("7", "payload");

  poll_until(source, 1, [](const ReceivedMessage&) {
    return MessageDisposition{.action = MessageAction::dead_letter,
                              .reason = MessageReason::mismatch,
                              .attempts = 3,
                              .detail = "order:7"};
  });

  EXPECT_EQ(pending(), 0);
  const auto dead = server().ask({"XRANGE", "orders:dead", "-", "+"});
  ASSERT_EQ(dead->elements, 1U);
  const redisReply* fields = dead->element[0]->element[1];
  std::map<std::string, std::string> values;
  for (std::size_t at = 0; at + 1 < fields->elements; at += 2) {
    values[fields->element[at]->str] = fields->element[at + 1]->str;
  }
  EXPECT_EQ(values, (std::map<std::string, std::string>{{"order", "7"},
                                                        {"body", "payload"},
                                                        {"dead-letter-reason", "mismatch"},
                                                        {"dead-letter-detail", "order:7"},
                                                        {"dead-letter-attempts", "3"},
                                                        {"dead-letter-id", id},
                                                        {"dead-letter-stream", "orders"},
                                                        {"dead-letter-group", "billing"}}));
}

TEST_F(RedisStreams, PutADeadLetterAsideThatHasThousandsOfFields) {
  std::vector<std::string> words{"XADD", "orders", "*"};
  for (int field = 0; field < 5'000; ++field) {
    words.push_back("field-" + std::to_string(field));
    words.push_back("value");
  }
  server().ask(words);
  RedisStreamConsumer source{options()};

  poll_until(source, 1, [](const ReceivedMessage& message) {
    EXPECT_EQ(message.headers.size(), 5'000U);
    return MessageDisposition{.action = MessageAction::dead_letter};
  });

  const auto dead = server().ask({"XRANGE", "orders:dead", "-", "+"});
  ASSERT_EQ(dead->elements, 1U);
  EXPECT_EQ(dead->element[0]->element[1]->elements, 2U * 5'006U);
  EXPECT_EQ(pending(), 0);
}

TEST_F(RedisStreams, MakeOneDeadLetterOfAMessageThatTwoConsumersGaveUp) {
  RedisStreamConsumer slow{options()};
  RedisStreamConsumer quick{options(1ms)};
  const MessageDisposition dead{.action = MessageAction::dead_letter};
  send("7");

  poll_until(slow, 1, [&](const ReceivedMessage&) {
    poll_until(quick, 1, [&](const ReceivedMessage&) { return dead; });
    return dead;
  });

  EXPECT_EQ(server().number({"XLEN", "orders:dead"}), 1);
  EXPECT_EQ(pending(), 0);
}

TEST_F(RedisStreams, KeepTheMessageWhereItsDeadLetterCannotBeWritten) {
  server().ask({"SET", "orders:dead", "no stream"});
  RedisStreamConsumer source{options()};
  send("7");

  EXPECT_THROW(poll_until(source, 1,
                          [](const ReceivedMessage&) {
                            return MessageDisposition{.action = MessageAction::dead_letter};
                          }),
               Error);

  EXPECT_EQ(pending(), 1);
}

TEST_F(RedisStreams, StopWhereTheSetUpIsWrongAndLoseNothing) {
  RedisStreamConsumer source{options()};
  for (const std::string order : {"1", "2", "3"})
    send(order);
  int asked = 0;

  const ConsumeEnd end = source.run(std::stop_token{}, [&](const ReceivedMessage&) {
    ++asked;
    return MessageDisposition{.action = MessageAction::redeliver_later,
                              .reason = MessageReason::refused,
                              .flow = MessageFlow::stop,
                              .delay = 1ms};
  });

  EXPECT_EQ(end, ConsumeEnd::refused);
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(pending(), 3);
  std::set<std::string> later;
  RedisStreamConsumer again{options()};
  poll_until(again, 3, [&](const ReceivedMessage& message) {
    later.insert(message.headers.front().second);
    return MessageDisposition{};
  });
  EXPECT_EQ(later, (std::set<std::string>{"1", "2", "3"}));
}

TEST_F(RedisStreams, RunUntilTheyAreStopped) {
  RedisStreamConsumer source{options()};
  std::stop_source stop;
  send("7");
  send("8");

  const ConsumeEnd end = source.run(stop.get_token(), [&](const ReceivedMessage&) {
    stop.request_stop();
    return MessageDisposition{};
  });

  EXPECT_EQ(end, ConsumeEnd::stop_requested);
  EXPECT_EQ(pending(), 1) << "what was fetched and not handled stays";
}

// TC-12
TEST_F(RedisStreams, DeliverAMessageLaterThatTwoConsumersHadAtOnceAndTheFirstFailed) {
  IdempotentConsumer consumer{guard_, order_key(), {.first_delay = 1ms, .longest_delay = 1ms}};
  RedisStreamConsumer slow{options()};
  Event started;
  Event may_fail;
  int done = 0;
  send("7");
  std::thread running([&] {
    poll_until(slow, 1, [&](const ReceivedMessage& message) {
      return consumer.handle(message, [&](const ReceivedMessage&) {
        started.set();
        EXPECT_TRUE(may_fail.wait());
        throw std::runtime_error("broken");
      });
    });
  });
  ASSERT_TRUE(started.wait());
  RedisStreamConsumer other{options(1ms)};
  MessageDisposition second;

  poll_until(other, 1, [&](const ReceivedMessage& message) {
    second = consumer.handle(message, [&](const ReceivedMessage&) { ++done; });
    return second;
  });
  EXPECT_EQ(pending(), 1);
  may_fail.set();
  running.join();
  poll_until(other, 1, [&](const ReceivedMessage& message) {
    return consumer.handle(message, [&](const ReceivedMessage&) { ++done; });
  });

  EXPECT_EQ(second.reason, MessageReason::running_elsewhere);
  EXPECT_EQ(done, 1);
  EXPECT_EQ(pending(), 0);
}

TEST_F(RedisStreams, SurviveThatTheStreamIsRemoved) {
  RedisStreamConsumer source{options()};
  std::stop_source stop;
  send("7");
  int handled = 0;

  const ConsumeEnd end = source.run(stop.get_token(), [&](const ReceivedMessage&) {
    if (++handled == 1) {
      server().ask({"DEL", "orders"});
      send("8");
    } else {
      stop.request_stop();
    }
    return MessageDisposition{};
  });

  EXPECT_EQ(end, ConsumeEnd::stop_requested);
  EXPECT_EQ(handled, 2);
}

TEST_F(RedisStreams, PassOverAMessageThatWasDeletedWhileItWasPending) {
  RedisStreamConsumer dying{options()};
  const std::string id = send("7");
  send("8");
  EXPECT_THROW(
      dying.poll([](const ReceivedMessage&) -> MessageDisposition { throw std::bad_alloc(); }),
      std::bad_alloc);
  server().ask({"XDEL", "orders", id});
  RedisStreamConsumer heir{options(1ms)};

  poll_until(heir, 1, [](const ReceivedMessage& message) {
    EXPECT_EQ(message.headers.front().second, "8");
    return MessageDisposition{};
  });

  EXPECT_EQ(pending(), 0);
}

TEST_F(RedisStreams, RefuseOptionsThatCannotWork) {
  const auto code = [](RedisStreamOptions wrong) {
    return testing_support::code_of([&] { RedisStreamConsumer source{wrong}; });
  };
  RedisStreamOptions nameless = options();
  nameless.stream.clear();
  RedisStreamOptions circular = options();
  circular.dead_letter_stream = circular.stream;
  RedisStreamOptions empty = options();
  empty.batch = 0;
  RedisStreamOptions impatient = options();
  impatient.block = 0ms;

  EXPECT_EQ(code(nameless), Errc::invalid_argument);
  EXPECT_EQ(code(circular), Errc::invalid_argument);
  EXPECT_EQ(code(empty), Errc::invalid_argument);
  EXPECT_EQ(code(impatient), Errc::invalid_argument);
}

TEST_F(RedisStreams, RefuseAKeyThatHoldsNoStream) {
  server().ask({"SET", "orders", "text"});
  RedisStreamConsumer source{options()};

  EXPECT_EQ(testing_support::code_of([&] {
              static_cast<void>(
                  source.run({}, [](const ReceivedMessage&) { return MessageDisposition{}; }));
            }),
            Errc::store_corrupt);
}

TEST_F(RedisStreams, HandABatchOverThatIsBegunAtOnceAndSettledOneByOne) {
  RedisStreamConsumer source{options()};
  IdempotentConsumer consumer{guard_, order_key()};
  for (const char* id : {"7", "8", "7", "9"})
    send(id);
  std::vector<std::string> handled;
  std::vector<std::int64_t> pending_before;
  std::size_t largest = 0;
  std::size_t settled = 0;

  for (const Patience patience; patience.lasts() && settled < 4;) {
    settled += source
                   .poll_batch([&](MessageBatch& batch) {
                     largest = std::max(largest, batch.messages().size());
                     consumer.handle_batch(batch, [&](const ReceivedMessage& message) {
                       handled.push_back(message.headers.front().second);
                       pending_before.push_back(pending());
                     });
                   })
                   .handled;
  }

  EXPECT_EQ(settled, 4U);
  EXPECT_EQ(largest, 4U);
  EXPECT_EQ(handled, (std::vector<std::string>{"7", "8", "9"}));
  EXPECT_EQ(pending_before, (std::vector<std::int64_t>{4, 3, 1}));
  EXPECT_EQ(pending(), 0);
}

TEST_F(RedisStreams, GiveBackWhatABatchDidNotSettle) {
  send("7");
  send("8");
  RedisStreamConsumer source{options()};
  const PolledMessages polled = source.poll_batch([](MessageBatch& batch) {
    batch.settle(1, {});
    EXPECT_THROW(batch.settle(1, {}), Error) << "it has been settled";
    EXPECT_THROW(batch.settle(2, {}), Error) << "there is no such message";
  });
  RedisStreamConsumer heir{options()};
  std::vector<std::string> seen;

  poll_until(heir, 1, [&](const ReceivedMessage& message) {
    seen.push_back(message.headers.front().second);
    return MessageDisposition{};
  });

  EXPECT_EQ(polled.handled, 1U);
  EXPECT_EQ(seen, (std::vector<std::string>{"7"}));
}

TEST_F(RedisStreams, HandleAfterAStopInABatchWhatHasNotBeenTried) {
  for (const char* id : {"1", "2", "3"})
    send(id);
  IdempotentConsumer consumer{
      guard_, order_key(), {.max_attempts = 1, .first_delay = 1ms, .longest_delay = 1ms}};
  std::vector<std::string> handled;
  std::stop_source stop;
  const auto handler = [&](const ReceivedMessage& message) {
    handled.push_back(message.headers.front().second);
    stop.request_stop();
  };
  {
    RedisStreamConsumer leaving{options(50ms)};
    leaving.run_batches(stop.get_token(),
                        [&](MessageBatch& batch) { consumer.handle_batch(batch, handler); });
  }
  RedisStreamConsumer next{options(50ms)};
  for (int round = 0;
       round < 200 && consumer.counts().by_reason[0] < 3 && consumer.counts().dead_lettered == 0;
       ++round) {
    next.poll_batch([&](MessageBatch& batch) { consumer.handle_batch(batch, handler); });
  }

  EXPECT_EQ(handled, (std::vector<std::string>{"1", "2", "3"}));
  EXPECT_EQ(consumer.counts().dead_lettered, 0U) << "nobody had tried it";
}

TEST(RedisStreamsServer, MayDieInTheMiddleOfAHandler) {
  RedisServer server(RedisServer::durable());
  MemoryStore store;
  IdempotencyGuard guard{store};
  IdempotentConsumer consumer{guard, key_of("order", header("order"))};
  RedisStreamConsumer source{{.server = server.options(),
                              .stream = "orders",
                              .group = "billing",
                              .redelivery_idle = 1ms,
                              .block = 5ms}};
  server.ask({"XADD", "orders", "*", "order", "7"});
  std::stop_source stop;
  int runs = 0;
  int deliveries = 0;

  const ConsumeEnd end = source.run(stop.get_token(), [&](const ReceivedMessage& message) {
    ++deliveries;
    const MessageDisposition disposition = consumer.handle(message, [&](const ReceivedMessage&) {
      ++runs;
      server.kill();
      server.start();
    });
    if (disposition.reason == MessageReason::done_before) stop.request_stop();
    return disposition;
  });

  EXPECT_EQ(end, ConsumeEnd::stop_requested);
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(deliveries, 2);
  EXPECT_EQ(server.ask({"XPENDING", "orders", "billing"})->element[0]->integer, 0);
}

}  // namespace
}  // namespace idempotency
