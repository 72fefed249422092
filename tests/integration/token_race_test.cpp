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
enum class Kind { stored, signed_by_key };

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

/// A store whose `begin` looks first and takes then; between the two all others look as well.
class SplitStore {
 public:
  SplitStore(AnyStore& store, const SharedBarrier& all) noexcept : store_(&store), all_(&all) {}

  BeginOutcome begin(const BeginRequest& request) {
    const std::optional<Record> record = store_->find(request.key);
    all_->wait();
    const bool may = request.admission == Admission::issued
                         ? record && record->state == RecordState::issued
                         : !record;
    if (!may) return NotIssued{};
    static_cast<void>(store_->begin(request));
    return Acquired{1, 1};
  }
  WriteOutcome complete(const Key& key, const Ownership& by, const Completion& completion) {
    return store_->complete(key, by, completion);
  }
  WriteOutcome fail(const Key& key, const Ownership& by, const Failure& failure,
                    std::chrono::milliseconds retention) {
    return store_->fail(key, by, failure, retention);
  }
  WriteOutcome doubt(const Key& key, const Ownership& by) { return store_->doubt(key, by); }
  WriteOutcome mark_effect(const Key& key, const Ownership& by) {
    return store_->mark_effect(key, by);
  }
  WriteOutcome renew(const Key& key, const Ownership& by, std::chrono::milliseconds lease) {
    return store_->renew(key, by, lease);
  }
  ReleaseOutcome release(const Key& key, const Ownership& by,
                         std::chrono::milliseconds retention) noexcept {
    return store_->release(key, by, retention);
  }
  std::optional<Record> find(const Key& key) { return store_->find(key); }

 private:
  AnyStore* store_;
  const SharedBarrier* all_;
};
static_assert(Store<SplitStore>);

TokenService service(AnyStore& store, Kind kind) {
  if (kind == Kind::stored) return TokenService(store);
  return TokenService(TokenSigner({{.id = "k1", .secret = std::string(32, 's')}}));
}

/// How many of this process's threads accepted the token: they ran the handler.
template <class StoreT>
int submit_all(TokenService& tokens, StoreT& store, const PresentedToken& token,
               const ChildProcess::ToParent& parent, const SharedBarrier& all) {
  IdempotencyGuard guard{store};
  std::atomic<int> accepted{0};
  std::vector<std::thread> crowd;
  for (unsigned number = 0; number < threads; ++number) {
    crowd.emplace_back([&] {
      all.wait();
      try {
        const auto result = tokens.run(guard, token, [&] {
          ++accepted;
          return std::string("receipt");
        });
        const bool is_answered = result.has_value() && result.value() == "receipt";
        if (token.policy.wait > 0ms && !is_answered) accepted += 1'000;
      } catch (const Error& error) {
        parent.say(error.what());
        accepted += 1'000'000;
      }
    });
  }
  for (std::thread& thread : crowd)
    thread.join();
  return accepted;
}

/// A new token. No store is left open: a SQLite file must not be open in a process that forks.
std::string issued(const std::string& address, Kind kind = Kind::stored) {
  AnyStore store = open_store(address);
  return service(store, kind).issue("order", "alice", 15min);
}

/// How many submissions of one token were accepted.
int accepted(const std::string& address, Kind kind, Taking taking) {
  PresentedToken token = presented(issued(address, kind));
  // Callers of one process would wait for each other before they ask the store.
  if (taking == Taking::split) token.policy.wait = 0ms;
  const SharedBarrier all(processes * threads);
  const auto work = [&](const ChildProcess::ToParent& parent) {
    AnyStore store = open_store(address);
    TokenService tokens = service(store, kind);
    SplitStore split(store, all);
    const int sum = taking == Taking::atomic ? submit_all(tokens, store, token, parent, all)
                                             : submit_all(tokens, split, token, parent, all);
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
  for (const Kind kind : {Kind::stored, Kind::signed_by_key}) {
    EXPECT_EQ(accepted(address, kind, Taking::atomic), 1);
    EXPECT_GT(accepted(address, kind, Taking::split), 1) << "this test would not notice";
  }
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
  const std::string address = RedisServer::shared().address();

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
