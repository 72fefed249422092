#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "idempotency/guard.hpp"
#include "idempotency/observer.hpp"
#include "idempotency/testing/printers.hpp"
#include "network/network_world.hpp"

namespace idempotency::network {

/// One round: a few calls with one key from two nodes of a network that harms some of their requests, then one from a
/// third in fair weather that asks until it is answered.
template <class Backend>
class Round {
 public:
  using Store = typename Backend::Store;
  using Clock = std::chrono::steady_clock;

  Round(std::uint64_t seed, Store& direct) : random_(seed), direct_(direct) {
    mode_ = pick(2) == 0 ? RecordMode::hold : RecordMode::take_over;
    // Long enough that a single fault does not end it, and short enough that several do.
    lease_ = Backend::patience * (pick(3) == 0 ? 100 : 3);
    constexpr std::array handlers{Handler::returns,        Handler::returns,
                                  Handler::returns,        Handler::fails_for_good,
                                  Handler::passes_a_point, Handler::breaks_first};
    handler_ = handlers[pick(handlers.size())];
    key_.emplace("network", std::string(Backend::name) + "-round-" + std::to_string(seed));
  }

  void play() {
    {
      Node<Backend> first;
      Node<Backend> second;
      if (pick(3) == 0) first.close_connections();
      if (pick(3) == 0) second.close_connections();
      const std::uint64_t harmed_before = first.proxy.harmed() + second.proxy.harmed();
      weather(first.proxy);
      weather(second.proxy);
      const Company company = pick(2) == 0 ? Company::with_another : Company::alone;
      std::jthread other;
      if (company == Company::with_another) {
        other = std::jthread([&] { ask(second, company); });
      }
      ask(first, company);
      if (company == Company::alone) {
        first.proxy.settle();
        ask(second, company);
      }
      if (other.joinable()) other.join();
      harmed_ = first.proxy.harmed() + second.proxy.harmed() - harmed_before;
    }
    ask_until_answered();
    judge();
  }

  [[nodiscard]] std::uint64_t harmed() const noexcept { return harmed_; }
  /// Whether somebody started the handler again after an owner that had fallen silent.
  [[nodiscard]] bool was_taken_over() const noexcept {
    return std::any_of(starts_.begin() + (starts_.empty() ? 0 : 1), starts_.end(),
                       [this](const Start& start) { return !follows_a_break(start); });
  }
  [[nodiscard]] std::size_t errors() const noexcept { return errors_; }
  /// Errors that denied an effect, and were compared with the record.
  [[nodiscard]] std::size_t denials() const noexcept { return denials_; }

 private:
  enum class Handler : std::uint8_t {
    returns,
    fails_for_good,  ///< throws PermanentFailure
    passes_a_point,  ///< of no return: what comes after it is never done twice
    breaks_first,    ///< the first one throws without an effect, so another may follow at once
  };
  struct Break : std::exception {};
  /// Of the guard, before it makes a call once more.
  static constexpr std::chrono::milliseconds longest_pause{250};
  /// Whether somebody else asks at the same time, who may change the record as well.
  enum class Company : std::uint8_t { alone, with_another };
  /// How far a call came.
  struct Progress {
    std::atomic<bool> acquired{false};  ///< the handler was called
    std::atomic<bool> ran{false};       ///< and did what it is for
  };

  /// A start of the handler, and when its call was made: the lease cannot have begun earlier.
  struct Start {
    Clock::time_point asked;
    Clock::time_point at;
    std::optional<Clock::time_point> broke = std::nullopt;
  };

  [[nodiscard]] bool follows_a_break(const Start& start) const noexcept {
    const std::optional<Clock::time_point>& broke = starts_.front().broke;
    return &start == &starts_[1] && broke && start.at >= *broke;
  }

  std::uint64_t pick(std::uint64_t below) {
    const std::lock_guard lock(random_mutex_);
    return random_() % below;
  }

  /// One fault at a request of its choice; in some rounds a second one, in some it stays until the end.
  void weather(FaultProxy& proxy) {
    const std::uint64_t at = proxy.requests() + pick(4);
    const std::uint64_t again = at + 1 + pick(4);
    const NetworkFault fault = every_fault[pick(every_fault.size())].fault;
    const NetworkFault other = every_fault[pick(every_fault.size())].fault;
    const std::uint64_t kind = pick(3);
    proxy.plan([=](std::uint64_t number) {
      if (number == at) return fault;
      if (kind == 1 && number == again) return other;
      return kind == 2 && number > at ? fault : NetworkFault::none;
    });
  }

  RunResult<std::string> run(Store& store, Progress& progress) {
    IdempotencyGuard guard{store, {.write_budget = 3 * Backend::patience, .begin_attempts = 2}};
    const auto asked = Clock::now();
    const Operation operation{.key = *key_, .policy = {.lease = lease_, .on_expired_lease = mode_}};
    if (handler_ == Handler::returns) {
      return guard.run(operation, [&, asked] { return start(asked, progress); });
    }
    return guard.run(operation, [&, asked](Execution& execution) {
      progress.acquired = true;
      if (handler_ == Handler::passes_a_point) execution.point_of_no_return();
      std::string answer = start(asked, progress);
      if (handler_ == Handler::fails_for_good) throw PermanentFailure("declined");
      if (handler_ == Handler::breaks_first && answer == "answer 1") {
        const std::lock_guard lock(mutex_);
        starts_.front().broke = Clock::now();
        throw Break();
      }
      return answer;
    });
  }

  std::string start(Clock::time_point asked, Progress& progress) {
    progress.acquired = true;
    progress.ran = true;
    const std::lock_guard lock(mutex_);
    starts_.push_back({asked, Clock::now()});
    return "answer " + std::to_string(starts_.size());
  }

  void ask(Node<Backend>& node, Company company) {
    const std::optional<Seen> before = look(direct_, *key_);
    const std::uint64_t harmed_before = node.proxy.harmed();
    const auto trickled_before = node.proxy.trickled();
    const auto started = Clock::now();
    Progress progress;
    std::optional<Error> error;
    try {
      note(run(node.store, progress));
    } catch (const PermanentFailure&) {
      EXPECT_EQ(handler_, Handler::fails_for_good);
    } catch (const Break&) {
      EXPECT_EQ(handler_, Handler::breaks_first);
    } catch (const Error& thrown) {
      error.emplace(thrown);
    }
    const auto took = Clock::now() - started - (node.proxy.trickled() - trickled_before);
    // Each request that is harmed costs a time-out at most, and a pause before it is made again.
    const auto harmed = static_cast<std::int64_t>(node.proxy.harmed() - harmed_before);
    EXPECT_LT(took, harmed * (Backend::timeout + longest_pause) + margin);
    if (!error) return;
    ++errors_;
    EXPECT_FALSE(progress.ran) << error->what() << ": " << error->detail();
    EXPECT_TRUE(error->safe_to_retry()) << error->what();
    if (company == Company::with_another || progress.acquired) return;
    if (error->code() == Errc::lease_too_short) return;  // begun, and given back
    node.proxy.settle();
    if (!error->effect_possible()) {
      ++denials_;
      EXPECT_EQ(look(direct_, *key_), before) << to_string(error->code()) << ": " << error->what();
    }
  }

  void note(const RunResult<std::string>& result) {
    const std::lock_guard lock(mutex_);
    if (result.status() == RunStatus::executed || result.status() == RunStatus::replayed) {
      answers_.insert(result.value());
    }
  }

  /// In fair weather: what is finished is replayed, what is silent is taken over or becomes uncertain when its lease has
  /// ended.
  void ask_until_answered() {
    const auto limit = Clock::now() + lease_ + std::chrono::seconds(30);
    while (Clock::now() < limit) {
      Progress progress;
      std::chrono::milliseconds retry_after{1};
      try {
        const RunResult<std::string> result = run(direct_, progress);
        note(result);
        last_ = result.status();
        if (last_ == RunStatus::in_progress) retry_after = result.retry_after();
      } catch (const PermanentFailure&) {
        last_ = RunStatus::failed;
      } catch (const Break&) {
        continue;
      }
      if (last_ != RunStatus::in_progress) return;
      if (lease_ > 10 * Backend::patience) return;  // a long lease: it need not be waited for
      std::this_thread::sleep_for(retry_after);
    }
    ADD_FAILURE() << "still in progress";
  }

  void judge() {
    EXPECT_LE(answers_.size(), 1U) << "callers got different answers";
    EXPECT_TRUE(answers_.empty() || handler_ != Handler::fails_for_good);
    if (handler_ == Handler::passes_a_point) {
      EXPECT_LE(starts_.size(), 1U) << "started again after a point of no return";
    }
    for (std::size_t index = 1; index < starts_.size(); ++index) {
      if (follows_a_break(starts_[index])) continue;
      EXPECT_EQ(mode_, RecordMode::take_over) << "a second start under hold";
      EXPECT_GE(starts_[index].at - starts_[index - 1].asked, lease_) << "the lease had not ended";
    }
    const std::optional<Record> record = direct_.find(*key_);
    if (last_ == RunStatus::executed || last_ == RunStatus::replayed) {
      ASSERT_TRUE(record);
      EXPECT_EQ(record->state, RecordState::success);
    } else if (last_ == RunStatus::failed) {
      EXPECT_EQ(handler_, Handler::fails_for_good);
      ASSERT_TRUE(record);
      EXPECT_EQ(record->state, RecordState::failed);
    } else if (last_ == RunStatus::uncertain) {
      EXPECT_TRUE(mode_ == RecordMode::hold || handler_ == Handler::passes_a_point);
    } else {
      EXPECT_EQ(last_, RunStatus::in_progress);
    }
  }

  std::mt19937_64 random_;
  std::mutex random_mutex_;
  Store& direct_;
  std::optional<Key> key_;
  RecordMode mode_ = RecordMode::take_over;
  Handler handler_ = Handler::returns;
  std::chrono::milliseconds lease_{0};
  std::mutex mutex_;
  std::vector<Start> starts_;
  std::set<std::string> answers_;
  std::atomic<std::size_t> errors_{0};
  std::atomic<std::size_t> denials_{0};
  std::uint64_t harmed_ = 0;
  RunStatus last_ = RunStatus::in_progress;
};

/// As many as IDEMPOTENCY_NETWORK_ROUNDS says, or `rounds`, from the seed IDEMPOTENCY_NETWORK_SEED or one of chance.
template <class Backend>
void play_rounds(std::size_t rounds, std::size_t threads) {
  rounds = number_from("IDEMPOTENCY_NETWORK_ROUNDS", rounds);
  const std::uint64_t first_seed = number_from("IDEMPOTENCY_NETWORK_SEED", std::random_device{}());
  std::printf("seeds from %llu\n", static_cast<unsigned long long>(first_seed));
  typename Backend::Store direct{Backend::options(Backend::server_port())};
  std::atomic<std::uint64_t> harmed{0};
  std::atomic<std::uint64_t> errors{0};
  std::atomic<std::uint64_t> denials{0};
  std::atomic<std::uint64_t> again{0};
  spread(rounds, threads, [&](std::size_t round) {
    SCOPED_TRACE("seed " + std::to_string(first_seed + round));
    Round<Backend> one(first_seed + round, direct);
    one.play();
    harmed += one.harmed();
    errors += one.errors();
    denials += one.denials();
    again += one.was_taken_over() ? 1 : 0;
  });
  std::printf(
      "%zu rounds, %llu requests harmed, %llu calls with an error, %llu of them without an effect, "
      "%llu keys taken over\n",
      rounds, static_cast<unsigned long long>(harmed.load()),
      static_cast<unsigned long long>(errors.load()),
      static_cast<unsigned long long>(denials.load()),
      static_cast<unsigned long long>(again.load()));
  EXPECT_GT(harmed, rounds / 2);
  EXPECT_GT(errors, 0U);
  EXPECT_GT(denials, 0U);
  EXPECT_GT(again, 0U) << "no owner fell silent";
}

}  // namespace idempotency::network
