// What RedisStore costs under the guard, against the same commands written by hand over hiredis, each thread on a
// connection of its own and the store with as many.
//
//   idempotency_benchmark_redis [ROUNDS] [ROW]
//
// Starts a redis-server of its own. By hand, by hand once more (the control) and through the guard take turns, slice by slice; a
// row shows the median of the rounds. Ratios above 1 in the first columns mean that ours does more, in p50 and p99 that
// ours takes longer.

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "core/measure.hpp"
#include "idempotency/guard.hpp"
#include "idempotency/stores/redis.hpp"
#include "redis/bare_redis.hpp"
#include "support/crowd.hpp"
#include "support/redis_server.hpp"

namespace {

using benchmark_core::check;
using benchmark_redis::BareRedis;
using benchmark_support::CrowdRow;
using benchmark_support::MakeWork;
using benchmark_support::Selection;
using benchmark_support::Work;
using idempotency::IdempotencyGuard;
using idempotency::Operation;
using idempotency::RedisOptions;
using idempotency::RedisStore;
using idempotency::RunBatch;
using idempotency::RunStatus;
using idempotency::testing_support::RedisServer;

constexpr std::array<std::size_t, 4> crowds{1, 4, 16, 64};
constexpr std::size_t known_keys = 10'000;
constexpr std::size_t batch_size = 64;
const std::string result_of_16_bytes = "0123456789abcdef";

/// 19 bytes, so that a whole key of the store's has 41; in an order that has nothing to do with memory.
std::string value_of(std::uint64_t number) {
  std::uint64_t mixed = (number + 1) * 0x9e3779b97f4a7c15ULL;
  std::string value = "id-0000000000000000";
  for (std::size_t at = 3; at < value.size(); ++at) {
    value[at] = "0123456789abcdef"[mixed & 0xfU];
    mixed >>= 4U;
  }
  return value;
}
std::string new_value() {
  static std::atomic<std::uint64_t> next{known_keys};
  return value_of(next.fetch_add(1, std::memory_order_relaxed));
}
std::string bare_key(const std::string& value) { return "bare_______:{payment:" + value + '}'; }

void first_run(IdempotencyGuard<RedisStore>& guard, const std::string& value) {
  const auto result = guard.run({.key = {"payment", value}}, [] { return result_of_16_bytes; });
  check(result.status() == RunStatus::executed, "a first run did not run");
}
void duplicate(IdempotencyGuard<RedisStore>& guard, const std::string& value) {
  const auto result = guard.run({.key = {"payment", value}}, [] { return std::string(); });
  check(result.status() == RunStatus::replayed && result.value().size() == 16, "a replay was none");
}

class Benchmark {
 public:
  explicit Benchmark(const Selection& selection, const std::vector<std::string>& settings)
      : selection_(selection), server_(with_no_rewriting(settings)) {}

  void first_runs(const std::string& name) {
    for (const std::size_t threads : crowds) {
      Ours ours(*this, threads);
      compare(
          name, threads,
          [&](std::size_t) -> Work {
            return [bare = bare()] { bare->first_run(bare_key(new_value())); };
          },
          [&](std::size_t) -> Work { return [&] { first_run(ours.guard, new_value()); }; });
    }
  }
  void duplicates(const std::string& name) {
    for (const std::size_t threads : crowds) {
      Ours ours(*this, threads);
      remember(ours);
      compare(
          name, threads,
          [&](std::size_t thread) -> Work {
            return [&, bare = bare(), at = thread * 997]() mutable {
              check(bare->duplicate(bare_keys_[++at % known_keys]).size() == 44, "a value");
            };
          },
          [&](std::size_t thread) -> Work {
            return [&, at = thread * 997]() mutable {
              duplicate(ours.guard, values_[++at % known_keys]);
            };
          });
    }
  }
  /// Of a consumer that is delivered what it has handled before.
  void batches_of_duplicates(const std::string& name) {
    for (const std::size_t threads : {std::size_t{1}, std::size_t{4}}) {
      Ours ours(*this, threads);
      remember(ours);
      compare(
          name, threads,
          [&](std::size_t thread) -> Work {
            return [&, bare = bare(), at = thread * 997]() mutable {
              std::vector<std::string_view> keys;
              for (std::size_t place = 0; place < batch_size; ++place)
                keys.push_back(bare_keys_[++at % known_keys]);
              check(bare->duplicates(keys) == 44 * batch_size, "a value");
            };
          },
          [&](std::size_t thread) -> Work {
            return [&, at = thread * 997]() mutable {
              std::vector<Operation> operations;
              for (std::size_t place = 0; place < batch_size; ++place)
                operations.push_back({.key = {"payment", values_[++at % known_keys]}});
              RunBatch batch = ours.guard.begin_many(std::move(operations));
              for (std::size_t place = 0; place < batch.size(); ++place) {
                const auto result = batch.run(place, [] { return std::string(); });
                check(result.status() == RunStatus::replayed && result.value().size() == 16,
                      "a replay was none");
              }
            };
          },
          {.name = {}, .by_hand = {}, .ours = {}, .wanted = 0, .wanted_p99 = 0});
    }
  }
  void hot_key(const std::string& name) {
    const std::size_t threads = 16;
    Ours ours(*this, threads);
    remember(ours);
    compare(
        name, threads,
        [&](std::size_t) -> Work {
          return [&, bare = bare()] { check(bare->get(bare_keys_[7]).size() == 44, "a value"); };
        },
        [&](std::size_t) -> Work { return [&] { duplicate(ours.guard, values_[7]); }; },
        {.name = {}, .by_hand = {}, .ours = {}, .wanted = 0.83, .wanted_p99 = 0});
  }

 private:
  struct Ours {
    Ours(Benchmark& benchmark, std::size_t threads)
        : store({.port = benchmark.server_.port(), .max_connections = threads}), guard(store) {}
    RedisStore store;
    IdempotencyGuard<RedisStore> guard;
  };

  /// The append-only file is rewritten between rows and not in the middle of one.
  static std::vector<std::string> with_no_rewriting(std::vector<std::string> settings) {
    settings.insert(settings.end(), {"--auto-aof-rewrite-percentage", "0"});
    return settings;
  }

  [[nodiscard]] std::shared_ptr<BareRedis> bare() const {
    return std::make_shared<BareRedis>(server_.port());
  }

  void remember(Ours& ours) {
    values_.clear();
    bare_keys_.clear();
    BareRedis bare(server_.port());
    for (std::uint64_t number = 0; number < known_keys; ++number) {
      values_.push_back(value_of(number));
      bare_keys_.push_back(bare_key(values_.back()));
      first_run(ours.guard, values_.back());
      bare.first_run(bare_keys_.back());
    }
  }

  void compare(const std::string& name, std::size_t threads, MakeWork by_hand, MakeWork ours,
               CrowdRow wanted = {
                   .name = {}, .by_hand = {}, .ours = {}, .wanted = 0.85, .wanted_p99 = 1.25}) {
    wanted.name = name;
    wanted.threads = threads;
    wanted.by_hand = std::move(by_hand);
    wanted.ours = std::move(ours);
    benchmark_support::compare(wanted, selection_.effort(),
                               benchmark_support::processor_time_of(server_.process().id()));
    forget();
  }

  void forget() {
    server_.ask({"FLUSHALL"});
    server_.ask({"BGREWRITEAOF"});
    while (server_.info("persistence", "aof_rewrite_in_progress") != "0" ||
           server_.info("persistence", "aof_rewrite_scheduled") != "0") {
      std::this_thread::sleep_for(std::chrono::milliseconds{20});  // the server has no event for it
    }
  }

  const Selection& selection_;
  RedisServer server_;
  std::vector<std::string> values_;
  std::vector<std::string> bare_keys_;
};

void run(const Selection& selection, const std::string& fsync) {
  const std::string suffix = ", appendfsync " + fsync;
  const std::string first = "first run" + suffix;
  const std::string again = "duplicate" + suffix;
  const std::string batches = "batch of 64 duplicates, against a pipeline" + suffix;
  const std::string hot = "one hot key, against GET" + suffix;
  const bool all = fsync != "always";
  if (!selection.wants(first) &&
      !(all && (selection.wants(again) || selection.wants(batches) || selection.wants(hot))))
    return;
  Benchmark benchmark(selection, {"--appendonly", "yes", "--appendfsync", fsync});
  if (selection.wants(first)) benchmark.first_runs(first);
  if (all && selection.wants(again)) benchmark.duplicates(again);
  if (all && selection.wants(batches)) benchmark.batches_of_duplicates(batches);
  if (all && selection.wants(hot)) benchmark.hot_key(hot);
}

}  // namespace

int main(int count, char** values) {
  const Selection selection(count, values);
  benchmark_support::print_crowd_heading("RedisStore under the guard, against bare hiredis");
  run(selection, "everysec");
  run(selection, "always");
  return 0;
}
