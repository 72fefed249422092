// EXPECT: idempotency: the guard needs a Store: a class with begin, complete, fail, doubt
#include <chrono>
#include <optional>

#include "idempotency/idempotency.hpp"

namespace idem = idempotency;

/// Everything but `renew`.
class ForgetfulStore {
 public:
  idem::BeginOutcome begin(const idem::BeginRequest& request);
  idem::WriteOutcome complete(const idem::Key& key, const idem::Ownership& by,
                              const idem::Completion& completion);
  idem::WriteOutcome fail(const idem::Key& key, const idem::Ownership& by,
                          const idem::Failure& failure, std::chrono::milliseconds retention);
  idem::WriteOutcome doubt(const idem::Key& key, const idem::Ownership& by);
  idem::WriteOutcome mark_effect(const idem::Key& key, const idem::Ownership& by);
  idem::ReleaseOutcome release(const idem::Key& key, const idem::Ownership& by,
                               std::chrono::milliseconds retention) noexcept;
  std::optional<idem::Record> find(const idem::Key& key);
};

int main() {
  ForgetfulStore store;
  idem::IdempotencyGuard guard{store};
  const auto result = guard.run({.key = {"payment", "1"}}, [] { return 1; });
  return result.has_value() ? 0 : 1;
}
