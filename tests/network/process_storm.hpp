#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "idempotency/guard.hpp"
#include "network/network_world.hpp"
#include "support/child_process.hpp"
#include "support/temporary_directory.hpp"

namespace idempotency::network {

/// Which promise a key of the storm is under, by its number.
enum class Promise : std::uint8_t { hold, take_over, transaction };

inline std::string to_string(Promise promise) {
  switch (promise) {
    case Promise::hold:
      return "hold";
    case Promise::take_over:
      return "take-over";
    case Promise::transaction:
      return "transaction";
  }
  return {};
}

/// What the processes of a storm write down, each line in one write, so that a killed one leaves whole lines.
class Journal {
 public:
  explicit Journal(const std::string& file)
      : descriptor_(::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)) {}
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;
  ~Journal() { ::close(descriptor_); }

  void note(const std::string& line) const {
    const std::string text = line + "\n";
    if (::write(descriptor_, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
      ::_exit(98);
    }
  }

 private:
  int descriptor_;
};

/// Of the clock that all processes of a machine share.
inline std::int64_t now_in_milliseconds() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Eight processes on one key space, one of them killed with SIGKILL each second and replaced.
///
/// `Backend` says how the store is opened (`options()`), which promises it can keep (`promises`), and how an operation with an
/// effect in its own database runs (`run_in_transaction(guard, operation, value)`).
template <class Backend>
class ProcessStorm {
 public:
  static constexpr int processes = 8;
  static constexpr std::chrono::milliseconds lease{1'000};

  void rage(std::chrono::seconds span) {
    const std::int64_t begin = now_in_milliseconds();
    const std::int64_t end = begin + std::chrono::milliseconds(span).count();
    std::vector<std::optional<testing_support::ChildProcess>> team(processes);
    for (auto& process : team)
      process.emplace(start(begin, end));
    for (std::int64_t next = begin + 1'000; next < end - 500; next += 1'000) {
      // The kills keep time; there is no event to wait for.
      std::this_thread::sleep_for(std::chrono::milliseconds(next - now_in_milliseconds()));
      const std::size_t victim = static_cast<std::size_t>(next / 1'000) % team.size();
      EXPECT_EQ(team[victim]->kill(), (testing_support::ProcessEnd{-1, SIGKILL}));
      ++kills_;
      team[victim].emplace(start(begin, end));
    }
    for (auto& process : team) {
      EXPECT_EQ(process->wait(), (testing_support::ProcessEnd{0, 0}));
    }
  }

  /// Asks for every key once more, in peace, and holds what everybody was told against the promises.
  void judge() {
    std::this_thread::sleep_for(lease);  // for those that were killed last
    read_journals();
    std::size_t uncertain = 0;
    {
      typename Backend::Store store{Backend::options()};
      IdempotencyGuard guard{store};
      const Journal journal(file("judge"));
      for (const auto& [number, key] : std::map(keys_)) {
        const RunStatus status = ask(guard, journal, number);
        if (status == RunStatus::uncertain) {
          EXPECT_EQ(promise_of(number), Promise::hold) << "key " << number;
          ++uncertain;
          continue;
        }
        EXPECT_TRUE(status == RunStatus::replayed || status == RunStatus::executed)
            << "key " << number << " " << to_string(promise_of(number)) << " "
            << static_cast<int>(status);
      }
    }
    read_journal(file("judge"));
    std::size_t starts = 0;
    std::size_t answers = 0;
    for (const auto& [number, key] : keys_) {
      judge_key(number, key);
      starts += key.starts.size();
      answers += key.answers;
    }
    EXPECT_LE(uncertain, kills_) << "each kill can leave one operation in doubt";
    EXPECT_GT(answers, starts * 2) << "hardly anything was repeated";
    std::printf("%zu keys, %zu starts, %zu answers, %zu kills, %zu uncertain\n", keys_.size(),
                starts, answers, kills_, uncertain);
  }

  /// The keys whose effect is in the store's own database.
  [[nodiscard]] std::vector<std::string> transactional_keys() const {
    std::vector<std::string> names;
    for (const auto& [number, key] : keys_) {
      if (promise_of(number) == Promise::transaction) names.push_back(std::to_string(number));
    }
    return names;
  }

 private:
  struct Start {
    std::int64_t asked = 0;
    std::int64_t at = 0;
    friend auto operator<=>(const Start&, const Start&) = default;
  };
  struct KeyHistory {
    std::vector<Start> starts;
    std::set<std::string> values;
    std::size_t answers = 0;
  };

  static Promise promise_of(std::int64_t number) {
    return Backend::promises[static_cast<std::size_t>(number) % Backend::promises.size()];
  }
  [[nodiscard]] std::string file(const std::string& name) const { return folder_.file(name); }

  testing_support::ChildProcess start(std::int64_t begin, std::int64_t end) {
    const std::string journal = file("process-" + std::to_string(journals_.size()));
    journals_.push_back(journal);
    return testing_support::ChildProcess::fork(
        [=](const testing_support::ChildProcess::ToParent&) { return work(journal, begin, end); });
  }

  /// One process: asks for keys near the front of a line that moves on with time, so that all meet at the same ones.
  static int work(const std::string& file, std::int64_t begin, std::int64_t end) {
    typename Backend::Store store{Backend::options()};
    IdempotencyGuard guard{store};
    const Journal journal(file);
    std::mt19937_64 random(std::random_device{}());
    while (now_in_milliseconds() < end) {
      const std::int64_t front = (now_in_milliseconds() - begin) / 4;
      static_cast<void>(ask(guard, journal, front + static_cast<std::int64_t>(random() % 16)));
    }
    return 0;
  }

  template <class Guard>
  static RunStatus ask(Guard& guard, const Journal& journal, std::int64_t number) {
    const std::int64_t asked = now_in_milliseconds();
    const Promise promise = promise_of(number);
    const std::string name = std::to_string(number);
    Operation operation{
        .key = {"storm", name},
        .policy = {.lease = lease,
                   .on_expired_lease =
                       promise == Promise::hold ? RecordMode::hold : RecordMode::take_over}};
    const auto started = [&] {
      journal.note("start " + name + " " + std::to_string(asked) + " " +
                   std::to_string(now_in_milliseconds()));
    };
    const std::string value = std::to_string(::getpid()) + "-" + std::to_string(asked);
    const auto result = [&] {
      if constexpr (requires { Backend::run_in_transaction(guard, operation, value); }) {
        if (promise == Promise::transaction) {
          journal.note("asked " + name +
                       " -");  // who dies after the commit cannot tell of it any more
          return Backend::run_in_transaction(guard, operation, value);
        }
      }
      return guard.run(operation, [&] {
        started();
        std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the work
        return value;
      });
    }();
    if (result.status() == RunStatus::executed || result.status() == RunStatus::replayed) {
      journal.note("answer " + name + " " + result.value());
    }
    return result.status();
  }

  void read_journals() {
    for (const std::string& journal : journals_)
      read_journal(journal);
  }
  void read_journal(const std::string& journal) {
    std::ifstream lines(journal);
    for (std::string what, name; lines >> what >> name;) {
      KeyHistory& key = keys_[std::stoll(name)];
      if (what == "start") {
        Start start;
        lines >> start.asked >> start.at;
        key.starts.push_back(start);
      } else {
        std::string value;
        lines >> value;
        if (what == "asked") continue;
        key.values.insert(value);
        ++key.answers;
      }
    }
  }

  void judge_key(std::int64_t number, KeyHistory key) {
    SCOPED_TRACE("key " + std::to_string(number) + ", " + to_string(promise_of(number)));
    EXPECT_LE(key.values.size(), 1U) << "callers got different answers";
    std::sort(key.starts.begin(), key.starts.end(),
              [](const Start& a, const Start& b) { return a.at < b.at; });
    for (std::size_t index = 1; index < key.starts.size(); ++index) {
      EXPECT_EQ(promise_of(number), Promise::take_over) << "a second start";
      // One millisecond for the clocks' steps.
      EXPECT_GE(key.starts[index].at - key.starts[index - 1].asked + 1, lease.count())
          << "the lease had not ended";
    }
  }

  testing_support::TemporaryDirectory folder_;
  std::vector<std::string> journals_;
  std::map<std::int64_t, KeyHistory> keys_;
  std::size_t kills_ = 0;
};

/// A minute, or as many seconds as IDEMPOTENCY_STORM_SECONDS says.
inline std::chrono::seconds storm_span() {
  return std::chrono::seconds(number_from("IDEMPOTENCY_STORM_SECONDS", 60));
}

}  // namespace idempotency::network
