// What SqliteStore costs against the same work written by hand with prepared statements.
//
//   sqlite_benchmark [FOLDER] [ROUNDS]
//
// Both sides of a row run in turns, round by round, in one process; a row shows the median of the
// rounds' ratios. The control rows compare a case with itself: how far they are from 1.00 is the
// noise of the others.

#include <sqlite3.h>
#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "idempotency/stores/sqlite.hpp"

namespace {

using namespace idempotency;
using Clock_ = std::chrono::steady_clock;
using std::chrono::nanoseconds;

constexpr int threads = 16;
/// A round is so many short turns of each side, so that what else the machine does meets both.
constexpr int slices = 20;

void check(int result_code, sqlite3* database) {
  if (result_code == SQLITE_OK || result_code == SQLITE_ROW || result_code == SQLITE_DONE) return;
  std::fprintf(stderr, "SQLite: %s\n", sqlite3_errmsg(database));
  std::exit(1);
}

/// A hand-written connection with its prepared statements, over the store's own table.
class Bare {
 public:
  Bare(const std::string& path, SqliteDurability durability) {
    check(
        sqlite3_open_v2(path.c_str(), &database_,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr),
        database_);
    sqlite3_busy_timeout(database_, 120'000);
    run("PRAGMA journal_mode=WAL");
    run(durability == SqliteDurability::full ? "PRAGMA synchronous=FULL"
                                             : "PRAGMA synchronous=NORMAL");
    run("CREATE TABLE IF NOT EXISTS ledger (account TEXT PRIMARY KEY, cents INTEGER NOT NULL)");
    run("INSERT OR IGNORE INTO ledger VALUES ('alice', 0)");
    select_ = prepare(
        "SELECT state, owner, fence, fingerprint, lease_until, expires_at, result "
        "FROM idempotency_record WHERE type = ?1 AND value = ?2");
    insert_ = prepare(
        "INSERT INTO idempotency_record VALUES (?1, ?2, 1, 1, 0, ?3, 1, 1, x'', ?4, ?4, ?5, NULL, "
        "0, "
        "x'', x'', NULL) ON CONFLICT DO NOTHING");
    update_ = prepare(
        "UPDATE idempotency_record SET state = 2, updated_at = ?4, lease_until = NULL, expires_at "
        "= "
        "?5, result = ?6 WHERE type = ?1 AND value = ?2 AND owner = ?3 AND fence = 1 AND state = "
        "1");
    business_ = prepare("UPDATE ledger SET cents = cents + ?1 WHERE account = ?2");
    begin_ = prepare("BEGIN IMMEDIATE");
    commit_ = prepare("COMMIT");
  }
  Bare(const Bare&) = delete;
  Bare& operator=(const Bare&) = delete;
  ~Bare() {
    for (sqlite3_stmt* statement : {select_, insert_, update_, business_, begin_, commit_}) {
      sqlite3_finalize(statement);
    }
    sqlite3_close(database_);
  }

  void run(const char* sql) {
    check(sqlite3_exec(database_, sql, nullptr, nullptr, nullptr), database_);
  }

  /// The recorded result; empty when there is none.
  std::string duplicate(const std::string& value) {
    bind_key(select_, value);
    std::string result;
    const int stepped = sqlite3_step(select_);
    check(stepped, database_);
    if (stepped == SQLITE_ROW && sqlite3_column_int64(select_, 5) > now()) {
      result.assign(static_cast<const char*>(sqlite3_column_blob(select_, 6)),
                    static_cast<std::size_t>(sqlite3_column_bytes(select_, 6)));
    }
    sqlite3_reset(select_);
    return result;
  }

  void first_run(const std::string& value, const std::string& result) {
    static_cast<void>(duplicate(value));
    insert(value);
    complete(value, result);
  }

  void transaction(const std::string& value, const std::string& result) {
    step(begin_);
    insert(value);
    sqlite3_bind_int64(business_, 1, 1);
    sqlite3_bind_text(business_, 2, "alice", -1, SQLITE_STATIC);
    step(business_);
    complete(value, result);
    step(commit_);
  }

 private:
  static std::int64_t now() { return system_clock().now().time_since_epoch().count(); }

  sqlite3_stmt* prepare(const char* sql) {
    sqlite3_stmt* statement = nullptr;
    check(sqlite3_prepare_v3(database_, sql, -1, SQLITE_PREPARE_PERSISTENT, &statement, nullptr),
          database_);
    return statement;
  }
  static void bind_key(sqlite3_stmt* statement, const std::string& value) {
    sqlite3_bind_text(statement, 1, "payment", 7, SQLITE_STATIC);
    sqlite3_bind_blob(statement, 2, value.data(), static_cast<int>(value.size()), SQLITE_STATIC);
  }
  void step(sqlite3_stmt* statement) {
    check(sqlite3_step(statement), database_);
    sqlite3_reset(statement);
  }
  void insert(const std::string& value) {
    bind_key(insert_, value);
    sqlite3_bind_blob(insert_, 3, owner_, 16, SQLITE_STATIC);
    sqlite3_bind_int64(insert_, 4, now());
    sqlite3_bind_int64(insert_, 5, now() + 30'000);
    step(insert_);
  }
  void complete(const std::string& value, const std::string& result) {
    bind_key(update_, value);
    sqlite3_bind_blob(update_, 3, owner_, 16, SQLITE_STATIC);
    sqlite3_bind_int64(update_, 4, now());
    sqlite3_bind_int64(update_, 5, now() + 3'600'000);
    sqlite3_bind_blob(update_, 6, result.data(), static_cast<int>(result.size()), SQLITE_STATIC);
    step(update_);
  }

  sqlite3* database_ = nullptr;
  const char* owner_ = "0123456789abcdef";
  sqlite3_stmt* select_;
  sqlite3_stmt* insert_;
  sqlite3_stmt* update_;
  sqlite3_stmt* business_;
  sqlite3_stmt* begin_;
  sqlite3_stmt* commit_;
};

const std::string result_16 = "0123456789abcdef";

OwnerToken owner() {
  OwnerToken::Bytes bytes{};
  bytes.fill(7);
  return OwnerToken(bytes);
}

void fail(const char* what) {
  std::fprintf(stderr, "the benchmark does not do what it measures: %s\n", what);
  std::exit(1);
}

void first_run(SqliteStore& store, const std::string& value) {
  const Key key("payment", value);
  const BeginOutcome begun = store.begin(
      {.key = key, .owner = owner(), .fingerprint = std::nullopt, .mode = RecordMode::take_over});
  if (!std::holds_alternative<Acquired>(begun)) fail("begin");
  if (store.complete(key, {owner(), 1}, {result_16}) != WriteOutcome::stored) fail("complete");
}

void duplicate(SqliteStore& store, const std::string& value) {
  const BeginOutcome begun = store.begin({.key = Key("payment", value),
                                          .owner = owner(),
                                          .fingerprint = std::nullopt,
                                          .mode = RecordMode::take_over});
  const auto* completed = std::get_if<Completed>(&begun);
  if (completed == nullptr || completed->result != result_16) fail("duplicate");
}

void transaction(SqliteStore& store, const std::string& value) {
  const Key key("payment", value);
  SqliteTransaction opened = store.open_transaction();
  const BeginOutcome begun = store.begin(
      opened,
      {.key = key, .owner = owner(), .fingerprint = std::nullopt, .mode = RecordMode::take_over});
  if (!std::holds_alternative<Acquired>(begun)) fail("begin in a transaction");
  opened.execute("UPDATE ledger SET cents = cents + ?1 WHERE account = ?2", 1, "alice");
  if (store.complete(opened, key, {owner(), 1}, {result_16}) != WriteOutcome::stored) {
    fail("complete in a transaction");
  }
  store.commit(opened);
}

/// A new value each time, in an order that is not the table's.
std::string next_value() {
  static std::atomic<std::uint64_t> counter{0};
  const std::uint64_t mixed = (counter.fetch_add(1) + 1) * 0x9E3779B97F4A7C15ULL;
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(mixed));
  return text;
}

template <class Work>
double time_of(int count, Work work) {
  const auto started = Clock_::now();
  for (int index = 0; index < count; ++index)
    work(index);
  return static_cast<double>((Clock_::now() - started).count()) / count;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Row {
  const char* name;
  double wanted;  ///< bare time by our time, at least; 0: a control
  std::function<double()> bare;
  std::function<double()> ours;
};

void compare(const Row& row, int rounds) {
  std::vector<double> bare;
  std::vector<double> ours;
  std::vector<double> ratios;
  for (int round = 0; round < rounds; ++round) {
    double bare_sum = 0;
    double our_sum = 0;
    for (int slice = 0; slice < slices; ++slice) {
      if (slice % 2 == 1) our_sum += row.ours();  // so that neither side always comes second
      bare_sum += row.bare();
      if (slice % 2 == 0) our_sum += row.ours();
    }
    bare.push_back(bare_sum / slices);
    ours.push_back(our_sum / slices);
    ratios.push_back(bare.back() / ours.back());
  }
  const double ratio = median(ratios);
  std::printf("%-44s %10.1f us %10.1f us   %5.2f", row.name, median(bare) / 1000,
              median(ours) / 1000, ratio);
  if (row.wanted > 0) {
    std::printf("   (wanted >= %.2f)%s", row.wanted, ratio < row.wanted ? "  MISSED" : "");
  }
  std::printf("\n");
  std::fflush(stdout);
}

/// Many threads at once: nanoseconds a run over all, and what 99 of 100 runs take at most.
struct Crowd {
  double each;
  double p99;
};

template <class MakeWork>
Crowd crowd(int runs, MakeWork make_work) {
  std::vector<std::vector<double>> latencies(threads);
  std::barrier start(threads + 1);
  std::barrier end(threads + 1);
  std::vector<std::jthread> running;
  for (std::size_t thread = 0; thread < threads; ++thread) {
    running.emplace_back([&, thread] {
      auto work = make_work();
      start.arrive_and_wait();
      for (int run = 0; run < runs; ++run) {
        const auto before = Clock_::now();
        work();
        latencies[thread].push_back(static_cast<double>((Clock_::now() - before).count()));
      }
      end.arrive_and_wait();
    });
  }
  start.arrive_and_wait();
  const auto started = Clock_::now();
  end.arrive_and_wait();
  const double total = static_cast<double>((Clock_::now() - started).count());
  std::vector<double> all;
  for (const auto& part : latencies)
    all.insert(all.end(), part.begin(), part.end());
  std::sort(all.begin(), all.end());
  return {total / static_cast<double>(all.size()), all[all.size() * 99 / 100]};
}

void single_thread_rows(const std::string& path, SqliteDurability durability, int rounds) {
  const bool full = durability == SqliteDurability::full;
  SqliteStore store{{.path = path, .durability = durability}};
  Bare bare(path, durability);
  std::vector<std::string> known;
  for (int index = 0; index < 1'000; ++index) {
    known.push_back(next_value());
    bare.transaction(known.back(), result_16);
  }
  const auto some = [&](int index) {
    return known[static_cast<std::size_t>(index) % known.size()];
  };
  const int reads = 1'000;
  const int writes = full ? 8 : 100;
  const auto bare_reads = [&] {
    return time_of(reads, [&](int index) {
      if (bare.duplicate(some(index)) != result_16) fail("the bare duplicate");
    });
  };
  const auto bare_first = [&] {
    return time_of(writes, [&](int) { bare.first_run(next_value(), result_16); });
  };
  const auto bare_moves = [&] {
    return time_of(writes, [&](int) { bare.transaction(next_value(), result_16); });
  };
  const auto our_reads = [&] {
    return time_of(reads, [&](int index) { duplicate(store, some(index)); });
  };
  const auto our_first = [&] {
    return time_of(writes, [&](int) { first_run(store, next_value()); });
  };
  const auto our_moves = [&] {
    return time_of(writes, [&](int) { transaction(store, next_value()); });
  };
  if (full) {
    compare({"control: bare SELECT, twice", 0, bare_reads, bare_reads}, rounds);
    compare({"duplicate", 0.8, bare_reads, our_reads}, rounds);
    compare({"control: bare first run, twice", 0, bare_first, bare_first}, rounds);
  }
  compare({full ? "first run, durable" : "first run, normal durability", full ? 0.85 : 0,
           bare_first, our_first},
          rounds);
  compare({full ? "transaction, durable" : "transaction, normal durability", full ? 0.85 : 0,
           bare_moves, our_moves},
          rounds);
}

void crowd_rows(const std::string& path, int rounds) {
  SqliteStore store{{.path = path, .busy_timeout = std::chrono::minutes(2)}};
  std::vector<double> ratios;
  std::vector<double> bare_p99;
  std::vector<double> our_p99;
  for (int round = 0; round < rounds; ++round) {
    const Crowd bare = crowd(15, [&] {
      return [connection = std::make_shared<Bare>(path, SqliteDurability::full)] {
        connection->first_run(next_value(), result_16);
      };
    });
    const Crowd ours = crowd(150, [&] { return [&] { first_run(store, next_value()); }; });
    ratios.push_back(bare.each / ours.each);
    bare_p99.push_back(bare.p99);
    our_p99.push_back(ours.p99);
  }
  std::printf("%-44s p99 %6.1f ms %7.1f ms   %5.2f   (wanted >= 7.00, p99 <= 50 ms)%s\n",
              "first runs, durable, 16 threads", median(bare_p99) / 1e6, median(our_p99) / 1e6,
              median(ratios), median(ratios) < 7 || median(our_p99) > 50e6 ? "  MISSED" : "");
}

}  // namespace

int main(int argc, char** argv) {
  std::string folder = (std::filesystem::path(argc > 1 ? argv[1] : ".") / "sqlite-XXXXXX").string();
  const int rounds = argc > 2 ? std::max(1, std::atoi(argv[2])) : 7;
  if (mkdtemp(folder.data()) == nullptr) fail("no folder to work in");
  std::printf("%-44s %13s %13s   %s\n", "", "by hand", "SqliteStore", "ratio");
  single_thread_rows(folder + "/full.db", SqliteDurability::full, rounds);
  single_thread_rows(folder + "/normal.db", SqliteDurability::normal, rounds);
  crowd_rows(folder + "/crowd.db", rounds);
  std::filesystem::remove_all(folder);
  return 0;
}
