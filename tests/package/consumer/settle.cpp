// Settling and purging from an installed library.

#include <idempotency/idempotency.hpp>
#include <idempotency/operations/purger.hpp>
#include <idempotency/operations/reconciler.hpp>
#include <idempotency/stores/memory.hpp>

namespace idem = idempotency;

int main() {
  idem::MemoryStore store;
  const idem::BeginRequest request{.key = {"payment", "1"},
                                   .owner = idem::OwnerToken::generate(),
                                   .mode = idem::RecordMode::hold};
  const auto begun = std::get<idem::Acquired>(store.begin(request));
  static_cast<void>(store.doubt(request.key, {request.owner, begun.fence}));

  idem::Reconciler reconciler{store,
                              [](const idem::Record&) { return idem::Finding::succeeded(42); }};
  const bool settled = reconciler.run_once().succeeded == 1;

  idem::IdempotencyGuard guard{store};
  const bool replayed = guard.run({.key = request.key}, [] { return 1; }).value() == 42;
  return settled && replayed && !idem::Purger{store}.run_once().ended_early ? 0 : 1;
}
