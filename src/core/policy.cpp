#include "idempotency/policy.hpp"

#include <algorithm>

#include "idempotency/error.hpp"

namespace idempotency {
inline namespace v0 {

namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

constexpr milliseconds day{hours{24}};
constexpr milliseconds longest{hours{24 * 365 * 100}};

[[noreturn]] void refuse(const char* sentence) { throw Error(Errc::invalid_policy, sentence); }

bool between(milliseconds span, milliseconds least, milliseconds most) noexcept {
  return span >= least && span <= most;
}

Policy kept_for(milliseconds retention) noexcept {
  Policy policy;
  policy.success_retention = retention;
  policy.failure_retention = retention;
  return policy;
}

}  // namespace

Policy PolicyOverride::over(Policy base) const noexcept {
  if (lease) base.lease = *lease;
  if (success_retention) base.success_retention = *success_retention;
  if (failure_retention) base.failure_retention = *failure_retention;
  if (wait) base.wait = *wait;
  if (on_expired_lease) base.on_expired_lease = *on_expired_lease;
  if (on_store_failure) base.on_store_failure = *on_store_failure;
  if (classify) base.classify = *classify;
  if (max_result_bytes) base.max_result_bytes = *max_result_bytes;
  if (max_total_hold) base.max_total_hold = *max_total_hold;
  return base;
}

void validate(const Policy& policy) {
  constexpr milliseconds least{1};
  if (!between(policy.lease, least, day)) refuse("Policy::lease must be from 1 ms to 1 day");
  if (!between(policy.success_retention, least, longest)) {
    refuse("Policy::success_retention must be from 1 ms to 100 years");
  }
  if (!between(policy.failure_retention, least, longest)) {
    refuse("Policy::failure_retention must be from 1 ms to 100 years");
  }
  if (policy.wait < milliseconds{0}) refuse("Policy::wait must not be negative");
  if (policy.max_total_hold < policy.lease) {
    refuse("Policy::max_total_hold must not be shorter than Policy::lease");
  }
  if (policy.on_expired_lease == RecordMode::hold &&
      policy.on_store_failure == OnStoreFailure::run_unprotected) {
    refuse(
        "Policy::on_store_failure run_unprotected contradicts on_expired_lease hold: hold "
        "promises that nothing is started twice");
  }
}

PolicyTable::PolicyTable() {
  Policy payment = kept_for(30 * day);
  payment.on_expired_lease = RecordMode::hold;
  by_type_ = {{"order", kept_for(7 * day)}, {"payment", payment}};
}

PolicyTable& PolicyTable::set(std::string_view type, const PolicyOverride& wishes) {
  return replace(type, wishes.over(find(type)));
}

PolicyTable& PolicyTable::set_default(const PolicyOverride& wishes) {
  return replace_default(wishes.over(default_));
}

PolicyTable& PolicyTable::replace(std::string_view type, const Policy& policy) {
  static_cast<void>(Key(type, std::string_view("any")));  // refuses what can be no type
  validate(policy);
  const auto found = std::find_if(by_type_.begin(), by_type_.end(),
                                  [&](const auto& entry) { return entry.first == type; });
  if (found != by_type_.end()) {
    found->second = policy;
  } else {
    by_type_.emplace_back(type, policy);
  }
  return *this;
}

PolicyTable& PolicyTable::replace_default(const Policy& policy) {
  validate(policy);
  default_ = policy;
  return *this;
}

const Policy& PolicyTable::find(std::string_view type) const noexcept {
  for (const auto& [name, policy] : by_type_) {
    if (name == type) return policy;
  }
  return default_;
}

}  // namespace v0
}  // namespace idempotency
