// Money moved in MySQL or MariaDB: the record and the handler's own statements in one transaction, on a connection
// of the store's or on the application's own.
//
//   03_mysql_transfer mysql://user:password@127.0.0.1:3306/database

#include <mysql.h>

#include <cstdint>
#include <idempotency/idempotency.hpp>
#include <idempotency/stores/mysql.hpp>
#include <idempotency/stores/mysql_handle.hpp>
#include <memory>
#include <string>

#include "expect.hpp"

namespace idem = idempotency;

struct Close {
  void operator()(MYSQL* handle) const noexcept { mysql_close(handle); }
};
using OwnConnection = std::unique_ptr<MYSQL, Close>;

/// The application's own connection, as it would be without this library.
OwnConnection connect(const idem::MySqlOptions& to) {
  OwnConnection own{mysql_init(nullptr)};
  const char* socket = to.unix_socket.empty() ? nullptr : to.unix_socket.c_str();
  if (mysql_real_connect(own.get(), to.host.c_str(), to.user.c_str(), to.password.c_str(),
                         to.database.c_str(), to.port, socket, 0) == nullptr) {
    expect(false, mysql_error(own.get()));
  }
  return own;
}

void run(const OwnConnection& own, const std::string& sql) {
  if (mysql_real_query(own.get(), sql.data(), sql.size()) != 0) {
    expect(false, mysql_error(own.get()));
  }
}

int main(int count, char** values) {
  expect(count == 2, "the database's address is the one argument");
  const idem::MySqlOptions options = idem::MySqlOptions::from_address(values[1]);
  const OwnConnection own = connect(options);
  idem::MySqlStore store{options};
  idem::IdempotencyGuard guard{store};

  const std::string id = new_id();  // the database may remember earlier runs of this program
  const std::string alice = "alice-" + id;
  const std::string bob = "bob-" + id;
  run(own,  // in a transaction it would be refused: it commits
      "CREATE TABLE IF NOT EXISTS example_account "
      "(id VARCHAR(64) PRIMARY KEY, cents BIGINT NOT NULL) ENGINE=InnoDB");
  run(own, "INSERT INTO example_account VALUES ('" + alice + "', 1000), ('" + bob + "', 0)");

  const auto move = [&](idem::MySqlTransaction& tx, const std::string& to, std::int64_t cents) {
    const auto taken =
        tx.execute("UPDATE example_account SET cents = cents - ? WHERE id = ? AND cents >= ?",
                   cents, alice, cents);
    if (taken.matched == 0) throw idem::RetryableFailure("alice has not got that much");
    const auto given =
        tx.execute("UPDATE example_account SET cents = cents + ? WHERE id = ?", cents, to);
    if (given.matched == 0) throw idem::PermanentFailure("there is no such account");
    return cents;
  };
  const auto transfer = [&](const std::string& name, const std::string& to, std::int64_t cents) {
    return guard.run_in_transaction(
        {.key = {"transfer", name + '-' + id}, .fingerprint = idem::Fingerprint::of(to, cents)},
        [&](idem::MySqlTransaction& tx) { return move(tx, to, cents); });
  };
  const auto balance = [&](const std::string& account) {
    idem::MySqlTransaction tx = store.open_transaction();
    return tx.query("SELECT cents FROM example_account WHERE id = ?", account)
        .at(0)
        .as<std::int64_t>(0);
  };

  expect(transfer("t-1", bob, 300).status() == idem::RunStatus::executed, "a transfer is booked");
  expect(transfer("t-1", bob, 300).status() == idem::RunStatus::replayed,
         "a repetition is answered");
  expect(balance(alice) == 700 && balance(bob) == 300, "and nothing is booked twice");
  expect(transfer("t-1", bob, 301).status() == idem::RunStatus::mismatch,
         "another amount under the same name is refused");

  bool refused = false;
  try {
    static_cast<void>(transfer("t-2", "nobody", 100));
  } catch (const idem::PermanentFailure&) {
    refused = true;
  }
  expect(refused && balance(alice) == 700, "a permanent failure rolls back what was taken before");
  const auto again = transfer("t-2", "nobody", 100);
  expect(again.status() == idem::RunStatus::failed, "and is replayed as a failure");
  expect(again.failure() == "there is no such account", "with its reason");

  // On the application's own connection, in a transaction that it has begun itself.
  const auto join = [&] {
    run(own, "BEGIN");
    return guard.run_in_transaction({.key = {"transfer", "t-3-" + id}},
                                    idem::mysql_connection(own.get()),
                                    [&](idem::MySqlTransaction& tx) { return move(tx, bob, 50); });
  };
  expect(join().status() == idem::RunStatus::executed_pending_commit, "it joins the transaction");
  run(own, "ROLLBACK");
  expect(balance(bob) == 300, "and shares its fate: rolled back, nothing has happened");
  expect(join().status() == idem::RunStatus::executed_pending_commit, "so that it can be repeated");
  run(own, "COMMIT");
  expect(balance(bob) == 350, "and is there when it is committed");
  expect(join().status() == idem::RunStatus::replayed, "once");
  run(own, "ROLLBACK");

  run(own, "DELETE FROM example_account WHERE id IN ('" + alice + "', '" + bob + "')");
}
