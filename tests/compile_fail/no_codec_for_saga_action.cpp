// EXPECT: idempotency: the result of an action needs a Codec
#include "idempotency/patterns/saga.hpp"

namespace idem = idempotency;

struct Receipt {
  int cents = 0;
};

int main() {
  const idem::SagaStep step("charge", [](idem::SagaCall&) { return Receipt{250}; });
  return step.has_compensation() ? 1 : 0;
}
