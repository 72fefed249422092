#include <string>
#include <vector>

#include "idempotency/idempotency.hpp"
#include "idempotency/stores/memory.hpp"

namespace idem = idempotency;

int main() {
  idem::MemoryStore store;
  idem::IdempotencyGuard guard{store};
  const auto text = guard.run({.key = {"payment", "1"}}, [] { return std::string{"receipt"}; });
  const auto numbers = guard.run({.key = {"payment", "2"}}, [](idem::Execution& execution) {
    return execution.step("collect", [] { return std::vector<int>{1, 2}; });
  });
  const auto nothing = guard.run({.key = {"payment", "3"}}, [] {});
  return text.has_value() && numbers.has_value() && nothing.has_value() ? 0 : 1;
}
