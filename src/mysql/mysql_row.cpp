#include "mysql/mysql_row.hpp"

#include <algorithm>
#include <utility>

namespace idempotency {
inline namespace v0 {
namespace detail::mysql {

namespace {

using std::chrono::milliseconds;

constexpr std::size_t answer_size = 11;

[[noreturn]] void throw_corrupt(const char* column) {
  throw Error(Errc::store_corrupt,
              "a stored record cannot be read; look at it with an operator's tool",
              std::string("column ") + column);
}

bool is_null(const SqlValue::Value& cell) noexcept {
  return std::holds_alternative<std::monostate>(cell);
}

std::int64_t to_signed(const SqlValue::Value& cell, const char* column) {
  if (const auto* number = std::get_if<std::int64_t>(&cell)) return *number;
  const auto* large = std::get_if<std::uint64_t>(&cell);
  if (large == nullptr || !std::in_range<std::int64_t>(*large)) throw_corrupt(column);
  return static_cast<std::int64_t>(*large);
}

template <class Enum>
Enum to_enum(const SqlValue::Value& cell, std::uint64_t largest, const char* column) {
  const std::uint64_t value = to_unsigned(cell, column);
  if (value < 1 || value > largest) throw_corrupt(column);
  return static_cast<Enum>(value);
}

Timestamp to_time(const SqlValue::Value& cell, const char* column) {
  return Timestamp{milliseconds{to_signed(cell, column)}};
}

Timestamp to_time_or_never(const SqlValue::Value& cell, const char* column) {
  return is_null(cell) ? never : to_time(cell, column);
}

OwnerToken to_owner(SqlValue::Value& cell) {
  const std::string bytes = take_bytes(cell, "owner");
  OwnerToken::Bytes owner{};
  if (bytes.size() != owner.size()) throw_corrupt("owner");
  std::copy(bytes.begin(), bytes.end(), owner.begin());
  return OwnerToken(owner);
}

std::optional<Fingerprint::Part> to_fingerprint(SqlValue::Value& cell) {
  if (is_null(cell)) return std::nullopt;
  const std::string bytes = take_bytes(cell, "fingerprint");
  Fingerprint::Part part;
  if (bytes.size() != part.digest.size() + 1) throw_corrupt("fingerprint");
  part.scheme = static_cast<std::uint8_t>(bytes.front());
  std::copy(bytes.begin() + 1, bytes.end(), part.digest.begin());
  return part;
}

milliseconds remaining(Timestamp until, Timestamp now) noexcept {
  return until == never ? milliseconds::max() : until - now;
}

}  // namespace

std::uint64_t to_unsigned(const SqlValue::Value& cell, const char* column) {
  if (const auto* number = std::get_if<std::uint64_t>(&cell)) return *number;
  const auto* small = std::get_if<std::int64_t>(&cell);
  if (small == nullptr || *small < 0) throw_corrupt(column);
  return static_cast<std::uint64_t>(*small);
}

std::string take_bytes(SqlValue::Value& cell, const char* column) {
  if (is_null(cell)) return {};
  if (auto* blob = std::get_if<SqlBlob>(&cell)) return std::move(blob->bytes);
  if (auto* text = std::get_if<std::string>(&cell)) return std::move(*text);
  throw_corrupt(column);
}

Row read_answer(Cells& cells, std::size_t first) {
  if (cells.size() < first + answer_size) throw_corrupt("number of columns");
  const auto cell = [&](std::size_t index) -> SqlValue::Value& { return cells[first + index]; };
  Row row;
  RecordFacts& facts = row.facts;
  facts.state = to_enum<RecordState>(cell(0), 5, "state");
  facts.ownership.owner = to_owner(cell(1));
  facts.ownership.fence = to_unsigned(cell(2), "fence");
  facts.fingerprint = to_fingerprint(cell(3));
  row.updated_at = to_time(cell(4), "updated_at");
  facts.lease_until = to_time_or_never(cell(5), "lease_until");
  facts.expires_at = to_time_or_never(cell(6), "expires_at");
  if (facts.state == RecordState::failed) {
    facts.retryability = to_enum<Retryability>(cell(7), 2, "retryability");
  }
  row.reason = take_bytes(cell(8), "reason");
  if (!is_null(cell(9))) row.result = take_bytes(cell(9), "result");
  row.now = to_time(cell(10), "now");
  return row;
}

Row read_row(Cells& cells, std::size_t first) {
  Row row = read_answer(cells, first);
  if (cells.size() < first + answer_size + 5) throw_corrupt("number of columns");
  const auto cell = [&](std::size_t index) -> SqlValue::Value& {
    return cells[first + answer_size + index];
  };
  row.facts.mode = to_enum<RecordMode>(cell(0), 2, "mode");
  row.facts.effect_marked = to_unsigned(cell(1), "effect_marked") != 0;
  row.attempt = static_cast<std::uint32_t>(to_unsigned(cell(2), "attempt"));
  row.facts.created_at = to_time(cell(3), "created_at");
  row.trace = take_bytes(cell(4), "trace");
  return row;
}

std::optional<BeginOutcome> outcome_of(Row&& row, const BeginRequest& request) {
  const RecordFacts& facts = row.facts;
  const BeginVerdict verdict = judge_begin(&facts, request, row.now);
  if (verdict.mismatch) return *verdict.mismatch;
  switch (verdict.transition.answer) {
    case v0::Answer::acquired:  // its own already; otherwise it could be acquired, but was not
      if (facts.state != RecordState::processing || facts.ownership.owner != request.owner) break;
      return Acquired{facts.ownership.fence, row.attempt};
    case v0::Answer::in_progress:
      return InProgress{std::max(milliseconds{1}, remaining(facts.lease_until, row.now))};
    case v0::Answer::completed:
      return Completed{std::move(row.result), remaining(facts.expires_at, row.now),
                       facts.ownership.fence, facts.fingerprint};
    case v0::Answer::failed:
      return Failed{Failure{facts.retryability, std::move(row.reason), std::move(row.result)},
                    remaining(facts.expires_at, row.now), facts.ownership.fence, facts.fingerprint};
    case v0::Answer::uncertain:
      if (facts.state != RecordState::uncertain) break;  // it has to be made so first
      return Uncertain{facts.ownership.fence, row.updated_at};
    case v0::Answer::stored:
    case v0::Answer::lost:
      return not_admitted(request);
  }
  return std::nullopt;
}

std::optional<Record> to_record(const Key& key, Row&& row) {
  const RecordFacts& facts = row.facts;
  if (phase_of(facts, row.now) == Phase::absent) return std::nullopt;
  Record record{.key = key,
                .state = facts.state,
                .mode = facts.mode,
                .effect_marked = facts.effect_marked,
                .ownership = facts.ownership,
                .attempt = row.attempt,
                .fingerprint = facts.fingerprint,
                .created_at = facts.created_at,
                .updated_at = row.updated_at,
                .lease_until = std::nullopt,
                .expires_at = std::nullopt,
                .result = std::nullopt,
                .failure = std::nullopt,
                .trace = std::move(row.trace)};
  if (facts.state == RecordState::processing && facts.lease_until != never) {
    record.lease_until = facts.lease_until;
  }
  if (facts.expires_at != never) record.expires_at = facts.expires_at;
  if (facts.state == RecordState::success) record.result = std::move(row.result);
  if (facts.state == RecordState::failed) {
    record.failure = Failure{facts.retryability, std::move(row.reason), std::move(row.result)};
  }
  return record;
}

Parameter span_parameter(milliseconds span) noexcept {
  constexpr std::int64_t latest_now = 100'000'000'000'000;  // the year 5138
  if (span.count() > std::numeric_limits<std::int64_t>::max() - latest_now) return std::monostate{};
  return std::int64_t{span.count()};
}

FingerprintBytes::FingerprintBytes(const std::optional<Fingerprint::Part>& part) noexcept
    : present_(part.has_value()) {
  if (!part) return;
  bytes_.front() = static_cast<char>(part->scheme);
  std::copy(part->digest.begin(), part->digest.end(), bytes_.begin() + 1);
}

Parameter FingerprintBytes::parameter() const noexcept {
  if (!present_) return std::monostate{};
  return SqlBlobView{{bytes_.data(), bytes_.size()}};
}

Parameter owner_parameter(const OwnerToken& owner) noexcept {
  return SqlBlobView{{reinterpret_cast<const char*>(owner.bytes().data()), owner.bytes().size()}};
}

Parameter optional_bytes(const std::optional<std::string>& bytes) noexcept {
  if (!bytes) return std::monostate{};
  return SqlBlobView{*bytes};
}

}  // namespace detail::mysql
}  // namespace v0
}  // namespace idempotency
