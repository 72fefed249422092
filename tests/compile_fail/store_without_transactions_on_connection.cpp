// EXPECT: idempotency: run_in_transaction needs a TransactionalStore
#include "idempotency/idempotency.hpp"
#include "idempotency/stores/memory.hpp"

namespace idem = idempotency;

int main() {
  idem::MemoryStore store;
  idem::IdempotencyGuard guard{store};
  int connection = 0;
  const auto result =
      guard.run_in_transaction({.key = {"payment", "1"}}, &connection, [] { return 1; });
  return result.has_value() ? 0 : 1;
}
