// EXPECT: idempotency: a handler must return a value that can be recorded, not a view, pointer, reference or awaitable.
#include "idempotency/idempotency.hpp"
#include "idempotency/stores/memory.hpp"

namespace idem = idempotency;

struct Task {
  bool await_ready() const { return true; }
  int await_resume() const { return 1; }
};

int main() {
  idem::MemoryStore store;
  idem::IdempotencyGuard guard{store};
  const auto result = guard.run({.key = {"payment", "1"}}, [] { return Task{}; });
  return result.has_value() ? 0 : 1;
}
