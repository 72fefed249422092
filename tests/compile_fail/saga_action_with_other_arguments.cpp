// EXPECT: idempotency: an action must be callable with SagaCall&.
#include "idempotency/patterns/saga.hpp"

namespace idem = idempotency;

int main() {
  const idem::SagaStep step("charge", [](int cents) { return cents; });
  return step.has_compensation() ? 1 : 0;
}
