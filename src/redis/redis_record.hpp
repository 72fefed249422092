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

/// A record as its value holds it. Layout version 1, see docs/redis.md.
struct StoredRecord {
  RecordState state = RecordState::processing;
  Retryability retryability = Retryability::retryable;
  RecordMode mode = RecordMode::take_over;
  bool effect_marked = false;
  Ownership ownership = {};  ///< success: of the owner only what `kept_of` leaves
  std::uint32_t attempt = 1;
  /// Processing only; zero: no deadline.
  std::chrono::milliseconds lease{0};
  /// Absent until a script has written the record: its life began when its time to live did.
  std::optional<RecordTimes> times = std::nullopt;
  std::chrono::milliseconds retention{0};  ///< finished or issued, from `times->updated`
  std::optional<Fingerprint::Part> fingerprint = std::nullopt;
  std::string trace = {};
  std::string reason = {};
  std::optional<std::string> result = std::nullopt;

  friend bool operator==(const StoredRecord&, const StoredRecord&) = default;
};

[[nodiscard]] std::string encode(const StoredRecord& record);
/// Errors: `Errc::store_corrupt` for another layout, or one that breaks off.
[[nodiscard]] StoredRecord decode(std::string_view value);

/// The part of a succeeded record's owner that is kept: enough to recognise it.
[[nodiscard]] OwnerToken kept_of(const OwnerToken& owner) noexcept;

/// A lease as it is stored: at least 1 ms; zero for one that never ends.
[[nodiscard]] std::chrono::milliseconds stored_lease(std::chrono::milliseconds lease) noexcept;
/// A retention as it is stored: from 1 ms to `unfinished_ttl`.
[[nodiscard]] std::chrono::milliseconds stored_retention(
    std::chrono::milliseconds retention) noexcept;

/// A number in the layout: 7 bits a byte, the lowest first, the top bit set in all but the last.
[[nodiscard]] std::string varint(std::uint64_t number);

/// A fingerprint as it stands in a value, and in a script's arguments.
[[nodiscard]] std::string to_bytes(const Fingerprint::Part& part);

/// A new record's first value, which names no times: they follow from its time to live.
[[nodiscard]] std::string first_value(const BeginRequest& request);

/// What judging needs, given when the key ends by the server's clock.
[[nodiscard]] RecordFacts facts_of(const StoredRecord& record, std::int64_t end);
[[nodiscard]] Timestamp updated_at(const StoredRecord& record, std::int64_t end);
[[nodiscard]] Record to_record(const Key& key, StoredRecord record, std::int64_t end);

}  // namespace detail::redis
}  // namespace v0
}  // namespace idempotency
