#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "idempotency/store.hpp"
#include "plan.hpp"

namespace idempotency::simulation {

enum class StoreStep : std::uint8_t {
  begin,
  complete,
  fail,
  doubt,
  mark_effect,
  renew,
  release,
  find,
  resolve,
};

/// Whether the sender still waits for the answer.
enum class Copy : std::uint8_t { awaited, late };

/// One store call on its way.
struct Request {
  StoreStep step = StoreStep::begin;
  std::size_t key = 0;
  std::uint32_t call = 0;  ///< whose: the call's number; 0 is the operator
  Ownership by;            ///< `begin` and `resolve`: the token only
  Meaning meaning = Meaning::unsaid;
  RecordMode mode = RecordMode::take_over;
  milliseconds lease{0};
  milliseconds retention{0};
  std::optional<std::string> bytes;  ///< the result
  std::string reason;
  Retryability retryability = Retryability::retryable;
  Resolution::Verdict verdict = Resolution::Verdict::retry;
  std::optional<Record> seen = std::nullopt;  ///< `resolve`: the record that was looked at, and
  std::uint64_t seen_life = 0;                ///< its life, as the oracle counts them
};

/// The store's answer, or how the sender learned that there is none.
struct Reply {
  std::variant<Errc, BeginOutcome, WriteOutcome, ReleaseOutcome, std::optional<Record>> content =
      Errc::store_unavailable;
  std::uint64_t life = 0;  ///< of the record, as the oracle counts them

  [[nodiscard]] const Errc* error() const noexcept { return std::get_if<Errc>(&content); }
  [[nodiscard]] bool is_stored() const noexcept {
    const auto* outcome = std::get_if<WriteOutcome>(&content);
    return outcome != nullptr && *outcome == WriteOutcome::stored;
  }
};

[[nodiscard]] Key key_of(std::size_t key);
[[nodiscard]] std::string name_of(const OwnerToken& token);
[[nodiscard]] std::string describe(const Request& request);
[[nodiscard]] std::string describe(const BeginOutcome& outcome);
[[nodiscard]] std::string describe(const Reply& reply);
[[nodiscard]] std::string describe(const std::optional<Record>& record);

}  // namespace idempotency::simulation
