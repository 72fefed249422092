// EXPECT: idempotency: the handler's result needs a Codec
#include "idempotency/idempotency.hpp"
#include "idempotency/stores/memory.hpp"

namespace idem = idempotency;

struct Receipt {
  int cents = 0;
};

int main() {
  idem::MemoryStore store;
  idem::IdempotencyGuard guard{store};
  const auto result = guard.run({.key = {"payment", "1"}}, [] { return Receipt{250}; });
  return result.has_value() ? result.value().cents : 1;
}
