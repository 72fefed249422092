#include "memory/record_block.hpp"

#include <algorithm>
#include <cstring>
#include <new>

namespace idempotency {
inline namespace v0 {
namespace detail {

namespace {

constexpr std::size_t owner_at = 0;
constexpr std::size_t created_at = 16;
constexpr std::size_t updated_at = 22;
constexpr std::size_t deadline_at = 28;
constexpr std::size_t flags_at = 34;
constexpr std::size_t fixed_bytes = 35;

constexpr std::size_t time_bytes = 6;
constexpr std::uint64_t no_time = (std::uint64_t{1} << (8 * time_bytes)) - 1;

constexpr unsigned state_mask = 0x07;
constexpr unsigned hold_flag = 0x08;
constexpr unsigned effect_flag = 0x10;
constexpr unsigned permanent_flag = 0x20;
constexpr unsigned fingerprint_flag = 0x40;
constexpr unsigned result_flag = 0x80;

// four and two bytes rather than six, which compilers copy one by one
void write_time(std::byte* at, Timestamp time) noexcept {
  const auto count = time.time_since_epoch().count();
  const std::uint64_t value = count < 0 ? 0 : std::min(static_cast<std::uint64_t>(count), no_time);
  const auto low = static_cast<std::uint32_t>(value);
  const auto high = static_cast<std::uint16_t>(value >> 32U);
  std::memcpy(at, &low, sizeof low);
  std::memcpy(at + sizeof low, &high, sizeof high);
}

Timestamp read_time(const std::byte* at) noexcept {
  std::uint32_t low = 0;
  std::uint16_t high = 0;
  std::memcpy(&low, at, sizeof low);
  std::memcpy(&high, at + sizeof low, sizeof high);
  const std::uint64_t value = std::uint64_t{high} << 32U | low;
  if (value == no_time) return never;
  return Timestamp{std::chrono::milliseconds{static_cast<std::int64_t>(value)}};
}

OwnerToken read_owner(const std::byte* block) noexcept {
  OwnerToken::Bytes owner;
  std::memcpy(owner.data(), block + owner_at, owner.size());
  return OwnerToken(owner);
}

unsigned flags_of(const RecordParts& parts) noexcept {
  auto flags = static_cast<unsigned>(parts.facts.state);
  if (parts.facts.mode == RecordMode::hold) flags |= hold_flag;
  if (parts.facts.effect_marked) flags |= effect_flag;
  if (parts.facts.retryability == Retryability::permanent) flags |= permanent_flag;
  if (parts.facts.fingerprint) flags |= fingerprint_flag;
  if (parts.result) flags |= result_flag;
  return flags;
}

std::size_t number_bytes(std::uint64_t number) noexcept {
  std::size_t bytes = 1;
  for (; number >= 0x80; number >>= 7U)
    ++bytes;
  return bytes;
}

std::size_t bytes_of(const RecordParts& parts) noexcept {
  std::size_t bytes = fixed_bytes + number_bytes(parts.key.size()) + number_bytes(parts.type_size) +
                      parts.key.size() + number_bytes(parts.facts.ownership.fence) +
                      number_bytes(parts.attempt) + number_bytes(parts.reason.size()) +
                      number_bytes(parts.trace.size()) + parts.reason.size() + parts.trace.size();
  if (parts.result) bytes += number_bytes(parts.result->size()) + parts.result->size();
  if (parts.facts.fingerprint) bytes += 1 + parts.facts.fingerprint->digest.size();
  return bytes;
}

class Writer {
 public:
  explicit Writer(std::byte* at) noexcept : at_(at) {}

  void number(std::uint64_t value) noexcept {
    for (; value >= 0x80; value >>= 7U)
      *at_++ = static_cast<std::byte>(value | 0x80U);
    *at_++ = static_cast<std::byte>(value);
  }
  void bytes(std::string_view text) noexcept {
    if (!text.empty()) std::memcpy(at_, text.data(), text.size());
    at_ += text.size();
  }
  void fingerprint(const Fingerprint::Part& part) noexcept {
    *at_++ = static_cast<std::byte>(part.scheme);
    std::memcpy(at_, part.digest.data(), part.digest.size());
    at_ += part.digest.size();
  }

 private:
  std::byte* at_;
};

class Reader {
 public:
  explicit Reader(const std::byte* at) noexcept : at_(at) {}

  std::uint64_t number() noexcept {
    std::uint64_t value = static_cast<std::uint64_t>(*at_) & 0x7fU;
    for (unsigned shift = 7; (*at_++ & std::byte{0x80}) != std::byte{0}; shift += 7) {
      value |= (static_cast<std::uint64_t>(*at_) & 0x7fU) << shift;
    }
    return value;
  }
  std::string_view bytes(std::size_t size) noexcept {
    const std::string_view text(reinterpret_cast<const char*>(at_), size);
    at_ += size;
    return text;
  }
  std::optional<std::string_view> bytes_if(bool present, std::size_t size) noexcept {
    if (!present) return std::nullopt;
    return bytes(size);
  }
  std::optional<Fingerprint::Part> fingerprint_if(bool present) noexcept {
    if (!present) return std::nullopt;
    Fingerprint::Part part;
    part.scheme = static_cast<std::uint8_t>(*at_++);
    std::memcpy(part.digest.data(), at_, part.digest.size());
    at_ += part.digest.size();
    return part;
  }

 private:
  const std::byte* at_;
};

}  // namespace

std::byte* RecordBlock::make(const RecordParts& parts) noexcept {
  auto* block = static_cast<std::byte*>(::operator new(bytes_of(parts), std::nothrow));
  if (block == nullptr) return nullptr;
  std::memcpy(block + owner_at, parts.facts.ownership.owner.bytes().data(),
              parts.facts.ownership.owner.bytes().size());
  write_time(block + created_at, parts.facts.created_at);
  write_time(block + updated_at, parts.updated_at);
  write_time(block + deadline_at, parts.deadline());
  block[flags_at] = static_cast<std::byte>(flags_of(parts));
  Writer writer(block + fixed_bytes);
  writer.number(parts.key.size());
  writer.number(parts.type_size);
  writer.bytes(parts.key);
  writer.number(parts.facts.ownership.fence);
  writer.number(parts.attempt);
  if (parts.result) writer.number(parts.result->size());
  writer.number(parts.reason.size());
  writer.number(parts.trace.size());
  if (parts.facts.fingerprint) writer.fingerprint(*parts.facts.fingerprint);
  if (parts.result) writer.bytes(*parts.result);
  writer.bytes(parts.reason);
  writer.bytes(parts.trace);
  return block;
}

void RecordBlock::free(std::byte* block) noexcept { ::operator delete(block); }

// every member is given at once: clearing the whole first costs as much as all the rest
RecordParts RecordBlock::read(const std::byte* block) noexcept {
  const auto flags = static_cast<unsigned>(block[flags_at]);
  const auto state = static_cast<RecordState>(flags & state_mask);
  const Timestamp deadline = read_time(block + deadline_at);
  const bool processing = state == RecordState::processing;
  Reader reader(block + fixed_bytes);
  const std::size_t key_size = reader.number();
  const std::size_t type_size = reader.number();
  const std::string_view key = reader.bytes(key_size);
  const std::uint64_t fence = reader.number();
  const auto attempt = static_cast<std::uint32_t>(reader.number());
  const bool has_result = (flags & result_flag) != 0;
  const std::size_t result_size = has_result ? reader.number() : 0;
  const std::size_t reason_size = reader.number();
  const std::size_t trace_size = reader.number();
  return RecordParts{
      .facts = {.state = state,
                .retryability = (flags & permanent_flag) != 0 ? Retryability::permanent
                                                              : Retryability::retryable,
                .mode = (flags & hold_flag) != 0 ? RecordMode::hold : RecordMode::take_over,
                .effect_marked = (flags & effect_flag) != 0,
                .ownership = {read_owner(block), fence},
                .fingerprint = reader.fingerprint_if((flags & fingerprint_flag) != 0),
                .lease_until = processing ? deadline : never,
                .expires_at = processing ? never : deadline,
                .created_at = read_time(block + created_at)},
      .attempt = attempt,
      .updated_at = read_time(block + updated_at),
      .key = key,
      .type_size = type_size,
      .result = reader.bytes_if(has_result, result_size),
      .reason = reader.bytes(reason_size),
      .trace = reader.bytes(trace_size)};
}

std::string_view RecordBlock::key(const std::byte* block) noexcept {
  Reader reader(block + fixed_bytes);
  const std::size_t key_size = reader.number();
  static_cast<void>(reader.number());
  return reader.bytes(key_size);
}

Timestamp RecordBlock::expires_at(const std::byte* block) noexcept {
  const auto state = static_cast<RecordState>(static_cast<unsigned>(block[flags_at]) & state_mask);
  const bool unfinished = state == RecordState::processing || state == RecordState::uncertain;
  return unfinished ? never : read_time(block + deadline_at);
}

void RecordBlock::set_deadline(std::byte* block, Timestamp deadline) noexcept {
  write_time(block + deadline_at, deadline);
}

void RecordBlock::mark_effect(std::byte* block) noexcept {
  block[flags_at] |= static_cast<std::byte>(effect_flag);
}

void RecordBlock::make_uncertain(std::byte* block, Timestamp now) noexcept {
  const auto flags = static_cast<unsigned>(block[flags_at]) & ~state_mask;
  block[flags_at] = static_cast<std::byte>(flags | static_cast<unsigned>(RecordState::uncertain));
  write_time(block + updated_at, now);
  write_time(block + deadline_at, never);
}

std::size_t RecordBlock::heap_bytes(const RecordParts& parts) noexcept {
  constexpr std::size_t header = 8;
  constexpr std::size_t unit = 16;
  constexpr std::size_t least = 32;
  return std::max(least, (bytes_of(parts) + header + unit - 1) / unit * unit);
}

Record record_of(const RecordParts& parts) {
  Record record{
      .key = Key(parts.key.substr(0, parts.type_size), parts.key.substr(parts.type_size + 1)),
      .state = parts.facts.state,
      .mode = parts.facts.mode,
      .effect_marked = parts.facts.effect_marked,
      .ownership = parts.facts.ownership,
      .attempt = parts.attempt,
      .fingerprint = parts.facts.fingerprint,
      .created_at = parts.facts.created_at,
      .updated_at = parts.updated_at,
      .lease_until = std::nullopt,
      .expires_at = std::nullopt,
      .result = std::nullopt,
      .failure = std::nullopt,
      .trace = std::string(parts.trace)};
  if (parts.facts.state == RecordState::processing && parts.deadline() != never) {
    record.lease_until = parts.deadline();
  }
  const bool finished = parts.facts.state == RecordState::success ||
                        parts.facts.state == RecordState::failed ||
                        parts.facts.state == RecordState::issued;
  if (finished && parts.deadline() != never) record.expires_at = parts.deadline();
  if (parts.facts.state == RecordState::success && parts.result) {
    record.result = std::string(*parts.result);
  }
  if (parts.facts.state == RecordState::failed) {
    record.failure = Failure{.retryability = parts.facts.retryability,
                             .reason = std::string(parts.reason),
                             .result = std::nullopt};
    if (parts.result) record.failure->result = std::string(*parts.result);
  }
  return record;
}

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
