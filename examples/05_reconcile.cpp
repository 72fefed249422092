// Settling what is uncertain: ask the system that was called what happened, and write the answer into the
// record. Here the process that ran the payments has died; payment_service/settle.cpp does the same for real.

#include <chrono>
#include <idempotency/idempotency.hpp>
#include <idempotency/stores/sqlite.hpp>
#include <map>
#include <string>

#include "expect.hpp"

namespace idem = idempotency;

/// Reference of each charge, with the charge's id.
using Bank = std::map<std::string, std::string>;

/// What a process leaves behind that dies in the middle of a payment: a record that nobody finishes.
void die_during_payment(idem::SqliteStore& store, const idem::Key& key) {
  const idem::BeginRequest request{.key = key,
                                   .owner = idem::OwnerToken::generate(),
                                   .mode = idem::RecordMode::hold,
                                   .lease = std::chrono::milliseconds{1}};
  const auto begun = std::get<idem::Acquired>(store.begin(request));
  static_cast<void>(store.doubt(key, {request.owner, begun.fence}));
}

/// Settles every payment whose outcome is not known: uncertain, or processing with nobody behind it any more. In a real
/// service: only when no charge can be on its way any more.
void settle(idem::SqliteStore& store, const Bank& bank) {
  const idem::RecordFilter payments{.type = "payment"};
  const idem::PolicyTable policies;
  std::string cursor;
  do {
    const idem::RecordPage page = store.list(payments, cursor, 100);
    for (const idem::Record& record : page.records) {
      if (!idem::is_unsettled(record, idem::system_clock().now())) continue;
      idem::Resolution resolution;
      resolution.retention = policies.find("payment").success_retention;  // as long as any payment
      const auto charge = bank.find(idem::derived_key(record.key, "charge"));
      if (charge != bank.end()) {
        resolution.verdict = idem::Resolution::Verdict::succeeded;
        resolution.result = idem::encode_result<std::string>(charge->second);
      } else {
        resolution.verdict = idem::Resolution::Verdict::retry;
      }
      // The record as it was seen: if it has changed since, this changes nothing.
      static_cast<void>(store.resolve(record, resolution));
    }
    cursor = page.cursor;
  } while (!cursor.empty());
}

int main() {
  idem::SqliteStore store{{.path = new_database("05_reconcile.db")}};
  idem::IdempotencyGuard guard{store};
  Bank bank;
  const idem::Key charged{"payment", "order-1"};
  const idem::Key not_charged{"payment", "order-2"};
  const auto pay = [&](const idem::Key& key) {
    return guard.run({.key = key}, [&](idem::Execution& execution) {
      execution.point_of_no_return();
      return bank[execution.derived_key("charge")] = "charge-new";
    });
  };

  die_during_payment(store, charged);
  die_during_payment(store, not_charged);
  bank[idem::derived_key(charged, "charge")] = "charge-old";  // the first had reached the bank
  expect(pay(charged).status() == idem::RunStatus::uncertain, "nobody knows: nobody pays again");
  expect(pay(not_charged).status() == idem::RunStatus::uncertain, "neither here");

  settle(store, bank);

  const auto first = pay(charged);
  expect(first.status() == idem::RunStatus::replayed, "the bank had charged: a success");
  expect(first.value() == "charge-old", "with the result that it should have had");
  const auto second = pay(not_charged);
  expect(second.status() == idem::RunStatus::executed,
         "the bank had not: free for the next attempt");
  expect(second.value() == "charge-new", "which charges");
  expect(bank.size() == 2, "two payments, two charges");
}
