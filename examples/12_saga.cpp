// An order over three systems: when the last one refuses, what was done is undone; and when nobody knows what became of a payment,
// the order waits for a person. Progress is in a database, so that any process goes on where another has died.

#include <idempotency/idempotency.hpp>
#include <idempotency/patterns/saga_desk.hpp>
#include <idempotency/patterns/saga_runner.hpp>
#include <idempotency/patterns/sql_sagas.hpp>
#include <idempotency/stores/sqlite.hpp>
#include <map>
#include <string>

#include "expect.hpp"

namespace idem = idempotency;

int main() {
  idem::SqliteStore store{{.path = new_database("12_saga.db")}};
  {
    idem::SqliteTransaction tx = store.open_transaction();
    for (const std::string& statement : idem::saga_schema({}, tx.dialect()))
      tx.execute(statement);
    store.commit(tx);
  }
  idem::IdempotencyGuard guard{store};
  idem::SqlSagas<idem::SqliteStore> journal{store};

  std::map<std::string, std::string> bank;  // it recognises the keys it is given
  int reserved = 0;
  const idem::Saga order{
      "order",
      {{"reserve", [&](idem::SagaCall&) { ++reserved; }, [&](idem::SagaCall&) { --reserved; }},
       {"charge",
        [&](idem::SagaCall& call) {
          const std::string key = call.derived_key("charge");
          bank[key] = call.input();
          if (call.id() == "o-3") throw idem::OutcomeUnknown("the bank did not answer");
          return key;
        },
        [&](idem::SagaCall& call) { bank.erase(call.result<std::string>("charge")); }},
       {"ship", [&](idem::SagaCall& call) {
          if (call.id() == "o-2") throw idem::PermanentFailure("no such address");
        }}}};
  int alerts = 0;
  idem::SagaRunner orders{
      guard, journal, order, {.max_attempts = 1, .alert = [&](const idem::SagaRow&) { ++alerts; }}};

  expect(orders.run("o-1", "20 EUR").status == idem::SagaStatus::finished, "an order is shipped");
  expect(orders.run("o-1", "20 EUR").status == idem::SagaStatus::finished && reserved == 1,
         "and repeated, it is the same order");
  expect(orders.run("o-1", "99 EUR").status == idem::SagaStatus::mismatch,
         "which is not another one");

  expect(orders.run("o-2", "30 EUR").status == idem::SagaStatus::compensated,
         "an order that cannot be shipped is undone");
  expect(bank.size() == 1 && reserved == 1, "the money is back, and so is the stock");

  expect(orders.run("o-3", "40 EUR").status == idem::SagaStatus::parked && alerts == 1,
         "a payment in doubt is nobody's to guess");
  idem::SagaDesk desk{journal, "order"};
  const idem::SagaRow parked = desk.list_parked(10).at(0);
  const auto doubt = store.find(idem::saga_key(parked.name, "charge", idem::SagaPart::action));
  static_cast<void>(store.resolve(  // the bank says: it is paid
      *doubt, {.verdict = idem::Resolution::Verdict::succeeded,
               .result = idem::encode_saga_result(idem::derived_key(doubt->key, "charge")),
               .retention = std::chrono::hours{24 * 365}}));
  expect(desk.resume(parked, "ann", "the bank says it is paid") == idem::WriteOutcome::stored,
         "a person has asked the bank");
  expect(orders.work_once()->status == idem::SagaStatus::finished, "and a worker ships the order");
  expect(bank.size() == 2 && reserved == 2 && desk.history("o-3").size() == 1,
         "each effect once, and the decision is in the audit");
}
