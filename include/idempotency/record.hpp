#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "idempotency/fingerprint.hpp"
#include "idempotency/key.hpp"
#include "idempotency/lease.hpp"

namespace idempotency {
inline namespace v0 {

/// A moment on a store's clock: UTC, in milliseconds since 1970.
using Timestamp = std::chrono::sys_time<std::chrono::milliseconds>;

/// What the store knows of an operation. Stored: never renumber.
enum class RecordState : std::uint8_t {
  processing = 1,  ///< an owner holds the lease and its handler may be running
  success = 2,     ///< finished; the result answers until its retention ends
  failed = 3,      ///< finished without effect, for good or until the next call
  uncertain = 4,   ///< the effect may have happened; blocked until somebody settles it
  issued = 5,      ///< a one-time token that nobody has used yet
};
[[nodiscard]] std::string_view to_string(RecordState state) noexcept;

/// What happens when a lease runs out. Written into the record by the one that begins; later callers
/// obey the record. Stored: never renumber.
enum class RecordMode : std::uint8_t {
  take_over = 1,  ///< the next caller becomes the owner and its handler runs
  hold = 2,       ///< the record becomes uncertain and waits for a settlement
};
[[nodiscard]] std::string_view to_string(RecordMode mode) noexcept;

/// Which records a call may make or take: any, or only such that somebody has issued (a one-time token) or begun before.
enum class Admission : std::uint8_t { any, issued };

/// Whether a failed operation may be started again with the same key.
enum class Retryability : std::uint8_t { retryable = 1, permanent = 2 };

/// How an operation failed. `reason` is at most `max_reason_bytes`; longer text is cut by the guard.
struct Failure {
  static constexpr std::size_t max_reason_bytes = 1024;

  Retryability retryability = Retryability::retryable;
  std::string reason;
  std::optional<std::string> result;  ///< the encoded value, when the failure was a returned one
  friend bool operator==(const Failure&, const Failure&) = default;
};

/// One record as the store holds it, for look-ups, operators and reconciliation.
///
/// Thread safety: a value; distinct copies may be used concurrently.
struct Record {
  Key key;
  RecordState state = RecordState::processing;
  RecordMode mode = RecordMode::take_over;
  bool effect_marked = false;  ///< the handler passed its point of no return under `take_over`
  Ownership ownership = {};
  std::uint32_t attempt = 0;  ///< how many times a handler was let in during this record's life
  std::optional<Fingerprint::Part> fingerprint = std::nullopt;
  Timestamp created_at{};  ///< first begin of this life
  Timestamp updated_at{};  ///< last change of state or owner
  std::optional<Timestamp> lease_until =
      std::nullopt;                                    ///< processing only; absent: never stealable
  std::optional<Timestamp> expires_at = std::nullopt;  ///< finished only: end of the retention
  std::optional<std::string> result =
      std::nullopt;  ///< success only; absent: success was recorded without it
  std::optional<Failure> failure = std::nullopt;  ///< failed only
  std::string trace = {};  ///< what the first caller gave to find the request in its logs
};

/// Whether somebody has to find out what happened: uncertain, or processing with a lease that has run out by `now`.
[[nodiscard]] inline bool is_unsettled(const Record& record, Timestamp now) noexcept {
  if (record.state == RecordState::uncertain) return true;
  return record.state == RecordState::processing && record.lease_until &&
         *record.lease_until <= now;
}

}  // namespace v0
}  // namespace idempotency
