// One token, 64 threads in each of two processes: taking it and beginning the record is one step.

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "idempotency/guard.hpp"
#include "idempotency/patterns/token_service.hpp"
#include "idempotency/stores/open.hpp"
#include "support/child_process.hpp"
#include "support/mariadb_server.hpp"
#include "support/redis_server.hpp"
#include "support/temporary_directory.hpp"

namespace idempotency {
namespace {

using namespace std::chrono_literals;
using testing_support::ChildProcess;
using testing_support::MariaDbServer;
using testing_support::ProcessEnd;
using testing_support::RedisServer;

constexpr unsigned processes = 2;
constexpr unsigned threads = 64;

/// The switch: `split` is how it is usually written, look first and take then.
enum class Taking { atomic, split };

/// Where the threads of all processes wait for each other.
class SharedBarrier {
 public:
  explicit SharedBarrier(unsigned count)
      : memory_(::mmap(nullptr, sizeof(pthread_barrier_t), PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    if (memory_ == MAP_FAILED) throw std::bad_alloc();
    pthread_barrierattr_t attributes;
    pthread_barrierattr_init(&attributes);
    pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(barrier(), &attributes, count);
    pthread_barrierattr_destroy(&attributes);
  }
  SharedBarrier(const SharedBarrier&) = delete;
  SharedBarrier& operator=(const SharedBarrier&) = delete;
  ~SharedBarrier() { ::munmap(memory_, sizeof(pthread_barrier_t)); }

  void wait() const { pthread_barrier_wait(barrier()); }

 private:
  [[nodiscard]] pthread_barrier_t* barrier() const {
    return static_cast<pthread_barrier_t*>(memory_);
  }
  void* memory_;
};

PresentedToken presented(const std::string& token) {
  return {.token = token,
          .purpose = "order",
          .subject = "alice",
          .policy = {.lease = 30s, .wait = 60s}};
}

/// 1 when this thread accepted the token: it ran the handler.
int submit(AnyStore& store, TokenService& tokens, IdempotencyGuard<AnyStore>& guard,
           const std::string& token, Taking taking, const SharedBarrier& all) {
  int accepted = 0;
  all.wait();
  if (taking == Taking::atomic) {
    const auto result = tokens.run(guard, presented(token), [&] {
      ++accepted;
      return std::string("receipt");
    });
    return result.value() == "receipt" ? accepted : 1'000;
  }
  const Key key("order", "token:" + token);
  const std::optional<Record> record = store.find(key);
  all.wait();
  if (!record || record->state != RecordState::issued) return 0;
  static_cast<void>(
      store.begin({.key = key, .owner = OwnerToken::generate(), .admission = Admission::issued}));
  return 1;
}

/// A new token. No store is left open: a SQLite file must not be open in a process that forks.
std::string issued(const std::string& address) {
  AnyStore store = open_store(address);
  return TokenService(store).issue("order", "alice", 15min);
}

/// How many submissions of one token were accepted.
int accepted(const std::string& address, Taking taking) {
  const std::string token = issued(address);
  const SharedBarrier all(processes * threads);
  const auto work = [&](const ChildProcess::ToParent& parent) {
    AnyStore store = open_store(address);
    TokenService tokens{store};
    IdempotencyGuard guard{store};
    std::atomic<int> sum{0};
    std::vector<std::thread> crowd;
    for (unsigned number = 0; number < threads; ++number) {
      crowd.emplace_back([&] {
        try {
          sum += submit(store, tokens, guard, token, taking, all);
        } catch (const Error& error) {
          parent.say(error.what());
          sum += 1'000'000;
        }
      });
    }
    for (std::thread& thread : crowd)
      thread.join();
    parent.say(std::to_string(sum));
    return 0;
  };
  std::vector<ChildProcess> children;
  for (unsigned number = 0; number < processes; ++number)
    children.push_back(ChildProcess::fork(work));
  int sum = 0;
  for (ChildProcess& child : children) {
    for (const std::string& line : child.remaining_lines())
      sum += line.find_first_not_of("0123456789") == std::string::npos ? std::stoi(line) : 0;
    EXPECT_EQ(child.wait(), (ProcessEnd{0, 0}));
  }
  return sum;
}

/// A token that a process took and died with.
RunStatus status_after_death(const std::string& address, const PolicyOverride& policy) {
  PresentedToken token = presented(issued(address));
  token.policy = policy;
  ChildProcess dies = ChildProcess::fork([&](const ChildProcess::ToParent&) {
    AnyStore own = open_store(address);
    TokenService service{own};
    IdempotencyGuard guard{own};
    static_cast<void>(service.run(guard, token, [] {
      std::raise(SIGKILL);
      return std::string("never");
    }));
    return 0;
  });
  EXPECT_EQ(dies.wait(), (ProcessEnd{-1, SIGKILL}));
  AnyStore store = open_store(address);
  TokenService tokens{store};
  IdempotencyGuard guard{store};
  return tokens.run(guard, token, [] { return std::string("receipt"); }).status();
}

void expect_accepted_once(const std::string& address) {
  EXPECT_EQ(accepted(address, Taking::atomic), 1);
  EXPECT_GT(accepted(address, Taking::split), 1) << "this test would not notice";
}

void expect_nothing_lost(const std::string& address) {
  EXPECT_EQ(status_after_death(
                address, {.lease = 300ms, .wait = 30s, .on_expired_lease = RecordMode::take_over}),
            RunStatus::executed);
  EXPECT_EQ(status_after_death(address,
                               {.lease = 300ms, .wait = 30s, .on_expired_lease = RecordMode::hold}),
            RunStatus::uncertain);
}

TEST(TokenRace, IsWonByOneOfTwoProcessesOnSqlite) {
  const testing_support::TemporaryDirectory directory;
  const std::string address = "sqlite:" + directory.file("records.db");

  expect_accepted_once(address);
  expect_nothing_lost(address);
}

TEST(TokenRace, IsWonByOneOfTwoProcessesOnRedis) {
  const std::string address = "redis://127.0.0.1:" + std::to_string(RedisServer::shared().port());

  expect_accepted_once(address);
  expect_nothing_lost(address);
}

TEST(TokenRace, IsWonByOneOfTwoProcessesOnMariaDb) {
  const std::string address = MariaDbServer::shared().address();

  expect_accepted_once(address);
  expect_nothing_lost(address);
}

}  // namespace
}  // namespace idempotency
