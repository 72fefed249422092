#include "caching/cache_entry.hpp"

#include <cstring>
#include <new>
#include <type_traits>

namespace idempotency {
inline namespace v0 {
namespace detail {

namespace {

using Kind = EntryParts::Kind;

struct Head {
  Timestamp ends;
  std::uint64_t fence;
  std::uint64_t result_size;
  std::uint32_t reason_size;
  std::uint16_t key_size;
  Kind kind;
  bool has_fingerprint;
  bool has_result;
  bool visited;
};
static_assert(std::is_trivially_destructible_v<Head> && alignof(Head) <= alignof(std::max_align_t));

constexpr std::size_t fingerprint_bytes = 1 + sizeof(Fingerprint::Digest);
constexpr std::size_t owner_bytes = sizeof(OwnerToken::Bytes);

const Head& head_of(const std::byte* entry) noexcept {
  return *std::launder(reinterpret_cast<const Head*>(entry));
}

std::size_t key_at(Kind kind, bool has_fingerprint) noexcept {
  return sizeof(Head) + (has_fingerprint ? fingerprint_bytes : 0) +
         (kind == Kind::note ? owner_bytes : 0);
}

std::size_t on_heap(std::size_t bytes) noexcept {
  constexpr std::size_t header = 8;
  constexpr std::size_t unit = 16;
  return (bytes + header + unit - 1) / unit * unit;
}

std::size_t bytes_of(const EntryParts& parts) noexcept {
  return key_at(parts.kind, parts.fingerprint.has_value()) + parts.key.size() +
         (parts.result ? parts.result->size() : 0) + parts.reason.size();
}

std::byte* append(std::byte* at, const void* bytes, std::size_t size) noexcept {
  if (size != 0) std::memcpy(at, bytes, size);
  return at + size;
}

std::string_view text_at(const std::byte* at, std::size_t size) noexcept {
  return {reinterpret_cast<const char*>(at), size};
}

std::optional<Fingerprint::Part> read_fingerprint(const Head& head,
                                                  const std::byte* entry) noexcept {
  if (!head.has_fingerprint) return std::nullopt;
  Fingerprint::Part part;
  part.scheme = static_cast<std::uint8_t>(entry[sizeof(Head)]);
  std::memcpy(part.digest.data(), entry + sizeof(Head) + 1, part.digest.size());
  return part;
}

OwnerToken read_owner(const Head& head, const std::byte* entry) noexcept {
  if (head.kind != Kind::note) return OwnerToken();
  OwnerToken::Bytes owner;
  std::memcpy(owner.data(), entry + key_at(head.kind, head.has_fingerprint) - owner_bytes,
              owner_bytes);
  return OwnerToken(owner);
}

}  // namespace

std::byte* CacheEntry::make(const EntryParts& parts) noexcept {
  void* memory = ::operator new(bytes_of(parts), std::nothrow);
  if (memory == nullptr) return nullptr;
  new (memory) Head{.ends = parts.ends,
                    .fence = parts.ownership.fence,
                    .result_size = parts.result ? parts.result->size() : 0,
                    .reason_size = static_cast<std::uint32_t>(parts.reason.size()),
                    .key_size = static_cast<std::uint16_t>(parts.key.size()),
                    .kind = parts.kind,
                    .has_fingerprint = parts.fingerprint.has_value(),
                    .has_result = parts.result.has_value(),
                    .visited = false};
  auto* entry = static_cast<std::byte*>(memory);
  std::byte* at = entry + sizeof(Head);
  if (parts.fingerprint) {
    at = append(at, &parts.fingerprint->scheme, 1);
    at = append(at, parts.fingerprint->digest.data(), parts.fingerprint->digest.size());
  }
  if (parts.kind == Kind::note) {
    at = append(at, parts.ownership.owner.bytes().data(), owner_bytes);
  }
  at = append(at, parts.key.data(), parts.key.size());
  if (parts.result) at = append(at, parts.result->data(), parts.result->size());
  append(at, parts.reason.data(), parts.reason.size());
  return entry;
}

void CacheEntry::free(std::byte* entry) noexcept { ::operator delete(entry); }

EntryParts CacheEntry::read(const std::byte* entry) noexcept {
  const Head& head = head_of(entry);
  const std::byte* at = entry + key_at(head.kind, head.has_fingerprint);
  const std::byte* result = at + head.key_size;
  return EntryParts{
      .kind = head.kind,
      .fingerprint = read_fingerprint(head, entry),
      .ownership = {read_owner(head, entry), head.fence},
      .ends = head.ends,
      .key = text_at(at, head.key_size),
      .result = head.has_result ? std::optional(text_at(result, head.result_size)) : std::nullopt,
      .reason = text_at(result + head.result_size, head.reason_size)};
}

std::string_view CacheEntry::key(const std::byte* entry) noexcept {
  const Head& head = head_of(entry);
  return text_at(entry + key_at(head.kind, head.has_fingerprint), head.key_size);
}

Timestamp CacheEntry::ends(const std::byte* entry) noexcept { return head_of(entry).ends; }

std::size_t CacheEntry::heap_bytes(const std::byte* entry) noexcept {
  const Head& head = head_of(entry);
  return on_heap(key_at(head.kind, head.has_fingerprint) + head.key_size + head.result_size +
                 head.reason_size);
}

std::size_t CacheEntry::heap_bytes(const EntryParts& parts) noexcept {
  return on_heap(bytes_of(parts));
}

bool CacheEntry::visited(const std::byte* entry) noexcept { return head_of(entry).visited; }

void CacheEntry::set_visited(std::byte* entry, bool visited) noexcept {
  std::launder(reinterpret_cast<Head*>(entry))->visited = visited;
}

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
