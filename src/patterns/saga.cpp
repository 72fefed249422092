#include "idempotency/patterns/saga.hpp"

#include <algorithm>
#include <set>

#include "idempotency/fingerprint.hpp"

namespace idempotency {
inline namespace v0 {

namespace {

constexpr std::string_view key_type = "saga/";
constexpr std::size_t longest_step = 64;
constexpr std::size_t most_steps = 1'000;

bool is_name_character(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.';
}

void check_definition(std::string_view name) {
  const bool good = !name.empty() && name.size() <= SagaName::max_definition_bytes &&
                    std::all_of(name.begin(), name.end(),
                                [](char c) { return is_name_character(c) || c == '/'; });
  if (good) return;
  throw Error(Errc::invalid_argument,
              "the name of a saga's definition is 1 to 59 letters, digits, '_', '-', '.' and '/'",
              std::string(name));
}

void check_steps(const std::vector<SagaStep>& steps) {
  if (steps.empty() || steps.size() > most_steps) {
    throw Error(Errc::invalid_argument, "a saga has 1 to 1000 steps");
  }
  std::set<std::string_view> names;
  for (const SagaStep& step : steps) {
    const std::string& name = step.name();
    if (name.empty() || name.size() > longest_step ||
        !std::all_of(name.begin(), name.end(), is_name_character)) {
      throw Error(Errc::invalid_argument,
                  "the name of a step is 1 to 64 letters, digits, '_', '-' and '.'", name);
    }
    if (!names.insert(name).second) {
      throw Error(Errc::invalid_argument, "two steps of a saga have the same name", name);
    }
  }
}

/// 32 hex digits over the names, which hold no line break.
std::string plan_of(const std::vector<SagaStep>& steps) {
  constexpr std::size_t digest_bytes = 16;
  constexpr std::string_view digits = "0123456789abcdef";
  std::string names;
  for (const SagaStep& step : steps)
    names += step.name() + '\n';
  const Fingerprint::Digest digest = Fingerprint::of_bytes(names).current().digest;
  std::string plan;
  for (std::size_t at = 0; at < digest_bytes; ++at) {
    plan += digits[digest[at] >> 4U];
    plan += digits[digest[at] & 0x0fU];
  }
  return plan;
}

}  // namespace

namespace detail {

void throw_no_such_result(std::string_view step) {
  throw Error(Errc::no_value,
              "there is no result of that step: it took no effect, was skipped, or returned more "
              "than is kept",
              std::string(step));
}

}  // namespace detail

Key saga_key(const SagaName& saga, std::string_view step, SagaPart part) {
  // Neither a step's name nor a part's holds ':', so that no two sagas' steps have the same value.
  return Key::digested(
      std::string(key_type) + saga.definition,
      saga.id + ':' + std::string(step) + (part == SagaPart::action ? ":action" : ":compensation"));
}

Saga::Saga(std::string name, std::vector<SagaStep> steps)
    : name_(std::move(name)), steps_(std::move(steps)) {
  check_definition(name_);
  check_steps(steps_);
  plan_ = plan_of(steps_);
}

}  // namespace v0
}  // namespace idempotency
