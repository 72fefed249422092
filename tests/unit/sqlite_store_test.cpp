#include "idempotency/stores/sqlite.hpp"

#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include <barrier>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "sqlite/sqlite_result.hpp"
#include "sqlite/sqlite_schema.hpp"
#include "support/error_of.hpp"
#include "support/sqlite_faults.hpp"
#include "support/sqlite_file.hpp"

namespace idempotency {
namespace {

using namespace std::chrono_literals;
using testing_support::code_of;
using testing_support::error_of;
using testing_support::PlainConnection;
using testing_support::request;
using testing_support::SqliteFaults;
using testing_support::StandingClock;
using testing_support::TemporaryFolder;
using testing_support::time_of;
using testing_support::token;

constexpr std::uint64_t first_fence = 1;

class SqliteStoreTest : public testing::Test {
 protected:
  SqliteOptions options() {
    return {.path = path, .busy_timeout = 2s, .vfs = SqliteFaults::name, .clock = &clock};
  }
  /// Runs one operation to its end.
  static void run(SqliteStore& store, const std::string& value, const std::string& result = "r",
                  std::uint8_t owner = 1) {
    ASSERT_EQ(store.begin(request(value, owner)), BeginOutcome(Acquired{}));
    ASSERT_EQ(store.complete(Key("payment", value), {token(owner), first_fence}, {result, 1h}),
              WriteOutcome::stored);
  }
  static void run_begin(SqliteStore& store, const std::string& value) {
    ASSERT_EQ(store.begin(request(value, 1)), BeginOutcome(Acquired{}));
  }
  static std::optional<std::string> replayed(SqliteStore& store, const std::string& value) {
    const BeginOutcome outcome = store.begin(request(value, 99));
    const auto* completed = std::get_if<Completed>(&outcome);
    return completed == nullptr ? std::nullopt : completed->result;
  }

  SqliteFaults& faults = SqliteFaults::fresh();
  TemporaryFolder folder;
  std::string path = folder.file("store.db");
  StandingClock clock;
};

TEST_F(SqliteStoreTest, KeepsResultsAsBytesAcrossAReopening) {
  const std::string large(1U << 20U, '\xA5');
  const std::map<std::string, std::string> results{
      {"empty", ""}, {"zeros", std::string(3, '\0')}, {"large", large}, {"text", "charge-1"}};
  {
    SqliteStore store{options()};
    for (const auto& [value, result] : results)
      run(store, value, result);
  }

  SqliteStore store{options()};

  for (const auto& [value, result] : results)
    EXPECT_EQ(replayed(store, value), result) << value;
}

TEST_F(SqliteStoreTest, OpensFromAnAddress) {
  SqliteStore store{"sqlite:" + path};

  EXPECT_EQ(store.begin(request("a", 1)), BeginOutcome(Acquired{}));
  EXPECT_TRUE(std::filesystem::exists(path));
}

TEST_F(SqliteStoreTest, RefusesOptionsThatCannotWork) {
  EXPECT_EQ(code_of([] { SqliteStore store{{}}; }), Errc::invalid_argument);
  EXPECT_EQ(code_of([] { SqliteStore store{{.path = ":memory:"}}; }), Errc::invalid_argument);
  EXPECT_EQ(code_of([] { SqliteStore store{{.path = "file:x.db"}}; }), Errc::invalid_argument);
  EXPECT_EQ(code_of([] { SqliteStore store{"mysql://host"}; }), Errc::invalid_argument);
  EXPECT_EQ(code_of([] { SqliteStore store{"sqlite://host/x.db"}; }), Errc::invalid_argument);
  EXPECT_EQ(code_of([&] { SqliteStore store{{.path = path, .connections = 0}}; }),
            Errc::invalid_argument);
  EXPECT_EQ(code_of([&] { SqliteStore store{{.path = path, .table_prefix = "a\"b"}}; }),
            Errc::invalid_argument);
  EXPECT_EQ(code_of([&] { SqliteStore store{{.path = path, .max_batch = 0}}; }),
            Errc::invalid_argument);
  EXPECT_EQ(code_of([&] { SqliteStore store{{.path = path, .busy_timeout = 0ms}}; }),
            Errc::invalid_argument);
}

TEST_F(SqliteStoreTest, SaysThatAFileCannotBeOpenedWithoutNamingItInTheMessage) {
  const std::string secret = folder.file("no-such-folder/secret.db");

  const Error error = error_of([&] { SqliteStore store{{.path = secret}}; });

  EXPECT_EQ(error.code(), Errc::store_unavailable);
  EXPECT_EQ(std::string(error.what()).find("secret"), std::string::npos);
  EXPECT_NE(error.detail().find("unable to open"), std::string::npos);
}

TEST_F(SqliteStoreTest, RefusesAFileThatIsNoDatabase) {
  std::ofstream(path) << std::string(8192, 'x');

  EXPECT_EQ(code_of([&] { SqliteStore store{options()}; }), Errc::store_refused);
}

// --- flushes ---

TEST_F(SqliteStoreTest, FlushesTwiceForAFirstRunAndNeverForADuplicate) {
  SqliteStore store{options()};
  run(store, "warm-up");
  faults.log_flushes = 0;
  faults.database_flushes = 0;

  run(store, "a");
  const int first_run = faults.log_flushes.exchange(0);
  const auto result = replayed(store, "a");
  const int duplicate = faults.log_flushes.exchange(0);

  EXPECT_EQ(first_run, 2);
  EXPECT_EQ(result, "r");
  EXPECT_EQ(duplicate, 0);
  EXPECT_EQ(faults.database_flushes, 0);
}

TEST_F(SqliteStoreTest, FlushesNotAtAllUnderNormalDurability) {
  SqliteOptions normal = options();
  normal.durability = SqliteDurability::normal;
  SqliteStore store{normal};
  run(store, "warm-up");
  faults.log_flushes = 0;

  run(store, "a");

  EXPECT_EQ(faults.log_flushes, 0);
}

TEST_F(SqliteStoreTest, SharesCommitsBetweenThreads) {
  constexpr int threads = 16;
  constexpr int runs = 20;
  SqliteStore store{options()};
  run(store, "warm-up");
  faults.log_flushes = 0;

  {
    std::barrier start(threads);
    std::vector<std::jthread> running;
    for (int thread = 0; thread < threads; ++thread) {
      running.emplace_back([&, thread] {
        start.arrive_and_wait();
        for (int index = 0; index < runs; ++index) {
          run(store, std::to_string(thread) + "-" + std::to_string(index));
        }
      });
    }
  }

  EXPECT_EQ(store.statistics().success, threads * runs + 1U);
  EXPECT_LT(faults.log_flushes, threads * runs * 2 / 2);
}

struct HazardObserver final : Observer {
  void on_hazard(std::string_view what) noexcept override { hazards.emplace_back(what); }
  void on_store_error(const Key&, StoreCall call, const Error& error,
                      std::uint32_t) noexcept override {
    errors.emplace_back(call, error.code());
  }
  void on_resolved(const Key&, std::string_view verdict) noexcept override {
    verdicts.emplace_back(verdict);
  }

  std::vector<std::string> hazards;
  std::vector<std::pair<StoreCall, Errc>> errors;
  std::vector<std::string> verdicts;
};

TEST_F(SqliteStoreTest, ReportsThatNormalDurabilityMayLoseRecords) {
  HazardObserver full;
  HazardObserver normal;
  SqliteOptions options_of_full = options();
  options_of_full.observer = &full;
  SqliteOptions options_of_normal = options();
  options_of_normal.durability = SqliteDurability::normal;
  options_of_normal.observer = &normal;

  SqliteStore first{options_of_full};
  SqliteStore second{options_of_normal};

  EXPECT_TRUE(full.hazards.empty());
  ASSERT_EQ(normal.hazards.size(), 1U);
  EXPECT_NE(normal.hazards.front().find("power failure"), std::string::npos);
}

// --- schema ---

TEST_F(SqliteStoreTest, CreatesTheTablesThatTheSchemaFileShows) {
  const std::filesystem::path file = std::filesystem::path(IDEMPOTENCY_SQLITE_SCHEMA);
  std::ifstream stream(file);
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  const std::string shown = "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name";

  SqliteStore store{options()};
  PlainConnection by_store(path);
  PlainConnection by_file(folder.file("by_file.db"));
  by_file.run(text);

  EXPECT_EQ(detail::sqlite::current_schema().create("idempotency_"), text);
  EXPECT_EQ(by_store.column(shown), by_file.column(shown));
}

// ID-28: a table of the application's with the name of the store's is not taken for it.
TEST_F(SqliteStoreTest, RefusesATableThatTheApplicationMade) {
  PlainConnection application(path);
  application.run("CREATE TABLE shop_record (id INTEGER PRIMARY KEY, value TEXT)");
  application.run("INSERT INTO shop_record VALUES (1, 'mine')");
  SqliteOptions colliding = options();
  colliding.table_prefix = "shop_";

  const Error error = error_of([&] { SqliteStore store{colliding}; });

  EXPECT_EQ(error.code(), Errc::store_refused);
  EXPECT_NE(std::string(error.what()).find("made by others"), std::string::npos);
  EXPECT_EQ(application.ask("SELECT value FROM shop_record"), "mine");
  EXPECT_EQ(application.ask("SELECT count(*) FROM sqlite_schema"), "1");
}

// ID-28
TEST_F(SqliteStoreTest, NamesTheColumnInWhichTheTableDiffers) {
  { SqliteStore store{options()}; }
  PlainConnection application(path);
  const auto error_after = [&](const std::string& sql) {
    application.run(sql);
    return std::string(error_of([&] { SqliteStore store{options()}; }).what());
  };

  const std::string extra = error_after("ALTER TABLE idempotency_record ADD COLUMN extra TEXT");
  const std::string missing = error_after("ALTER TABLE idempotency_record RENAME fence TO fences");
  application.run("DROP TABLE idempotency_record");
  const std::string dropped = error_after("SELECT 1");
  const std::string other_type =
      error_after("CREATE TABLE idempotency_record (type TEXT NOT NULL, value TEXT NOT NULL)");

  EXPECT_NE(extra.find("does not know"), std::string::npos) << extra;
  EXPECT_NE(missing.find("'fence'"), std::string::npos) << missing;
  EXPECT_NE(dropped.find("missing"), std::string::npos) << dropped;
  EXPECT_NE(other_type.find("'type'"), std::string::npos) << other_type;
}

TEST_F(SqliteStoreTest, RefusesANewerVersion) {
  { SqliteStore store{options()}; }
  PlainConnection(path).run("UPDATE idempotency_schema SET version = 9");

  const Error error = error_of([&] { SqliteStore store{options()}; });

  EXPECT_EQ(error.code(), Errc::store_refused);
  EXPECT_NE(std::string(error.what()).find("version 9"), std::string::npos);
}

/// What a later version could ask for: one more column, by a migration.
detail::sqlite::SchemaPlan later_plan(std::string migration) {
  detail::sqlite::SchemaPlan plan = detail::sqlite::current_schema();
  plan.columns.push_back({"region", "TEXT"});
  plan.migrations.push_back({plan.version, [migration](std::string_view) { return migration; }});
  ++plan.version;
  return plan;
}

TEST_F(SqliteStoreTest, MigratesAnOlderFileAndKeepsItsRecords) {
  {
    SqliteStore store{options()};
    run(store, "kept");
  }
  const auto plan =
      later_plan("ALTER TABLE idempotency_record ADD COLUMN region TEXT NOT NULL DEFAULT ''");
  {
    detail::sqlite::Connection connection(options(), detail::sqlite::Purpose::writing);
    prepare_schema(connection, plan, "idempotency_");
    prepare_schema(connection, plan, "idempotency_");
  }

  PlainConnection after(path);

  EXPECT_EQ(after.ask("SELECT version FROM idempotency_schema"), "2");
  EXPECT_EQ(after.ask("SELECT CAST(value AS TEXT) || region FROM idempotency_record"), "kept");
  EXPECT_EQ(code_of([&] { SqliteStore older{options()}; }), Errc::store_refused);
}

TEST_F(SqliteStoreTest, LeavesTheOlderVersionWholeWhenAMigrationFails) {
  {
    SqliteStore store{options()};
    run(store, "kept");
  }
  {
    detail::sqlite::Connection connection(options(), detail::sqlite::Purpose::writing);
    const auto broken =
        later_plan("DELETE FROM idempotency_record; ALTER TABLE no_such_table ADD x");
    const auto incomplete = later_plan("SELECT 1");

    EXPECT_EQ(code_of([&] { prepare_schema(connection, broken, "idempotency_"); }),
              Errc::store_refused);
    EXPECT_EQ(code_of([&] { prepare_schema(connection, incomplete, "idempotency_"); }),
              Errc::store_refused);
  }

  SqliteStore store{options()};

  EXPECT_EQ(replayed(store, "kept"), "r");
}

TEST_F(SqliteStoreTest, LeavesTheApplicationsFileAsItIs) {
  PlainConnection application(path);
  application.run("PRAGMA user_version = 42; PRAGMA application_id = 7; CREATE TABLE mine (x)");

  SqliteStore store{options()};
  run(store, "a");

  EXPECT_EQ(application.ask("PRAGMA user_version"), "42");
  EXPECT_EQ(application.ask("PRAGMA application_id"), "7");
  EXPECT_EQ(application.ask("SELECT count(*) FROM mine"), "0");
}

TEST_F(SqliteStoreTest, WorksInADatabaseOfAnotherTextEncoding) {
  PlainConnection(path).run("PRAGMA encoding = 'UTF-16le'; CREATE TABLE mine (x)");

  SqliteStore store{options()};
  run(store, "caf\xC3\xA9 \xFF", "bytes \xFF");

  EXPECT_EQ(replayed(store, "caf\xC3\xA9 \xFF"), "bytes \xFF");
  EXPECT_EQ(store.list({}, "", 10).records.at(0).key, Key("payment", "caf\xC3\xA9 \xFF"));
}

// SL-05: no part of the key can be NULL.
TEST_F(SqliteStoreTest, HoldsNoNullInAKey) {
  SqliteStore store{options()};
  PlainConnection plain(path);
  const std::string rest = "1, 1, 0, x'00', 1, 1, x'', 0, 0, NULL, NULL, 0, x'', x'', NULL)";

  const int without_type =
      plain.try_run("INSERT INTO idempotency_record VALUES (NULL, x'61', " + rest);
  const int without_value =
      plain.try_run("INSERT INTO idempotency_record VALUES ('payment', NULL, " + rest);
  const int with_text =
      plain.try_run("INSERT INTO idempotency_record VALUES ('a', 'text', " + rest);

  EXPECT_EQ(without_type, SQLITE_CONSTRAINT);
  EXPECT_EQ(without_value, SQLITE_CONSTRAINT);
  EXPECT_EQ(with_text, SQLITE_CONSTRAINT);
}

// --- result codes ---

// ID-32: errors are of the same classes as every other store's.
TEST(SqliteResult, EveryCodeHasItsClass) {
  using detail::sqlite::errc_of;
  using detail::sqlite::Stage;
  const std::map<int, Errc> expected{
      {SQLITE_ERROR, Errc::store_refused},
      {SQLITE_INTERNAL, Errc::store_refused},
      {SQLITE_PERM, Errc::store_refused},
      {SQLITE_ABORT, Errc::store_busy},
      {SQLITE_BUSY, Errc::store_busy},
      {SQLITE_LOCKED, Errc::store_busy},
      {SQLITE_NOMEM, Errc::store_busy},
      {SQLITE_READONLY, Errc::store_refused},
      {SQLITE_INTERRUPT, Errc::store_busy},
      {SQLITE_IOERR, Errc::store_unavailable},
      {SQLITE_CORRUPT, Errc::store_corrupt},
      {SQLITE_NOTFOUND, Errc::store_refused},
      {SQLITE_FULL, Errc::store_full},
      {SQLITE_CANTOPEN, Errc::store_unavailable},
      {SQLITE_PROTOCOL, Errc::store_busy},
      {SQLITE_EMPTY, Errc::store_refused},
      {SQLITE_SCHEMA, Errc::store_busy},
      {SQLITE_TOOBIG, Errc::too_large},
      {SQLITE_CONSTRAINT, Errc::store_refused},
      {SQLITE_MISMATCH, Errc::store_refused},
      {SQLITE_MISUSE, Errc::store_refused},
      {SQLITE_NOLFS, Errc::store_refused},
      {SQLITE_AUTH, Errc::store_refused},
      {SQLITE_FORMAT, Errc::store_refused},
      {SQLITE_RANGE, Errc::store_refused},
      {SQLITE_NOTADB, Errc::store_refused},
      {SQLITE_NOTICE, Errc::store_refused},
      {SQLITE_WARNING, Errc::store_refused},
      {SQLITE_BUSY_RECOVERY, Errc::store_busy},
      {SQLITE_BUSY_SNAPSHOT, Errc::transaction_lost},
      {SQLITE_BUSY_TIMEOUT, Errc::store_busy},
      {SQLITE_ABORT_ROLLBACK, Errc::transaction_lost},
      {SQLITE_IOERR_FSYNC, Errc::store_unavailable},
      {SQLITE_CORRUPT_INDEX, Errc::store_corrupt},
      {SQLITE_READONLY_DBMOVED, Errc::store_refused},
      {SQLITE_CANTOPEN_ISDIR, Errc::store_unavailable},
  };
  const std::set<int> rolled_back{SQLITE_BUSY, SQLITE_LOCKED, SQLITE_CONSTRAINT, SQLITE_FULL};

  for (const auto& [code, errc] : expected) {
    EXPECT_EQ(errc_of(code, Stage::statement), errc) << code;
    EXPECT_EQ(errc_of(code, Stage::open), errc) << code;
    const bool known = rolled_back.contains(code & 0xff);
    EXPECT_EQ(effect_possible(errc_of(code, Stage::commit)), !known) << code;
    EXPECT_FALSE(effect_possible(errc_of(code, Stage::handler))) << code;
  }
  EXPECT_EQ(errc_of(SQLITE_IOERR_FSYNC, Stage::commit), Errc::commit_unknown);
  EXPECT_EQ(errc_of(SQLITE_CONSTRAINT_FOREIGNKEY, Stage::commit), Errc::statement_failed);
  EXPECT_EQ(errc_of(SQLITE_CONSTRAINT_UNIQUE, Stage::handler), Errc::statement_failed);
  EXPECT_EQ(errc_of(SQLITE_BUSY_SNAPSHOT, Stage::handler), Errc::transaction_lost);
}

// --- failing disks ---

TEST_F(SqliteStoreTest, TellsNobodyStoredWhenTheCommitFails) {
  SqliteStore store{options()};
  ASSERT_EQ(store.begin(request("a", 1)), BeginOutcome(Acquired{}));
  const Ownership owner{token(1), first_fence};
  faults.failing_log_flushes = 1;

  const Error error = error_of([&] {
    static_cast<void>(store.complete(Key("payment", "a"), owner, {"r", 1h}));
  });
  const auto between = store.find(Key("payment", "a"));
  const WriteOutcome repeated = store.complete(Key("payment", "a"), owner, {"r", 1h});

  EXPECT_EQ(error.code(), Errc::store_reply_lost);
  EXPECT_TRUE(error.effect_possible());
  EXPECT_TRUE(error.safe_to_retry());
  ASSERT_TRUE(between);
  EXPECT_EQ(between->state, RecordState::processing);
  EXPECT_EQ(repeated, WriteOutcome::stored);
  EXPECT_EQ(replayed(store, "a"), "r");
}

/// What a machine finds that lost power now: copies of the file and its log.
std::string crashed_copy(const TemporaryFolder& folder, const std::string& path) {
  const std::string copy = folder.file("crashed.db");
  using std::filesystem::copy_options;
  std::filesystem::copy_file(path, copy, copy_options::overwrite_existing);
  std::filesystem::copy_file(path + "-wal", copy + "-wal", copy_options::overwrite_existing);
  return copy;
}

TEST_F(SqliteStoreTest, AFailedCommitCannotComeBackAfterItWasSettled) {
  SqliteStore store{options()};
  run(store, "warm-up");
  faults.failing_log_flushes = 1;
  ASSERT_EQ(code_of([&] { static_cast<void>(store.begin(request("a", 1))); }),
            Errc::store_reply_lost);
  {
    SqliteStore crashed{{.path = crashed_copy(folder, path), .clock = &clock}};
    EXPECT_TRUE(crashed.find(Key("payment", "a")))
        << "the log does not hold what this test is about";
  }

  {
    SqliteTransaction transaction = store.open_transaction();
    EXPECT_FALSE(store.find(transaction, Key("payment", "a")));
  }
  SqliteStore crashed{{.path = crashed_copy(folder, path), .clock = &clock}};

  EXPECT_FALSE(crashed.find(Key("payment", "a")));
  EXPECT_TRUE(crashed.find(Key("payment", "warm-up")));
}

TEST_F(SqliteStoreTest, SaysThatTheDiskIsFullAndWroteNothing) {
  SqliteStore store{options()};
  run(store, "warm-up");
  faults.log_write_result = SQLITE_FULL;

  const Error error = error_of([&] { static_cast<void>(store.begin(request("a", 1))); });
  faults.log_write_result = SQLITE_OK;

  EXPECT_EQ(error.code(), Errc::store_full);
  EXPECT_FALSE(store.find(Key("payment", "a")));
  EXPECT_EQ(store.begin(request("a", 1)), BeginOutcome(Acquired{}));
}

TEST_F(SqliteStoreTest, ReplaysWhileTheDiskRefusesWrites) {
  SqliteStore store{options()};
  run(store, "a");
  faults.log_write_result = SQLITE_IOERR_WRITE;

  EXPECT_EQ(replayed(store, "a"), "r");
}

TEST_F(SqliteStoreTest, ReleaseReportsInsteadOfThrowing) {
  HazardObserver observer;
  SqliteOptions watched = options();
  watched.observer = &observer;
  SqliteStore store{watched};
  ASSERT_EQ(store.begin(request("a", 1)), BeginOutcome(Acquired{}));
  faults.log_write_result = SQLITE_IOERR_WRITE;

  const ReleaseOutcome outcome = store.release(Key("payment", "a"), {token(1), first_fence}, 1h);

  EXPECT_EQ(outcome, ReleaseOutcome::unknown);
  ASSERT_EQ(observer.errors.size(), 1U);
  EXPECT_EQ(observer.errors.front(), std::pair(StoreCall::release, Errc::store_reply_lost));
}

TEST_F(SqliteStoreTest, ARecordThatCannotBeReadIsAnErrorAndNotAFirstRun) {
  SqliteStore store{options()};
  run(store, "a");
  PlainConnection(path).run("UPDATE idempotency_record SET owner = x'00'");

  EXPECT_EQ(code_of([&] { static_cast<void>(store.begin(request("a", 2))); }), Errc::store_corrupt);
  EXPECT_EQ(code_of([&] { static_cast<void>(store.renew(Key("payment", "a"), {}, 1s)); }),
            Errc::store_corrupt);
  EXPECT_EQ(store.begin(request("b", 2)), BeginOutcome(Acquired{}));
}

// --- locks ---

// SL-01: a lock of another process's is waited for, and a wait that is too long is an error of its
// own.
TEST_F(SqliteStoreTest, WaitsForAnothersLockUntilItsTimeOut) {
  SqliteOptions impatient = options();
  impatient.busy_timeout = 100ms;
  SqliteStore store{impatient};
  run(store, "done");
  PlainConnection other(path);
  other.run("BEGIN IMMEDIATE");

  Errc code{};
  const auto waited =
      time_of([&] { code = code_of([&] { static_cast<void>(store.begin(request("a", 1))); }); });
  const auto duplicate = replayed(store, "done");
  other.run("COMMIT");

  EXPECT_EQ(code, Errc::store_busy);
  EXPECT_GE(waited, 95ms);
  EXPECT_EQ(duplicate, "r");
  EXPECT_EQ(store.begin(request("a", 1)), BeginOutcome(Acquired{}));
}

// SL-01
TEST_F(SqliteStoreTest, GoesOnWhenAnothersLockEnds) {
  SqliteStore store{options()};
  PlainConnection other(path);
  other.run("BEGIN IMMEDIATE");
  BeginOutcome outcome = InProgress{};

  std::jthread waiting([&] { outcome = store.begin(request("a", 1)); });
  other.run("COMMIT");
  waiting.join();

  EXPECT_EQ(outcome, BeginOutcome(Acquired{}));
}

// --- clock ---

// LK-14: every time in the file is the store's clock's, and leases end by it alone.
TEST_F(SqliteStoreTest, JudgesAndStoresTimesOfItsClockOnly) {
  SqliteStore store{options()};
  ASSERT_EQ(store.begin(request("a", 1)), BeginOutcome(Acquired{}));
  const Timestamp begun = clock.now();

  clock.advance(29'999ms);
  const BeginOutcome before = store.begin(request("a", 2));
  clock.advance(1ms);
  const BeginOutcome after = store.begin(request("a", 2));
  const auto record = store.find(Key("payment", "a"));

  EXPECT_EQ(before, BeginOutcome(InProgress{1ms}));
  EXPECT_EQ(after, BeginOutcome(Acquired{2, 2}));
  ASSERT_TRUE(record);
  EXPECT_EQ(record->created_at, begun);
  EXPECT_EQ(record->updated_at, begun + 30s);
  EXPECT_EQ(record->lease_until, begun + 60s);
}

// ID-01: a lease without a deadline is never taken over.
TEST_F(SqliteStoreTest, NeverTakesOverALeaseWithoutADeadline) {
  SqliteStore store{options()};
  ASSERT_EQ(store.begin(request("a", 1)), BeginOutcome(Acquired{}));
  PlainConnection(path).run("UPDATE idempotency_record SET lease_until = NULL");
  clock.advance(std::chrono::hours{24 * 365});

  EXPECT_TRUE(std::holds_alternative<InProgress>(store.begin(request("a", 2))));
}

TEST_F(SqliteStoreTest, ALeaseRunOutUnderHoldBecomesUncertainAndStaysSo) {
  SqliteStore store{options()};
  ASSERT_EQ(store.begin(request("a", 1, RecordMode::hold)), BeginOutcome(Acquired{}));
  clock.advance(31s);
  const Timestamp found = clock.now();

  const BeginOutcome first = store.begin(request("a", 2));
  clock.advance(1h);
  const BeginOutcome second = store.begin(request("a", 3));

  EXPECT_EQ(first, BeginOutcome(Uncertain{first_fence, found}));
  EXPECT_EQ(second, first);
  EXPECT_EQ(store.list({.state = RecordState::uncertain}, "", 10).records.size(), 1U);
}

// --- operators ---

TEST_F(SqliteStoreTest, ListsInPagesByTypeStateAndAge) {
  SqliteStore store{options()};
  for (int index = 0; index < 5; ++index)
    run(store, "done-" + std::to_string(index));
  clock.advance(1min);
  ASSERT_EQ(store.begin(request("running", 1)), BeginOutcome(Acquired{}));

  std::vector<std::string> paged;
  std::string cursor;
  do {
    const RecordPage page = store.list({}, cursor, 2);
    for (const Record& record : page.records)
      paged.emplace_back(record.key.value());
    cursor = page.cursor;
  } while (!cursor.empty());

  EXPECT_EQ(paged, (std::vector<std::string>{"done-0", "done-1", "done-2", "done-3", "done-4",
                                             "running"}));
  EXPECT_EQ(store.list({.state = RecordState::processing}, "", 10).records.size(), 1U);
  EXPECT_EQ(store.list({.unchanged_for = 30s}, "", 10).records.size(), 5U);
  EXPECT_EQ(store.list({.type = "order"}, "", 10).records.size(), 0U);
  EXPECT_EQ(code_of([&] { static_cast<void>(store.list({}, "not a cursor", 1)); }),
            Errc::invalid_argument);
}

TEST_F(SqliteStoreTest, FindsUncertainRecordsThroughTheirOwnIndex) {
  SqliteStore store{options()};
  PlainConnection plain(path);

  sqlite3_stmt* statement = nullptr;
  ASSERT_EQ(sqlite3_prepare_v2(plain.handle(),
                               "EXPLAIN QUERY PLAN SELECT type, value, result FROM "
                               "idempotency_record WHERE (type, value) > ('', x'') AND state = 4 "
                               "ORDER BY type, value LIMIT 10",
                               -1, &statement, nullptr),
            SQLITE_OK);
  ASSERT_EQ(sqlite3_step(statement), SQLITE_ROW);
  const std::string detail = reinterpret_cast<const char*>(sqlite3_column_text(statement, 3));
  sqlite3_finalize(statement);

  EXPECT_NE(detail.find("idempotency_uncertain"), std::string::npos) << detail;
}

TEST_F(SqliteStoreTest, PurgesWhatIsPastItsRetentionAndNothingElse) {
  SqliteStore store{options()};
  for (int index = 0; index < 7; ++index)
    run(store, "old-" + std::to_string(index));
  ASSERT_EQ(store.begin(request("running", 1)), BeginOutcome(Acquired{}));
  clock.advance(1h);
  run(store, "fresh");

  const std::size_t first = store.purge(3);
  const std::size_t second = store.purge(100);
  const std::size_t third = store.purge(100);

  EXPECT_EQ(first, 3U);
  EXPECT_EQ(second, 4U);
  EXPECT_EQ(third, 0U);
  EXPECT_EQ(PlainConnection(path).ask("SELECT count(*) FROM idempotency_record"), "2");
  EXPECT_EQ(store.statistics().success, 1U);
  EXPECT_EQ(store.statistics().processing, 1U);
  EXPECT_GT(store.statistics().bytes, 0U);
}

TEST_F(SqliteStoreTest, PurgeReachesWhatLiesBeforeThePlaceWhereItStopped) {
  SqliteStore store{options()};
  for (const char* value : {"m-1", "m-2", "m-3"})
    run(store, value);
  clock.advance(1h);
  ASSERT_EQ(store.purge(2), 2U);
  run(store, "a-1");
  clock.advance(1h);

  EXPECT_EQ(store.purge(100), 2U);
}

TEST_F(SqliteStoreTest, RefusesTheKeyOfAOneTimeTokenThatWasIssued) {
  SqliteStore store{options()};
  run_begin(store, "a");
  PlainConnection(path).run("UPDATE idempotency_record SET state = 5, lease_until = NULL");

  EXPECT_EQ(code_of([&] { static_cast<void>(store.begin(request("a", 2))); }), Errc::store_refused);
  SqliteTransaction transaction = store.open_transaction();
  EXPECT_EQ(code_of([&] { static_cast<void>(store.begin(transaction, request("a", 2))); }),
            Errc::store_refused);
  store.rollback(transaction);

  EXPECT_EQ(store.find(Key("payment", "a"))->state, RecordState::issued);
}

TEST_F(SqliteStoreTest, ResolvesTheRecordThatWasSeenAndTellsTheObserverOnce) {
  HazardObserver observer;
  SqliteOptions watched = options();
  watched.observer = &observer;
  SqliteStore store{watched};
  const Key key("payment", "a");
  ASSERT_EQ(store.begin(request("a", 1, RecordMode::hold)), BeginOutcome(Acquired{}));
  ASSERT_EQ(store.doubt(key, {token(1), first_fence}), WriteOutcome::stored);
  const Resolution resolution{
      .verdict = Resolution::Verdict::succeeded, .result = "found", .resolver = token(9)};

  const Record seen = *store.find(key);
  Record at_another_fence = seen;
  at_another_fence.ownership.fence = 7;

  const WriteOutcome late = store.resolve(at_another_fence, resolution);
  const WriteOutcome settled = store.resolve(seen, resolution);
  const WriteOutcome repeated = store.resolve(seen, resolution);

  EXPECT_EQ(late, WriteOutcome::lost);
  EXPECT_EQ(settled, WriteOutcome::stored);
  EXPECT_EQ(repeated, WriteOutcome::stored);
  EXPECT_EQ(replayed(store, "a"), "found");
  EXPECT_EQ(observer.verdicts, std::vector<std::string>{"succeeded"});
}

TEST_F(SqliteStoreTest, RenewsManyLeasesInOneCommit) {
  SqliteStore store{options()};
  std::vector<Renewal> renewals;
  for (int index = 0; index < 20; ++index) {
    const std::string value = std::to_string(index);
    if (index != 7) run_begin(store, value);
    renewals.push_back({Key("payment", value), {token(1), first_fence}, 1min});
  }
  faults.log_flushes = 0;

  const std::vector<WriteOutcome> outcomes = store.renew_many(renewals);

  EXPECT_EQ(faults.log_flushes, 1);
  ASSERT_EQ(outcomes.size(), renewals.size());
  for (std::size_t index = 0; index < outcomes.size(); ++index) {
    EXPECT_EQ(outcomes[index], index == 7 ? WriteOutcome::lost : WriteOutcome::stored) << index;
  }
  EXPECT_EQ(store.find(Key("payment", "3"))->lease_until, clock.now() + 1min);
}

// --- fork ---

/// The number that `body` returns in a child.
template <class Body>
int in_child(Body body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

template <class Fn>
bool refused_after_fork(Fn fn) {
  try {
    fn();
  } catch (const Error& error) {
    return error.code() == Errc::used_after_fork;
  }
  return false;
}

// SL-07: a store that was opened before a fork is refused in the child, and the parent's file stays
// whole.
TEST_F(SqliteStoreTest, RefusesEveryCallInTheChildOfAFork) {
  auto store = std::make_unique<SqliteStore>(options());
  run(*store, "a");
  const Key key("payment", "a");

  const int failures = in_child([&] {
    int count = 0;
    count += !refused_after_fork([&] { static_cast<void>(store->begin(request("a", 2))); });
    count += !refused_after_fork([&] { static_cast<void>(store->complete(key, {}, {})); });
    count += !refused_after_fork([&] { static_cast<void>(store->find(key)); });
    count += !refused_after_fork([&] { static_cast<void>(store->list({}, "", 1)); });
    count += !refused_after_fork([&] { static_cast<void>(store->purge(1)); });
    count += !refused_after_fork([&] { static_cast<void>(store->open_transaction()); });
    count += !refused_after_fork([&] { SqliteStore another{options()}; });
    count += store->release(key, {}, 1s) != ReleaseOutcome::unknown;
    store.reset();
    return count;
  });
  run(*store, "b");

  EXPECT_EQ(failures, 0);
  EXPECT_EQ(PlainConnection(path).ask("PRAGMA integrity_check"), "ok");
  EXPECT_EQ(replayed(*store, "a"), "r");
}

// SL-07: also while a transaction is open.
TEST_F(SqliteStoreTest, ATransactionIsTheParentsAfterAFork) {
  SqliteStore store{options()};
  SqliteTransaction transaction = store.open_transaction();
  transaction.execute("CREATE TABLE ledger (cents INTEGER)");

  const int failures = in_child([&] {
    int count = 0;
    count += !refused_after_fork([&] { transaction.execute("INSERT INTO ledger VALUES (1)"); });
    count += !refused_after_fork([&] { store.commit(transaction); });
    store.rollback(transaction);
    return count;
  });
  transaction.execute("INSERT INTO ledger VALUES (2)");
  store.commit(transaction);

  EXPECT_EQ(failures, 0);
  EXPECT_EQ(PlainConnection(path).ask("SELECT sum(cents) FROM ledger"), "2");
  EXPECT_EQ(PlainConnection(path).ask("PRAGMA integrity_check"), "ok");
}

// SL-07
TEST_F(SqliteStoreTest, AChildMayOpenAFileThatTheParentHadClosed) {
  {
    SqliteStore store{options()};
    run(store, "a");
  }

  const int failures = in_child([&] {
    SqliteStore store{options()};
    return replayed(store, "a") == "r" ? 0 : 1;
  });

  EXPECT_EQ(failures, 0);
}

}  // namespace
}  // namespace idempotency
