// A branch of a TCC transaction: money is reserved, then booked or given back, whatever order the coordinator's calls
// arrive in and however often.

#include <idempotency/idempotency.hpp>
#include <idempotency/patterns/tcc_barrier.hpp>
#include <idempotency/stores/sqlite.hpp>

#include "expect.hpp"

namespace idem = idempotency;

int main() {
  idem::SqliteStore store{{.path = new_database("10_tcc_transfer.db")}};
  const idem::TccBarrier barrier;
  {
    idem::SqliteTransaction tx = store.open_transaction();
    tx.execute(idem::tcc_barrier_schema("tcc_barrier", tx.dialect()));
    tx.execute("CREATE TABLE account (free INTEGER NOT NULL, reserved INTEGER NOT NULL)");
    tx.execute("INSERT INTO account VALUES (100, 0)");
    store.commit(tx);
  }
  const auto reserve = [&](const char* transfer) {
    return barrier.call(store, {transfer, "debit"}, idem::TccCall::try_branch, [](auto& tx) {
      tx.execute("UPDATE account SET free = free - 10, reserved = reserved + 10");
    });
  };
  const auto book = [&](const char* transfer) {
    return barrier.call(store, {transfer, "debit"}, idem::TccCall::confirm, [](auto& tx) {
      tx.execute("UPDATE account SET reserved = reserved - 10");
    });
  };
  const auto give_back = [&](const char* transfer) {
    return barrier.call(store, {transfer, "debit"}, idem::TccCall::cancel, [](auto& tx) {
      tx.execute("UPDATE account SET free = free + 10, reserved = reserved - 10");
    });
  };
  const auto account_is = [&](int free, int reserved) {
    idem::SqliteTransaction tx = store.open_transaction();
    return tx.query("SELECT 1 FROM account WHERE free = ? AND reserved = ?", free, reserved)
               .size() == 1;
  };

  expect(reserve("t-1") == idem::TccStatus::done, "ten are reserved");
  expect(reserve("t-1") == idem::TccStatus::repeated && account_is(90, 10), "and only ten");
  expect(book("t-1") == idem::TccStatus::done && account_is(90, 0), "they are booked");
  expect(book("t-1") == idem::TccStatus::repeated && account_is(90, 0), "once");
  expect(give_back("t-1") == idem::TccStatus::refused_confirmed, "what is booked stays booked");

  expect(give_back("t-2") == idem::TccStatus::empty, "a cancel that overtakes its try succeeds");
  expect(reserve("t-2") == idem::TccStatus::refused_cancelled && account_is(90, 0),
         "and the late try reserves nothing");
  expect(book("t-3") == idem::TccStatus::refused_not_tried, "nothing is booked that was not tried");
}
