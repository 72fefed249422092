// Batches beside a key that holds no record.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "idempotency/idempotency.hpp"
#include "idempotency/stores/redis.hpp"
#include "support/error_of.hpp"
#include "support/event.hpp"
#include "support/redis_server.hpp"

namespace idempotency {
namespace {

using namespace std::chrono_literals;
using testing_support::Event;
using testing_support::RedisServer;

class RenewedLeases final : public Observer {
 public:
  void on_lease_renewed(const Key& key, std::uint64_t /*fence*/) noexcept override {
    if (key.value() == "c") renewed.set();
  }
  Event renewed;
};

class RedisBatch : public ::testing::TestWithParam<const char*> {
 protected:
  RedisBatch() {
    server().ask({"FLUSHALL"});
    const std::string name = RedisOptions{}.prefix + ":{order:bad}";
    if (std::string(GetParam()) == "list") {
      server().ask({"LPUSH", name, "x"});
    } else {
      server().ask({"SET", name, "what another program wrote"});
    }
  }
  static RedisServer& server() { return RedisServer::shared(); }
  static std::vector<Operation> orders(const PolicyOverride& policy = {}) {
    std::vector<Operation> all;
    for (const char* value : {"bad", "b", "c"})
      all.push_back({.key = {"order", value}, .policy = policy});
    return all;
  }

  RenewedLeases leases_;
  RedisStore store_{server().options()};
  IdempotencyGuard<RedisStore> guard_{store_, {.observer = &leases_, .begin_attempts = 1}};
};

TEST_P(RedisBatch, TellsTheRunOfARecordThatCannotBeReadAndNoOther) {
  RunBatch batch = guard_.begin_many(orders());

  EXPECT_EQ(testing_support::code_of([&] { static_cast<void>(batch.run(0, [] { return 1; })); }),
            Errc::store_corrupt);
  EXPECT_EQ(batch.run(1, [] { return 1; }).status(), RunStatus::executed);
  EXPECT_EQ(batch.run(2, [] { return 1; }).status(), RunStatus::executed);
}

TEST_P(RedisBatch, RenewsWhatWaitsBesideARecordThatCannotBeRead) {
  RunBatch batch = guard_.begin_many(orders({.lease = 300ms}));

  const auto second = batch.run(1, [&] { return leases_.renewed.wait(); });

  EXPECT_TRUE(second.value());
  std::uint64_t fence = 0;
  static_cast<void>(batch.run(2, [&](Execution& execution) { fence = execution.fence(); }));
  EXPECT_EQ(fence, 1U);
}

TEST_P(RedisBatch, GivesBackWhatWaitedBesideARecordThatCannotBeRead) {
  { RunBatch batch = guard_.begin_many(orders()); }

  EXPECT_EQ(guard_.run({.key = {"order", "c"}}, [] { return 1; }).status(), RunStatus::executed);
}

TEST_P(RedisBatch, RunsNothingUnprotectedBecauseOfAnothersRecord) {
  RunBatch batch = guard_.begin_many(orders({.on_store_failure = OnStoreFailure::run_unprotected}));

  for (const std::size_t place : {std::size_t{1}, std::size_t{2}})
    EXPECT_EQ(batch.run(place, [] { return 1; }).status(), RunStatus::executed);
}

INSTANTIATE_TEST_SUITE_P(Beside, RedisBatch, ::testing::Values("list", "text"),
                         [](const auto& tested) { return std::string(tested.param); });

}  // namespace
}  // namespace idempotency
