#pragma once

#include <string_view>
#include <variant>

#include "idempotency/detail/ports.hpp"
#include "idempotency/observer.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail {

/// The write that ends a run, as it is repeated until the store answers.
struct FailureWrite {
  Failure failure;
  std::chrono::milliseconds retention;
};
struct DoubtWrite {};
using EndWrite = std::variant<Completion, FailureWrite, DoubtWrite>;

[[nodiscard]] inline WriteOutcome send(StorePort& store, const Key& key, const Ownership& by,
                                       const EndWrite& write) {
  if (const auto* completion = std::get_if<Completion>(&write)) {
    return store.complete(key, by, *completion);
  }
  if (const auto* failed = std::get_if<FailureWrite>(&write)) {
    return store.fail(key, by, failed->failure, failed->retention);
  }
  return store.doubt(key, by);
}

[[nodiscard]] inline StoreCall call_of(const EndWrite& write) noexcept {
  if (std::holds_alternative<Completion>(write)) return StoreCall::complete;
  return std::holds_alternative<FailureWrite>(write) ? StoreCall::fail : StoreCall::doubt;
}

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
