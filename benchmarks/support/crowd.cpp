#include "support/crowd.hpp"

#include <dirent.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "core/measure.hpp"

namespace benchmark_support {

namespace {

using Clock = std::chrono::steady_clock;

double thread_time() {
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) * 1e9 + static_cast<double>(used.tv_nsec);
}

/// What one side did in one or more slices.
struct Yield {
  std::vector<float> latencies;  ///< microseconds
  double elapsed = 0;            ///< nanoseconds
  double client = 0;             ///< nanoseconds of processor time
  double server = 0;

  [[nodiscard]] double operations() const { return static_cast<double>(latencies.size()); }
  [[nodiscard]] double rate() const { return operations() * 1e9 / elapsed; }
  [[nodiscard]] double quantile(double part) {
    if (latencies.empty()) benchmark_core::wrong("a side has done nothing in a whole round");
    const auto at = static_cast<std::ptrdiff_t>(std::floor(operations() * part));
    std::nth_element(latencies.begin(), latencies.begin() + at, latencies.end());
    return latencies[static_cast<std::size_t>(at)];
  }
};

/// Threads that are there all the time and work only in their side's slices.
class Crowd {
 public:
  Crowd(std::size_t threads, const MakeWork& make)
      : start_(static_cast<std::ptrdiff_t>(threads) + 1),
        end_(static_cast<std::ptrdiff_t>(threads) + 1),
        members_(threads) {
    for (std::size_t thread = 0; thread < threads; ++thread)
      threads_.emplace_back([this, make, thread] { live(make(thread), members_[thread]); });
    start_.arrive_and_wait();  // all have their connection
    end_.arrive_and_wait();
  }
  Crowd(const Crowd&) = delete;
  Crowd& operator=(const Crowd&) = delete;
  ~Crowd() {
    ended_ = true;
    start_.arrive_and_wait();
  }

  void work_for(std::chrono::milliseconds slice, const ProcessorTime& server, Yield& into) {
    stop_ = false;
    const double server_before = server();
    start_.arrive_and_wait();
    const auto begun = Clock::now();
    std::this_thread::sleep_for(slice);
    stop_ = true;
    end_.arrive_and_wait();
    into.elapsed += static_cast<double>(std::chrono::nanoseconds(Clock::now() - begun).count());
    into.server += server() - server_before;
    for (Member& member : members_) {
      into.client += member.client;
      into.latencies.insert(into.latencies.end(), member.latencies.begin(), member.latencies.end());
      member.latencies.clear();
    }
  }

 private:
  struct alignas(128) Member {
    std::vector<float> latencies;
    double client = 0;
  };

  void live(const Work& work, Member& mine) {
    start_.arrive_and_wait();
    end_.arrive_and_wait();
    while (true) {
      start_.arrive_and_wait();
      if (ended_) return;
      const double before = thread_time();
      Clock::time_point last = Clock::now();
      while (!stop_.load(std::memory_order_relaxed)) {
        work();
        const Clock::time_point now = Clock::now();
        mine.latencies.push_back(std::chrono::duration<float, std::micro>(now - last).count());
        last = now;
      }
      mine.client = thread_time() - before;
      end_.arrive_and_wait();
    }
  }

  std::atomic<bool> stop_{false};
  std::atomic<bool> ended_{false};
  std::barrier<> start_;
  std::barrier<> end_;
  std::vector<Member> members_;
  std::vector<std::jthread> threads_;
};

enum Side : std::size_t { by_hand, control, ours };
constexpr std::size_t sides = 3;

/// What the rounds gave for each side.
struct Tally {
  std::vector<double> rates;
  std::vector<double> ratios;
  std::vector<double> p50;
  std::vector<double> p99;
  std::vector<double> client;
  std::vector<double> server;
};

double microseconds(double nanoseconds, const Yield& yield) {
  return nanoseconds / yield.operations() / 1000;
}

void add_round(std::array<Tally, sides>& tallies, std::array<Yield, sides>& yields) {
  for (std::size_t side = 0; side < sides; ++side) {
    Yield& yield = yields.at(side);
    Tally& tally = tallies.at(side);
    tally.rates.push_back(yield.rate());
    tally.ratios.push_back(yield.rate() / yields[by_hand].rate());
    tally.p50.push_back(yield.quantile(0.5) / yields[by_hand].quantile(0.5));
    tally.p99.push_back(yield.quantile(0.99) / yields[by_hand].quantile(0.99));
    tally.client.push_back(microseconds(yield.client, yield));
    tally.server.push_back(microseconds(yield.server, yield));
  }
}

void print(const CrowdRow& row, const std::array<Tally, sides>& tallies) {
  using benchmark_core::median;
  const Tally& mine = tallies[ours];
  const Tally& theirs = tallies[by_hand];
  const auto [least, most] = std::minmax_element(mine.ratios.begin(), mine.ratios.end());
  const double ratio = median(mine.ratios);
  const double p99 = median(mine.p99);
  std::printf(
      "%-44s %3zu %8.0f %8.0f  %5.2f (%.2f-%.2f) %5.2f  %5.2f %5.2f %5.2f  %5.1f+%5.1f %5.1f+%5.1f",
      row.name.c_str(), row.threads, median(theirs.rates), median(mine.rates), ratio, *least, *most,
      median(tallies[control].ratios), median(mine.p50), p99, median(tallies[control].p99),
      median(theirs.client), median(theirs.server), median(mine.client), median(mine.server));
  if (row.wanted > 0 && ratio < row.wanted) std::printf("  RATIO < %.2f", row.wanted);
  if (row.wanted_p99 > 0 && p99 > row.wanted_p99) std::printf("  P99 > %.2f", row.wanted_p99);
  std::printf("\n");
  std::fflush(stdout);
}

}  // namespace

Selection::Selection(int count, char** values) : filter_(count > 2 ? values[2] : "") {
  if (count > 1) effort_.rounds = std::max<std::size_t>(1, std::strtoul(values[1], nullptr, 10));
}

ProcessorTime processor_time_of(long process) {
  const std::string tasks = "/proc/" + std::to_string(process) + "/task";
  return [tasks] {
    double sum = 0;
    const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(tasks.c_str()), closedir);
    if (!folder) benchmark_core::wrong("the server has ended");
    while (const dirent* task = readdir(folder.get())) {
      if (task->d_name[0] == '.') continue;
      double nanoseconds = 0;
      if (std::ifstream(tasks + '/' + task->d_name + "/schedstat") >> nanoseconds) {
        sum += nanoseconds;
      }
    }
    return sum;
  };
}

void print_crowd_heading(std::string_view title) {
  std::printf("\n%-48s %8s %8s  %5s %-11s %5s  %5s %5s %5s  %11s %11s\n",
              std::string(title).c_str(), "by hand", "ours", "ratio", "(range)", "contr", "p50",
              "p99", "contr", "cpu by hand", "cpu ours");
  std::printf("%-44s %3s %8s %8s  %5s %-11s %5s  %5s %5s %5s  %11s %11s\n", "", "thr", "/s", "/s",
              "", "", "", "", "", "", "us+server's", "us+server's");
}

void compare(const CrowdRow& row, const Effort& effort, const ProcessorTime& server) {
  std::array<std::unique_ptr<Crowd>, sides> crowds{
      std::make_unique<Crowd>(row.threads, row.by_hand),
      std::make_unique<Crowd>(row.threads, row.by_hand),
      std::make_unique<Crowd>(row.threads, row.ours)};
  std::array<Tally, sides> tallies;
  for (std::size_t round = 0; round <= effort.rounds; ++round) {
    std::array<Yield, sides> yields;
    const std::size_t slices = round == 0 ? 2 : effort.slices;  // warms up
    for (std::size_t slice = 0; slice < slices; ++slice) {
      for (std::size_t turn = 0; turn < sides; ++turn) {
        const std::size_t side = (slice + turn) % sides;  // so that none always comes first
        crowds.at(side)->work_for(effort.slice, server, yields.at(side));
      }
    }
    if (round != 0) add_round(tallies, yields);
  }
  print(row, tallies);
}

}  // namespace benchmark_support
