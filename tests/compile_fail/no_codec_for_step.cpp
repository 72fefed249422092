// EXPECT: idempotency: the result of a step needs a Codec
#include "idempotency/idempotency.hpp"
#include "idempotency/stores/memory.hpp"

namespace idem = idempotency;

struct Receipt {
  int cents = 0;
};

int main() {
  idem::MemoryStore store;
  idem::IdempotencyGuard guard{store};
  const auto result = guard.run({.key = {"payment", "1"}}, [](idem::Execution& execution) {
    return execution.step("charge", [] { return Receipt{250}; }).cents;
  });
  return result.has_value() ? 0 : 1;
}
