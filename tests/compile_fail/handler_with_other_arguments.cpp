// EXPECT: idempotency: the handler must be callable without arguments
#include "idempotency/idempotency.hpp"
#include "idempotency/stores/memory.hpp"

namespace idem = idempotency;

int main() {
  idem::MemoryStore store;
  idem::IdempotencyGuard guard{store};
  const auto result = guard.run({.key = {"payment", "1"}}, [](int amount) { return amount; });
  return result.has_value() ? 0 : 1;
}
