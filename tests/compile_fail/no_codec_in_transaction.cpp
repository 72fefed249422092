// EXPECT: idempotency: the handler's result needs a Codec
#include "idempotency/idempotency.hpp"
#include "idempotency/stores/sqlite.hpp"

namespace idem = idempotency;

struct Receipt {
  int cents = 0;
};

int main() {
  idem::SqliteStore store{{.path = "shop.db"}};
  idem::IdempotencyGuard guard{store};
  const auto result =
      guard.run_in_transaction({.key = {"payment", "1"}}, [] { return Receipt{250}; });
  return result.has_value() ? result.value().cents : 1;
}
