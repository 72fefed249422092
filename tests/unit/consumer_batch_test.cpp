#include <gtest/gtest.h>

#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "idempotency/edges/consumer.hpp"
#include "idempotency/idempotency.hpp"
#include "idempotency/stores/memory.hpp"
#include "idempotency/testing/faulty_store.hpp"

namespace idempotency {
namespace {

using namespace std::chrono_literals;

ReceivedMessage order(const std::string& id, std::uint32_t delivery = 1) {
  return {
      .id = "message-" + id, .body = id, .headers = {{"order", id}}, .delivery_count = delivery};
}

std::vector<ReceivedMessage> orders(const std::vector<std::string>& ids) {
  std::vector<ReceivedMessage> messages;
  for (const std::string& id : ids)
    messages.push_back(order(id));
  return messages;
}

std::vector<MessageReason> reasons(const std::vector<MessageDisposition>& dispositions) {
  std::vector<MessageReason> all;
  for (const MessageDisposition& disposition : dispositions)
    all.push_back(disposition.reason);
  return all;
}

struct Desk {
  MemoryStore memory;
  testing::FaultyStore<MemoryStore> store{memory};
  IdempotencyGuard<testing::FaultyStore<MemoryStore>> guard{
      store, {.write_budget = 1ms, .begin_attempts = 1}};
};

auto order_key() { return key_of("order", header("order")); }

/// A batch as an adapter would give it.
class OrderedBatch final : public MessageBatch {
 public:
  explicit OrderedBatch(std::vector<ReceivedMessage> messages) : messages_(std::move(messages)) {}
  [[nodiscard]] const std::vector<ReceivedMessage>& messages() const noexcept override {
    return messages_;
  }
  [[nodiscard]] bool may_be_handled(std::size_t place) const noexcept override {
    return !barred.contains(place);
  }
  void settle(std::size_t place, const MessageDisposition& disposition) override {
    if (disposition.action == MessageAction::requeue) barred.insert(place + 1);
    settled.push_back(place);
    if (breaks_at == place) throw std::runtime_error("the broker is gone");
  }
  std::set<std::size_t> barred;
  std::vector<std::size_t> settled;
  std::size_t breaks_at = 1000;

 private:
  std::vector<ReceivedMessage> messages_;
};

TEST(ConsumerBatch, HandlesAllMessagesWithOneBegin) {
  Desk desk;
  IdempotentConsumer consumer{desk.guard, order_key()};
  std::vector<std::string> handled;

  const auto dispositions = consumer.handle_batch(
      orders({"1", "2", "3"}),
      [&](const ReceivedMessage& message) { handled.push_back(message.body); });

  EXPECT_EQ(reasons(dispositions),
            (std::vector{MessageReason::done, MessageReason::done, MessageReason::done}));
  EXPECT_EQ(handled, (std::vector<std::string>{"1", "2", "3"}));
  EXPECT_EQ(desk.store.calls(StoreCall::begin), 1U);
  EXPECT_EQ(consumer.counts().acknowledged, 3U);
  EXPECT_EQ(desk.memory.find(Key("order", "2"))->trace, "message-2");
}

TEST(ConsumerBatch, GivesEachMessageItsOwnDisposition) {
  Desk desk;
  IdempotentConsumer consumer{desk.guard, order_key()};
  static_cast<void>(consumer.handle(order("done"), [](const ReceivedMessage&) {}));
  std::vector<ReceivedMessage> messages = orders({"fails", "done", "no", "new", "new"});
  messages[2].headers.clear();

  const auto dispositions =
      consumer.handle_batch(messages, [&](const ReceivedMessage& message, Execution&) {
        if (message.body == "fails") throw std::runtime_error("the warehouse is closed");
      });

  EXPECT_EQ(reasons(dispositions),
            (std::vector{MessageReason::handler_failed, MessageReason::done_before,
                         MessageReason::no_key, MessageReason::done, MessageReason::done_before}));
  EXPECT_EQ(dispositions[0].action, MessageAction::requeue);
  EXPECT_EQ(dispositions[2].action, MessageAction::dead_letter);
}

TEST(ConsumerBatch, LeavesTheRestBehindADispositionThatStops) {
  Desk desk;
  IdempotentConsumer consumer{desk.guard, order_key()};
  int handled = 0;
  const auto handler = [&](const ReceivedMessage&) { ++handled; };
  desk.store.on(StoreCall::begin).fail_always(testing::Fault::refused);

  const auto dispositions = consumer.handle_batch(orders({"1", "2"}), handler);

  ASSERT_EQ(dispositions.size(), 2U);
  for (const MessageDisposition& disposition : dispositions) {
    EXPECT_EQ(disposition.action, MessageAction::redeliver_later);
    EXPECT_EQ(disposition.reason, MessageReason::refused);
    EXPECT_EQ(disposition.flow, MessageFlow::stop);
    EXPECT_GE(disposition.delay, 1ms);
  }
  EXPECT_EQ(handled, 0);
  EXPECT_EQ(consumer.counts().redelivered, 1U) << "the second was not tried";
}

TEST(ConsumerBatch, SettlesEachMessageAsSoonAsItIsHandled) {
  Desk desk;
  IdempotentConsumer consumer{desk.guard, order_key()};
  OrderedBatch batch(orders({"1", "2"}));
  std::vector<std::size_t> settled_before;

  consumer.handle_batch(
      batch, [&](const ReceivedMessage&) { settled_before.push_back(batch.settled.size()); });

  EXPECT_EQ(settled_before, (std::vector<std::size_t>{0, 1}));
  EXPECT_EQ(batch.settled, (std::vector<std::size_t>{0, 1}));
}

TEST(ConsumerBatch, PassesOverWhatMustWaitAndGivesItsRecordBack) {
  Desk desk;
  IdempotentConsumer consumer{desk.guard, order_key()};
  OrderedBatch batch(orders({"1", "2", "3"}));
  std::vector<std::string> handled;

  consumer.handle_batch(batch, [&](const ReceivedMessage& message) {
    handled.push_back(message.body);
    if (message.body == "1") throw RetryableFailure("again");
  });

  EXPECT_EQ(handled, (std::vector<std::string>{"1", "3"}));
  EXPECT_EQ(batch.settled, (std::vector<std::size_t>{0, 2}));
  ASSERT_TRUE(desk.memory.find(Key("order", "2")));
  EXPECT_EQ(desk.memory.find(Key("order", "2"))->state, RecordState::failed);
  EXPECT_EQ(consumer.handle(order("2"), [](const ReceivedMessage&) {}).reason, MessageReason::done);
}

TEST(ConsumerBatch, GivesTheRestBackWhenTheBrokerIsGone) {
  Desk desk;
  IdempotentConsumer consumer{desk.guard, order_key()};
  OrderedBatch batch(orders({"1", "2"}));
  batch.breaks_at = 0;

  EXPECT_THROW(consumer.handle_batch(batch, [](const ReceivedMessage&) {}), std::runtime_error);

  EXPECT_EQ(desk.memory.find(Key("order", "1"))->state, RecordState::success);
  EXPECT_EQ(desk.memory.find(Key("order", "2"))->state, RecordState::failed);
}

TEST(ConsumerBatch, BeginsWhatComesAgainAtItsTurnOnly) {
  Desk desk;
  IdempotentConsumer consumer{desk.guard, order_key(), {.max_attempts = 2}};
  for (std::uint32_t delivery = 1; delivery <= 5; ++delivery) {
    OrderedBatch batch({order("1", delivery), order("2", delivery), order("3", delivery)});
    batch.barred = {1, 2};  // as behind one that ends the process
    consumer.handle_batch(batch, [](const ReceivedMessage&) {});
  }

  const auto tried = consumer.handle(order("2", 6), [](const ReceivedMessage&) {});

  EXPECT_EQ(tried.reason, MessageReason::done) << "waiting behind others is no try";
}

TEST(ConsumerBatch, TriesAMessageAsOftenAsItMayAlsoWhenItsTurnDidNotComeAtFirst) {
  Desk desk;
  IdempotentConsumer consumer{desk.guard, order_key(), {.max_attempts = 1}};
  OrderedBatch stopped(orders({"1", "2"}));
  stopped.barred = {1};  // as when the adapter is to stop
  consumer.handle_batch(stopped, [](const ReceivedMessage&) {});
  int runs = 0;

  OrderedBatch next({order("2", 2)});
  consumer.handle_batch(next, [&](const ReceivedMessage&) { ++runs; });

  EXPECT_EQ(runs, 1);
  EXPECT_EQ(consumer.counts().dead_lettered, 0U);
}

TEST(ConsumerBatch, EndsAMessageThatIsBegunInBatchesForEver) {
  Desk desk;
  IdempotentConsumer consumer{desk.guard, order_key(), {.max_attempts = 1, .max_deliveries = 3}};
  int runs = 0;
  std::vector<MessageReason> seen;
  for (int round = 0; round < 5; ++round) {  // of a broker that counts no deliveries
    if (round < 3) {
      OrderedBatch batch(orders({"1", "2"}));
      batch.barred = {1};
      consumer.handle_batch(batch, [](const ReceivedMessage&) {});
    } else {
      const auto dispositions =
          consumer.handle_batch(orders({"1", "2"}), [&](const ReceivedMessage&) { ++runs; });
      seen.push_back(dispositions[1].reason);
    }
  }

  EXPECT_EQ(runs, 0);
  EXPECT_EQ(seen[0], MessageReason::out_of_attempts);
}

TEST(ConsumerBatch, AsksNothingForAnEmptyBatch) {
  Desk desk;
  IdempotentConsumer consumer{desk.guard, order_key()};

  EXPECT_TRUE(consumer.handle_batch(orders({}), [](const ReceivedMessage&) {}).empty());
  EXPECT_EQ(desk.store.calls(StoreCall::begin), 0U);
}

}  // namespace
}  // namespace idempotency
