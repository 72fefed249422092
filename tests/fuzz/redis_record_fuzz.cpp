// libFuzzer: a value that Redis holds is refused as corrupt, or is a record that reads the same when it is written again, and that can
// be judged and shown whenever its key ends.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "idempotency/error.hpp"
#include "redis/redis_record.hpp"
#include "seeds.hpp"

namespace {

using namespace idempotency;
using namespace idempotency::detail::redis;

void use(const StoredRecord& record) {
  for (const std::int64_t end :
       {no_end, std::int64_t{0}, std::int64_t{1'760'000'000'000}, INT64_MAX, INT64_MIN + 1}) {
    const Timestamp now{std::chrono::milliseconds{1'760'000'000'000}};
    static_cast<void>(facts_of(record, end));
    static_cast<void>(updated_at(record, end));
    if (remaining_of(record, end, now) < std::chrono::milliseconds{0}) std::abort();
    if (to_record(Key("type", "value"), record, end).state != record.state) std::abort();
  }
}

std::string seed_of(const StoredRecord& record) { return encode(record); }

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view value(reinterpret_cast<const char*>(data), size);
  try {
    const StoredRecord record = decode(value);
    if (state_of(value) != record.state) std::abort();
    if (decode(encode(record)) != record) std::abort();
    use(record);
  } catch (const Error& error) {
    if (error.code() != Errc::store_corrupt) std::abort();
  }
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  const Timestamp now{std::chrono::milliseconds{1'760'000'000'000}};
  const StoredRecord processing{.ownership = {OwnerToken::generate(), 1},
                                .lease = std::chrono::seconds{30},
                                .fingerprint = Fingerprint::of("a").current(),
                                .trace = "message-1"};
  StoredRecord success = processing;
  success.state = RecordState::success;
  success.ownership.owner = kept_of(success.ownership.owner);
  success.lease = std::chrono::milliseconds{0};
  success.retention = std::chrono::hours{1};
  success.took = std::chrono::milliseconds{12};
  success.result = "receipt";
  StoredRecord failed = processing;
  failed.state = RecordState::failed;
  failed.lease = std::chrono::milliseconds{0};
  failed.times = RecordTimes{now, now};
  failed.retention = std::chrono::hours{1};
  failed.reason = "declined";
  return idempotency::fuzzing::mutate_with_seeds(
      {seed_of(processing), seed_of(success), seed_of(failed)}, data, size, max_size, seed);
}
