// What MySqlStore costs under the guard, against the same round trips written by hand with prepared statements, each
// thread on a connection of its own and the store with as many.
//
//   idempotency_benchmark_mysql [ROUNDS] [ROW]
//
// Starts a MariaDB server of its own, with the server's default sizes and a flush for each commit. By hand, by hand once more
// (the control) and through the guard take turns, slice by slice; a row shows the median of the rounds. Ratios above 1 in the
// first columns mean that ours does more, in p50 and p99 that ours takes longer.

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "core/measure.hpp"
#include "idempotency/guard.hpp"
#include "idempotency/stores/mysql.hpp"
#include "mysql/bare_mysql.hpp"
#include "support/crowd.hpp"
#include "support/mariadb_server.hpp"

namespace {

using benchmark_core::check;
using benchmark_mysql::BareMySql;
using benchmark_support::CrowdRow;
using benchmark_support::MakeWork;
using benchmark_support::Selection;
using benchmark_support::Work;
using idempotency::IdempotencyGuard;
using idempotency::MySqlOptions;
using idempotency::MySqlStore;
using idempotency::MySqlTransaction;
using idempotency::RunStatus;
using idempotency::testing_support::MariaDbServer;
using idempotency::testing_support::PlainConnection;

constexpr std::array<std::size_t, 4> crowds{1, 4, 16, 64};
constexpr std::size_t accounts = 256;  // more than threads, so that no two wait for one row
constexpr std::size_t known_keys = 10'000;
const std::string result_of_16_bytes = "0123456789abcdef";

/// In an order that has nothing to do with the table's.
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

void first_run(IdempotencyGuard<MySqlStore>& guard, const std::string& value) {
  const auto result = guard.run({.key = {"payment", value}}, [] { return result_of_16_bytes; });
  check(result.status() == RunStatus::executed, "a first run did not run");
}
void duplicate(IdempotencyGuard<MySqlStore>& guard, const std::string& value) {
  const auto result = guard.run({.key = {"payment", value}}, [] { return std::string(); });
  check(result.status() == RunStatus::replayed && result.value().size() == 16, "a replay was none");
}
void transaction(IdempotencyGuard<MySqlStore>& guard, const std::string& value,
                 std::uint64_t account) {
  const auto result =
      guard.run_in_transaction({.key = {"payment", value}}, [&](MySqlTransaction& tx) {
        tx.execute("UPDATE account SET cents = cents + 1 WHERE id = ?", account);
        return result_of_16_bytes;
      });
  check(result.status() == RunStatus::executed, "a run in a transaction did not run");
}

std::vector<std::string> defaults() {  // those of MariaDB, where the tests' server has others
  return {"--innodb-log-file-size=96M", "--innodb-buffer-pool-size=128M",
          "--innodb-flush-log-at-trx-commit=1"};
}

class Benchmark {
 public:
  explicit Benchmark(const Selection& selection)
      : selection_(selection), server_(defaults()), plain_(server_.options()) {
    const MySqlStore makes_the_table{server_.options()};
    plain_.run("CREATE TABLE " + std::string(BareMySql::table) + " LIKE idempotency_record");
    plain_.run(
        "CREATE TABLE account (id BIGINT UNSIGNED PRIMARY KEY, cents BIGINT NOT NULL) "
        "ENGINE=InnoDB");
    for (std::size_t account = 0; account < accounts; ++account)
      plain_.run("INSERT INTO account VALUES (" + std::to_string(account) + ", 0)");
    const std::string file = plain_.ask("SELECT @@pid_file");
    if (!(std::ifstream(file) >> process_)) benchmark_core::wrong("the server has no process");
  }

  void first_runs(const std::string& name) {
    if (!selection_.wants(name)) return;
    for (const std::size_t threads : crowds) {
      Ours ours(*this, threads);
      compare(
          name, threads,
          [&](std::size_t) -> Work { return [bare = bare()] { bare->first_run(new_value()); }; },
          [&](std::size_t) -> Work { return [&] { first_run(ours.guard, new_value()); }; });
    }
  }

  void duplicates(const std::string& name, BareMySql::Columns columns) {
    if (!selection_.wants(name)) return;
    for (const std::size_t threads : crowds) {
      Ours ours(*this, threads);
      remember();
      compare(
          name, threads,
          [&](std::size_t thread) -> Work {
            return [&, columns, bare = bare(), at = thread * 997]() mutable {
              check(bare->duplicate(values_[++at % known_keys], columns).size() >= 16, "a result");
            };
          },
          [&](std::size_t thread) -> Work {
            return [&, at = thread * 997]() mutable {
              duplicate(ours.guard, values_[++at % known_keys]);
            };
          });
    }
  }

  void hot_key(const std::string& name) {
    if (!selection_.wants(name)) return;
    const std::size_t threads = 16;
    Ours ours(*this, threads);
    remember();
    compare(
        name, threads,
        [&](std::size_t) -> Work {
          return [&, bare = bare()] { check(bare->select(values_[7]).size() >= 16, "a result"); };
        },
        [&](std::size_t) -> Work { return [&] { duplicate(ours.guard, values_[7]); }; },
        {.name = {}, .by_hand = {}, .ours = {}, .wanted = 0.83, .wanted_p99 = 0});
  }

  void transactions(const std::string& name, BareMySql::LookUp look_up) {
    if (!selection_.wants(name)) return;
    for (const std::size_t threads : crowds) {
      Ours ours(*this, threads);
      const std::size_t half = accounts / 2;
      compare(
          name, threads,
          [&](std::size_t) -> Work {  // the control's threads have accounts of their own, too
            const std::uint64_t account = half + (bare_accounts_++ % half);
            return [bare = bare(BareMySql::Autocommit::off), account, look_up] {
              bare->transaction(new_value(), account, look_up);
            };
          },
          [&](std::size_t thread) -> Work {
            return [&, thread] { transaction(ours.guard, new_value(), thread % half); };
          });
    }
  }

 private:
  struct Ours {
    Ours(Benchmark& benchmark, std::size_t connections)
        : store(options(benchmark, connections)), guard(store) {}
    static MySqlOptions options(Benchmark& benchmark, std::size_t connections) {
      MySqlOptions options = benchmark.server_.options();
      options.connections = connections;
      return options;
    }
    MySqlStore store;
    IdempotencyGuard<MySqlStore> guard;
  };

  [[nodiscard]] std::shared_ptr<BareMySql> bare(
      BareMySql::Autocommit autocommit = BareMySql::Autocommit::on) const {
    return std::make_shared<BareMySql>(server_.options(), autocommit);
  }

  /// Both tables know the same keys.
  void remember() {
    values_.clear();
    BareMySql bare(server_.options(), BareMySql::Autocommit::off);
    MySqlStore store{server_.options()};
    IdempotencyGuard guard{store};
    first_run(guard, value_of(0));
    for (std::uint64_t number = 0; number < known_keys; ++number) {
      values_.push_back(value_of(number));
      bare.first_run(values_.back());
    }
    bare.run("COMMIT");
    // The results as the library wrote one, and the rest as by hand.
    const std::string table(BareMySql::table);
    plain_.run("UPDATE " + table +
               " SET result = (SELECT result FROM idempotency_record LIMIT 1), mode = "
               "(SELECT mode FROM idempotency_record LIMIT 1)");
    plain_.run("TRUNCATE TABLE idempotency_record");
    plain_.run("INSERT INTO idempotency_record SELECT * FROM " + table);
  }

  void compare(const std::string& name, std::size_t threads, MakeWork by_hand, MakeWork ours,
               CrowdRow row = {
                   .name = {}, .by_hand = {}, .ours = {}, .wanted = 0.85, .wanted_p99 = 1.25}) {
    row.name = name;
    row.threads = threads;
    row.by_hand = std::move(by_hand);
    row.ours = std::move(ours);
    benchmark_support::compare(row, selection_.effort(),
                               benchmark_support::processor_time_of(process_));
    plain_.run("TRUNCATE TABLE idempotency_record");
    plain_.run("TRUNCATE TABLE " + std::string(BareMySql::table));
  }

  const Selection& selection_;
  MariaDbServer server_;
  PlainConnection plain_;
  long process_ = 0;
  std::vector<std::string> values_;
  std::atomic<std::size_t> bare_accounts_{0};
};

}  // namespace

int main(int count, char** values) {
  const Selection selection(count, values);
  Benchmark benchmark(selection);
  benchmark_support::print_crowd_heading("MySqlStore under the guard, against bare statements");
  benchmark.first_runs("first run");
  benchmark.duplicates("duplicate", BareMySql::Columns::three);
  benchmark.duplicates("duplicate, by hand with all columns", BareMySql::Columns::all);
  benchmark.hot_key("one hot key, against SELECT");
  benchmark.transactions("transaction", BareMySql::LookUp::none);
  benchmark.transactions("transaction, by hand with a look-up, too", BareMySql::LookUp::first);
  return 0;
}
