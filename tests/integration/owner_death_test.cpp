#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>

#include "idempotency/idempotency.hpp"
#include "idempotency/stores/memory.hpp"
#include "idempotency/stores/sqlite.hpp"
#include "idempotency/testing/faulty_store.hpp"
#include "support/owner_death.hpp"
#include "support/sqlite_file.hpp"

namespace idempotency {
namespace testing_support {
namespace {

struct SqliteBackend {
  using Store = SqliteStore;
  TemporaryFolder folder;
  [[nodiscard]] SqliteOptions options() const { return {.path = folder.file("records.db")}; }
};

INSTANTIATE_TYPED_TEST_SUITE_P(Sqlite, OwnerDeath, SqliteBackend);

}  // namespace
}  // namespace testing_support

namespace {

using namespace std::chrono_literals;
using testing_support::TemporaryFolder;

/// A forked process that runs `body`; says "here" through a pipe when `body` calls what it is given.
class Child {
 public:
  explicit Child(const std::function<void(const std::function<void()>&)>& body) {
    int ends[2];
    if (pipe(ends) != 0) throw std::runtime_error("no pipe");
    pid_ = fork();
    if (pid_ == 0) {
      close(ends[0]);
      const auto here = [&] {
        const char byte = 'h';
        if (write(ends[1], &byte, 1) != 1) _exit(3);
      };
      try {
        body(here);
      } catch (...) {
        _exit(2);
      }
      _exit(0);
    }
    close(ends[1]);
    said_ = ends[0];
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (pid_ > 0) {
      send(SIGKILL);
      static_cast<void>(wait());
    }
    close(said_);
  }

  void wait_until_here() const {
    pollfd readable{said_, POLLIN, 0};
    ASSERT_EQ(poll(&readable, 1, 30'000), 1);
    char byte = 0;
    ASSERT_EQ(read(said_, &byte, 1), 1);
  }
  void send(int signal) const { kill(pid_, signal); }
  int wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return status;
  }

 private:
  pid_t pid_ = -1;
  int said_ = -1;
};

// A transaction whose process is killed leaves neither record nor effect.
TEST(TransactionDeath, LeavesNothingOfATransaction) {
  const TemporaryFolder folder;
  const std::string path = folder.file("records.db");
  Child owner([=](const std::function<void()>& here) {
    SqliteStore store{{.path = path}};
    IdempotencyGuard guard{store};
    static_cast<void>(
        guard.run_in_transaction({.key = {"transfer", "1"}}, [&](SqliteTransaction& tx) {
          tx.execute("CREATE TABLE ledger (id TEXT)");
          tx.execute("INSERT INTO ledger VALUES ('killed')");
          here();
          while (true)
            pause();
        }));
  });
  owner.wait_until_here();
  owner.send(SIGKILL);
  owner.wait();

  SqliteStore store{{.path = path}};
  IdempotencyGuard guard{store};
  const auto result =
      guard.run_in_transaction({.key = {"transfer", "1"}}, [&](SqliteTransaction& tx) {
        tx.execute("CREATE TABLE ledger (id TEXT)");
        tx.execute("INSERT INTO ledger VALUES ('second')");
        return 2;
      });

  EXPECT_EQ(result.status(), RunStatus::executed);
}

void* cancelled_in_handler(void* argument) {
  auto& guard = *static_cast<IdempotencyGuard<MemoryStore>*>(argument);
  static_cast<void>(guard.run({.key = {"payment", "7"}}, [](Execution& execution) {
    execution.point_of_no_return();
    pthread_cancel(pthread_self());
    pthread_testcancel();
    return 1;
  }));
  return nullptr;
}

void* cancelled_while_waiting(void* argument) {
  auto& guard = *static_cast<IdempotencyGuard<MemoryStore>*>(argument);
  static_cast<void>(guard.run({.key = {"order", "7"}, .policy = {.wait = 1h}}, [] { return 1; }));
  return nullptr;
}

// CP-01: thread cancellation inside the handler settles the record and goes on unwinding.
TEST(Cancellation, SettlesTheRecordAndGoesOn) {
  MemoryStore store;
  IdempotencyGuard guard{store};
  pthread_t thread{};
  ASSERT_EQ(pthread_create(&thread, nullptr, cancelled_in_handler, &guard), 0);

  void* ended = nullptr;
  ASSERT_EQ(pthread_join(thread, &ended), 0);

  EXPECT_EQ(ended, PTHREAD_CANCELED);
  EXPECT_EQ(store.find(Key("payment", "7"))->state, RecordState::uncertain);
}

/// A store whose failures cannot be written, so that they are tried again and again.
struct CancelledWriter {
  MemoryStore inner;
  testing::FaultyStore<MemoryStore> store{inner};
  IdempotencyGuard<testing::FaultyStore<MemoryStore>> guard{store, {.write_budget = 200ms}};
  RunStatus status = RunStatus::undecidable;
  bool passed = false;
};

void* cancelled_while_writing(void* argument) {
  auto& writer = *static_cast<CancelledWriter*>(argument);
  try {
    writer.status = writer.guard
                        .run({.key = {"order", "7"}},
                             [](Execution& execution) -> int {
                               if (execution.attempt() > 1) return 7;
                               pthread_cancel(pthread_self());  // acted on after the write
                               throw std::runtime_error("broken");
                             })
                        .status();
  } catch (const std::runtime_error&) {
    writer.passed = true;
  }
  pthread_testcancel();
  return nullptr;
}

// CP-01: a cancellation that arrives while the ending is being written waits for it, and nothing aborts.
TEST(Cancellation, WaitsForTheWriteOfAnEnding) {
  CancelledWriter writer;
  writer.store.on(StoreCall::fail).fail_next(3, testing::Fault::request_lost);
  pthread_t thread{};
  ASSERT_EQ(pthread_create(&thread, nullptr, cancelled_while_writing, &writer), 0);

  void* ended = nullptr;
  ASSERT_EQ(pthread_join(thread, &ended), 0);

  EXPECT_EQ(ended, PTHREAD_CANCELED);
  EXPECT_TRUE(writer.passed);
  EXPECT_EQ(writer.inner.find(Key("order", "7"))->state, RecordState::failed);
}

// CP-01: inside a wait it leaves the line, so that nobody waits behind a thread that is gone.
TEST(Cancellation, LeavesTheLineOfWaiters) {
  MemoryStore store;
  IdempotencyGuard guard{store};
  void* ended = nullptr;

  const auto outer = guard.run({.key = {"order", "7"}, .policy = {.wait = 1h}}, [&] {
    pthread_t thread{};
    EXPECT_EQ(pthread_create(&thread, nullptr, cancelled_while_waiting, &guard), 0);
    EXPECT_EQ(pthread_cancel(thread), 0);
    EXPECT_EQ(pthread_join(thread, &ended), 0);
    return 5;
  });

  EXPECT_EQ(ended, PTHREAD_CANCELED);
  EXPECT_EQ(outer.status(), RunStatus::executed);
  EXPECT_EQ(guard.run({.key = {"order", "7"}, .policy = {.wait = 1h}}, [] { return 1; }).value(),
            5);
}

// CP-03, fork safety: a guard is refused in the child, and the parent's goes on.
TEST(Fork, RefusesAGuardOfTheParent) {
  MemoryStore store;
  IdempotencyGuard guard{store};
  static_cast<void>(guard.run({.key = {"order", "1"}}, [] { return 1; }));
  Child child([&](const std::function<void()>&) {
    try {
      static_cast<void>(guard.run({.key = {"order", "2"}}, [] { return 1; }));
    } catch (const Error& error) {
      MemoryStore own;
      IdempotencyGuard fresh{own};
      const auto result =
          fresh.run({.key = {"order", "2"}, .policy = {.lease = 30ms}}, [] { return 7; });
      _exit(error.code() == Errc::used_after_fork && result.value() == 7 ? 0 : 5);
    }
    _exit(6);
  });

  EXPECT_EQ(child.wait(), 0);
  EXPECT_EQ(guard.run({.key = {"order", "2"}}, [] { return 1; }).status(), RunStatus::executed);
}

}  // namespace
}  // namespace idempotency
