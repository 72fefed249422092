// Orders that come in over a Redis stream, each handled once, however often it is sent or delivered.
//
//   17_redis_stream_consumer redis://127.0.0.1:6379

#include <chrono>
#include <idempotency/edges/consumer.hpp>
#include <idempotency/edges/redis_streams.hpp>
#include <idempotency/idempotency.hpp>
#include <idempotency/stores/redis.hpp>
#include <stdexcept>
#include <stop_token>
#include <string>

#include "expect.hpp"

namespace idem = idempotency;
using namespace std::chrono_literals;

/// A producer: any program that can XADD.
void send(idem::RedisStore& store, const std::string& stream, const std::string& body) {
  static const idem::RedisScript add("return redis.call('XADD', KEYS[1], '*', 'body', ARGV[1])");
  static_cast<void>(store.run_script(add, {stream}, {body}));
}

int main(int count, char** values) {
  expect(count == 2, "the server's address is the one argument");
  const idem::RedisOptions server = idem::RedisOptions::from_address(values[1]);
  idem::RedisStore store{server};
  idem::IdempotencyGuard guard{store};

  const std::string run = new_id();  // the server may remember earlier runs of this program
  const std::string stream = "orders-" + run;
  const std::string order = "order-" + run;
  send(store, stream, R"({"id":")" + order + R"(","cents":100})");
  send(store, stream, R"({"id":")" + order + R"(","cents":100})");  // its producer saw no answer
  send(store, stream, R"({"id":")" + order + R"(","cents":999})");  // an error of the producer's
  send(store, stream, R"({"cents":100})");

  // The business key, and what of the message must not change with it.
  const auto key = idem::key_of("order", idem::json_pointer("/id"))
                       .fingerprinted_by([](const idem::ReceivedMessage& message) {
                         return idem::Fingerprint::of_json(message.body);
                       });
  idem::IdempotentConsumer consumer{guard, key, {.first_delay = 1ms, .redelivery_span = 1h}};
  consumer.check_retention("order");  // orders answer for 7 days
  idem::RedisStreamConsumer source{{.server = server,
                                    .stream = stream,
                                    .group = "billing",
                                    .redelivery_idle = 1s,
                                    .block = 10ms}};

  std::stop_source stop;
  int attempts = 0;
  int settled = 0;
  const auto bill = [&](const idem::ReceivedMessage& message) {
    if (++attempts == 1) throw std::runtime_error("the database is restarting");
    return "bill for " + message.body;
  };
  const idem::ConsumeEnd end =
      source.run(stop.get_token(), [&](const idem::ReceivedMessage& message) {
        idem::MessageDisposition disposition = consumer.handle(message, bill);
        std::cout << message.id << " " << to_string(disposition.action) << ": "
                  << to_string(disposition.reason) << std::endl;
        const bool comes_again = disposition.action == idem::MessageAction::requeue;
        if (!comes_again && ++settled == 4) stop.request_stop();
        return disposition;
      });

  expect(end == idem::ConsumeEnd::stop_requested, "it runs until it is stopped");
  expect(attempts == 2, "the order was billed once, after an attempt that failed");
  const idem::ConsumerCounts counts = consumer.counts();
  expect(counts.acknowledged == 2, "its two messages are acknowledged");
  expect(counts.of(idem::MessageReason::mismatch) == 1, "the contradiction is a dead letter");
  expect(counts.of(idem::MessageReason::no_key) == 1, "so is what has no key");
}
