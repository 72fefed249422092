#include "redis/redis_record.hpp"

#include <algorithm>
#include <utility>

namespace idempotency {
inline namespace v0 {
namespace detail::redis {

namespace {

using std::chrono::milliseconds;

constexpr char layout_version = 1;
constexpr std::size_t kept_owner_bytes = 8;
constexpr std::size_t fingerprint_bytes = 1 + sizeof(Fingerprint::Digest);
constexpr int created_bytes = 6;

enum Mark : unsigned { permanent = 0x08, hold = 0x10, effect_marked = 0x20 };
enum Part : unsigned {
  times = 0x01,
  fingerprint = 0x02,
  trace = 0x04,
  reason = 0x08,
  result = 0x10
};

std::size_t owner_bytes(RecordState state) noexcept {
  return state == RecordState::success ? kept_owner_bytes : sizeof(OwnerToken::Bytes);
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

}  // namespace

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
  unsigned marks = static_cast<unsigned>(record.state);
  if (record.retryability == Retryability::permanent) marks |= Mark::permanent;
  if (record.mode == RecordMode::hold) marks |= Mark::hold;
  if (record.effect_marked) marks |= Mark::effect_marked;
  unsigned parts = 0;
  if (record.times) parts |= Part::times;
  if (record.fingerprint) parts |= Part::fingerprint;
  if (!record.trace.empty()) parts |= Part::trace;
  if (!record.reason.empty()) parts |= Part::reason;
  if (record.result) parts |= Part::result;

  std::string value{layout_version, static_cast<char>(marks), static_cast<char>(parts)};
  value += varint(record.ownership.fence);
  value += varint(record.attempt);
  const OwnerToken::Bytes& owner = record.ownership.owner.bytes();
  value.append(owner.begin(),
               owner.begin() + static_cast<std::ptrdiff_t>(owner_bytes(record.state)));
  if (record.state == RecordState::processing) value += varint(to_unsigned(record.lease));
  if (record.times) {
    const std::uint64_t created = to_unsigned(record.times->created.time_since_epoch());
    for (int shift = 8 * (created_bytes - 1); shift >= 0; shift -= 8)
      value += static_cast<char>((created >> shift) & 0xff);
    value += varint(to_unsigned(record.times->updated - record.times->created));
  }
  if (has_retention(record.state)) value += varint(to_unsigned(record.retention));
  if (record.fingerprint) value += to_bytes(*record.fingerprint);
  if (!record.trace.empty()) value += varint(record.trace.size()) + record.trace;
  if (!record.reason.empty()) value += varint(record.reason.size()) + record.reason;
  if (record.result) value += *record.result;
  return value;
}

StoredRecord decode(std::string_view value) {
  Cursor cursor(value);
  if (cursor.byte() != static_cast<unsigned>(layout_version)) Cursor::corrupt();
  const unsigned marks = cursor.byte();
  const unsigned parts = cursor.byte();
  const unsigned state = marks & 0x07;
  if (state < 1 || state > 5 || (marks & 0xc0) != 0 || (parts & 0xe0) != 0) Cursor::corrupt();

  StoredRecord record;
  record.state = static_cast<RecordState>(state);
  record.retryability =
      (marks & Mark::permanent) != 0 ? Retryability::permanent : Retryability::retryable;
  record.mode = (marks & Mark::hold) != 0 ? RecordMode::hold : RecordMode::take_over;
  record.effect_marked = (marks & Mark::effect_marked) != 0;
  record.ownership.fence = cursor.number();
  record.attempt = static_cast<std::uint32_t>(cursor.number());
  const std::string_view owner = cursor.bytes(owner_bytes(record.state));
  OwnerToken::Bytes token{};
  std::copy(owner.begin(), owner.end(), token.begin());
  record.ownership.owner = OwnerToken(token);
  if (record.state == RecordState::processing) record.lease = cursor.span();
  if ((parts & Part::times) != 0) {
    RecordTimes at;
    at.created = Timestamp{since_epoch(cursor.fixed(created_bytes))};
    at.updated = at.created + cursor.span();
    record.times = at;
  }
  if (has_retention(record.state)) record.retention = cursor.span();
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
  if (has_retention(record.state)) facts.expires_at = at.updated + record.retention;
  return facts;
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
