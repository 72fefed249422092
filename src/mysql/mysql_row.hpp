#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "idempotency/detail/judge.hpp"
#include "idempotency/store.hpp"
#include "mysql/mysql_connection.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail::mysql {

/// A record as it stands in the table, without its key, and the moment of the server's clock at which it was read.
struct Row {
  RecordFacts facts;
  std::uint32_t attempt = 1;
  Timestamp updated_at{};
  std::string reason;
  std::string trace;
  std::optional<std::string> result;
  Timestamp now{};
};

/// Reads the columns of `answer_columns()` from `first` on; what those leave out is as in a new record.
///
/// Errors: `Errc::store_corrupt` for what this library does not write.
[[nodiscard]] Row read_answer(Cells& cells, std::size_t first = 0);
/// Reads the columns of `row_columns()` from `first` on.
///
/// Errors: `Errc::store_corrupt` for what this library does not write.
[[nodiscard]] Row read_row(Cells& cells, std::size_t first = 0);

[[nodiscard]] std::uint64_t to_unsigned(const SqlValue::Value& cell, const char* column);
[[nodiscard]] std::string take_bytes(SqlValue::Value& cell, const char* column);

/// What the row, as it stands after `begin`, means for the caller; nothing when the caller could acquire it now, which means that
/// it has changed since it was judged.
[[nodiscard]] std::optional<BeginOutcome> outcome_of(Row&& row, const BeginRequest& request);

/// What look-ups give; nothing for a record past its retention.
[[nodiscard]] std::optional<Record> to_record(const Key& key, Row&& row);

/// `span` as a parameter to be added to the server's now; NULL when the sum never comes.
[[nodiscard]] Parameter span_parameter(std::chrono::milliseconds span) noexcept;

/// A fingerprint as it is stored: scheme and digest.
class FingerprintBytes {
 public:
  explicit FingerprintBytes(const std::optional<Fingerprint::Part>& part) noexcept;
  [[nodiscard]] Parameter parameter() const noexcept;

 private:
  std::array<char, sizeof(Fingerprint::Digest) + 1> bytes_{};
  bool present_;
};

[[nodiscard]] Parameter owner_parameter(const OwnerToken& owner) noexcept;
[[nodiscard]] inline Parameter bytes_parameter(std::string_view bytes) noexcept {
  return SqlBlobView{bytes};
}
[[nodiscard]] Parameter optional_bytes(const std::optional<std::string>& bytes) noexcept;
[[nodiscard]] inline Parameter number(std::uint64_t value) noexcept { return value; }

}  // namespace detail::mysql
}  // namespace v0
}  // namespace idempotency
