// Payments with their records in Redis: shared by every process of a service, judged by the server's clock.
//
//   02_redis redis://127.0.0.1:6379

#include <chrono>
#include <idempotency/idempotency.hpp>
#include <idempotency/stores/redis.hpp>
#include <iostream>
#include <string>
#include <string_view>

#include "expect.hpp"

namespace idem = idempotency;
using namespace std::chrono_literals;

/// Prints what in the server's set-up can lose records.
class HazardLog final : public idem::Observer {
 public:
  void on_hazard(std::string_view what) noexcept override {
    found = true;
    std::cout << "HAZARD  " << what << std::endl;
  }
  bool found = false;
};

/// Another process of the service that has begun a payment, seen from here.
idem::Ownership begin_elsewhere(idem::RedisStore& store, const idem::Key& key,
                                idem::RecordMode mode, std::chrono::milliseconds lease) {
  const idem::BeginRequest request{
      .key = key, .owner = idem::OwnerToken::generate(), .mode = mode, .lease = lease};
  return {request.owner, std::get<idem::Acquired>(store.begin(request)).fence};
}

int main(int count, char** values) {
  expect(count == 2, "the server's address is the one argument");
  HazardLog hazards;
  idem::RedisOptions options = idem::RedisOptions::from_address(values[1]);
  options.observer = &hazards;
  idem::RedisStore store{options};  // looks at the server's set-up
  if (!hazards.found) std::cout << "No hazard: this server keeps what it acknowledges\n";

  idem::IdempotencyGuard guard{store};
  int charges = 0;
  const auto pay = [&](const idem::Key& key, std::chrono::milliseconds wait = 0ms) {
    return guard.run({.key = key, .policy = {.success_retention = 1min, .wait = wait}},
                     [&](idem::Execution& execution) {
                       execution.point_of_no_return();
                       return execution.derived_key("charge") + " " + std::to_string(++charges);
                     });
  };
  const std::string run = new_id();  // the server may remember earlier runs of this program

  const idem::Key order{"payment", "order-" + run};
  const auto first = pay(order);
  expect(first.status() == idem::RunStatus::executed, "the first call charges");
  const auto second = pay(order);
  expect(second.status() == idem::RunStatus::replayed, "the second is answered from Redis");
  expect(second.value() == first.value() && charges == 1, "with the same bytes");

  const idem::Key running{"payment", "running-" + run};
  const idem::Ownership owner = begin_elsewhere(store, running, idem::RecordMode::hold, 30s);
  const auto early = pay(running);
  expect(early.status() == idem::RunStatus::in_progress, "what another process runs is not run");
  expect(early.retry_after() <= 30s, "and this is when to ask again, at the latest");
  const idem::Completion completion{.result = idem::encode_result<std::string>("charge-9"),
                                    .retention = 1min};
  static_cast<void>(store.complete(running, owner, completion));
  expect(pay(running).value() == "charge-9", "when it has ended, its result is everybody's");

  const idem::Key dead{"payment", "dead-" + run};
  begin_elsewhere(store, dead, idem::RecordMode::hold, 1ms);
  expect(pay(dead, 10s).status() == idem::RunStatus::uncertain,
         "a payment whose process died is not run again: see 05_reconcile");
  const auto seen = store.find(dead);
  const idem::Resolution not_charged{.verdict = idem::Resolution::Verdict::retry};
  expect(seen && store.resolve(*seen, not_charged) == idem::WriteOutcome::stored,
         "until somebody has asked the bank and settled it");
  expect(pay(dead).status() == idem::RunStatus::executed, "then it is");

  const idem::Key mail{"mail", "mail-" + run};  // bears a repetition: `take_over` is built in
  begin_elsewhere(store, mail, idem::RecordMode::take_over, 1ms);
  const auto taken_over = pay(mail, 10s);
  expect(taken_over.status() == idem::RunStatus::executed, "other work is taken over");
  expect(taken_over.fence() == 2, "with a higher fence, for those who want to refuse the dead one");
}
