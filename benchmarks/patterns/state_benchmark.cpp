#include <mysql.h>
#include <sqlite3.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "idempotency/patterns/sql_states.hpp"
#include "idempotency/stores/mysql.hpp"
#include "idempotency/stores/sqlite.hpp"
#include "patterns/patterns_benchmark.hpp"
#include "support/mariadb_server.hpp"
#include "support/temporary_directory.hpp"

namespace benchmark_patterns {

using benchmark_core::check;
using benchmark_support::Work;
using idempotency::MySqlOptions;
using idempotency::MySqlStore;
using idempotency::SqliteStore;
using idempotency::SqlStates;
using idempotency::StateKind;
using idempotency::StateMachine;
using idempotency::TransitionStatus;
using idempotency::testing_support::MariaDbServer;
using idempotency::testing_support::TemporaryDirectory;

namespace {

enum class Lamp { off, on };
constexpr StateMachine<Lamp> lamp_machine({{Lamp::off, "off", StateKind::initial},
                                           {Lamp::on, "on"}},
                                          {{Lamp::off, Lamp::on},
                                           {Lamp::on, Lamp::off, "switched off again"}});

constexpr int moves_in_a_transaction = 256;
constexpr std::string_view update = "UPDATE lamp SET state = ? WHERE id = ? AND state = ?";

/// There and back again.
class Switch {
 public:
  struct Move {
    Lamp from;
    Lamp to;
  };
  Move next() noexcept {
    const Move move = is_on_ ? Move{Lamp::on, Lamp::off} : Move{Lamp::off, Lamp::on};
    is_on_ = !is_on_;
    return move;
  }

 private:
  bool is_on_ = false;
};

/// One row that is moved by a prepared statement, in transactions of `moves_in_a_transaction`.
class BareSqlite {
 public:
  explicit BareSqlite(const std::string& path) {
    sqlite3* database = nullptr;
    check(sqlite3_open(path.c_str(), &database) == SQLITE_OK, "a bare file");
    database_.reset(database);
    run("PRAGMA journal_mode=WAL");
    run("CREATE TABLE IF NOT EXISTS lamp (id INTEGER PRIMARY KEY, state TEXT NOT NULL)");
    run("INSERT OR IGNORE INTO lamp VALUES (7, 'off')");
    sqlite3_stmt* statement = nullptr;
    check(sqlite3_prepare_v3(database, update.data(), static_cast<int>(update.size()),
                             SQLITE_PREPARE_PERSISTENT, &statement, nullptr) == SQLITE_OK,
          "a bare statement");
    statement_.reset(statement);
  }
  void move() {
    if (moves_++ % moves_in_a_transaction == 0) {
      if (moves_ != 1) run("COMMIT");
      run("BEGIN IMMEDIATE");
    }
    const Switch::Move move = switch_.next();
    bind(1, lamp_machine.name_of(move.to));
    sqlite3_bind_int64(statement_.get(), 2, 7);
    bind(3, lamp_machine.name_of(move.from));
    check(sqlite3_step(statement_.get()) == SQLITE_DONE && sqlite3_changes(database_.get()) == 1,
          "a bare move");
    sqlite3_reset(statement_.get());
  }

 private:
  struct Close {
    void operator()(sqlite3* database) const noexcept { sqlite3_close(database); }
    void operator()(sqlite3_stmt* statement) const noexcept { sqlite3_finalize(statement); }
  };
  void run(const char* sql) {
    check(sqlite3_exec(database_.get(), sql, nullptr, nullptr, nullptr) == SQLITE_OK, sql);
  }
  void bind(int at, std::string_view text) {
    sqlite3_bind_text(statement_.get(), at, text.data(), static_cast<int>(text.size()),
                      SQLITE_STATIC);
  }

  std::unique_ptr<sqlite3, Close> database_;
  std::unique_ptr<sqlite3_stmt, Close> statement_;
  Switch switch_;
  long moves_ = 0;
};

class BareMySqlRow {
 public:
  BareMySqlRow(const MySqlOptions& options, int id) : handle_(mysql_init(nullptr)), id_(id) {
    const unsigned protocol = MYSQL_PROTOCOL_TCP;
    mysql_options(handle_.get(), MYSQL_OPT_PROTOCOL, &protocol);
    check(mysql_real_connect(handle_.get(), options.host.c_str(), options.user.c_str(),
                             options.password.c_str(), options.database.c_str(), options.port,
                             nullptr, 0) != nullptr,
          "a bare connection");
    run("CREATE TABLE IF NOT EXISTS lamp (id INT PRIMARY KEY, state VARBINARY(8) NOT NULL) "
        "ENGINE = InnoDB");
    statement_.reset(mysql_stmt_init(handle_.get()));
    check(mysql_stmt_prepare(statement_.get(), update.data(), update.size()) == 0,
          "a bare statement");
  }
  void run(const std::string& sql) {
    check(mysql_real_query(handle_.get(), sql.data(), sql.size()) == 0, mysql_error(handle_.get()));
  }
  void move() {
    if (moves_++ % moves_in_a_transaction == 0) {
      if (moves_ != 1) run("COMMIT");
      run("BEGIN");
    }
    const Switch::Move move = switch_.next();
    std::array<MYSQL_BIND, 3> parameters{};
    bind(parameters[0], lamp_machine.name_of(move.to));
    parameters[1].buffer_type = MYSQL_TYPE_LONG;
    parameters[1].buffer = &id_;
    bind(parameters[2], lamp_machine.name_of(move.from));
    check(mysql_stmt_bind_param(statement_.get(), parameters.data()) == 0 &&
              mysql_stmt_execute(statement_.get()) == 0 &&
              mysql_stmt_affected_rows(statement_.get()) == 1,
          "a bare move");
  }

 private:
  struct Close {
    void operator()(MYSQL* handle) const noexcept { mysql_close(handle); }
    void operator()(MYSQL_STMT* statement) const noexcept { mysql_stmt_close(statement); }
  };
  static void bind(MYSQL_BIND& to, std::string_view text) {
    to.buffer_type = MYSQL_TYPE_STRING;
    to.buffer = const_cast<char*>(text.data());
    to.buffer_length = text.size();
    to.length = &to.buffer_length;
  }

  std::unique_ptr<MYSQL, Close> handle_;
  std::unique_ptr<MYSQL_STMT, Close> statement_;
  int id_;
  Switch switch_;
  long moves_ = 0;
};

/// The same through a store's transactions and the state machine.
template <class StoreT>
class Ours {
 public:
  Ours(StoreT& store, int id) : store_(&store), id_(id) {}
  Ours(const Ours&) = delete;
  Ours& operator=(const Ours&) = delete;
  ~Ours() {
    if (transaction_) store_->rollback(*transaction_);
  }
  void move() {
    if (moves_++ % moves_in_a_transaction == 0) {
      if (transaction_) store_->commit(*transaction_);
      transaction_.reset();
      transaction_.emplace(store_->open_transaction(idempotency::TransactionOptions{}));
    }
    const Switch::Move move = switch_.next();
    check(states_.transition(*transaction_, id_, move.from, move.to).status() ==
              TransitionStatus::moved,
          "a move");
  }

 private:
  StoreT* store_;
  int id_;
  SqlStates<Lamp> states_{lamp_machine, {.table = "lamp"}};
  std::optional<typename StoreT::Transaction> transaction_;
  Switch switch_;
  long moves_ = 0;
};

benchmark_support::CrowdRow row_of(const std::string& name, benchmark_support::MakeWork by_hand,
                                   benchmark_support::MakeWork ours) {
  return {.name = name,
          .threads = 1,
          .by_hand = std::move(by_hand),
          .ours = std::move(ours),
          .wanted = 0,
          .wanted_p99 = 0};
}

void measure_sqlite(const benchmark_support::Selection& selection, const std::string& name) {
  TemporaryDirectory folder;
  std::size_t files = 0;
  const auto new_path = [&] { return folder.file(std::to_string(++files) + ".db"); };
  const std::string our_path = new_path();
  static_cast<void>(BareSqlite(our_path));
  SqliteStore store{{.path = our_path}};
  benchmark_support::compare(
      row_of(
          name,
          [&](std::size_t) -> Work {
            return [bare = std::make_shared<BareSqlite>(new_path())] { bare->move(); };
          },
          [&](std::size_t) -> Work {
            return [ours = std::make_shared<Ours<SqliteStore>>(store, 7)] { ours->move(); };
          }),
      selection.effort(), benchmark_support::processor_time_of(::getpid()));
}

void measure_mariadb(const benchmark_support::Selection& selection, const std::string& name) {
  const MySqlOptions options = MariaDbServer::shared().options();
  BareMySqlRow plain(options, 0);
  MySqlStore store{options};
  int rows = 0;
  const auto new_row = [&] {
    plain.run("INSERT INTO lamp VALUES (" + std::to_string(++rows) + ", 'off')");
    return rows;
  };
  benchmark_support::compare(
      row_of(
          name,
          [&](std::size_t) -> Work {
            return [bare = std::make_shared<BareMySqlRow>(options, new_row())] { bare->move(); };
          },
          [&](std::size_t) -> Work {
            return [ours = std::make_shared<Ours<MySqlStore>>(store, new_row())] { ours->move(); };
          }),
      selection.effort(), [] { return 0.0; });
}

}  // namespace

void measure_states(const benchmark_support::Selection& selection) {
  const std::string in_sqlite = "move in a transaction of SQLite's";
  const std::string in_mariadb = "move in a transaction of MariaDB's";
  if (selection.wants(in_sqlite)) measure_sqlite(selection, in_sqlite);
  if (selection.wants(in_mariadb)) measure_mariadb(selection, in_mariadb);
}

}  // namespace benchmark_patterns
