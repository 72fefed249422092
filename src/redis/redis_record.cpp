#include "redis/redis_record.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace idempotency {
inline namespace v0 {
namespace detail::redis {

namespace {

using std::chrono::milliseconds;

constexpr unsigned layout_bits = 0xc0;
constexpr unsigned layout_1 = 0x40;
constexpr std::size_t fingerprint_bytes = 1 + sizeof(Fingerprint::Digest);
constexpr int created_bytes = 6;
constexpr std::int64_t end_marks = 256;

/// In the first byte, beside the state.
enum Mark : unsigned { state_bits = 0x07, hold = 0x08, effect_marked = 0x10, has_parts = 0x20 };
/// In the second, which is there when it is not `usual_parts`.
enum Part : unsigned {
  times = 0x01,
  fingerprint = 0x02,
  trace = 0x04,
  reason = 0x08,
  result = 0x10,
  counts = 0x20,
  permanent = 0x40,
  unknown_part = 0x80
};

unsigned usual_parts(RecordState state) noexcept {
  return state == RecordState::success ? static_cast<unsigned>(Part::result) : 0U;
}

/// In which retentions are counted, so that round ones are short. Part of the format.
constexpr std::array<std::uint64_t, 8> retention_units{
    1, 1'000, 60'000, 600'000, 3'600'000, 86'400'000, 2'592'000'000, 31'536'000'000};

std::size_t owner_bytes(RecordState state) noexcept {
  return state == RecordState::success ? kept_owner_bytes : sizeof(OwnerToken::Bytes);
}

/// Whether a record of this state holds its times as such, given whether a script has written it.
bool holds_times(RecordState state, bool written) noexcept {
  return state == RecordState::processing ? written : state != RecordState::success;
}

bool has_retention(RecordState state) noexcept {
  return state == RecordState::success || state == RecordState::failed ||
         state == RecordState::issued;
}

std::uint64_t to_unsigned(milliseconds span) noexcept {
  return static_cast<std::uint64_t>(std::max(span, milliseconds{0}).count());
}

/// Takes a value apart from front to back.
class Cursor {
 public:
  explicit Cursor(std::string_view bytes) noexcept : rest_(bytes) {}

  std::string_view bytes(std::uint64_t count) {
    if (count > rest_.size()) corrupt();
    const std::string_view taken = rest_.substr(0, static_cast<std::size_t>(count));
    rest_.remove_prefix(taken.size());
    return taken;
  }
  unsigned byte() { return static_cast<unsigned char>(bytes(1).front()); }
  std::uint64_t number() {
    std::uint64_t number = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const std::uint64_t part = byte();
      number |= (part & 0x7f) << shift;
      if (part < 0x80) return number;
    }
    corrupt();
  }
  std::int64_t fixed(int count) {
    std::int64_t number = 0;
    for (int i = 0; i < count; ++i)
      number = number * 256 + byte();
    return number;
  }
  milliseconds span() {
    const std::uint64_t count = number();
    if (count > to_unsigned(unfinished_ttl)) corrupt();
    return milliseconds{static_cast<std::int64_t>(count)};
  }
  milliseconds retention() {
    const std::uint64_t code = number();
    const std::uint64_t unit = retention_units[code % retention_units.size()];
    const std::uint64_t count = code / retention_units.size();
    if (count == 0 || count > to_unsigned(unfinished_ttl) / unit) corrupt();
    return milliseconds{static_cast<std::int64_t>(count * unit)};
  }
  std::string_view rest() noexcept { return std::exchange(rest_, {}); }
  [[nodiscard]] bool at_end() const noexcept { return rest_.empty(); }

  [[noreturn]] static void corrupt() {
    throw Error(Errc::store_corrupt,
                "a stored record cannot be read; look at it with an operator's tool");
  }

 private:
  std::string_view rest_;
};

Timestamp::duration since_epoch(std::int64_t count) noexcept { return milliseconds{count}; }

std::string created_time(std::uint64_t time) {
  std::string text;
  for (int shift = 8 * (created_bytes - 1); shift >= 0; shift -= 8)
    text += static_cast<char>((time >> shift) & 0xff);
  return text;
}

}  // namespace

std::string retention_code(milliseconds retention) {
  const std::uint64_t count = std::max<std::uint64_t>(to_unsigned(retention), 1);
  std::size_t unit = retention_units.size() - 1;
  while (count % retention_units[unit] != 0)
    --unit;
  return varint(count / retention_units[unit] * retention_units.size() + unit);
}

std::int64_t end_mark_step(milliseconds retention) noexcept {
  // Half of all marks cover the retention, so that those behind now are told from those before it; and all of them a
  // time in which any answer has come.
  constexpr std::int64_t half = end_marks / 2;
  return std::max<std::int64_t>(64, (retention.count() + half - 1) / half);
}

std::uint8_t end_mark_of(Timestamp end, milliseconds retention) noexcept {
  return static_cast<std::uint8_t>(end.time_since_epoch().count() / end_mark_step(retention));
}

std::string varint(std::uint64_t number) {
  std::string bytes;
  for (; number >= 0x80; number >>= 7)
    bytes += static_cast<char>((number & 0x7f) | 0x80);
  bytes += static_cast<char>(number);
  return bytes;
}

std::string to_bytes(const Fingerprint::Part& part) {
  std::string bytes(1, static_cast<char>(part.scheme));
  bytes.append(part.digest.begin(), part.digest.end());
  return bytes;
}

OwnerToken kept_of(const OwnerToken& owner) noexcept {
  OwnerToken::Bytes bytes{};
  std::copy_n(owner.bytes().begin(), kept_owner_bytes, bytes.begin());
  return OwnerToken(bytes);
}

milliseconds stored_lease(milliseconds lease) noexcept {
  if (lease > unfinished_ttl) return milliseconds{0};
  return std::max(lease, milliseconds{1});
}

milliseconds stored_retention(milliseconds retention) noexcept {
  return std::clamp(retention, milliseconds{1}, unfinished_ttl);
}

std::string encode(const StoredRecord& record) {
  unsigned parts = 0;
  if (holds_times(record.state, record.times.has_value())) parts |= Part::times;
  if (record.fingerprint) parts |= Part::fingerprint;
  if (!record.trace.empty()) parts |= Part::trace;
  if (!record.reason.empty()) parts |= Part::reason;
  if (record.result) parts |= Part::result;
  if (record.ownership.fence != 1 || record.attempt != 1) parts |= Part::counts;
  if (record.retryability == Retryability::permanent) parts |= Part::permanent;
  unsigned marks = layout_1 | static_cast<unsigned>(record.state);
  if (record.mode == RecordMode::hold) marks |= Mark::hold;
  if (record.effect_marked) marks |= Mark::effect_marked;
  if (parts != usual_parts(record.state)) marks |= Mark::has_parts;

  std::string value(1, static_cast<char>(marks));
  if ((marks & Mark::has_parts) != 0) value += static_cast<char>(parts);
  if ((parts & Part::counts) != 0) value += varint(record.ownership.fence) + varint(record.attempt);
  const OwnerToken::Bytes& owner = record.ownership.owner.bytes();
  value.append(owner.begin(),
               owner.begin() + static_cast<std::ptrdiff_t>(owner_bytes(record.state)));
  if (record.state == RecordState::processing) value += varint(to_unsigned(record.lease));
  if ((parts & Part::times) != 0) {
    const RecordTimes at = record.times.value_or(RecordTimes{});
    value += created_time(to_unsigned(at.created.time_since_epoch()));
    value += varint(to_unsigned(at.updated - at.created));
  }
  if (has_retention(record.state)) value += retention_code(record.retention);
  if (record.state == RecordState::success) {
    value += varint(to_unsigned(record.took));
    value += static_cast<char>(record.end_mark);
  }
  if (record.fingerprint) value += to_bytes(*record.fingerprint);
  if (!record.trace.empty()) value += varint(record.trace.size()) + record.trace;
  if (!record.reason.empty()) value += varint(record.reason.size()) + record.reason;
  if (record.result) value += *record.result;
  return value;
}

std::optional<RecordState> state_of(std::string_view value) noexcept {
  if (value.empty()) return std::nullopt;
  const auto marks = static_cast<unsigned char>(value.front());
  const unsigned state = marks & Mark::state_bits;
  if ((marks & layout_bits) != layout_1 || state < 1 || state > 5) return std::nullopt;
  return static_cast<RecordState>(state);
}

StoredRecord decode(std::string_view value) {
  const std::optional<RecordState> state = state_of(value);
  if (!state) Cursor::corrupt();
  Cursor cursor(value);
  const unsigned marks = cursor.byte();
  StoredRecord record;
  record.state = *state;
  const unsigned parts = (marks & Mark::has_parts) != 0 ? cursor.byte() : usual_parts(record.state);
  const bool has_times = (parts & Part::times) != 0;
  if ((parts & Part::unknown_part) != 0 || has_times != holds_times(record.state, has_times)) {
    Cursor::corrupt();
  }

  record.retryability =
      (parts & Part::permanent) != 0 ? Retryability::permanent : Retryability::retryable;
  record.mode = (marks & Mark::hold) != 0 ? RecordMode::hold : RecordMode::take_over;
  record.effect_marked = (marks & Mark::effect_marked) != 0;
  record.ownership.fence = 1;
  if ((parts & Part::counts) != 0) {
    record.ownership.fence = cursor.number();
    record.attempt = static_cast<std::uint32_t>(cursor.number());
  }
  const std::string_view owner = cursor.bytes(owner_bytes(record.state));
  OwnerToken::Bytes token{};
  std::copy(owner.begin(), owner.end(), token.begin());
  record.ownership.owner = OwnerToken(token);
  if (record.state == RecordState::processing) record.lease = cursor.span();
  if (has_times) {
    RecordTimes at;
    at.created = Timestamp{since_epoch(cursor.fixed(created_bytes))};
    at.updated = at.created + cursor.span();
    record.times = at;
  }
  if (has_retention(record.state)) record.retention = cursor.retention();
  if (record.state == RecordState::success) {
    record.took = cursor.span();
    record.end_mark = static_cast<std::uint8_t>(cursor.byte());
  }
  if ((parts & Part::fingerprint) != 0) {
    const std::string_view bytes = cursor.bytes(fingerprint_bytes);
    Fingerprint::Part part;
    part.scheme = static_cast<std::uint8_t>(bytes.front());
    std::copy(bytes.begin() + 1, bytes.end(), part.digest.begin());
    record.fingerprint = part;
  }
  if ((parts & Part::trace) != 0) record.trace = cursor.bytes(cursor.number());
  if ((parts & Part::reason) != 0) record.reason = cursor.bytes(cursor.number());
  if ((parts & Part::result) != 0) record.result.emplace(cursor.rest());
  if (!cursor.at_end()) Cursor::corrupt();
  return record;
}

std::string first_value(const BeginRequest& request) {
  StoredRecord record{.state = RecordState::processing,
                      .retryability = Retryability::retryable,
                      .mode = request.mode,
                      .effect_marked = false,
                      .ownership = {request.owner, 1},
                      .attempt = 1,
                      .lease = stored_lease(request.lease),
                      .times = std::nullopt,
                      .retention = milliseconds{0},
                      .took = milliseconds{0},
                      .end_mark = 0,
                      .fingerprint = std::nullopt,
                      .trace = request.trace,
                      .reason = {},
                      .result = std::nullopt};
  if (request.fingerprint) record.fingerprint = request.fingerprint->current();
  return encode(record);
}

namespace {

/// When the time to live of an unfinished record was given.
std::optional<Timestamp> start_of(std::int64_t end) noexcept {
  if (end < 0) return std::nullopt;
  return Timestamp{since_epoch(end)} - unfinished_ttl;
}

RecordTimes times_of(const StoredRecord& record, std::int64_t end) noexcept {
  if (record.times) return *record.times;
  if (record.state == RecordState::success) {
    if (end < 0) return {};
    const Timestamp updated = Timestamp{since_epoch(end)} - record.retention;
    return {updated - record.took, updated};
  }
  const Timestamp start = start_of(end).value_or(Timestamp{});
  return {start, start};
}

}  // namespace

RecordFacts facts_of(const StoredRecord& record, std::int64_t end) {
  const RecordTimes at = times_of(record, end);
  RecordFacts facts{.state = record.state,
                    .retryability = record.retryability,
                    .mode = record.mode,
                    .effect_marked = record.effect_marked,
                    .ownership = record.ownership,
                    .fingerprint = record.fingerprint,
                    .lease_until = never,
                    .expires_at = never,
                    .created_at = at.created};
  if (record.state == RecordState::processing && record.lease > milliseconds{0}) {
    if (const std::optional<Timestamp> start = start_of(end)) {
      facts.lease_until = *start + record.lease;
    }
  }
  if (record.state == RecordState::success) {
    if (end >= 0) facts.expires_at = Timestamp{since_epoch(end)};
  } else if (has_retention(record.state)) {
    facts.expires_at = at.updated + record.retention;
  }
  return facts;
}

milliseconds remaining_of(const StoredRecord& record, std::int64_t end, Timestamp now) {
  if (record.state != RecordState::success || end >= 0) {
    return std::max(milliseconds{0}, facts_of(record, end).expires_at - now);
  }
  const std::int64_t step = end_mark_step(record.retention);
  const std::int64_t all = step * end_marks;
  const std::int64_t at = record.end_mark * step;
  const std::int64_t left = (at - now.time_since_epoch().count() % all + all) % all;
  return milliseconds{left > record.retention.count() ? 0 : left};  // a step behind now: over
}

Timestamp updated_at(const StoredRecord& record, std::int64_t end) {
  return times_of(record, end).updated;
}

Record to_record(const Key& key, StoredRecord stored, std::int64_t end) {
  const RecordFacts facts = facts_of(stored, end);
  Record record{.key = key,
                .state = stored.state,
                .mode = stored.mode,
                .effect_marked = stored.effect_marked,
                .ownership = stored.ownership,
                .attempt = stored.attempt,
                .fingerprint = stored.fingerprint,
                .created_at = facts.created_at,
                .updated_at = updated_at(stored, end),
                .lease_until = std::nullopt,
                .expires_at = std::nullopt,
                .result = std::nullopt,
                .failure = std::nullopt,
                .trace = std::move(stored.trace)};
  if (facts.lease_until != never) record.lease_until = facts.lease_until;
  if (facts.expires_at != never) record.expires_at = facts.expires_at;
  if (stored.state == RecordState::success) record.result = std::move(stored.result);
  if (stored.state == RecordState::failed) {
    record.failure =
        Failure{stored.retryability, std::move(stored.reason), std::move(stored.result)};
  }
  return record;
}

}  // namespace detail::redis
}  // namespace v0
}  // namespace idempotency
