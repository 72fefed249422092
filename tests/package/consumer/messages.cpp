// A stranger's consumer, linked with every broker's adapter. Nobody listens where the adapters are told to look.
#include <cstdlib>
#include <idempotency/edges/consumer.hpp>
#include <idempotency/edges/kafka.hpp>
#include <idempotency/edges/rabbitmq.hpp>
#include <idempotency/edges/redis_streams.hpp>
#include <idempotency/idempotency.hpp>
#include <idempotency/stores/memory.hpp>
#include <iostream>

namespace idem = idempotency;
using namespace std::chrono_literals;

template <class Consumer>
bool finds_nobody(Consumer& consumer) {
  try {
    return consumer.poll([](const idem::ReceivedMessage&) { return idem::MessageDisposition{}; })
               .handled == 0;
  } catch (const idem::Error& error) {
    return error.safe_to_retry();
  }
}

int main() {
  idem::MemoryStore store;
  idem::IdempotencyGuard guard{store};
  idem::IdempotentConsumer consumer{guard, idem::key_of("order", &idem::ReceivedMessage::key)};
  int runs = 0;
  for (int delivery = 0; delivery < 2; ++delivery) {
    const idem::MessageDisposition disposition = consumer.handle(
        idem::ReceivedMessage{.key = "7"}, [&](const idem::ReceivedMessage&) { ++runs; });
    if (disposition.action != idem::MessageAction::acknowledge) return EXIT_FAILURE;
  }

  idem::RedisStreamConsumer redis{{.server = {.port = 1}, .stream = "s", .group = "g"}};
  idem::RabbitMqConsumer rabbit{{.port = 1, .queue = "q"}};
  idem::KafkaConsumer kafka{
      {.brokers = "127.0.0.1:1", .group = "g", .topics = {"t"}, .wait = 10ms}};
  const bool alone = finds_nobody(redis) && finds_nobody(rabbit) && finds_nobody(kafka);
  std::cout << runs << " run, " << (alone ? "nobody" : "somebody") << " there\n";
  return runs == 1 && alone ? EXIT_SUCCESS : EXIT_FAILURE;
}
