#include "redis/redis_record.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "support/error_of.hpp"

namespace idempotency {
namespace {

using detail::redis::decode;
using detail::redis::encode;
using detail::redis::first_value;
using detail::redis::no_end;
using detail::redis::stored_lease;
using detail::redis::stored_retention;
using detail::redis::StoredRecord;
using detail::redis::unfinished_ttl;
using std::chrono::milliseconds;
using testing_support::code_of;

OwnerToken owner() {
  OwnerToken::Bytes bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::uint8_t>(0xa0 + i);
  return OwnerToken(bytes);
}

std::string hex(const std::string& bytes) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  for (const char c : bytes) {
    text += digits[static_cast<unsigned char>(c) >> 4];
    text += digits[static_cast<unsigned char>(c) & 0x0f];
  }
  return text;
}

constexpr detail::redis::RecordTimes times{Timestamp{milliseconds{0x0198'7654'3210}},
                                           Timestamp{milliseconds{0x0198'7654'3210 + 300}}};

StoredRecord succeeded() {
  StoredRecord record;
  record.state = RecordState::success;
  record.ownership = {detail::redis::kept_of(owner()), 2};
  record.attempt = 2;
  record.times = times;
  record.retention = std::chrono::hours{1};
  record.result = "charge-1";
  return record;
}

std::vector<StoredRecord> one_of_each() {
  StoredRecord fresh;
  fresh.ownership = {owner(), 1};
  fresh.lease = std::chrono::seconds{30};
  fresh.trace = "request-1";
  StoredRecord marked = fresh;
  marked.effect_marked = true;
  marked.times = times;
  marked.fingerprint = Fingerprint::of_bytes("100 cents").current();
  StoredRecord uncertain = marked;
  uncertain.state = RecordState::uncertain;
  uncertain.mode = RecordMode::hold;
  uncertain.lease = milliseconds{0};
  StoredRecord failed = uncertain;
  failed.state = RecordState::failed;
  failed.retryability = Retryability::permanent;
  failed.retention = milliseconds{1};
  failed.reason = "card declined";
  failed.result = std::string("\0\r\n", 3);
  StoredRecord empty_result = succeeded();
  empty_result.result = "";
  StoredRecord no_result = succeeded();
  no_result.result = std::nullopt;
  StoredRecord issued = succeeded();
  issued.state = RecordState::issued;
  issued.ownership.owner = owner();
  issued.result = std::nullopt;
  StoredRecord large = succeeded();
  large.ownership.fence = ~std::uint64_t{0};
  large.retention = unfinished_ttl;
  return {fresh, marked, uncertain, failed, succeeded(), empty_result, no_result, issued, large};
}

// The format is stored: these bytes never change.
TEST(RedisRecord, LaysAFirstValueOutAsDocumented) {
  const std::string value = first_value({.key = {"payment", "order-7"},
                                         .owner = owner(),
                                         .mode = RecordMode::hold,
                                         .lease = milliseconds{30'000},
                                         .trace = "r1"});

  EXPECT_EQ(hex(value),
            "01"                                // layout 1
            "11"                                // processing, hold
            "04"                                // a trace
            "01"                                // fence 1
            "01"                                // attempt 1
            "a0a1a2a3a4a5a6a7a8a9aaabacadaeaf"  // owner
            "b0ea01"                            // lease 30000
            "027231");                          // "r1"
}

TEST(RedisRecord, LaysASucceededRecordOutAsDocumented) {
  EXPECT_EQ(hex(encode(succeeded())),
            "01"                  // layout 1
            "02"                  // success, take over
            "11"                  // times, a result
            "02"                  // fence 2
            "02"                  // attempt 2
            "a0a1a2a3a4a5a6a7"    // the owner's first 8 bytes
            "019876543210"        // created
            "ac02"                // updated 300 ms later
            "80dddb01"            // retention 3600000
            "6368617267652d31");  // "charge-1"
}

TEST(RedisRecord, LaysAFailedRecordOutAsDocumented) {
  StoredRecord record;
  record.state = RecordState::failed;
  record.retryability = Retryability::permanent;
  record.effect_marked = true;
  record.ownership = {owner(), 300};
  record.attempt = 1;
  record.times = times;
  record.retention = milliseconds{1};
  record.fingerprint = Fingerprint::Part{7, {}};
  record.trace = "t";
  record.reason = "no";

  EXPECT_EQ(hex(encode(record)),
            "01"                                // layout 1
            "2b"                                // failed, permanent, effect marked
            "0f"                                // times, fingerprint, trace, reason
            "ac02"                              // fence 300
            "01"                                // attempt 1
            "a0a1a2a3a4a5a6a7a8a9aaabacadaeaf"  // owner
            "019876543210"                      // created
            "ac02"                              // updated 300 ms later
            "01"                                // retention 1
            "07"                                // fingerprint: scheme 7, digest
            "0000000000000000000000000000000000000000000000000000000000000000"
            "0174"      // "t"
            "026e6f");  // "no"
}

TEST(RedisRecord, ReadsBackWhatItWrote) {
  for (const StoredRecord& record : one_of_each())
    EXPECT_EQ(decode(encode(record)), record) << hex(encode(record));
}

TEST(RedisRecord, RefusesValuesThatBreakOffInTheirFrontParts) {
  for (const StoredRecord& record : one_of_each()) {
    StoredRecord bare = record;
    bare.result = std::nullopt;  // a result has no length of its own: it is the rest
    const std::string value = encode(bare);
    for (std::size_t size = 0; size < value.size(); ++size) {
      EXPECT_EQ(code_of([&] { static_cast<void>(decode(value.substr(0, size))); }),
                Errc::store_corrupt)
          << hex(value.substr(0, size));
    }
    EXPECT_EQ(code_of([&] { static_cast<void>(decode(value + "x")); }), Errc::store_corrupt);
  }
}

TEST(RedisRecord, RefusesOtherLayoutsStatesAndMarks) {
  const std::string good = encode(succeeded());
  const auto with = [&](std::size_t at, char byte) {
    std::string value = good;
    value[at] = byte;
    return value;
  };

  for (const std::string& value : {with(0, 0), with(0, 2), with(1, 0), with(1, 6), with(1, 7),
                                   with(1, 0x42), with(2, 0x31), with(2, '\x91')}) {
    EXPECT_EQ(code_of([&] { static_cast<void>(decode(value)); }), Errc::store_corrupt)
        << hex(value);
  }
}

TEST(RedisRecord, FitsASmallSuccessIntoTheServersSmallestString) {
  StoredRecord record = succeeded();
  record.times->updated = record.times->created + std::chrono::seconds{16};
  record.retention = std::chrono::hours{24 * 30};
  record.result = "sixteen bytes...";

  EXPECT_LE(encode(record).size(), 44U);
}

// RD-09
TEST(RedisRecord, NeverRoundsATimeToNothing) {
  EXPECT_EQ(stored_lease(milliseconds{0}), milliseconds{1});
  EXPECT_EQ(stored_lease(milliseconds{-5}), milliseconds{1});
  EXPECT_EQ(stored_lease(milliseconds{999}), milliseconds{999});
  EXPECT_EQ(stored_lease(unfinished_ttl), unfinished_ttl);
  EXPECT_EQ(stored_lease(milliseconds::max()), milliseconds{0}) << "no deadline";
  EXPECT_EQ(stored_retention(milliseconds{0}), milliseconds{1});
  EXPECT_EQ(stored_retention(milliseconds{1500}), milliseconds{1500});
  EXPECT_EQ(stored_retention(milliseconds::max()), unfinished_ttl);
}

TEST(RedisRecord, DerivesTheTimesOfAFirstValueFromWhenItEnds) {
  const Key key{"payment", "order-7"};
  const StoredRecord record =
      decode(first_value({.key = key, .owner = owner(), .lease = milliseconds{30'000}}));
  const Timestamp start{milliseconds{1'700'000'000'123}};

  const Record seen = to_record(key, record, (start + unfinished_ttl).time_since_epoch().count());

  EXPECT_EQ(seen.created_at, start);
  EXPECT_EQ(seen.updated_at, start);
  EXPECT_EQ(seen.lease_until, start + milliseconds{30'000});
}

// ID-01
TEST(RedisRecord, GivesNoDeadlineToARecordThatNeverEnds) {
  const Key key{"payment", "order-7"};
  const StoredRecord record = decode(first_value({.key = key, .owner = owner()}));

  EXPECT_EQ(to_record(key, record, no_end).lease_until, std::nullopt);
  EXPECT_EQ(lease_of(facts_of(record, no_end), Timestamp::max() - milliseconds{1}),
            LeaseStatus::running);
}

}  // namespace
}  // namespace idempotency
