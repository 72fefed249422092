#include "core/memory_benchmark.hpp"

#include <malloc.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "core/measure.hpp"
#include "idempotency/guard.hpp"
#include "idempotency/stores/breaker.hpp"
#include "idempotency/stores/caching.hpp"
#include "idempotency/stores/memory.hpp"
#include "idempotency/stores/sqlite.hpp"

namespace benchmark_core {

namespace {

using idempotency::BreakerStore;
using idempotency::CachingStore;
using idempotency::IdempotencyGuard;
using idempotency::MemoryStore;
using idempotency::RunStatus;
using idempotency::SqliteStore;

const std::string result_of_16_bytes = "0123456789abcdef";
constexpr std::chrono::milliseconds one_hour{3'600'000};

/// Sixteen hexadecimal digits, in an order that has nothing to do with memory.
std::string id_of(std::uint64_t number) {
  std::uint64_t mixed = (number + 1) * 0x9e3779b97f4a7c15ULL;
  std::string id(16, '0');
  for (char& digit : id) {
    digit = "0123456789abcdef"[mixed & 0xfU];
    mixed >>= 4U;
  }
  return id;
}

std::vector<std::string> ids(std::size_t count) {
  std::vector<std::string> made;
  made.reserve(count);
  for (std::uint64_t number = 0; number < count; ++number)
    made.push_back(id_of(number));
  return made;
}

/// What a service writes by hand: a lock, a map, and the key as text.
class ByHand {
 public:
  [[nodiscard]] std::string replay(const std::string& id) {
    const std::string key = "payment:" + id;
    const std::scoped_lock lock(mutex_);
    const auto found = results_.find(key);
    if (found == results_.end()) wrong("a key is missing from the map");
    return found->second;
  }
  void first_run(const std::string& id) {
    const std::string key = "payment:" + id;
    {
      const std::scoped_lock lock(mutex_);
      if (!results_.try_emplace(key).second) wrong("a key is in the map already");
    }
    std::string result = result_of_16_bytes;  // the work
    const std::scoped_lock lock(mutex_);
    results_.find(key)->second = std::move(result);
  }

 private:
  alignas(128) std::mutex mutex_;
  std::unordered_map<std::string, std::string> results_;
};

template <class Guard>
void first_run(Guard& guard, const std::string& id) {
  const auto result = guard.run({.key = {"payment", id}}, [] { return result_of_16_bytes; });
  check(result.status() == RunStatus::executed, "a first run did not run");
}

template <class Guard>
void replay(Guard& guard, const std::string& id) {
  const auto result = guard.run({.key = {"payment", id}}, [] { return std::string(); });
  check(result.status() == RunStatus::replayed && result.value().size() == 16, "a replay was none");
}

/// The store's own calls, as the guard makes them for a replay and for a first run.
void bare_replay(MemoryStore& store, const std::string& id) {
  const idempotency::BeginOutcome outcome =
      store.begin({.key = {"payment", id}, .owner = idempotency::OwnerToken::generate()});
  const auto* completed = std::get_if<idempotency::Completed>(&outcome);
  check(completed != nullptr && completed->result.has_value(), "a bare replay was none");
}
void bare_first_run(MemoryStore& store, const std::string& id) {
  const idempotency::BeginRequest request{.key = {"payment", id},
                                          .owner = idempotency::OwnerToken::generate()};
  const idempotency::BeginOutcome outcome = store.begin(request);
  check(std::holds_alternative<idempotency::Acquired>(outcome), "a bare first run was none");
  const auto stored = store.complete(request.key, {request.owner, 1},
                                     {.result = result_of_16_bytes, .retention = one_hour});
  check(stored == idempotency::WriteOutcome::stored, "a bare completion was lost");
}

constexpr std::size_t known_keys = 100'000;
constexpr std::size_t replays_a_turn = 100'000;
constexpr std::size_t runs_a_turn = 20'000;
constexpr std::size_t scaling_runs_a_turn = 100'000;  // long against a table's growth

}  // namespace

void memory_rows(std::size_t rounds) {
  MemoryStore store;
  IdempotencyGuard guard{store};
  ByHand map;
  ByHand same_map;
  const std::vector<std::string> known = ids(known_keys);
  for (const std::string& id : known) {
    first_run(guard, id);
    map.first_run(id);
    same_map.first_run(id);
  }
  const auto replays_by_hand = [&](ByHand& side) {
    return time_each(replays_a_turn, [&](std::size_t index) {
      check(side.replay(known[index % known_keys]).size() == 16, "the map's result");
    });
  };
  std::uint64_t next_by_hand = known_keys;
  std::uint64_t next_by_guard = known_keys;

  print_heading(
      "MemoryStore                                        locked map         guard   ratio  "
      "(range)");
  compare({"control: the same look-up twice", "near 1.00", [&] { return replays_by_hand(map); },
           [&] { return replays_by_hand(same_map); }},
          rounds);
  compare({"replay, 16-byte result, 100 000 keys", "wanted <= 3.00",
           [&] { return replays_by_hand(map); },
           [&] {
             return time_each(replays_a_turn,
                              [&](std::size_t index) { replay(guard, known[index % known_keys]); });
           }},
          rounds);
  compare(
      {"replay of one hot key", "",
       [&] {
         return time_each(replays_a_turn, [&](std::size_t) {
           check(map.replay(known[7]).size() == 16, "the map's result");
         });
       },
       [&] { return time_each(replays_a_turn, [&](std::size_t) { replay(guard, known[7]); }); }},
      rounds);
  compare({"first run, against insert and update", "wanted <= 3.00",
           [&] {
             return time_each(runs_a_turn,
                              [&](std::size_t) { map.first_run(id_of(next_by_hand++)); });
           },
           [&] {
             return time_each(runs_a_turn,
                              [&](std::size_t) { first_run(guard, id_of(next_by_guard++)); });
           }},
          rounds);
}

void bare_store_rows(std::size_t rounds) {
  MemoryStore store;
  MemoryStore bare;
  IdempotencyGuard guard{store};
  const std::vector<std::string> known = ids(known_keys);
  for (const std::string& id : known) {
    first_run(guard, id);
    bare_first_run(bare, id);
  }
  std::uint64_t next_bare = known_keys;
  std::uint64_t next_guarded = known_keys;
  const auto bare_replays = [&] {
    return time_each(replays_a_turn,
                     [&](std::size_t index) { bare_replay(bare, known[index % known_keys]); });
  };
  print_heading(
      "The guard over the bare store call                 bare store         guard   ratio  "
      "(range)");
  compare({"control: the same bare replay twice", "near 1.00", bare_replays, bare_replays}, rounds);
  compare({"replay", "", bare_replays,
           [&] {
             return time_each(replays_a_turn,
                              [&](std::size_t index) { replay(guard, known[index % known_keys]); });
           }},
          rounds);
  compare({"first run", "",
           [&] {
             return time_each(runs_a_turn,
                              [&](std::size_t) { bare_first_run(bare, id_of(next_bare++)); });
           },
           [&] {
             return time_each(runs_a_turn,
                              [&](std::size_t) { first_run(guard, id_of(next_guarded++)); });
           }},
          rounds);
}

void caching_rows(const std::string& folder, std::size_t rounds) {
  SqliteStore database{
      {.path = folder + "/cached.db", .durability = idempotency::SqliteDurability::normal}};
  CachingStore cache{database};
  IdempotencyGuard guard{cache};
  ByHand map;
  const std::vector<std::string> known = ids(known_keys);
  for (const std::string& id : known) {
    first_run(guard, id);
    map.first_run(id);
  }
  const auto misses = cache.cache_statistics().misses;
  compare({"cached replay over SqliteStore, 100 000 keys", "wanted <= 2.00",
           [&] {
             return time_each(replays_a_turn, [&](std::size_t index) {
               check(map.replay(known[index % known_keys]).size() == 16, "the map's result");
             });
           },
           [&] {
             return time_each(replays_a_turn,
                              [&](std::size_t index) { replay(guard, known[index % known_keys]); });
           }},
          rounds);
  check(cache.cache_statistics().misses == misses, "a cached replay asked the store");
}

void breaker_rows(std::size_t rounds) {
  MemoryStore store;
  BreakerStore breaker{store};
  IdempotencyGuard plain{store};
  IdempotencyGuard guard{breaker};
  const std::vector<std::string> known = ids(known_keys);
  for (const std::string& id : known)
    first_run(guard, id);
  const auto turn = [&](auto& asked) {
    return time_each(replays_a_turn,
                     [&](std::size_t index) { replay(asked, known[index % known_keys]); });
  };
  compare({"replay through a BreakerStore, against the store's own", "wanted <= 1.10",
           [&] { return turn(plain); }, [&] { return turn(guard); }},
          rounds);
}

void size_rows() {
  constexpr std::size_t records = 1'000'000;
  const auto in_use = [] {
    const struct mallinfo2 heap = mallinfo2();
    return static_cast<double>(heap.uordblks + heap.hblkhd);
  };
  const double before = in_use();
  auto store = std::make_unique<MemoryStore>();
  IdempotencyGuard guard{*store};
  for (std::uint64_t number = 0; number < records; ++number)
    first_run(guard, id_of(number));
  const double ours = in_use() - before;
  auto map = std::make_unique<ByHand>();
  for (std::uint64_t number = 0; number < records; ++number)
    map->first_run(id_of(number));
  const double by_hand = in_use() - before - ours;

  print_heading("Memory                                             locked map   MemoryStore");
  std::printf("%-46s %7.1f bytes %7.1f bytes                  wanted <= 130\n",
              "a record, at 1 000 000 records", by_hand / records, ours / records);
}

void scaling_rows(std::size_t rounds) {
  MemoryStore store{{.max_bytes = std::size_t{4} << 30U}};
  IdempotencyGuard guard{store};
  const std::vector<std::string> known = ids(known_keys);
  for (const std::string& id : known)
    first_run(guard, id);
  std::uint64_t next = known_keys;

  print_heading(
      "Threads                                            one thread   two threads   times as "
      "much");
  const auto own_maps = std::make_unique<ByHand[]>(2);
  for (const std::string& id : known) {
    own_maps[0].first_run(id);
    own_maps[1].first_run(id);
  }
  compare_threads({"control: look-up in a map of its own", "the most there is",
                   [&](std::size_t threads) {
                     return time_each_on_threads(
                         threads, replays_a_turn, [&](std::size_t thread, std::size_t index) {
                           check(own_maps[thread].replay(known[index % known_keys]).size() == 16,
                                 "the map's result");
                         });
                   }},
                  rounds);
  compare_threads({"replay", "wanted >= 1.60",
                   [&](std::size_t threads) {
                     return time_each_on_threads(
                         threads, replays_a_turn, [&](std::size_t thread, std::size_t index) {
                           replay(guard, known[(thread * known_keys / 2 + index) % known_keys]);
                         });
                   }},
                  rounds);
  std::uint64_t next_own = known_keys;
  compare_threads(
      {"control: insert and update in a map of its own", "the most there is",
       [&](std::size_t threads) {
         const std::uint64_t base = next_own;
         next_own += threads * scaling_runs_a_turn;
         return time_each_on_threads(
             threads, scaling_runs_a_turn, [&](std::size_t thread, std::size_t index) {
               own_maps[thread].first_run(id_of(base + thread * scaling_runs_a_turn + index));
             });
       }},
      rounds);
  compare_threads({"first run", "wanted >= 1.60",
                   [&](std::size_t threads) {
                     const std::uint64_t base = next;
                     next += threads * scaling_runs_a_turn;
                     return time_each_on_threads(
                         threads, scaling_runs_a_turn, [&](std::size_t thread, std::size_t index) {
                           first_run(guard, id_of(base + thread * scaling_runs_a_turn + index));
                         });
                   }},
                  rounds);
}

}  // namespace benchmark_core
