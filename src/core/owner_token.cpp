#include <openssl/rand.h>

#include <array>
#include <cstring>

#include "core/fork_generation.hpp"
#include "idempotency/error.hpp"
#include "idempotency/lease.hpp"

namespace idempotency {
inline namespace v0 {

namespace {

/// Random bytes of one thread, fetched many at a time; what a parent fetched is not used in its child.
struct Supply {
  static constexpr std::size_t size = 4'096;

  std::array<std::uint8_t, size> bytes{};
  std::size_t used = size;
  std::uint64_t generation = 0;
};

void refill(Supply& supply, std::uint64_t generation) {
  if (RAND_bytes(supply.bytes.data(), static_cast<int>(supply.bytes.size())) != 1) {
    supply.used = Supply::size;
    throw Error(Errc::store_unavailable,
                "the operating system gave no random bytes for an owner token; repeat the call");
  }
  supply.used = 0;
  supply.generation = generation;
}

}  // namespace

OwnerToken OwnerToken::generate() {
  thread_local Supply supply;
  Bytes bytes;
  const std::uint64_t generation = detail::fork_generation();
  if (supply.generation != generation || supply.used + bytes.size() > Supply::size) {
    refill(supply, generation);
  }
  std::memcpy(bytes.data(), supply.bytes.data() + supply.used, bytes.size());
  std::memset(supply.bytes.data() + supply.used, 0, bytes.size());
  supply.used += bytes.size();
  return OwnerToken(bytes);
}

}  // namespace v0
}  // namespace idempotency
