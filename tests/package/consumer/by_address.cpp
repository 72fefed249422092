#include <cstdlib>
#include <idempotency/guard.hpp>
#include <idempotency/stores/open.hpp>

int main() {
  idempotency::AnyStore store = idempotency::open_store("memory:");
  idempotency::IdempotencyGuard guard{store};
  int runs = 0;
  const auto pay = [&] { return ++runs; };
  const auto first = guard.run({.key = {"payment", "order-7"}}, pay);
  const auto second = guard.run({.key = {"payment", "order-7"}}, pay);
  const bool once = runs == 1 && first.value() == 1 && second.value() == 1;
  return once ? EXIT_SUCCESS : EXIT_FAILURE;
}
