// EXPECT: idempotency: the guard borrows its store
#include "idempotency/idempotency.hpp"
#include "idempotency/stores/memory.hpp"

namespace idem = idempotency;

int main() {
  idem::IdempotencyGuard guard{idem::MemoryStore{}};
  const auto result = guard.run({.key = {"payment", "1"}}, [] { return 1; });
  return result.has_value() ? 0 : 1;
}
