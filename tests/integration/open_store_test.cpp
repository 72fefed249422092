// One address in the configuration reaches each of the four stores.

#include "idempotency/stores/open.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "idempotency/idempotency.hpp"
#include "support/mariadb_server.hpp"
#include "support/redis_server.hpp"
#include "support/temporary_directory.hpp"

namespace idempotency {
namespace {

using testing_support::MariaDbServer;
using testing_support::RedisServer;
using testing_support::TemporaryDirectory;

constexpr std::chrono::hours lease{1};

class Hazards : public Observer {
 public:
  void on_hazard(std::string_view what) noexcept override {
    const std::lock_guard lock(mutex_);
    told_.emplace_back(what);
  }
  [[nodiscard]] std::size_t count() {
    const std::lock_guard lock(mutex_);
    return told_.size();
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> told_;
};

std::string redis_address() { return RedisServer::shared().address(); }

/// Two processes would each open a store of their own; so do the two guards here.
void expect_one_store_behind(const std::string& address, const std::string& value) {
  SCOPED_TRACE(address);
  AnyStore here = open_store(address);
  AnyStore there = open_store(address);
  IdempotencyGuard first{here};
  IdempotencyGuard second{there};
  const Key key{"opened", value};

  const auto executed = first.run({.key = key}, [] { return std::string("charged"); });
  const auto replayed = second.run({.key = key}, [] { return std::string("charged twice"); });

  EXPECT_EQ(executed.status(), RunStatus::executed);
  EXPECT_EQ(replayed.status(), RunStatus::replayed);
  EXPECT_EQ(replayed.value(), "charged");
}

void expect_every_part_of(const std::string& address, const std::string& value) {
  SCOPED_TRACE(address);
  AnyStore store = open_store(address);
  const Key key{"opened", value};
  const Ownership by{OwnerToken::generate(), 1};
  ASSERT_EQ(store.begin({.key = key, .owner = by.owner, .lease = lease}),
            BeginOutcome(Acquired{1, 1}));

  EXPECT_TRUE(store.batches());
  EXPECT_EQ(store.renew_many({{key, by, lease}, {key, {OwnerToken::generate(), 1}, lease}}),
            (std::vector{WriteOutcome::stored, WriteOutcome::lost}));
  EXPECT_EQ(store.mark_effect(key, by), WriteOutcome::stored);
  EXPECT_EQ(store.doubt(key, by), WriteOutcome::stored);
  ASSERT_NE(store.admin(), nullptr);
  EXPECT_GE(store.admin()->statistics().uncertain, 1U);
  const std::optional<Record> seen = store.find(key);
  ASSERT_TRUE(seen);
  EXPECT_EQ(store.admin()->resolve(*seen, {.verdict = Resolution::Verdict::failed}),
            WriteOutcome::stored);
  EXPECT_EQ(store.find(key)->state, RecordState::failed);
}

TEST(OpenStore, OpensASqliteFile) {
  const TemporaryDirectory folder;
  const std::string address = "sqlite:" + (folder.path() / "records.db").string();
  expect_one_store_behind(address, "1");
  expect_every_part_of(address, "2");
}

TEST(OpenStore, OpensARedisServer) {
  expect_one_store_behind(redis_address(), "1");
  expect_every_part_of(redis_address(), "2");
}

TEST(OpenStore, OpensAMariaDbServer) {
  const std::string address = MariaDbServer::shared().address();
  expect_one_store_behind(address, "1");
  expect_every_part_of(address, "2");
}

// The shared server keeps nothing on its disk, which is a hazard.
TEST(OpenStore, TellsTheObserverOfHazards) {
  RedisServer::shared().ask({"CONFIG", "SET", "appendonly", "no"});
  RedisServer::shared().ask({"CONFIG", "SET", "save", ""});
  Hazards hazards;
  AnyStore store = open_store(redis_address(), {.observer = &hazards});
  EXPECT_EQ(store.find(Key("opened", "none")), std::nullopt);

  EXPECT_GE(hazards.count(), 1U);
}

TEST(OpenStore, HandsTheAddressToTheStoreThatItNames) {
  EXPECT_EQ(openable_schemes(), (std::vector<std::string>{"memory:", "sqlite:", "redis://",
                                                          "rediss://", "unix://", "mysql://"}));
  for (const char* address : {"redis://127.0.0.1:notaport", "mysql://",
                              "sqlite:", "rediss://127.0.0.1:6380/notanumber"}) {
    SCOPED_TRACE(address);
    try {
      AnyStore store = open_store(address);
      ADD_FAILURE() << "was opened";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::invalid_argument) << error.what();
    }
  }
}

}  // namespace
}  // namespace idempotency
