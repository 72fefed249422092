#include "messages.hpp"

#include <array>
#include <string_view>

namespace idempotency::simulation {

namespace {

std::string_view name(StoreStep step) noexcept {
  constexpr std::array<std::string_view, 9> names{
      "begin", "complete", "fail", "doubt", "mark_effect", "renew", "release", "find", "resolve"};
  return names[static_cast<std::size_t>(step)];
}

std::string text(const std::optional<std::string>& bytes) {
  return bytes ? '"' + *bytes + '"' : "no result";
}

std::string text(const Failure& failure) {
  const bool permanent = failure.retryability == Retryability::permanent;
  return std::string(permanent ? "permanent \"" : "retryable \"") + failure.reason + "\", " +
         text(failure.result);
}

std::string text(milliseconds span) { return std::to_string(span.count()) + " ms"; }

struct Describe {
  std::string operator()(const Acquired& acquired) const {
    return "acquired, fence " + std::to_string(acquired.fence) + ", attempt " +
           std::to_string(acquired.attempt);
  }
  std::string operator()(const InProgress& outcome) const {
    return "in progress for " + text(outcome.lease_remaining);
  }
  std::string operator()(const Completed& outcome) const {
    return "completed, " + text(outcome.result) + ", fence " + std::to_string(outcome.fence);
  }
  std::string operator()(const Failed& outcome) const {
    return "failed, " + text(outcome.failure) + ", fence " + std::to_string(outcome.fence);
  }
  std::string operator()(const Uncertain& outcome) const {
    return "uncertain, fence " + std::to_string(outcome.fence);
  }
  std::string operator()(const Mismatch& outcome) const {
    return outcome.match == FingerprintMatch::different ? "mismatch" : "mismatch, not comparable";
  }

  std::string operator()(const NotIssued& /*outcome*/) const { return "not issued"; }

  std::string operator()(Errc error) const { return std::string(to_string(error)); }
  std::string operator()(const BeginOutcome& outcome) const { return std::visit(*this, outcome); }
  std::string operator()(WriteOutcome outcome) const {
    return outcome == WriteOutcome::stored ? "stored" : "lost";
  }
  std::string operator()(ReleaseOutcome outcome) const {
    return outcome == ReleaseOutcome::released ? "released" : "lost";
  }
  std::string operator()(const std::optional<Record>& record) const { return describe(record); }
};

}  // namespace

Key key_of(std::size_t key) {
  static const std::array<Key, 2> keys{Key("order", "0"), Key("order", "1")};
  return keys.at(key);
}

std::string name_of(const OwnerToken& token) {
  unsigned number = 0;
  for (std::size_t at = 0; at < 4; ++at)
    number = (number << 8U) | token.bytes()[at];
  return "t" + std::to_string(number);
}

std::string describe(const Request& request) {
  std::string line = std::string(name(request.step)) + " key " + std::to_string(request.key);
  if (request.step == StoreStep::find) return line;
  line += " by " + name_of(request.by.owner);
  if (request.step == StoreStep::resolve) {
    constexpr std::array<std::string_view, 3> verdicts{"succeeded", "failed", "retry"};
    line += " at fence " + std::to_string(request.seen->ownership.fence) + ' ';
    line += verdicts[static_cast<std::size_t>(request.verdict)];
  } else if (request.step != StoreStep::begin) {
    line += " fence " + std::to_string(request.by.fence);
  }
  if (request.step == StoreStep::complete) line += ' ' + text(request.bytes);
  if (request.step == StoreStep::fail) {
    line += ' ' + text(Failure{request.retryability, request.reason, request.bytes});
  }
  return line;
}

std::string describe(const BeginOutcome& outcome) { return std::visit(Describe{}, outcome); }
std::string describe(const Reply& reply) { return std::visit(Describe{}, reply.content); }

std::string describe(const std::optional<Record>& record) {
  if (!record) return "no record";
  std::string line(to_string(record->state));
  line +=
      ", " + name_of(record->ownership.owner) + " fence " + std::to_string(record->ownership.fence);
  if (record->effect_marked) line += ", effect marked";
  if (record->state == RecordState::success) line += ", " + text(record->result);
  if (record->failure) line += ", " + text(*record->failure);
  return line;
}

}  // namespace idempotency::simulation
