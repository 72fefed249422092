// Two cashiers change one account: a version tells who was late, and a retry reads again. Around it the guard, so that a
// payment whose answer was lost is repeated and booked once.

#include <idempotency/idempotency.hpp>
#include <idempotency/patterns/optimistic.hpp>
#include <idempotency/patterns/retry.hpp>
#include <idempotency/stores/sqlite.hpp>
#include <string>
#include <thread>
#include <vector>

#include "expect.hpp"

namespace idem = idempotency;

int main() {
  idem::SqliteStore store{{.path = new_database("14_versions_and_retries.db")}};
  idem::IdempotencyGuard guard{store};
  static_cast<void>(
      guard.run_in_transaction({.key = {"setup", "1"}}, [](idem::SqliteTransaction& tx) {
        tx.execute("CREATE TABLE account (id TEXT PRIMARY KEY, cents INT, version INT NOT NULL)");
        tx.execute("INSERT INTO account VALUES ('alice', 0, 1)");
      }));
  const idem::VersionedTable accounts{{.table = "account"}};

  const auto read = [&] {
    idem::SqliteTransaction tx = store.open_transaction();
    const idem::SqlRows rows = tx.query("SELECT cents, version FROM account");
    store.commit(tx);
    return rows;
  };
  const auto write = [&](std::uint64_t seen, int cents) {
    idem::SqliteTransaction tx = store.open_transaction();
    const idem::UpdateResult result = accounts.update(tx, "alice", seen, "cents = ?", cents);
    store.commit(tx);
    return result;
  };

  // Whoever writes what was read before somebody else has written is told so.
  const auto seen = read().at(0).as<std::uint64_t>("version");
  expect(write(seen, 10).status == idem::UpdateStatus::updated, "the first cashier books");
  expect(write(seen, 20).status == idem::UpdateStatus::conflict, "the second was late");

  // Reading again each time, nobody's cent is lost.
  const auto add_a_cent = [&] {
    const idem::SqlRows rows = read();
    return write(rows.at(0).as<std::uint64_t>("version"), rows.at(0).as<int>("cents") + 1);
  };
  std::vector<std::jthread> cashiers;
  for (int cashier = 0; cashier < 2; ++cashier) {
    cashiers.emplace_back([&] {
      for (int time = 0; time < 20; ++time)
        static_cast<void>(idem::retry_on_conflict({.attempts = 1'000}, add_a_cent));
    });
  }
  cashiers.clear();
  expect(read().at(0).as<int>("cents") == 10 + 40, "forty cents from two cashiers");

  // A call that is repeated, here for a client that lost the answer, gets the recorded result and books nothing.
  int booked = 0;
  const idem::Operation payment{.key = {"order", new_id()}};
  const auto pay = [&] { return ++booked; };
  const auto first = idem::run_with_retries({.attempts = 5}, guard, payment, pay);
  const auto again = idem::run_with_retries({.attempts = 5}, guard, payment, pay);
  expect(first.status() == idem::RunStatus::executed, "it is booked");
  expect(again.status() == idem::RunStatus::replayed && booked == 1, "and not a second time");
}
