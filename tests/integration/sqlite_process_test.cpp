#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "idempotency/stores/sqlite.hpp"
#include "support/sqlite_file.hpp"

// Several processes on one file, some of them killed. The test's own process opens no store before
// it forks.
namespace idempotency {
namespace {

using namespace std::chrono_literals;
using testing_support::PlainConnection;
using testing_support::TemporaryFolder;

constexpr int processes = 8;
constexpr int killed = 3;
constexpr int keys = 120;

/// An exit code for each way in which a worker can end.
enum Ending : int { done = 0, leaked_busy = 1, other_error = 2, lost_a_write = 3 };

/// Appends a line in one write, so that lines of killed processes are whole.
void note(const std::string& file, const std::string& line) {
  const int descriptor = ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  const std::string text = line + "\n";
  const ssize_t written = ::write(descriptor, text.data(), text.size());
  ::close(descriptor);
  if (written != static_cast<ssize_t>(text.size())) _exit(other_error);
}

std::vector<std::string> lines_of(const std::string& file) {
  std::ifstream stream(file);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);)
    lines.push_back(line);
  return lines;
}

std::vector<int> shuffled(int seed) {
  std::vector<int> order;
  for (int key = 0; key < keys; ++key)
    order.push_back(key);
  std::mt19937 random(static_cast<std::mt19937::result_type>(seed));
  std::shuffle(order.begin(), order.end(), random);
  return order;
}

template <class Work>
pid_t spawn(Work work) {
  const pid_t child = fork();
  if (child != 0) return child;
  try {
    _exit(work());
  } catch (const Error& error) {
    _exit(error.code() == Errc::store_busy ? leaked_busy : other_error);
  } catch (const std::exception&) {
    _exit(other_error);
  }
}

int wait_for(pid_t child) {
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/// Starts the workers, kills some once `progress` shows enough lines, waits for all.
template <class Work>
void storm(const std::string& progress, Work work) {
  std::vector<pid_t> children;
  for (int index = 0; index < processes; ++index) {
    children.push_back(spawn([&] { return work(index); }));
  }
  const auto deadline = std::chrono::steady_clock::now() + 60s;
  for (int victim = 0; victim < killed; ++victim) {
    const auto enough = static_cast<std::size_t>(keys / 5 * (victim + 1));
    while (lines_of(progress).size() < enough && std::chrono::steady_clock::now() < deadline) {
      usleep(500);  // another process's progress has no event to wait for
    }
    kill(children[static_cast<std::size_t>(victim)], SIGKILL);
  }
  for (int index = 0; index < processes; ++index) {
    const int ending = wait_for(children[static_cast<std::size_t>(index)]);
    if (index < killed && ending == -SIGKILL) continue;
    EXPECT_EQ(ending, done) << "worker " << index;
  }
}

class SqliteProcesses : public testing::Test {
 protected:
  TemporaryFolder folder;
  std::string path = folder.file("store.db");
  std::string progress = folder.file("progress");
};

// SL-01: no BUSY leaks out while processes compete, all of them opening the file at the same
// moment; ID-12: a killed owner blocks nothing but its own record.
TEST_F(SqliteProcesses, CompeteForEveryKeyWithOneOwnerEach) {
  storm(progress, [&](int index) {
    SqliteStore store{{.path = path, .busy_timeout = 60s}};
    for (const int number : shuffled(index)) {
      const Key key("payment", std::to_string(number));
      const OwnerToken owner = OwnerToken::generate();
      const BeginOutcome outcome = store.begin({.key = key,
                                                .owner = owner,
                                                .fingerprint = std::nullopt,
                                                .mode = RecordMode::hold,
                                                .lease = std::chrono::hours(1)});
      if (!std::holds_alternative<Acquired>(outcome)) continue;
      note(progress, std::to_string(number));
      const Ownership by{owner, std::get<Acquired>(outcome).fence};
      if (store.complete(key, by, {"done", std::chrono::hours(1)}) != WriteOutcome::stored) {
        return lost_a_write;
      }
    }
    return done;
  });

  std::map<std::string, int> starts;
  for (const std::string& line : lines_of(progress))
    ++starts[line];
  for (const auto& [key, count] : starts)
    EXPECT_EQ(count, 1) << "key " << key;
  PlainConnection plain(path);
  EXPECT_EQ(plain.ask("PRAGMA integrity_check"), "ok");
  EXPECT_EQ(plain.ask("SELECT count(*) FROM idempotency_record"), std::to_string(keys));
  const int unfinished =
      std::stoi(plain.ask("SELECT count(*) FROM idempotency_record WHERE state = 1"));
  EXPECT_LE(unfinished, killed);
  EXPECT_EQ(plain.ask("SELECT count(*) FROM idempotency_record WHERE state = 2"),
            std::to_string(keys - unfinished));
}

TEST_F(SqliteProcesses, KeepRecordAndEffectTogetherWhenKilled) {
  {
    PlainConnection plain(path);
    plain.run("PRAGMA journal_mode = WAL");
    plain.run("CREATE TABLE ledger (cents INTEGER NOT NULL); INSERT INTO ledger VALUES (0)");
  }
  storm(progress, [&](int index) {
    SqliteStore store{{.path = path, .busy_timeout = 60s}};
    for (const int number : shuffled(index)) {
      const Key key("payment", std::to_string(number));
      const OwnerToken owner = OwnerToken::generate();
      SqliteTransaction transaction = store.open_transaction({.wait = 60s});
      const BeginOutcome outcome =
          store.begin(transaction, {.key = key, .owner = owner, .fingerprint = std::nullopt});
      if (!std::holds_alternative<Acquired>(outcome)) continue;
      transaction.execute("UPDATE ledger SET cents = cents + 1");
      note(progress, std::to_string(number));
      const Ownership by{owner, std::get<Acquired>(outcome).fence};
      if (store.complete(transaction, key, by, {"done", std::chrono::hours(1)}) !=
          WriteOutcome::stored) {
        return lost_a_write;
      }
      store.commit(transaction);
    }
    return done;
  });

  PlainConnection plain(path);
  EXPECT_EQ(plain.ask("PRAGMA integrity_check"), "ok");
  EXPECT_EQ(plain.ask("SELECT cents FROM ledger"), std::to_string(keys));
  EXPECT_EQ(plain.ask("SELECT count(*) FROM idempotency_record WHERE state = 2"),
            std::to_string(keys));
}

// SL-07: a parent with an open store starts programs of their own; only fork without exec is
// refused.
TEST_F(SqliteProcesses, AProgramThatWasStartedAnewOpensTheFile) {
  SqliteStore store{{.path = path}};
  const Key key("payment", "a");
  const OwnerToken owner = OwnerToken::generate();
  ASSERT_EQ(store.begin({.key = key, .owner = owner, .fingerprint = std::nullopt}),
            BeginOutcome(Acquired{}));
  ASSERT_EQ(store.complete(key, {owner, 1}, {"shared", std::chrono::hours(1)}),
            WriteOutcome::stored);

  const pid_t child = fork();
  if (child == 0) {
    ::setenv("IDEMPOTENCY_TEST_FILE", path.c_str(), 1);
    ::execl("/proc/self/exe", "worker", "--gtest_filter=SqliteProcesses.WorkerReplays",
            "--gtest_brief=1", static_cast<char*>(nullptr));
    _exit(other_error);
  }

  EXPECT_EQ(wait_for(child), done);
}

/// What the program started anew does; with no file given, with one of its own.
TEST_F(SqliteProcesses, WorkerReplays) {
  const char* given = std::getenv("IDEMPOTENCY_TEST_FILE");
  SqliteStore store{{.path = given != nullptr ? given : path}};
  const BeginOutcome outcome = store.begin(
      {.key = Key("payment", "a"), .owner = OwnerToken::generate(), .fingerprint = std::nullopt});

  const auto* completed = std::get_if<Completed>(&outcome);
  if (given == nullptr) {
    EXPECT_EQ(outcome, BeginOutcome(Acquired{}));
  } else {
    ASSERT_NE(completed, nullptr);
    EXPECT_EQ(completed->result, "shared");
  }
}

}  // namespace
}  // namespace idempotency
