// EXPECT: idempotency: a handler must return a value that can be recorded, not a view, pointer, reference or awaitable.
#include <string_view>

#include "idempotency/idempotency.hpp"
#include "idempotency/stores/memory.hpp"

namespace idem = idempotency;

int main() {
  idem::MemoryStore store;
  idem::IdempotencyGuard guard{store};
  const auto result =
      guard.run({.key = {"payment", "1"}}, [] { return std::string_view{"receipt"}; });
  return result.has_value() ? 0 : 1;
}
