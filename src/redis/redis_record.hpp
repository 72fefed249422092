#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "idempotency/detail/judge.hpp"
#include "idempotency/store.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail::redis {

/// The time to live that every unfinished record is given when its lease starts: 1000 years of 365
/// days. What is left of it tells the lease's age. Part of the format: never change.
inline constexpr std::chrono::milliseconds unfinished_ttl{31'536'000'000'000};

/// What a key without a time to live has in the place of its end.
inline constexpr std::int64_t no_end = -1;

/// When a record's life began and when its state or owner changed last.
struct RecordTimes {
  Timestamp created{};
  Timestamp updated{};
  friend bool operator==(const RecordTimes&, const RecordTimes&) = default;
};

/// A record as its value holds it. Layout 1, see docs/redis.md.
struct StoredRecord {
  RecordState state = RecordState::processing;
  Retryability retryability = Retryability::retryable;
  RecordMode mode = RecordMode::take_over;
  bool effect_marked = false;
  Ownership ownership = {};  ///< success: of the owner only what `kept_of` leaves
  std::uint32_t attempt = 1;
  /// Processing only; zero: no deadline.
  std::chrono::milliseconds lease{0};
  /// Absent until a script has written the record: its life began when its time to live did. Absent of a success, whose
  /// times follow from when the key ends.
  std::optional<RecordTimes> times = std::nullopt;
  std::chrono::milliseconds retention{0};  ///< finished or issued, from when it became so
  std::chrono::milliseconds took{0};       ///< success only: from its begin to its end
  std::uint8_t end_mark = 0;  ///< success only: what `end_mark_of` says of its key's end
  std::optional<Fingerprint::Part> fingerprint = std::nullopt;
  std::string trace = {};
  std::string reason = {};
  std::optional<std::string> result = std::nullopt;

  friend bool operator==(const StoredRecord&, const StoredRecord&) = default;
};

[[nodiscard]] std::string encode(const StoredRecord& record);
/// Errors: `Errc::store_corrupt` for another layout, or one that breaks off.
[[nodiscard]] StoredRecord decode(std::string_view value);

/// The state that a value's first byte tells; nothing for another layout, or an empty value.
[[nodiscard]] std::optional<RecordState> state_of(std::string_view value) noexcept;

/// How much of a succeeded record's owner is kept: enough to recognise it.
inline constexpr std::size_t kept_owner_bytes = 4;
[[nodiscard]] OwnerToken kept_of(const OwnerToken& owner) noexcept;

/// A lease as it is stored: at least 1 ms; zero for one that never ends.
[[nodiscard]] std::chrono::milliseconds stored_lease(std::chrono::milliseconds lease) noexcept;
/// A retention as it is stored: from 1 ms to `unfinished_ttl`.
[[nodiscard]] std::chrono::milliseconds stored_retention(
    std::chrono::milliseconds retention) noexcept;

/// Enough of the moment when a key ends to reckon, while it is there, how long it still will be.
[[nodiscard]] std::uint8_t end_mark_of(Timestamp end, std::chrono::milliseconds retention) noexcept;
/// What one step of an end mark is, in milliseconds.
[[nodiscard]] std::int64_t end_mark_step(std::chrono::milliseconds retention) noexcept;
/// A retention as it stands in a value.
[[nodiscard]] std::string retention_code(std::chrono::milliseconds retention);

/// A number in the layout: 7 bits a byte, the lowest first, the top bit set in all but the last.
[[nodiscard]] std::string varint(std::uint64_t number);

/// A fingerprint as it stands in a value, and in a script's arguments.
[[nodiscard]] std::string to_bytes(const Fingerprint::Part& part);

/// A new record's first value, which names no times: they follow from its time to live.
[[nodiscard]] std::string first_value(const BeginRequest& request);

/// What judging needs, given when the key ends by the server's clock.
[[nodiscard]] RecordFacts facts_of(const StoredRecord& record, std::int64_t end);
/// How long a finished record that is there still answers, and never more. Exact unless it is a success and `end` is
/// unknown: then short by at most a 128th of its retention, or 64 ms.
[[nodiscard]] std::chrono::milliseconds remaining_of(const StoredRecord& record, std::int64_t end,
                                                     Timestamp now);
[[nodiscard]] Timestamp updated_at(const StoredRecord& record, std::int64_t end);
[[nodiscard]] Record to_record(const Key& key, StoredRecord record, std::int64_t end);

}  // namespace detail::redis
}  // namespace v0
}  // namespace idempotency
