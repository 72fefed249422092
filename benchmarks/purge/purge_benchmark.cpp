// How fast a purger removes what is past its retention from a large table, and what those who claim records meanwhile
// feel of it. On a MariaDB of its own, or in a SQLite file, both in a temporary folder ($TMPDIR).
//
//   idempotency_benchmark_purge [ROWS=1000000] [mariadb|sqlite] [BATCH=1000]
//
// Every other record is past its retention. Four threads run new operations all the time: ten seconds without a purger, and
// then for as long as it takes; then the next pass, which finds nothing.

#include <sqlite3.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <idempotency/idempotency.hpp>
#include <idempotency/operations/purger.hpp>
#include <idempotency/stores/mysql.hpp>
#include <idempotency/stores/sqlite.hpp>
#include <iostream>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "support/mariadb_server.hpp"
#include "support/temporary_directory.hpp"

namespace {

namespace idem = idempotency;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::duration<double, std::milli>;

constexpr std::uint64_t rows_a_statement = 200'000;
constexpr std::size_t callers = 4;

/// What a record of the table holds; both databases understand it. `{n}` is its number, `{now}` the time.
const std::string columns =
    "state, mode, effect_marked, retryability, owner, fence, attempt, fingerprint, created_at, "
    "updated_at, lease_until, expires_at, reason, trace, result";

/// How long the claims of some threads take.
class Claims {
 public:
  template <class StoreT>
  Claims(StoreT& store, std::uint64_t rows) {
    for (std::size_t number = 0; number < callers; ++number) {
      threads_.emplace_back([this, &store, rows, number](const std::stop_token& stop) {
        idem::IdempotencyGuard guard{store};
        std::uint64_t random = 0x9e3779b97f4a7c15ULL * (number + 1);
        while (!stop.stop_requested()) {
          random = random * 6364136223846793005ULL + 1442695040888963407ULL;
          char value[40];
          std::snprintf(value, sizeof value, "%010llu-%08x",
                        static_cast<unsigned long long>((random >> 20U) % rows + 1),
                        static_cast<unsigned>(random >> 40U));
          const auto start = Clock::now();
          try {
            static_cast<void>(
                guard.run({.key = {"payment", std::string(value)}}, [] { return 1; }));
          } catch (const idem::Error& error) {
            const std::scoped_lock lock(mutex_);
            if (errors_++ == 0) std::cerr << error.what() << ": " << error.detail() << '\n';
          }
          const std::scoped_lock lock(mutex_);
          took_.push_back(Milliseconds(Clock::now() - start).count());
        }
      });
    }
  }
  /// Prints what was measured since the last call.
  void print(const char* when, Clock::duration span) {
    std::vector<double> took;
    std::uint64_t errors = 0;
    {
      const std::scoped_lock lock(mutex_);
      took.swap(took_);
      std::swap(errors, errors_);
    }
    if (took.empty()) return;
    std::sort(took.begin(), took.end());
    const auto at = [&](double part) {
      return took[static_cast<std::size_t>(part * static_cast<double>(took.size() - 1))];
    };
    std::printf(
        "  runs %-22s %8.0f/s   p50 %7.2f ms   p99 %7.2f ms   longest %8.1f ms   errors %llu\n",
        when, static_cast<double>(took.size()) / std::chrono::duration<double>(span).count(),
        at(0.5), at(0.99), took.back(), static_cast<unsigned long long>(errors));
    std::fflush(stdout);
  }

 private:
  std::mutex mutex_;
  std::vector<double> took_;
  std::uint64_t errors_ = 0;
  std::vector<std::jthread> threads_;  // last: they end first
};

template <class StoreT>
void measure(StoreT& store, std::uint64_t rows, std::size_t batch) {
  Claims claims(store, rows);
  auto start = Clock::now();
  std::this_thread::sleep_for(10s);  // what is measured, not waited for
  claims.print("without a purger:", Clock::now() - start);

  idem::PurgerOptions options;
  options.batch = batch;
  auto told = Clock::now();
  options.on_batch = [&](const idem::PurgeReport& report) {
    if (Clock::now() - told < 30s) return;
    told = Clock::now();
    std::printf("    %llu removed after %.0f s\n", static_cast<unsigned long long>(report.removed),
                static_cast<double>(report.took.count()) / 1000);
    std::fflush(stdout);
  };
  idem::Purger purger{store, options};
  start = Clock::now();
  const idem::PurgeReport report = purger.run_once();
  claims.print("while it removes:", Clock::now() - start);
  std::printf("  removed %llu records in %.1f s: %.0f/s, longest batch %lld ms, failures %llu\n",
              static_cast<unsigned long long>(report.removed),
              static_cast<double>(report.took.count()) / 1000,
              static_cast<double>(report.removed) * 1000 / static_cast<double>(report.took.count()),
              static_cast<long long>(report.longest_batch.count()),
              static_cast<unsigned long long>(report.failures));

  start = Clock::now();
  const idem::PurgeReport nothing = purger.run_once();
  claims.print("while it finds none:", Clock::now() - start);
  std::printf("  the next pass: %llu removed in %.1f s\n",
              static_cast<unsigned long long>(nothing.removed),
              static_cast<double>(nothing.took.count()) / 1000);
}

void fill(std::uint64_t rows, const std::function<void(std::uint64_t, std::uint64_t)>& insert) {
  const auto start = Clock::now();
  for (std::uint64_t first = 1; first <= rows; first += rows_a_statement)
    insert(first, std::min(rows, first + rows_a_statement - 1));
  std::printf("  %llu records written in %.0f s\n", static_cast<unsigned long long>(rows),
              std::chrono::duration<double>(Clock::now() - start).count());
  std::fflush(stdout);
}

/// Successes with 64 bytes of result, every other one past its retention.
std::string values_of(const std::string& number, const std::string& now) {
  return "2, 2, 0, 0, x'00112233445566778899aabbccddeeff', 1, 1, x'', " + now + " - 3000000, " +
         now + " - 2000000, NULL, " + now + " + CASE " + number +
         " % 2 WHEN 0 THEN -1000000 ELSE 2592000000 END, x'', x'', "
         "x'00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
         "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff'";
}

void measure_mariadb(std::uint64_t rows, std::size_t batch) {
  idempotency::testing_support::MariaDbServer server(
      {"--innodb-buffer-pool-size=512M", "--loose-innodb-log-file-size=256M"});
  idem::MySqlStore store{server.options()};
  static_cast<void>(store.find({"payment", "none"}));  // makes the table
  idempotency::testing_support::PlainConnection connection(server.options());
  connection.run("SET SESSION sql_mode = '', innodb_lock_wait_timeout = 100");
  const std::string now = "CAST(UNIX_TIMESTAMP() * 1000 AS SIGNED)";
  fill(rows, [&](std::uint64_t first, std::uint64_t last) {
    connection.run("INSERT INTO idempotency_record (business_type, value, " + columns +
                   ") SELECT 'payment', LPAD(seq, 10, '0'), " + values_of("seq", now) +
                   " FROM seq_" + std::to_string(first) + "_to_" + std::to_string(last));
  });
  measure(store, rows, batch);
}

void measure_sqlite(std::uint64_t rows, std::size_t batch) {
  const idempotency::testing_support::TemporaryDirectory folder;
  const std::string path = folder.file("records.db");
  idem::SqliteStore store{{.path = path}};
  sqlite3* connection = nullptr;
  if (sqlite3_open(path.c_str(), &connection) != SQLITE_OK) throw std::runtime_error("cannot open");
  const std::string now = "CAST(strftime('%s', 'now') AS INTEGER) * 1000";
  fill(rows, [&](std::uint64_t first, std::uint64_t last) {
    const std::string sql = "WITH RECURSIVE n(seq) AS (SELECT " + std::to_string(first) +
                            " UNION ALL SELECT seq + 1 FROM n WHERE seq < " + std::to_string(last) +
                            ") INSERT INTO idempotency_record (type, value, " + columns +
                            ") SELECT 'payment', CAST(printf('%010d', seq) AS BLOB), " +
                            values_of("seq", now) + " FROM n";
    if (sqlite3_exec(connection, sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) {
      throw std::runtime_error(sqlite3_errmsg(connection));
    }
  });
  sqlite3_close(connection);
  measure(store, rows, batch);
}

}  // namespace

int main(int count, char** values) {
  try {
    const std::uint64_t rows = count > 1 ? std::stoull(values[1]) : 1'000'000;
    const std::string kind = count > 2 ? values[2] : "mariadb";
    const std::size_t batch = count > 3 ? std::stoul(values[3]) : 1'000;
    if (kind != "mariadb" && kind != "sqlite") throw std::invalid_argument("mariadb or sqlite");
    std::cout << "purge, " << kind << ", " << rows << " records, batches of " << batch << std::endl;
    kind == "mariadb" ? measure_mariadb(rows, batch) : measure_sqlite(rows, batch);
    return 0;
  } catch (const std::exception& problem) {
    std::cerr << "purge: " << problem.what() << '\n';
    return 1;
  }
}
