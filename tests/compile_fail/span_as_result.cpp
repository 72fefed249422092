// EXPECT: idempotency: a handler must return a value that can be recorded, not a view, pointer, reference or awaitable.
#include <array>
#include <span>

#include "idempotency/idempotency.hpp"
#include "idempotency/stores/memory.hpp"

namespace idem = idempotency;

int main() {
  idem::MemoryStore store;
  idem::IdempotencyGuard guard{store};
  std::array<int, 2> numbers{1, 2};
  const auto result = guard.run({.key = {"payment", "1"}}, [&] { return std::span<int>{numbers}; });
  return result.has_value() ? 0 : 1;
}
