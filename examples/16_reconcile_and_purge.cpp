// Two jobs beside a service: one settles payments whose outcome is not known by asking the bank, one removes records that
// are past their retention. Here the process that ran the payments has died.

#include <chrono>
#include <idempotency/idempotency.hpp>
#include <idempotency/operations/purger.hpp>
#include <idempotency/operations/reconciler.hpp>
#include <idempotency/stores/sqlite.hpp>
#include <iostream>
#include <map>
#include <string>

#include "expect.hpp"

namespace idem = idempotency;
using namespace std::chrono_literals;

/// What a process leaves behind that dies in the middle of a payment.
void die_during_payment(idem::SqliteStore& store, const idem::Key& key) {
  const idem::BeginRequest request{
      .key = key, .owner = idem::OwnerToken::generate(), .mode = idem::RecordMode::hold};
  const auto begun = std::get<idem::Acquired>(store.begin(request));
  static_cast<void>(store.doubt(key, {request.owner, begun.fence}));
}

int main() {
  idem::SqliteStore store{{.path = new_database("16_reconcile_and_purge.db")}};
  idem::IdempotencyGuard guard{store};
  std::map<std::string, std::string> bank;  // reference of each charge, with its id
  const auto pay = [&](const std::string& order) {
    return guard.run({.key = {"payment", order}}, [&](idem::Execution& execution) {
      execution.point_of_no_return();
      return bank[execution.derived_key("charge")] = "charge-new";
    });
  };

  const idem::Key charged{"payment", "order-1"};
  die_during_payment(store, charged);
  die_during_payment(store, {"payment", "order-2"});
  bank[idem::derived_key(charged, "charge")] = "charge-old";  // the first had reached the bank

  idem::Reconciler reconciler{
      store,
      [&](const idem::Record& record) {
        const auto charge = bank.find(idem::derived_key(record.key, "charge"));
        return charge == bank.end() ? idem::Finding::retry()
                                    : idem::Finding::succeeded(charge->second);
      },
      {.types = {"payment"}, .margin = 50ms}};

  const idem::ReconcileReport first = reconciler.run_once();
  expect(first.succeeded == 1,
         "the bank had charged: a success, with the result it should have had");
  expect(first.too_early == 1,
         "the bank knows nothing of the other, but a request may be on its way");
  while (store.statistics().uncertain != 0)  // a service calls run(stop_token) on a thread
    static_cast<void>(reconciler.run_once());

  expect(pay("order-1").value() == "charge-old", "a replay");
  expect(pay("order-2").status() == idem::RunStatus::executed, "free for the next attempt");
  expect(bank.size() == 2, "two payments, two charges");

  for (int number = 0; number < 100; ++number) {
    static_cast<void>(
        guard.run({.key = {"click", std::to_string(number)}, .policy = {.success_retention = 1ms}},
                  [] { return 1; }));
  }
  idem::Purger purger{store,
                      {.batch = 25, .pause = 1ms}};  // run(stop_token) does so every few minutes
  std::uint64_t removed = 0;
  while (removed < 100)  // the last one is past its retention within a millisecond
    removed += purger.run_once().removed;
  expect(store.find(charged).has_value(), "what is still within its retention stays");
}
