// The record and the handler's own statements in one transaction: on this database the effect happens
// exactly once, because both are committed or neither is.

#include <idempotency/idempotency.hpp>
#include <idempotency/stores/sqlite.hpp>
#include <stdexcept>
#include <string>

#include "expect.hpp"

namespace idem = idempotency;

int main() {
  idem::SqliteStore store{{.path = new_database("08_transaction_sqlite.db")}};
  idem::IdempotencyGuard guard{store};

  static_cast<void>(
      guard.run_in_transaction({.key = {"setup", "1"}}, [](idem::SqliteTransaction& tx) {
        tx.execute("CREATE TABLE account (id TEXT PRIMARY KEY, cents INTEGER NOT NULL)");
        tx.execute("INSERT INTO account VALUES ('alice', 1000), ('bob', 0)");
      }));

  const auto balance = [&](const std::string& id) {
    idem::SqliteTransaction tx = store.open_transaction();
    return tx.query("SELECT cents FROM account WHERE id = ?", id).at(0).as<int>(0);
  };
  const auto transfer = [&](const std::string& id, int cents) {
    return guard.run_in_transaction(
        {.key = {"transfer", id}, .fingerprint = idem::Fingerprint::of(id, cents)},
        [&](idem::SqliteTransaction& tx) {
          const auto taken =
              tx.execute("UPDATE account SET cents = cents - ? WHERE id = 'alice' AND cents >= ?",
                         cents, cents);
          if (taken.matched == 0) throw std::runtime_error("alice has not got that much");
          tx.execute("UPDATE account SET cents = cents + ? WHERE id = 'bob'", cents);
          return cents;
        });
  };

  expect(transfer("t-1", 300).status() == idem::RunStatus::executed, "a transfer is booked");
  expect(transfer("t-1", 300).status() == idem::RunStatus::replayed, "a repetition is answered");
  expect(balance("alice") == 700 && balance("bob") == 300, "and nothing is booked twice");

  bool refused = false;
  try {
    static_cast<void>(transfer("t-2", 5000));
  } catch (const std::runtime_error&) {
    refused = true;
  }
  expect(refused && balance("alice") == 700, "an exception rolls everything back");
  expect(!store.find({"transfer", "t-2"}), "the record too: the key is free");
}
