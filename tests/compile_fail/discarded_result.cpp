// FLAGS: -Werror=unused-result
// EXPECT: idempotency: look at status(), or call value(), which throws where there is none.
#include "idempotency/idempotency.hpp"
#include "idempotency/stores/memory.hpp"

namespace idem = idempotency;

int main() {
  idem::MemoryStore store;
  idem::IdempotencyGuard guard{store};
  guard.run({.key = {"payment", "1"}}, [] { return 1; });
}
