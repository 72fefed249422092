// Policies from a file: what is not said keeps its built-in value, and a mistake is refused with its place.
//
//   06_policy_file 06_policies.json

#include <chrono>
#include <idempotency/idempotency.hpp>
#include <idempotency/stores/memory.hpp>
#include <iostream>
#include <string>

#include "expect.hpp"

namespace idem = idempotency;
using namespace std::chrono_literals;

int main(int count, char** values) {
  expect(count == 2, "the policy file is the one argument");
  const idem::PolicyTable policies = idem::PolicyTable::from_json_file(values[1]);

  const idem::Policy& payment = policies.find("payment");
  expect(payment.lease == 20s && payment.wait == 2s, "what the file says");
  expect(payment.on_expired_lease == idem::RecordMode::hold, "what is built in for payments");
  expect(payment.success_retention == 24h * 30, "and is kept for 30 days");
  expect(policies.find("mail").success_retention == 6h, "every other type");

  idem::MemoryStore store;
  idem::IdempotencyGuard guard{store, {.policies = policies}};
  const auto result = guard.run({.key = {"stock", "item-1"}}, [] { return 41; });
  expect(result.value() == 41, "a guard that uses them");

  std::string reason;
  std::string place;
  try {
    static_cast<void>(idem::PolicyTable::from_json("{\n  \"payment\": {\"leese\": \"20s\"}\n}"));
  } catch (const idem::Error& error) {
    reason = error.what();
    place = error.detail();
  }
  std::cout << "        " << reason << " (" << place << ")\n";
  expect(!reason.empty() && !place.empty(), "a misspelt name is refused");
}
