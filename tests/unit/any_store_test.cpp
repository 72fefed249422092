#include "idempotency/stores/any.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "idempotency/guard.hpp"
#include "idempotency/stores/memory.hpp"
#include "idempotency/stores/open.hpp"
#include "idempotency/stores/sqlite.hpp"
#include "support/error_of.hpp"
#include "support/temporary_directory.hpp"

namespace idempotency {
namespace {

static_assert(!std::is_constructible_v<AnyStore, MemoryStore&&>, "a temporary would be gone");
static_assert(!std::is_move_constructible_v<AnyStore>, "guards borrow it");

/// A store that can do no more than it must.
class PlainStore {
 public:
  BeginOutcome begin(const BeginRequest& request) { return inner_.begin(request); }
  WriteOutcome complete(const Key& key, const Ownership& by, const Completion& completion) {
    return inner_.complete(key, by, completion);
  }
  WriteOutcome fail(const Key& key, const Ownership& by, const Failure& failure,
                    std::chrono::milliseconds retention) {
    return inner_.fail(key, by, failure, retention);
  }
  WriteOutcome doubt(const Key& key, const Ownership& by) { return inner_.doubt(key, by); }
  WriteOutcome mark_effect(const Key& key, const Ownership& by) {
    return inner_.mark_effect(key, by);
  }
  WriteOutcome renew(const Key& key, const Ownership& by, std::chrono::milliseconds lease) {
    return inner_.renew(key, by, lease);
  }
  ReleaseOutcome release(const Key& key, const Ownership& by,
                         std::chrono::milliseconds retention) noexcept {
    return inner_.release(key, by, retention);
  }
  std::optional<Record> find(const Key& key) { return inner_.find(key); }

 private:
  MemoryStore inner_;
};

TEST(AnyStore, BorrowsAStoreAndSharesItsRecords) {
  MemoryStore memory;
  AnyStore any(memory);
  IdempotencyGuard first{memory};
  IdempotencyGuard second{any};
  ASSERT_EQ(first.run({.key = {"order", "7"}}, [] { return 42; }).value(), 42);

  const auto again = second.run({.key = {"order", "7"}}, [] { return 1; });

  EXPECT_EQ(again.status(), RunStatus::replayed);
  EXPECT_EQ(again.value(), 42);
}

TEST(AnyStore, GivesOperatorsTheirPartWhereThereIsOne) {
  AnyStore with(std::in_place_type<MemoryStore>);
  AnyStore without(std::in_place_type<PlainStore>);
  IdempotencyGuard guard{with};
  ASSERT_EQ(guard.run({.key = {"order", "7"}}, [] { return 42; }).status(), RunStatus::executed);

  ASSERT_NE(with.admin(), nullptr);
  EXPECT_EQ(with.admin()->statistics().success, 1U);
  EXPECT_EQ(with.admin()->list({}, "", 10).records.size(), 1U);
  EXPECT_EQ(without.admin(), nullptr);
}

TEST(AnyStore, RenewsOneByOneWhereTheStoreKnowsNoBatches) {
  AnyStore any(std::in_place_type<PlainStore>);
  const BeginRequest request{.key = Key("order", "7"), .owner = OwnerToken::generate()};
  ASSERT_EQ(any.begin(request), BeginOutcome(Acquired{}));

  const auto outcomes =
      any.renew_many({{request.key, {request.owner, 1}, std::chrono::seconds{9}},
                      {request.key, {request.owner, 2}, std::chrono::seconds{9}}});

  EXPECT_FALSE(any.batches());
  EXPECT_EQ(outcomes, (std::vector<WriteOutcome>{WriteOutcome::stored, WriteOutcome::lost}));
}

TEST(OpenStore, OpensAMemoryStore) {
  AnyStore store = open_store("memory:");
  IdempotencyGuard guard{store};

  EXPECT_EQ(guard.run({.key = {"order", "7"}}, [] { return 42; }).value(), 42);
  EXPECT_EQ(guard.run({.key = {"order", "7"}}, [] { return 1; }).value(), 42);
}

TEST(OpenStore, OpensASqliteFileThatKeepsItsRecords) {
  const testing_support::TemporaryDirectory folder;
  const std::string address = "sqlite:" + (folder.path() / "records.db").string();
  {
    AnyStore store = open_store(address);
    IdempotencyGuard guard{store};
    ASSERT_EQ(guard.run({.key = {"order", "7"}}, [] { return 42; }).value(), 42);
  }

  AnyStore store = open_store(address);
  IdempotencyGuard guard{store};

  EXPECT_EQ(guard.run({.key = {"order", "7"}}, [] { return 1; }).value(), 42);
  EXPECT_NE(store.admin(), nullptr);
}

TEST(OpenStore, RefusesWhatItCannotOpenAndSaysWhatItCan) {
  for (const char* address : {"", "records.db", "mongodb://host/db", "memory:7", "sqlite"}) {
    try {
      AnyStore store = open_store(address);
      ADD_FAILURE() << address << " was opened";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::invalid_argument) << address;
      EXPECT_NE(std::string(error.what()).find("memory:"), std::string::npos) << error.what();
    }
  }
}

TEST(OpenStore, KeepsPasswordsOutOfItsErrors) {
  try {
    AnyStore store = open_store("mongodb://user:secret@host/db");
    ADD_FAILURE() << "it was opened";
  } catch (const Error& error) {
    EXPECT_EQ((std::string(error.what()) + std::string(error.detail())).find("secret"),
              std::string::npos);
  }
  try {
    const SqliteOptions options = SqliteOptions::from_address("sqlite://user:secret@host/db");
    ADD_FAILURE() << options.path << " was taken for a path";
  } catch (const Error& error) {
    EXPECT_EQ((std::string(error.what()) + std::string(error.detail())).find("secret"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace idempotency
