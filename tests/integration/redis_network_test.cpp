// Each fault of the network at each call of the store, and the pool that is left.

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "idempotency/idempotency.hpp"
#include "idempotency/stores/redis.hpp"
#include "idempotency/testing/printers.hpp"
#include "support/error_of.hpp"
#include "support/fault_proxy.hpp"
#include "support/redis_owner.hpp"
#include "support/redis_server.hpp"

namespace idempotency {
namespace {

using std::chrono::milliseconds;
using testing_support::code_of;
using testing_support::FaultProxy;
using testing_support::first_of_all;
using testing_support::NetworkFault;
using testing_support::RedisOwner;
using testing_support::RedisServer;

constexpr std::chrono::hours retention{1};

Key fresh_key() {
  static int number = 0;
  return {"network", std::to_string(::getpid()) + "-" + std::to_string(++number)};
}

/// A call of the store on a record in a known state, one of each form (tests/network tries every one), and what the record says when it took effect.
struct Call {
  const char* name;
  std::function<void(RedisStore&, const RedisOwner&)> prepare;
  std::function<void(RedisStore&, const RedisOwner&)> make;
  std::function<bool(const std::optional<Record>&)> took_effect;
};

bool is(const std::optional<Record>& record, RecordState state) {
  return record && record->state == state;
}

std::vector<Call> calls() {
  const auto nothing = [](RedisStore&, const RedisOwner&) {};
  const auto begun = [](RedisStore& store, const RedisOwner& owner) {
    EXPECT_EQ(store.begin({.key = owner.key, .owner = owner.token, .lease = milliseconds{20'000}}),
              first_of_all());
  };
  const auto state = [](RecordState wanted) {
    return [wanted](const std::optional<Record>& record) { return is(record, wanted); };
  };
  const auto always = [](const std::optional<Record>&) { return true; };
  return {
      {"begin", nothing,
       [](RedisStore& store, const RedisOwner& owner) {
         EXPECT_EQ(store.begin({.key = owner.key, .owner = owner.token}), first_of_all());
       },
       state(RecordState::processing)},
      {"complete", begun,
       [](RedisStore& store, const RedisOwner& owner) {
         EXPECT_EQ(store.complete(owner.key, {owner.token, 1}, {"result", retention}),
                   WriteOutcome::stored);
       },
       state(RecordState::success)},
      {"find", begun,
       [](RedisStore& store, const RedisOwner& owner) { EXPECT_TRUE(store.find(owner.key)); },
       always},
      {"list", begun,
       [](RedisStore& store, const RedisOwner&) {
         EXPECT_FALSE(store.list({.type = "network"}, "", 1).records.empty());
       },
       always},
      {"statistics", begun,
       [](RedisStore& store, const RedisOwner&) { EXPECT_GT(store.statistics().processing, 0U); },
       always},
  };
}

constexpr NetworkFault faults[] = {
    NetworkFault::delayed,   NetworkFault::cut_before_request, NetworkFault::cut_before_reply,
    NetworkFault::half_open, NetworkFault::reset_before_reply, NetworkFault::reply_swallowed,
    NetworkFault::trickle};

/// Faults in which the caller hears nothing more.
bool is_silent(NetworkFault fault) {
  return fault == NetworkFault::half_open || fault == NetworkFault::reply_swallowed;
}

bool is_slow(NetworkFault fault) {
  return fault == NetworkFault::delayed || fault == NetworkFault::trickle;
}

class RedisNetwork : public ::testing::Test {
 protected:
  RedisNetwork() {
    RedisServer::shared().ask({"FLUSHALL"});
    proxy_.set_delay(milliseconds{5});
  }

  RedisOptions through_proxy(milliseconds command_timeout) {
    return {.port = proxy_.port(), .command_timeout = command_timeout, .max_connections = 1};
  }
  void expect_truth(RedisStore& store, const Call& call, NetworkFault fault);

  FaultProxy proxy_{RedisServer::shared().port()};
  RedisStore direct_{RedisServer::shared().options()};
};

/// Makes a call whose request is harmed, and looks at what it said, what it did, and what is left of the pool.
void RedisNetwork::expect_truth(RedisStore& store, const Call& call, NetworkFault fault) {
  const RedisOwner owner{store, fresh_key()};
  call.prepare(direct_, owner);
  const std::uint64_t connections = proxy_.connections();
  const std::uint64_t harmed = proxy_.harmed();
  proxy_.harm_next(fault);

  std::optional<Error> error;
  try {
    call.make(store, owner);
  } catch (const Error& thrown) {
    error = thrown;
  }

  ASSERT_EQ(proxy_.harmed(), harmed + 1);
  // A call on a pooled connection that ends is made once more: no fault to the caller.
  EXPECT_EQ(error.has_value(), is_silent(fault)) << (error ? error->detail() : "no error");
  if (error) {
    EXPECT_TRUE(error->effect_possible() || error->safe_to_retry());
  }
  EXPECT_TRUE(call.took_effect(direct_.find(owner.key)) || fault == NetworkFault::half_open);
  if (fault == NetworkFault::half_open && !error->effect_possible()) {
    EXPECT_EQ(error->code(), Errc::store_unavailable);
  }
  const RedisOwner next{store, fresh_key()};
  EXPECT_FALSE(store.find(next.key)) << "the next call gets its own answer";
  EXPECT_EQ(proxy_.connections(), connections + (is_slow(fault) ? 0 : 1));
}

// HI-06, HI-11
TEST_F(RedisNetwork, HarmsNoCallMoreThanItSaysAndLeavesNoBrokenConnection) {
  RedisStore patient(through_proxy(std::chrono::seconds{10}));
  RedisStore hasty(through_proxy(milliseconds{300}));
  for (const Call& call : calls()) {
    for (const NetworkFault fault : faults) {
      SCOPED_TRACE(std::string(call.name) + ", fault " + std::to_string(static_cast<int>(fault)));
      expect_truth(is_silent(fault) ? hasty : patient, call, fault);
      if (HasFatalFailure()) return;
    }
  }
}

// HI-11: the first call after the network has dropped an idle connection without a word
TEST_F(RedisNetwork, TakesNoLongerThanTheTimeoutOverASilentlyDroppedConnection) {
  RedisStore store(through_proxy(milliseconds{500}));
  RedisOwner owner{store, fresh_key()};
  ASSERT_EQ(owner.begin(), first_of_all());
  proxy_.plan([at = proxy_.requests()](std::uint64_t number) {
    return number == at ? NetworkFault::half_open : NetworkFault::none;
  });

  EXPECT_EQ(code_of([&] { static_cast<void>(owner.complete()); }), Errc::store_reply_lost);

  EXPECT_EQ(proxy_.connections(), 1U);  // one time-out: it was not tried again
  EXPECT_EQ(owner.complete(), WriteOutcome::stored);
  EXPECT_TRUE(std::holds_alternative<Completed>(
      store.begin({.key = owner.key, .owner = OwnerToken::generate()})));
}

// No byte is late, but the answer is: the time-out is that of the whole request. The answer takes half a minute to come, and
// a client that waited anew for each byte would have it.
TEST_F(RedisNetwork, EndsAnAnswerThatTricklesInForLongerThanTheTimeout) {
  const std::string large(std::size_t{32} << 10U, 'a');
  const RedisOwner owner{direct_, fresh_key()};
  ASSERT_EQ(direct_.begin({.key = owner.key, .owner = owner.token}), first_of_all());
  ASSERT_EQ(direct_.complete(owner.key, {owner.token, 1}, {large, retention}),
            WriteOutcome::stored);
  RedisStore store(through_proxy(milliseconds{500}));
  for (bool is_connected = false;
       !is_connected;) {  // a busy machine may need more than one time-out
    try {
      is_connected = store.find(owner.key).has_value();
    } catch (const Error& error) {
      ASSERT_TRUE(error.safe_to_retry()) << error.what();
    }
  }
  const std::uint64_t connections = proxy_.connections();

  proxy_.harm_next(NetworkFault::trickle);
  EXPECT_EQ(code_of([&] { static_cast<void>(store.find(owner.key)); }), Errc::store_unavailable);
  proxy_.harm(1, NetworkFault::trickle);  // after the greeting of the next connection
  EXPECT_EQ(code_of([&] {
              static_cast<void>(store.begin({.key = owner.key, .owner = OwnerToken::generate()}));
            }),
            Errc::store_reply_lost);

  EXPECT_EQ(proxy_.harmed(), 2U);
  const std::optional<Record> record = store.find(owner.key);
  ASSERT_TRUE(record);
  EXPECT_EQ(record->result, large);
  EXPECT_EQ(proxy_.connections(), connections + 2);  // none was used again with half an answer
}

}  // namespace
}  // namespace idempotency
