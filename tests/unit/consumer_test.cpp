#include "idempotency/edges/consumer.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "idempotency/idempotency.hpp"
#include "idempotency/stores/memory.hpp"
#include "idempotency/stores/sqlite.hpp"
#include "idempotency/testing/faulty_store.hpp"
#include "support/event.hpp"
#include "support/temporary_directory.hpp"

namespace idempotency {
namespace {

using namespace std::chrono_literals;
using testing_support::Event;

ReceivedMessage order(const std::string& id, std::uint32_t delivery = 1) {
  return {.id = "message-" + id + "-" + std::to_string(delivery),
          .body = R"({"order":{"id":")" + id + R"("},"cents":100})",
          .headers = {{"Type", "order"}},
          .delivery_count = delivery};
}

auto order_key() {
  return key_of("order", json_pointer("/order/id"))
      .fingerprinted_by(
          [](const ReceivedMessage& message) { return Fingerprint::of_json(message.body); });
}

/// A consumer over a store in memory, and a store in between that can fail.
struct Desk {
  MemoryStore store;
  testing::FaultyStore<MemoryStore> faulty{store};
  IdempotencyGuard<testing::FaultyStore<MemoryStore>> guard;
  explicit Desk(const PolicyTable& policies = {})
      : guard(faulty, {.policies = policies, .write_budget = 1ms, .begin_attempts = 1}) {}
};

const auto nothing = [](const ReceivedMessage&) {};

TEST(IdempotentConsumer, AcknowledgesWhatItHandledAndItsDuplicates) {
  Desk desk;
  IdempotentConsumer consumer{desk.guard, order_key()};
  int runs = 0;
  const auto handler = [&](const ReceivedMessage&) { ++runs; };

  const MessageDisposition first = consumer.handle(order("7"), handler);
  const MessageDisposition second = consumer.handle(order("7", 2), handler);

  EXPECT_EQ(first.action, MessageAction::acknowledge);
  EXPECT_EQ(first.reason, MessageReason::done);
  EXPECT_EQ(second.action, MessageAction::acknowledge);
  EXPECT_EQ(second.reason, MessageReason::done_before);
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(consumer.counts().acknowledged, 2U);
  EXPECT_EQ(consumer.counts().of(MessageReason::done_before), 1U);
}

TEST(IdempotentConsumer, KeepsTheMessagesIdAsTraceOnly) {
  Desk desk;
  IdempotentConsumer consumer{desk.guard, order_key()};

  static_cast<void>(consumer.handle(order("7"), nothing));

  const auto record = desk.store.find(Key("order", "7"));
  ASSERT_TRUE(record);
  EXPECT_EQ(record->trace, "message-7-1");
}

TEST(IdempotentConsumer, AcknowledgesDuplicatesOfAResultThatWasNotKept) {
  Desk desk;
  IdempotentConsumer consumer{
      desk.guard, order_key(), {.policy = {.max_result_bytes = std::size_t{0}}}};
  const auto handler = [](const ReceivedMessage&) { return std::string("receipt"); };

  static_cast<void>(consumer.handle(order("7"), handler));
  const MessageDisposition second = consumer.handle(order("7", 2), handler);

  EXPECT_EQ(second.status, RunStatus::replayed_without_result);
  EXPECT_EQ(second.action, MessageAction::acknowledge);
}

TEST(IdempotentConsumer, AcknowledgesWorkWhoseRecordIsStillToBeWritten) {
  Desk desk;
  IdempotentConsumer consumer{desk.guard, order_key()};
  desk.faulty.on(StoreCall::complete).fail_always(testing::Fault::request_lost);

  const MessageDisposition disposition = consumer.handle(order("7"), nothing);
  desk.faulty.heal();

  EXPECT_EQ(disposition.status, RunStatus::executed_unrecorded);
  EXPECT_EQ(disposition.action, MessageAction::acknowledge);
  EXPECT_EQ(disposition.reason, MessageReason::done_unrecorded);
}

TEST(IdempotentConsumer, AcknowledgesAPermanentFailureAndItsDuplicates) {
  Desk desk;
  IdempotentConsumer consumer{desk.guard, order_key()};
  int runs = 0;
  const auto declined = [&](const ReceivedMessage&) {
    ++runs;
    throw PermanentFailure("card declined");
  };

  const MessageDisposition first = consumer.handle(order("7"), declined);
  const MessageDisposition second = consumer.handle(order("7", 2), declined);

  EXPECT_EQ(first.action, MessageAction::acknowledge);
  EXPECT_EQ(first.reason, MessageReason::failed_for_good);
  EXPECT_EQ(first.detail, "order:7: card declined");
  EXPECT_EQ(second.action, MessageAction::acknowledge);
  EXPECT_EQ(second.reason, MessageReason::failed_before);
  EXPECT_EQ(second.status, RunStatus::failed);
  EXPECT_EQ(runs, 1);
}

TEST(IdempotentConsumer, DeadLettersPermanentFailuresWhereSomebodyWantsToSeeThem) {
  Desk desk;
  IdempotentConsumer consumer{
      desk.guard, order_key(), {.on_permanent_failure = PermanentFailureAction::dead_letter}};
  const auto declined = [](const ReceivedMessage&) { throw PermanentFailure("card declined"); };

  EXPECT_EQ(consumer.handle(order("7"), declined).action, MessageAction::dead_letter);
  EXPECT_EQ(consumer.handle(order("7", 2), declined).action, MessageAction::dead_letter);
}

TEST(IdempotentConsumer, JudgesAReturnedFailureByItsClassifier) {
  Desk desk;
  IdempotentConsumer consumer{desk.guard, order_key()};
  const auto returns = [](int code) { return [code](const ReceivedMessage&) { return code; }; };
  const auto classifier = [](int code) { return static_cast<Disposition>(code); };

  EXPECT_EQ(consumer.handle(order("1"), returns(0), classifier).reason, MessageReason::done);
  EXPECT_EQ(consumer.handle(order("2"), returns(1), classifier).action, MessageAction::requeue);
  EXPECT_EQ(consumer.handle(order("3"), returns(2), classifier).reason,
            MessageReason::failed_for_good);
  EXPECT_EQ(consumer.handle(order("4"), returns(3), classifier).action, MessageAction::dead_letter);
}

// TC-12
TEST(IdempotentConsumer, DoesNotAcknowledgeADuplicateOfAMessageThatIsStillRunning) {
  Desk desk;
  IdempotentConsumer consumer{desk.guard, order_key()};
  Event started;
  Event may_fail;
  MessageDisposition first;
  std::thread running([&] {
    first = consumer.handle(order("7"), [&](const ReceivedMessage&) {
      started.set();
      EXPECT_TRUE(may_fail.wait());
      throw std::runtime_error("broken");
    });
  });
  ASSERT_TRUE(started.wait());

  const MessageDisposition second = consumer.handle(order("7", 2), nothing);
  may_fail.set();
  running.join();
  const MessageDisposition third = consumer.handle(order("7", 3), nothing);

  EXPECT_EQ(second.action, MessageAction::redeliver_later);
  EXPECT_EQ(second.reason, MessageReason::running_elsewhere);
  EXPECT_GT(second.delay, 0ms);
  EXPECT_LE(second.delay, Policy{}.lease) << "when the other's lease ends, at the latest";
  EXPECT_EQ(first.action, MessageAction::requeue);
  EXPECT_EQ(third.reason, MessageReason::done) << "a later delivery does the work";
}

// TC-15
TEST(IdempotentConsumer, HandlesAMessageAgainThatFailed) {
  Desk desk;
  IdempotentConsumer consumer{desk.guard, order_key()};

  const MessageDisposition failed =
      consumer.handle(order("7"), [](const ReceivedMessage&) { throw RetryableFailure("later"); });
  const MessageDisposition again = consumer.handle(order("7", 2), nothing);

  EXPECT_EQ(failed.action, MessageAction::requeue);
  EXPECT_EQ(failed.reason, MessageReason::handler_failed);
  EXPECT_EQ(again.reason, MessageReason::done);
}

TEST(IdempotentConsumer, RequeuesWithAGrowingBoundedDelay) {
  const detail::ConsumerCore core({.first_delay = 100ms, .longest_delay = 1s});

  EXPECT_EQ(core.delay_bound(0), 100ms);
  EXPECT_EQ(core.delay_bound(1), 100ms);
  EXPECT_EQ(core.delay_bound(2), 200ms);
  EXPECT_EQ(core.delay_bound(4), 800ms);
  EXPECT_EQ(core.delay_bound(5), 1s);
  EXPECT_EQ(core.delay_bound(4'000'000'000), 1s);
}

TEST(IdempotentConsumer, SpreadsDelaysOverTheWholeOfTheirBound) {
  Desk desk;
  IdempotentConsumer consumer{desk.guard, order_key(), {.first_delay = 1min}};
  std::set<std::chrono::milliseconds> delays;

  for (int message = 0; message < 50; ++message) {
    const MessageDisposition disposition =
        consumer.handle(order(std::to_string(message)),
                        [](const ReceivedMessage&) { throw RetryableFailure("later"); });
    EXPECT_GE(disposition.delay, 1ms);
    EXPECT_LE(disposition.delay, 1min);
    delays.insert(disposition.delay);
  }

  EXPECT_GT(delays.size(), 25U);
  EXPECT_LT(*delays.begin(), 30s);
  EXPECT_GT(*delays.rbegin(), 30s);
}

TEST(IdempotentConsumer, DeadLettersAMessageThatIsOutOfAttemptsByTheBrokersCount) {
  Desk desk;
  IdempotentConsumer consumer{desk.guard, order_key(), {.max_attempts = 3}};
  const auto failing = [](const ReceivedMessage&) { throw std::runtime_error("broken"); };

  EXPECT_EQ(consumer.handle(order("7", 2), failing).action, MessageAction::requeue);
  const MessageDisposition last = consumer.handle(order("7", 3), failing);

  EXPECT_EQ(last.action, MessageAction::dead_letter);
  EXPECT_EQ(last.reason, MessageReason::out_of_attempts);
  EXPECT_EQ(last.attempts, 3U);
}

TEST(IdempotentConsumer, DeadLettersAMessageThatIsOutOfAttemptsByTheRecordsCount) {
  Desk desk;
  IdempotentConsumer consumer{desk.guard, order_key(), {.max_attempts = 3}};
  int runs = 0;
  const auto failing = [&](const ReceivedMessage&) {
    ++runs;
    throw std::runtime_error("broken");
  };

  // A producer that sends the same order again and again: each is a new message to the broker.
  EXPECT_EQ(consumer.handle(order("7"), failing).action, MessageAction::requeue);
  EXPECT_EQ(consumer.handle(order("7"), failing).action, MessageAction::requeue);
  EXPECT_EQ(consumer.handle(order("7"), failing).reason, MessageReason::out_of_attempts);
  EXPECT_EQ(consumer.handle(order("7"), failing).reason, MessageReason::out_of_attempts);

  EXPECT_EQ(runs, 3) << "a fourth attempt is not made";
}

TEST(IdempotentConsumer, DoesNotTryAMessageThatHasBeenDeliveredWithoutEnd) {
  Desk desk;
  IdempotentConsumer consumer{desk.guard, order_key(), {.max_attempts = 3, .max_deliveries = 20}};
  int runs = 0;
  const auto handler = [&](const ReceivedMessage&) { ++runs; };

  const MessageDisposition killer = consumer.handle(order("7", 21), handler);
  static_cast<void>(consumer.handle(order("8"), handler));
  const MessageDisposition duplicate = consumer.handle(order("8", 21), handler);

  EXPECT_EQ(killer.reason, MessageReason::out_of_attempts);
  EXPECT_EQ(duplicate.reason, MessageReason::done_before) << "what is done needs no attempt";
  EXPECT_EQ(runs, 1);
}

TEST(IdempotentConsumer, DeadLettersAnUnknownOutcomeAtOnceAndWhenItComesAgain) {
  Desk desk;
  IdempotentConsumer consumer{desk.guard, order_key()};

  const MessageDisposition thrown = consumer.handle(
      order("7"), [](const ReceivedMessage&) { throw OutcomeUnknown("the bank did not answer"); });
  const MessageDisposition again = consumer.handle(order("7", 2), nothing);

  EXPECT_EQ(thrown.action, MessageAction::dead_letter);
  EXPECT_EQ(thrown.reason, MessageReason::uncertain);
  EXPECT_EQ(again.action, MessageAction::dead_letter);
  EXPECT_EQ(again.status, RunStatus::uncertain);
}

TEST(IdempotentConsumer,
     TakesAnyExceptionForUnknownUnderHoldWhenTheHandlerCannotSayWhereItsEffectBegins) {
  PolicyTable policies;
  policies.set("order", {.on_expired_lease = RecordMode::hold});
  Desk desk{policies};
  IdempotentConsumer consumer{desk.guard, order_key()};

  const MessageDisposition cannot_say = consumer.handle(
      order("7"), [](const ReceivedMessage&) { throw std::runtime_error("broken"); });
  const MessageDisposition before = consumer.handle(
      order("8"), [](const ReceivedMessage&, Execution&) { throw std::runtime_error("broken"); });

  EXPECT_EQ(cannot_say.reason, MessageReason::uncertain);
  EXPECT_EQ(desk.store.find(Key("order", "7"))->state, RecordState::uncertain);
  EXPECT_EQ(before.action, MessageAction::requeue);
  EXPECT_EQ(desk.store.find(Key("order", "8"))->state, RecordState::failed);
}

TEST(IdempotentConsumer, DeadLettersWhatFailedBehindThePointOfNoReturnWhenItComesAgain) {
  Desk desk;
  IdempotentConsumer consumer{desk.guard, order_key()};
  const auto breaks = [](const ReceivedMessage&, Execution& execution) {
    execution.point_of_no_return();
    throw std::runtime_error("broken");
  };

  EXPECT_EQ(consumer.handle(order("7"), breaks).action, MessageAction::requeue);
  const MessageDisposition again = consumer.handle(order("7", 2), breaks);

  EXPECT_EQ(again.action, MessageAction::dead_letter);
  EXPECT_EQ(again.reason, MessageReason::uncertain);
}

TEST(IdempotentConsumer, FollowsThePolicysClassifier) {
  PolicyTable policies;
  policies.set("order", {.classify = [](const std::exception_ptr&) -> std::optional<Disposition> {
                 return Disposition::permanent;
               }});
  Desk desk{policies};
  IdempotentConsumer consumer{desk.guard, order_key()};

  const MessageDisposition failed =
      consumer.handle(order("7"), [](const ReceivedMessage&) { throw 42; });

  EXPECT_EQ(failed.reason, MessageReason::failed_for_good);
  EXPECT_EQ(desk.store.find(Key("order", "7"))->state, RecordState::failed);
}

TEST(IdempotentConsumer, DeadLettersAMessageOfAnotherMeaning) {
  Desk desk;
  IdempotentConsumer consumer{desk.guard, order_key()};
  ReceivedMessage other = order("7");
  other.body = R"({"order":{"id":"7"},"cents":999})";

  static_cast<void>(consumer.handle(order("7"), nothing));
  const MessageDisposition mismatched = consumer.handle(other, nothing);

  EXPECT_EQ(mismatched.action, MessageAction::dead_letter);
  EXPECT_EQ(mismatched.reason, MessageReason::mismatch);
}

TEST(IdempotentConsumer, DeadLettersMessagesWithoutAUsableKey) {
  Desk desk;
  IdempotentConsumer consumer{desk.guard, order_key()};
  int runs = 0;
  const auto handler = [&](const ReceivedMessage&) { ++runs; };

  for (const char* const body :
       {"{}", "no json", R"({"order":{"id":""}})", R"({"order":{"id":"7"},"a":1,"a":2})"}) {
    const MessageDisposition disposition = consumer.handle(ReceivedMessage{.body = body}, handler);
    EXPECT_EQ(disposition.action, MessageAction::dead_letter) << body;
    EXPECT_EQ(disposition.reason, MessageReason::no_key) << body;
  }
  EXPECT_EQ(runs, 0);
}

TEST(IdempotentConsumer, DeadLettersWhatItsHandlerCannotRead) {
  Desk desk;
  IdempotentConsumer consumer{desk.guard, order_key()};
  static_cast<void>(
      consumer.handle(order("7"), [](const ReceivedMessage&) { return std::string("text"); }));

  const MessageDisposition other_type =
      consumer.handle(order("7", 2), [](const ReceivedMessage&) { return std::vector<int>{1}; });
  desk.faulty.on(StoreCall::begin).before([] {
    throw Error(Errc::store_corrupt, "the record cannot be read");
  });
  const MessageDisposition corrupt = consumer.handle(order("8"), nothing);

  EXPECT_EQ(other_type.reason, MessageReason::unreadable_record);
  EXPECT_EQ(other_type.error, Errc::codec_mismatch);
  EXPECT_EQ(corrupt.action, MessageAction::dead_letter);
  EXPECT_EQ(corrupt.reason, MessageReason::unreadable_record);
}

TEST(IdempotentConsumer, NeverAcknowledgesWhileTheStoreCannotBeAsked) {
  Desk desk;
  IdempotentConsumer consumer{desk.guard, order_key()};

  for (const testing::Fault fault : {testing::Fault::request_lost, testing::Fault::reply_lost}) {
    desk.faulty.on(StoreCall::begin).fail_next(1, fault);
    const MessageDisposition disposition = consumer.handle(order("7"), nothing);
    EXPECT_EQ(disposition.action, MessageAction::redeliver_later);
    EXPECT_EQ(disposition.reason, MessageReason::store_failed);
    EXPECT_EQ(disposition.flow, MessageFlow::proceed);
    EXPECT_GT(disposition.delay, 0ms);
  }
}

TEST(IdempotentConsumer, StopsWhereEveryMessageWouldMeetTheSame) {
  Desk desk;
  IdempotentConsumer consumer{desk.guard, order_key()};
  desk.faulty.on(StoreCall::begin).before([] {
    throw Error(Errc::store_refused, "the rights are missing", "server text");
  });

  const MessageDisposition refused = consumer.handle(order("7"), nothing);

  EXPECT_EQ(refused.action, MessageAction::redeliver_later);
  EXPECT_EQ(refused.reason, MessageReason::refused);
  EXPECT_EQ(refused.flow, MessageFlow::stop);
  EXPECT_EQ(refused.detail, "order:7: the rights are missing: server text");
}

// TC-17
TEST(IdempotentConsumer, RefusesRecordsThatAreForgottenBeforeTheBrokerIsThroughWithTheirMessages) {
  PolicyTable policies;
  policies.set("order", {.success_retention = 1s, .failure_retention = 1s});
  Desk desk{policies};
  IdempotentConsumer consumer{desk.guard, order_key(), {.max_attempts = 1, .redelivery_span = 3s}};
  int runs = 0;

  const MessageDisposition refused =
      consumer.handle(order("7"), [&](const ReceivedMessage&) { ++runs; });

  EXPECT_EQ(refused.flow, MessageFlow::stop);
  EXPECT_EQ(refused.error, Errc::invalid_policy);
  EXPECT_EQ(runs, 0);
  EXPECT_THROW(consumer.check_retention("order"), Error);
  EXPECT_NO_THROW(consumer.check_retention("payment"));
}

TEST(IdempotentConsumer, CountsItsOwnDelaysIntoTheSpanThatRecordsMustAnswer) {
  const detail::ConsumerCore core({.max_attempts = 4, .first_delay = 1s, .longest_delay = 2s});

  EXPECT_NO_THROW(core.check_retention({.success_retention = 5s, .failure_retention = 5s}));
  EXPECT_THROW(core.check_retention({.success_retention = 4'999ms, .failure_retention = 5s}),
               Error);
  EXPECT_THROW(core.check_retention({.success_retention = 5s, .failure_retention = 4'999ms}),
               Error);
}

TEST(IdempotentConsumer, RefusesOptionsThatContradictEachOther) {
  Desk desk;
  const auto make = [&](const ConsumerOptions& options) {
    IdempotentConsumer consumer{desk.guard, order_key(), options};
  };

  EXPECT_THROW(make({.max_attempts = 0}), Error);
  EXPECT_THROW(make({.max_attempts = 5, .max_deliveries = 4}), Error);
  EXPECT_THROW(make({.first_delay = 0ms}), Error);
  EXPECT_THROW(make({.first_delay = 2s, .longest_delay = 1s}), Error);
  EXPECT_THROW(make({.redelivery_span = -1ms}), Error);
}

TEST(IdempotentConsumer, HasAnActionForEveryWayInWhichARunEnds) {
  detail::ConsumerCore core({});
  const auto action = [&](RunStatus status) { return core.judge({}, {.status = status}).action; };

  EXPECT_EQ(action(RunStatus::executed_unprotected), MessageAction::acknowledge);
  EXPECT_EQ(action(RunStatus::executed_pending_commit), MessageAction::redeliver_later);
  EXPECT_EQ(action(RunStatus::superseded), MessageAction::redeliver_later);
  EXPECT_EQ(action(RunStatus::undecidable), MessageAction::redeliver_later);
  EXPECT_EQ(action(RunStatus::not_issued), MessageAction::dead_letter);
}

TEST(IdempotentConsumer, RedeliversWhatLostItsLease) {
  Desk desk;
  IdempotentConsumer consumer{desk.guard, order_key()};

  const MessageDisposition lost =
      consumer.handle(order("7"), [](const ReceivedMessage&, Execution&) {
        throw Error(Errc::lease_lost, "as point_of_no_return says it");
      });

  EXPECT_EQ(lost.action, MessageAction::redeliver_later);
  EXPECT_EQ(lost.reason, MessageReason::lease_lost);
}

TEST(IdempotentConsumer, KeepsItsDetailShortEnoughForAHeader) {
  Desk desk;
  IdempotentConsumer consumer{desk.guard, order_key()};

  const MessageDisposition failed = consumer.handle(order("7"), [](const ReceivedMessage&) {
    throw std::runtime_error(std::string(1'000'000, 'x'));
  });

  EXPECT_EQ(failed.action, MessageAction::requeue);
  EXPECT_EQ(failed.detail.size(), MessageDisposition::max_detail_bytes);
}

TEST(IdempotentConsumer, NamesNoKeyInItsReasons) {
  std::set<std::string_view> names;
  for (std::size_t reason = 0; reason < message_reasons; ++reason) {
    names.insert(to_string(static_cast<MessageReason>(reason)));
  }

  EXPECT_EQ(names.size(), message_reasons);
  EXPECT_FALSE(names.contains("unknown"));
}

TEST(IdempotentConsumer, TellsItsObserverOfEveryDelivery) {
  struct Log final : MessageObserver {
    std::vector<std::string> lines;
    void on_message(std::string_view id, const MessageDisposition& disposition) noexcept override {
      lines.push_back(std::string(id) + " " + std::string(to_string(disposition.action)));
    }
  } log;
  Desk desk;
  IdempotentConsumer consumer{desk.guard, order_key(), {.observer = &log}};

  static_cast<void>(consumer.handle(order("7"), nothing));
  static_cast<void>(consumer.handle(ReceivedMessage{.id = "m", .body = "{}"}, nothing));

  EXPECT_EQ(log.lines, (std::vector<std::string>{"message-7-1 acknowledge", "m dead_letter"}));
}

TEST(IdempotentConsumer, TakesMessagesOfAnyType) {
  struct Shipment {
    std::string order;
    int parcels = 1;
  };
  Desk desk;
  IdempotentConsumer consumer{
      desk.guard,
      key_of("order", &Shipment::order).fingerprinted_by(&Shipment::order, &Shipment::parcels)};

  const auto handler = [](const Shipment& shipment) { return shipment.parcels; };

  EXPECT_EQ(consumer.handle(Shipment{"7"}, handler).reason, MessageReason::done);
  EXPECT_EQ(consumer.handle(Shipment{"7"}, handler).reason, MessageReason::done_before);
  EXPECT_EQ(consumer.handle(Shipment{"7", 2}, handler).reason, MessageReason::mismatch);
}

TEST(IdempotentConsumer, CommitsEffectAndRecordTogether) {
  const testing_support::TemporaryDirectory folder;
  SqliteStore store{{.path = folder.file("records.db")}};
  IdempotencyGuard guard{store};
  IdempotentConsumer consumer{guard, order_key(), {.max_attempts = 3}};
  const auto book = [](const ReceivedMessage& message, SqliteTransaction& transaction) {
    transaction.execute("CREATE TABLE IF NOT EXISTS booked (id TEXT)");
    transaction.execute("INSERT INTO booked VALUES (?)", message.id);
    if (message.delivery_count == 1) throw std::runtime_error("broken");
  };

  EXPECT_EQ(consumer.handle_in_transaction(order("7", 1), book).action, MessageAction::requeue);
  EXPECT_EQ(consumer.handle_in_transaction(order("7", 2), book).reason, MessageReason::done);
  EXPECT_EQ(consumer.handle_in_transaction(order("7", 3), book).reason, MessageReason::done_before);

  int rows = 0;
  const auto count = [&](const ReceivedMessage&, SqliteTransaction& transaction) {
    rows = static_cast<int>(transaction.query("SELECT id FROM booked").size());
  };
  EXPECT_EQ(consumer.handle_in_transaction(order("8"), count).reason, MessageReason::done);
  EXPECT_EQ(rows, 1);
}

TEST(IdempotentConsumer, DeadLettersAMessageThatFailedTooOftenInItsTransactions) {
  const testing_support::TemporaryDirectory folder;
  SqliteStore store{{.path = folder.file("records.db")}};
  IdempotencyGuard guard{store};
  IdempotentConsumer consumer{guard, order_key(), {.max_attempts = 2, .max_deliveries = 5}};
  int runs = 0;
  const auto failing = [&](const ReceivedMessage&, SqliteTransaction&) {
    ++runs;
    throw std::runtime_error("broken");
  };

  EXPECT_EQ(consumer.handle_in_transaction(order("7", 1), failing).action, MessageAction::requeue);
  EXPECT_EQ(consumer.handle_in_transaction(order("7", 2), failing).reason,
            MessageReason::out_of_attempts);
  EXPECT_EQ(consumer.handle_in_transaction(order("7", 6), failing).reason,
            MessageReason::out_of_attempts);
  EXPECT_EQ(runs, 2);
}

}  // namespace
}  // namespace idempotency
