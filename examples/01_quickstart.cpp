// A handler that takes effect once for each key, however often it is asked for.

#include <idempotency/idempotency.hpp>
#include <idempotency/stores/memory.hpp>
#include <string>

#include "expect.hpp"

namespace idem = idempotency;

int main() {
  idem::MemoryStore store;
  idem::IdempotencyGuard guard{store};
  int charges = 0;
  const auto charge = [&] { return "receipt " + std::to_string(++charges); };

  const auto first = guard.run({.key = {"payment", "order-7"}}, charge);
  const auto second = guard.run({.key = {"payment", "order-7"}}, charge);
  const auto other = guard.run({.key = {"payment", "order-8"}}, charge);

  expect(first.status() == idem::RunStatus::executed, "the first call runs the handler");
  expect(second.status() == idem::RunStatus::replayed, "the second gets the recorded result");
  expect(second.value() == first.value(), "which is the same");
  expect(other.value() == "receipt 2", "another key is another operation");
  expect(charges == 2, "two keys, two charges");
}
