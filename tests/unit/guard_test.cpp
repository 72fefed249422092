#include "idempotency/guard.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <latch>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "idempotency/stores/memory.hpp"
#include "idempotency/testing/faulty_store.hpp"
#include "idempotency/testing/manual_clock.hpp"

namespace idempotency {
namespace {

using namespace std::chrono_literals;
using testing::Fault;
using testing::FaultyStore;
using testing::ManualClock;

Operation operation(const std::string& type = "order", const std::string& value = "7") {
  return {.key = Key(type, value)};
}

TEST(IdempotencyGuard, ReplaysTheStoredResultWithoutRunningAgain) {
  MemoryStore store;
  IdempotencyGuard guard{store};
  int runs = 0;
  const auto charge = [&] {
    ++runs;
    return std::string{"charge-1"};
  };

  const auto first = guard.run({.key = {"payment", "order-7"}}, charge);
  const auto second = guard.run({.key = {"payment", "order-7"}}, charge);

  EXPECT_EQ(first.status(), RunStatus::executed);
  EXPECT_EQ(first.value(), "charge-1");
  EXPECT_EQ(second.status(), RunStatus::replayed);
  EXPECT_EQ(second.value(), "charge-1");
  EXPECT_EQ(runs, 1);
}

TEST(IdempotencyGuard, RunsDifferentKeysOnTheirOwn) {
  MemoryStore store;
  IdempotencyGuard guard{store};
  int runs = 0;

  static_cast<void>(guard.run(operation("order", "1"), [&] { return ++runs; }));
  static_cast<void>(guard.run(operation("order", "2"), [&] { return ++runs; }));
  static_cast<void>(guard.run(operation("refund", "1"), [&] { return ++runs; }));

  EXPECT_EQ(runs, 3);
}

// ID-09: results that look empty replay as themselves.
TEST(IdempotencyGuard, ReplaysResultsThatLookEmpty) {
  MemoryStore store;
  IdempotencyGuard guard{store};
  const auto twice = [&](const std::string& key, auto result) {
    int runs = 0;
    const auto handler = [&] {
      ++runs;
      return result;
    };
    static_cast<void>(guard.run(operation("order", key), handler));
    const auto again = guard.run(operation("order", key), handler);
    EXPECT_EQ(again.status(), RunStatus::replayed) << key;
    EXPECT_EQ(again.value(), result) << key;
    EXPECT_EQ(runs, 1) << key;
  };

  twice("zero", 0);
  twice("false", false);
  twice("empty", std::string{});
  twice("vector", std::vector<int>{});
  twice("nullopt", std::optional<int>{});
  twice("nul", std::string(3, '\0'));
  twice("None", std::string("None"));
}

TEST(IdempotencyGuard, RecordsHandlersWithoutAResult) {
  MemoryStore store;
  IdempotencyGuard guard{store};
  int runs = 0;

  const auto first = guard.run(operation(), [&] { ++runs; });
  const auto second = guard.run(operation(), [&] { ++runs; });

  EXPECT_TRUE(first.has_value());
  EXPECT_EQ(second.status(), RunStatus::replayed);
  EXPECT_NO_THROW(second.value());
  EXPECT_EQ(runs, 1);
}

TEST(IdempotencyGuard, RefusesAKeyUsedForAnotherRequest) {
  MemoryStore store;
  IdempotencyGuard guard{store};
  int runs = 0;

  static_cast<void>(guard.run({.key = {"order", "7"}, .fingerprint = Fingerprint::of(1)},
                              [&] { return ++runs; }));
  const auto other =
      guard.run({.key = {"order", "7"}, .fingerprint = Fingerprint::of(2)}, [&] { return ++runs; });

  EXPECT_EQ(other.status(), RunStatus::mismatch);
  EXPECT_FALSE(other.has_value());
  EXPECT_EQ(runs, 1);
  try {
    static_cast<void>(other.value());
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::no_value);
  }
}

// KF-03: a record made under an unknown scheme stops the run with a typed error; under the earlier one it is compared.
TEST(IdempotencyGuard, ComparesUnderTheSchemeOfTheRecord) {
  MemoryStore store;
  IdempotencyGuard guard{store};
  int runs = 0;
  const auto handler = [&] { return ++runs; };
  const auto with = [](const Fingerprint& fingerprint) {
    return Operation{.key = {"order", "7"}, .fingerprint = fingerprint};
  };
  static_cast<void>(guard.run(with(Fingerprint::of(1)), handler));

  const Fingerprint same = Fingerprint::of(1, "EUR").as_scheme(2).or_earlier(Fingerprint::of(1));
  const Fingerprint other = Fingerprint::of(2, "EUR").as_scheme(2).or_earlier(Fingerprint::of(2));
  EXPECT_EQ(guard.run(with(same), handler).status(), RunStatus::replayed);
  EXPECT_EQ(guard.run(with(other), handler).status(), RunStatus::mismatch);
  try {
    static_cast<void>(guard.run(with(Fingerprint::of(1).as_scheme(3)), handler));
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::unknown_fingerprint_scheme);
  }
  EXPECT_EQ(runs, 1);
}

TEST(IdempotencyGuard, TellsALiveDuplicateWhenToAskAgain) {
  MemoryStore store;
  IdempotencyGuard guard{store};

  const auto outer = guard.run(operation(), [&] {
    const auto inner = guard.run(operation(), [] { return 2; });
    EXPECT_EQ(inner.status(), RunStatus::in_progress);
    EXPECT_GT(inner.retry_after(), 0ms);
    EXPECT_LE(inner.retry_after(), 30s);
    return 1;
  });

  EXPECT_EQ(outer.status(), RunStatus::executed);
}

// ID-17: another payload is a mismatch at once, also where the caller would wait, while the first call runs.
TEST(IdempotencyGuard, ReportsAMismatchBeforeWaiting) {
  MemoryStore store;
  IdempotencyGuard guard{store};
  const auto with = [](int meaning) {
    return Operation{
        .key = {"order", "7"}, .fingerprint = Fingerprint::of(meaning), .policy = {.wait = 1h}};
  };

  const auto outer = guard.run(with(1), [&] {
    EXPECT_EQ(guard.run(with(2), [] { return 2; }).status(), RunStatus::mismatch);
    return 1;
  });

  EXPECT_EQ(outer.status(), RunStatus::executed);
}

struct BusinessError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// ID-19, TC-15 (a message that failed is handled when it is delivered again): the handler's own exception reaches the caller, whatever its type, and the record says what it means.
TEST(IdempotencyGuard, LetsTheHandlersExceptionThroughAndMayRunAgain) {
  MemoryStore store;
  IdempotencyGuard guard{store};

  EXPECT_THROW(static_cast<void>(guard.run(operation(), []() -> int { throw BusinessError("a"); })),
               BusinessError);
  EXPECT_EQ(store.find(Key("order", "7"))->state, RecordState::failed);
  EXPECT_THROW(static_cast<void>(guard.run(operation(), []() -> int { throw 42; })), int);
  EXPECT_THROW(
      static_cast<void>(guard.run(operation(), []() -> int { throw std::make_unique<int>(3); })),
      std::unique_ptr<int>);
  EXPECT_EQ(guard.run(operation(), [] { return 1; }).status(), RunStatus::executed);
}

TEST(IdempotencyGuard, ReplaysAPermanentFailure) {
  MemoryStore store;
  IdempotencyGuard guard{store};
  int runs = 0;
  const auto declined = [&]() -> int {
    ++runs;
    throw PermanentFailure("card declined");
  };

  EXPECT_THROW(static_cast<void>(guard.run(operation(), declined)), PermanentFailure);
  const auto again = guard.run(operation(), declined);

  EXPECT_EQ(again.status(), RunStatus::failed);
  EXPECT_EQ(again.failure(), "card declined");
  EXPECT_EQ(runs, 1);
}

// KF-14: a transient failure does not stay for ever.
TEST(IdempotencyGuard, RunsAgainAfterTransientFailures) {
  MemoryStore store;
  IdempotencyGuard guard{store};
  std::vector<std::uint32_t> attempts;
  const auto flaky = [&](Execution& execution) {
    attempts.push_back(execution.attempt());
    if (attempts.size() <= 3) throw RetryableFailure("try later");
    return 5;
  };

  for (int i = 0; i < 3; ++i) {
    EXPECT_THROW(static_cast<void>(guard.run(operation(), flaky)), RetryableFailure);
  }
  const auto last = guard.run(operation(), flaky);

  EXPECT_EQ(last.status(), RunStatus::executed);
  EXPECT_EQ(attempts, (std::vector<std::uint32_t>{1, 2, 3, 4}));
}

TEST(IdempotencyGuard, BlocksAfterAnUnknownOutcome) {
  MemoryStore store;
  IdempotencyGuard guard{store};
  int runs = 0;

  EXPECT_THROW(static_cast<void>(guard.run(operation(),
                                           [&]() -> int {
                                             ++runs;
                                             throw OutcomeUnknown("no answer from the bank");
                                           })),
               OutcomeUnknown);
  const auto again = guard.run(operation(), [&] { return ++runs; });

  EXPECT_EQ(again.status(), RunStatus::uncertain);
  EXPECT_EQ(runs, 1);
}

// ID-23: what is thrown after the point of no return is uncertain, before it retryable.
TEST(IdempotencyGuard, JudgesAnExceptionByThePointOfNoReturn) {
  for (const std::string type : {"payment", "order"}) {  // hold and take_over
    MemoryStore store;
    IdempotencyGuard guard{store};
    const auto thrown_after_point = [](Execution& execution) -> int {
      execution.point_of_no_return();
      throw BusinessError("connection reset");
    };
    const auto thrown_before_point = [](Execution&) -> int { throw BusinessError("not valid"); };

    EXPECT_THROW(static_cast<void>(guard.run(operation(type, "a"), thrown_before_point)),
                 BusinessError);
    EXPECT_EQ(guard.run(operation(type, "a"), [] { return 1; }).status(), RunStatus::executed);
    EXPECT_THROW(static_cast<void>(guard.run(operation(type, "b"), thrown_after_point)),
                 BusinessError);
    EXPECT_EQ(guard.run(operation(type, "b"), [] { return 1; }).status(), RunStatus::uncertain);
  }
}

// ID-21: by default a handler that cannot say where its effect begins is uncertain under hold, retryable otherwise.
TEST(IdempotencyGuard, JudgesAHandlerWithoutExecutionByItsMode) {
  MemoryStore store;
  IdempotencyGuard guard{store};
  const auto throws = []() -> int { throw BusinessError("?"); };

  EXPECT_THROW(static_cast<void>(guard.run(operation("payment"), throws)), BusinessError);
  EXPECT_THROW(static_cast<void>(guard.run(operation("order"), throws)), BusinessError);

  EXPECT_EQ(guard.run(operation("payment"), [] { return 1; }).status(), RunStatus::uncertain);
  EXPECT_EQ(guard.run(operation("order"), [] { return 1; }).status(), RunStatus::executed);
}

struct Declined : BusinessError {
  using BusinessError::BusinessError;
};

std::optional<Disposition> by_type(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const BusinessError&) {
    return Disposition::permanent;
  } catch (const std::logic_error&) {
    return Disposition::uncertain;
  } catch (int) {
    throw std::runtime_error("the classifier itself fails");
  } catch (...) {
    return std::nullopt;
  }
}

// ID-40: the policy's classifier decides by type, derived types included; one that throws has not decided.
TEST(IdempotencyGuard, AsksThePolicysClassifier) {
  MemoryStore store;
  IdempotencyGuard guard{store};
  const auto status_after = [&](const std::string& key, auto thrown) {
    const Operation asked{.key = {"order", key}, .policy = {.classify = &by_type}};
    EXPECT_THROW(static_cast<void>(guard.run(asked, [&]() -> int { throw thrown; })),
                 decltype(thrown));
    return guard.run(asked, [] { return 1; }).status();
  };

  EXPECT_EQ(status_after("base", BusinessError("x")), RunStatus::failed);
  EXPECT_EQ(status_after("derived", Declined("x")), RunStatus::failed);
  EXPECT_EQ(status_after("logic", std::logic_error("x")), RunStatus::uncertain);
  EXPECT_EQ(status_after("unknown", std::bad_alloc()), RunStatus::executed);
  EXPECT_EQ(status_after("thrower", 5), RunStatus::executed);
}

Disposition judge_text(const std::string& text) {
  if (text == "declined") return Disposition::permanent;
  if (text == "later") return Disposition::retryable;
  if (text == "unknown") return Disposition::uncertain;
  return Disposition::success;
}

// ID-33: a failure that is returned ends the record at once.
TEST(IdempotencyGuard, JudgesReturnedFailures) {
  MemoryStore store;
  IdempotencyGuard guard{store};
  const auto run = [&](const std::string& key, const std::string& returned) {
    return guard.run(
        {.key = {"order", key}}, [&] { return returned; }, &judge_text);
  };

  EXPECT_EQ(run("a", "declined").status(), RunStatus::executed_failed);
  const auto declined_again = run("a", "never returned");
  EXPECT_EQ(declined_again.status(), RunStatus::failed);
  EXPECT_EQ(declined_again.value(), "declined");

  const auto later = run("b", "later");
  EXPECT_EQ(later.status(), RunStatus::executed_failed);
  EXPECT_EQ(later.value(), "later");
  EXPECT_EQ(run("b", "fine").status(), RunStatus::executed);

  EXPECT_EQ(run("c", "unknown").status(), RunStatus::uncertain);
  EXPECT_EQ(run("c", "fine").status(), RunStatus::uncertain);
}

// KF-09: a result over the limit is not kept, and the handler does not run again for it.
TEST(IdempotencyGuard, DoesNotRunAgainForAResultThatIsTooLargeToKeep) {
  MemoryStore store;
  IdempotencyGuard guard{store};
  const std::size_t limit = encode_result<std::string>(std::string(100, 'x')).size();
  const auto run = [&](const std::string& key, std::size_t bytes, int& runs) {
    return guard.run({.key = {"order", key}, .policy = {.max_result_bytes = limit}}, [&] {
      ++runs;
      return std::string(bytes, 'x');
    });
  };

  for (const std::size_t bytes : {99U, 100U}) {
    int runs = 0;
    const std::string key = std::to_string(bytes);
    static_cast<void>(run(key, bytes, runs));
    EXPECT_EQ(run(key, bytes, runs).value().size(), bytes);
    EXPECT_EQ(runs, 1);
  }
  for (const std::size_t bytes : {std::size_t{101}, std::size_t{64} << 20U}) {
    int runs = 0;
    const std::string key = std::to_string(bytes);
    const auto first = run(key, bytes, runs);
    EXPECT_EQ(first.status(), RunStatus::executed);
    EXPECT_EQ(first.value().size(), bytes);
    const auto second = run(key, bytes, runs);
    EXPECT_EQ(second.status(), RunStatus::replayed_without_result);
    EXPECT_FALSE(second.has_value());
    EXPECT_EQ(runs, 1);
  }
}

TEST(IdempotencyGuard, NeverRunsAgainForAResultOfAnotherType) {
  MemoryStore store;
  IdempotencyGuard guard{store};
  int runs = 0;
  static_cast<void>(guard.run(operation(), [&] { return std::to_string(++runs); }));

  try {
    static_cast<void>(guard.run(operation(), [&] { return ++runs; }));
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::codec_mismatch);
  }
  EXPECT_EQ(runs, 1);
}

// LK-11: the fence and the attempt reach the handler and rise.
TEST(IdempotencyGuard, HandsTheFenceToTheHandler) {
  ManualClock clock;
  MemoryStore store{{.clock = &clock}};
  IdempotencyGuard guard{store};
  std::vector<std::uint64_t> fences;

  static_cast<void>(guard.run(operation(), [&](Execution& first) {
    fences.push_back(first.fence());
    clock.advance(31s);
    static_cast<void>(guard.run(operation(), [&](Execution& second) {
      fences.push_back(second.fence());
      EXPECT_EQ(second.attempt(), 2U);
      return 2;
    }));
    return 1;
  }));

  EXPECT_EQ(fences, (std::vector<std::uint64_t>{1, 2}));
}

// ID-29: an owner that slept past its lease cannot overwrite, and gets the answer that everybody gets.
TEST(IdempotencyGuard, SupersedesALateOwner) {
  ManualClock clock;
  MemoryStore store{{.clock = &clock}};
  IdempotencyGuard guard{store};

  const auto late = guard.run(operation(), [&] {
    clock.advance(31s);
    EXPECT_EQ(guard.run(operation(), [] { return std::string("B"); }).status(),
              RunStatus::executed);
    return std::string("A");
  });

  EXPECT_EQ(late.status(), RunStatus::superseded);
  EXPECT_EQ(late.value(), "B");
  EXPECT_EQ(guard.run(operation(), [] { return std::string("C"); }).value(), "B");
}

// A late owner must not be handed the result of a request of another meaning, made in a later life of the key.
TEST(IdempotencyGuard, GivesASupersededCallNoResultOfAnotherRequest) {
  ManualClock clock;
  MemoryStore store{{.clock = &clock}};
  IdempotencyGuard guard{store};
  const auto with = [](int meaning) {
    return Operation{.key = {"order", "7"},
                     .fingerprint = Fingerprint::of(meaning),
                     .policy = {.success_retention = std::chrono::milliseconds{1'000}}};
  };

  const auto late = guard.run(with(1), [&] {
    clock.advance(31s);  // the lease ends, another call of the same request takes over
    EXPECT_EQ(guard.run(with(1), [] { return std::string("B"); }).status(), RunStatus::executed);
    clock.advance(2s);  // its retention ends, and the key is used for another request
    EXPECT_EQ(guard.run(with(2), [] { return std::string("C"); }).status(), RunStatus::executed);
    return std::string("A");
  });

  EXPECT_EQ(late.status(), RunStatus::superseded);
  EXPECT_FALSE(late.has_value());
}

TEST(IdempotencyGuard, HoldsWhatAnOwnerLeftUnfinished) {
  ManualClock clock;
  MemoryStore store{{.clock = &clock}};
  IdempotencyGuard guard{store};
  int inner_runs = 0;

  const auto owner = guard.run(operation("payment"), [&] {
    clock.advance(31s);
    EXPECT_EQ(guard.run(operation("payment"), [&] { return ++inner_runs; }).status(),
              RunStatus::uncertain);
    return 1;
  });

  EXPECT_EQ(owner.status(), RunStatus::executed);  // it knows best, however late
  EXPECT_EQ(inner_runs, 0);
}

TEST(IdempotencyGuard, HoldsAfterTheEffectIsMarkedUnderTakeOver) {
  ManualClock clock;
  MemoryStore store{{.clock = &clock}};
  IdempotencyGuard guard{store};

  static_cast<void>(guard.run(operation("order"), [&](Execution& execution) {
    execution.point_of_no_return();
    clock.advance(31s);
    EXPECT_EQ(guard.run(operation("order"), [] { return 2; }).status(), RunStatus::uncertain);
    return 1;
  }));
}

TEST(IdempotencyGuard, StopsBeforeTheEffectWhenTheLeaseIsLost) {
  ManualClock clock;
  MemoryStore store{{.clock = &clock}};
  IdempotencyGuard guard{store};
  bool effect = false;

  try {
    static_cast<void>(guard.run(operation("order"), [&](Execution& execution) {
      clock.advance(31s);
      static_cast<void>(guard.run(operation("order"), [] { return 2; }));
      execution.point_of_no_return();
      effect = true;
      return 1;
    }));
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::lease_lost);
  }
  EXPECT_FALSE(effect);
}

TEST(IdempotencyGuard, DerivesTheSameKeyOnEveryAttempt) {
  MemoryStore store;
  IdempotencyGuard guard{store};
  std::vector<std::string> keys;
  const auto handler = [&](Execution& execution) -> int {
    keys.push_back(execution.derived_key("charge"));
    keys.push_back(execution.derived_key("refund"));
    throw RetryableFailure("again");
  };

  EXPECT_THROW(static_cast<void>(guard.run(operation(), handler)), RetryableFailure);
  EXPECT_THROW(static_cast<void>(guard.run(operation(), handler)), RetryableFailure);

  EXPECT_EQ(keys[0], keys[2]);
  EXPECT_EQ(keys[1], keys[3]);
  EXPECT_NE(keys[0], keys[1]);
  EXPECT_EQ(keys[0], derived_key(Key("order", "7"), "charge"));
  EXPECT_EQ(keys[0].substr(0, 7), "charge-");
  EXPECT_THROW(static_cast<void>(derived_key(Key("order", "7"), "not a name")), Error);
  EXPECT_THROW(static_cast<void>(derived_key(Key("order", "7"), "")), Error);
}

TEST(IdempotencyGuard, SkipsStepsThatAnEarlierAttemptHasDone) {
  MemoryStore store;
  IdempotencyGuard guard{store};
  int reserved = 0;
  int shipped = 0;
  bool fail = true;
  const auto handler = [&](Execution& execution) {
    const int stock = execution.step("reserve", [&] { return ++reserved; });
    if (fail) throw RetryableFailure("shipping is down");
    execution.step("ship", [&] { ++shipped; });
    return stock;
  };

  EXPECT_THROW(static_cast<void>(guard.run(operation(), handler)), RetryableFailure);
  fail = false;
  const auto second = guard.run(operation(), handler);

  EXPECT_EQ(second.value(), 1);
  EXPECT_EQ(reserved, 1);
  EXPECT_EQ(shipped, 1);
}

TEST(IdempotencyGuard, KeepsTheStepsOfDifferentOperationsApart) {
  MemoryStore store;
  IdempotencyGuard guard{store};
  int runs = 0;
  const auto handler = [&](Execution& execution) {
    return execution.step("only", [&] { return ++runs; });
  };

  EXPECT_EQ(guard.run(operation("order", "1"), handler).value(), 1);
  EXPECT_EQ(guard.run(operation("order", "2"), handler).value(), 2);
}

TEST(IdempotencyGuard, WrapsAHandlerWithAResolver) {
  struct Order {
    std::string id;
    int cents;
  };
  MemoryStore store;
  IdempotencyGuard guard{store};
  int runs = 0;
  auto pay = guard.wrap(key_of("payment", &Order::id).fingerprinted_by(&Order::id, &Order::cents),
                        [&](const Order& order) {
                          ++runs;
                          return order.cents;
                        });

  EXPECT_EQ(pay(Order{"order-7", 100}).status(), RunStatus::executed);
  EXPECT_EQ(pay(Order{"order-7", 100}).value(), 100);
  EXPECT_EQ(pay(Order{"order-7", 200}).status(), RunStatus::mismatch);
  EXPECT_EQ(
      guard
          .run({.key = {"payment", "order-7"}, .fingerprint = Fingerprint::of("order-7", 100)},
               [&] { return 5; })
          .status(),
      RunStatus::replayed);
  EXPECT_EQ(runs, 1);
}

// KF-05: a missing id is an error, never a random one.
TEST(IdempotencyGuard, RefusesARequestWithoutAKey) {
  struct Order {
    std::string id;
  };
  MemoryStore store;
  IdempotencyGuard guard{store};
  int runs = 0;
  auto pay = guard.wrap(key_of("payment", &Order::id), [&](const Order&) { return ++runs; });

  try {
    static_cast<void>(pay(Order{""}));
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::missing_key);
  }
  EXPECT_EQ(runs, 0);
}

TEST(IdempotencyGuard, RefusesContradictoryWishesBeforeAnythingIsWritten) {
  MemoryStore store;
  IdempotencyGuard guard{store};

  EXPECT_THROW(static_cast<void>(
                   guard.run({.key = {"order", "7"}, .policy = {.lease = 0ms}}, [] { return 1; })),
               Error);
  EXPECT_FALSE(store.find(Key("order", "7")).has_value());
  EXPECT_THROW(IdempotencyGuard(store, {.begin_attempts = 0}), Error);
  EXPECT_THROW(IdempotencyGuard(store, {.begin_attempts = 101}), Error);
}

// KF-16: after its retention a key is free again; there are no tombstones.
TEST(IdempotencyGuard, RunsAgainAfterTheRetention) {
  ManualClock clock;
  MemoryStore store{{.clock = &clock}};
  IdempotencyGuard guard{store};
  const Operation asked{.key = {"order", "7"}, .policy = {.success_retention = 1s}};

  EXPECT_EQ(guard.run(asked, [] { return 1; }).status(), RunStatus::executed);
  clock.advance(999ms);
  EXPECT_EQ(guard.run(asked, [] { return 1; }).status(), RunStatus::replayed);
  clock.advance(1ms);
  EXPECT_EQ(guard.run(asked, [] { return 1; }).status(), RunStatus::executed);
}

TEST(IdempotencyGuard, KeepsTheTraceOfTheFirstCall) {
  MemoryStore store;
  IdempotencyGuard guard{store};

  static_cast<void>(guard.run({.key = {"order", "7"}, .trace = std::string(300, 't')}, [] {}));

  EXPECT_EQ(store.find(Key("order", "7"))->trace, std::string(255, 't'));
}

// ID-13: when completion never lands the caller has its value and knows that it is not recorded.
TEST(IdempotencyGuard, SaysWhenTheResultIsNotRecorded) {
  MemoryStore inner;
  FaultyStore store{inner};
  IdempotencyGuard guard{store, {.write_budget = 20ms}};
  store.on(StoreCall::complete).fail_always(Fault::request_lost);
  int runs = 0;

  const auto first = guard.run(operation("payment"), [&] { return ++runs; });
  const auto second = guard.run(operation("payment"), [&] { return ++runs; });

  EXPECT_EQ(first.status(), RunStatus::executed_unrecorded);
  EXPECT_EQ(first.value(), 1);
  EXPECT_EQ(second.status(), RunStatus::in_progress);
  EXPECT_EQ(runs, 1);
}

TEST(IdempotencyGuard, CompletesWithTheSameTokenWhenRepliesAreLost) {
  for (const int lost : {1, 3}) {
    MemoryStore inner;
    FaultyStore store{inner};
    IdempotencyGuard guard{store};
    store.on(StoreCall::begin).fail_next(1, Fault::reply_lost);
    store.on(StoreCall::complete).fail_next(static_cast<std::size_t>(lost), Fault::reply_lost);
    int runs = 0;

    EXPECT_EQ(guard.run(operation(), [&] { return ++runs; }).status(), RunStatus::executed);
    EXPECT_EQ(guard.run(operation(), [&] { return ++runs; }).status(), RunStatus::replayed);
    EXPECT_EQ(runs, 1);
  }
}

class SettledBehind : public Observer {
 public:
  void on_settled_behind(const Key& /*key*/, std::string_view outcome) noexcept override {
    if (outcome == "recorded") recorded.set_value();
  }
  std::promise<void> recorded;
};

TEST(IdempotencyGuard, RecordsBehindWhatItCouldNotRecordInTime) {
  MemoryStore inner;
  FaultyStore store{inner};
  SettledBehind observer;
  IdempotencyGuard guard{store, {.observer = &observer, .write_budget = 1ms}};
  store.on(StoreCall::complete).fail_next(4, Fault::request_lost);

  ASSERT_EQ(guard.run(operation(), [] { return 1; }).status(), RunStatus::executed_unrecorded);
  ASSERT_EQ(observer.recorded.get_future().wait_for(30s), std::future_status::ready);

  EXPECT_EQ(guard.run(operation(), [] { return 2; }).value(), 1);
}

TEST(IdempotencyGuard, RefusesWhenTheStoreCannotBeAsked) {
  MemoryStore inner;
  FaultyStore store{inner};
  IdempotencyGuard guard{store};
  store.on(StoreCall::begin).fail_always(Fault::request_lost);
  int runs = 0;

  try {
    static_cast<void>(guard.run(operation(), [&] { return ++runs; }));
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::store_unavailable);
    EXPECT_TRUE(error.safe_to_retry());
    EXPECT_FALSE(error.effect_possible());
  }
  EXPECT_EQ(runs, 0);
}

TEST(IdempotencyGuard, RunsUnprotectedWhereThePolicySaysSo) {
  MemoryStore inner;
  FaultyStore store{inner};
  IdempotencyGuard guard{store};
  store.on(StoreCall::begin).fail_always(Fault::request_lost);

  const auto result = guard.run(
      {.key = {"order", "7"}, .policy = {.on_store_failure = OnStoreFailure::run_unprotected}},
      [](Execution& execution) {
        execution.point_of_no_return();
        return execution.fence();
      });

  EXPECT_EQ(result.status(), RunStatus::executed_unprotected);
  EXPECT_EQ(result.value(), 0U);
}

// A store failure on the way never hides the handler's own exception.
TEST(IdempotencyGuard, PrefersTheHandlersExceptionToTheStores) {
  MemoryStore inner;
  FaultyStore store{inner};
  IdempotencyGuard guard{store, {.write_budget = 5ms}};
  store.on(StoreCall::fail).fail_always(Fault::request_lost);

  EXPECT_THROW(static_cast<void>(guard.run(operation(), []() -> int { throw BusinessError("a"); })),
               BusinessError);
}

TEST(IdempotencyGuard, DropsAResultThatTheStoreCannotHold) {
  MemoryStore inner;
  FaultyStore store{inner};
  IdempotencyGuard guard{store};
  store.on(StoreCall::complete).fail_next(1, Fault::too_large);

  EXPECT_EQ(guard.run(operation(), [] { return 1; }).status(), RunStatus::executed);
  EXPECT_EQ(guard.run(operation(), [] { return 1; }).status(), RunStatus::replayed_without_result);
}

// LK-05: an acquisition whose answer took longer than the lease starts nothing and is given back.
TEST(IdempotencyGuard, DoesNotStartOnALeaseThatIsOver) {
  MemoryStore inner;
  FaultyStore store{inner};
  IdempotencyGuard guard{store};
  store.on(StoreCall::begin).after([] {
    std::this_thread::sleep_for(12ms);
  });  // the time that it takes is the case
  int runs = 0;

  try {
    static_cast<void>(
        guard.run({.key = {"order", "7"}, .policy = {.lease = 10ms}}, [&] { return ++runs; }));
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::lease_too_short);
  }
  EXPECT_EQ(runs, 0);
  EXPECT_EQ(inner.find(Key("order", "7"))->state, RecordState::failed);
}

}  // namespace
}  // namespace idempotency
