#include "redis/redis_record.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "idempotency/codec.hpp"
#include "support/error_of.hpp"

namespace idempotency {
namespace {

using detail::redis::decode;
using detail::redis::encode;
using detail::redis::end_mark_of;
using detail::redis::first_value;
using detail::redis::no_end;
using detail::redis::remaining_of;
using detail::redis::state_of;
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

/// As `begin` and `complete` leave it: 300 ms after it began, at the first attempt, for one hour.
StoredRecord succeeded() {
  StoredRecord record;
  record.state = RecordState::success;
  record.ownership = {detail::redis::kept_of(owner()), 1};
  record.retention = std::chrono::hours{1};
  record.took = milliseconds{300};
  record.end_mark = 0xab;
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
  StoredRecord issued = uncertain;
  issued.state = RecordState::issued;
  issued.retention = std::chrono::hours{1};
  StoredRecord large = succeeded();
  large.ownership.fence = ~std::uint64_t{0};
  large.attempt = ~std::uint32_t{0};
  large.retention = unfinished_ttl;
  large.fingerprint = marked.fingerprint;
  large.trace = std::string(300, 't');
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
            "69"                                // layout 1, parts, hold, processing
            "04"                                // a trace
            "a0a1a2a3a4a5a6a7a8a9aaabacadaeaf"  // owner
            "b0ea01"                            // lease 30000
            "027231");                          // "r1"
}

TEST(RedisRecord, LaysASucceededRecordOutAsDocumented) {
  EXPECT_EQ(hex(encode(succeeded())),
            "42"                  // layout 1, success
            "a0a1a2a3"            // the owner's first 4 bytes
            "0c"                  // retention: 1 * 8 + unit 4, an hour
            "ac02"                // it took 300 ms
            "ab"                  // the mark of its end
            "6368617267652d31");  // "charge-1"
}

TEST(RedisRecord, LaysASucceededRecordWithAllPartsOutAsDocumented) {
  StoredRecord record = succeeded();
  record.mode = RecordMode::hold;
  record.ownership.fence = 2;
  record.attempt = 300;
  record.fingerprint = Fingerprint::Part{7, {}};
  record.trace = "t";
  record.retention = milliseconds{1'001};
  record.result = std::nullopt;

  EXPECT_EQ(hex(encode(record)),
            "6a"        // layout 1, parts, hold, success
            "26"        // counts, trace, fingerprint; no result
            "02"        // fence 2
            "ac02"      // attempt 300
            "a0a1a2a3"  // the owner's first 4 bytes
            "c83e"      // retention: 1001 * 8 + unit 0, a millisecond
            "ac02"      // it took 300 ms
            "ab"        // the mark of its end
            "07"        // fingerprint: scheme 7, digest
            "0000000000000000000000000000000000000000000000000000000000000000"
            "0174");  // "t"
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
            "73"    // layout 1, parts, effect marked, failed
            "6f"    // permanent, counts, reason, trace, fingerprint, times
            "ac02"  // fence 300
            "01"    // attempt 1
            "a0a1a2a3a4a5a6a7a8a9aaabacadaeaf"  // owner
            "019876543210"                      // created
            "ac02"                              // updated 300 ms later
            "08"                                // retention: 1 * 8 + unit 0
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

  const auto with_parts = [&](RecordState state, char parts) {
    StoredRecord record = succeeded();
    record.state = state;
    record.times = times;
    record.trace = "parts";
    std::string value = encode(record);
    value[1] = parts;
    return value;
  };

  for (const std::string& value :
       {with(0, 0), with(0, 1), with(0, 0x02), with(0, '\x82'), with(0, '\xc2'), with(0, 0x40),
        with(0, 0x46), with(0, 0x47), with_parts(RecordState::success, '\x84'),
        with_parts(RecordState::success, 0x05), with_parts(RecordState::failed, 0x04),
        with_parts(RecordState::uncertain, 0x04), with_parts(RecordState::processing, '\x80')}) {
    EXPECT_EQ(code_of([&] { static_cast<void>(decode(value)); }), Errc::store_corrupt)
        << hex(value);
  }
}

// 28 bytes are what 48 bytes of the server's memory hold beside its header; one more takes 64.
TEST(RedisRecord, FitsASmallSuccessIntoASmallString) {
  using std::chrono::hours;
  for (const milliseconds retention :
       {milliseconds{1'000}, milliseconds{60'000}, milliseconds{1'800'000}, milliseconds{hours{1}},
        milliseconds{hours{12}}, milliseconds{hours{24}}, milliseconds{hours{24 * 7}},
        milliseconds{hours{24 * 14}}, milliseconds{hours{24 * 30}}, milliseconds{hours{24 * 90}},
        milliseconds{hours{24 * 365}}}) {
    StoredRecord record = succeeded();
    record.retention = retention;
    record.took = milliseconds{16'383};
    record.result = encode_result(std::string("sixteen bytes..."));

    EXPECT_EQ(encode(record).size(), 28U) << retention.count();
    EXPECT_EQ(decode(encode(record)), record);
  }
}

TEST(RedisRecord, KeepsEveryRetentionToTheMillisecond) {
  for (const std::int64_t count :
       {std::int64_t{1}, std::int64_t{127}, std::int64_t{999}, std::int64_t{1'000},
        std::int64_t{1'001}, std::int64_t{59'000}, std::int64_t{600'000}, std::int64_t{3'599'999},
        std::int64_t{86'400'000} * 29, std::int64_t{31'536'000'000} * 999,
        unfinished_ttl.count() - 1, unfinished_ttl.count()}) {
    StoredRecord record = succeeded();
    record.retention = milliseconds{count};

    EXPECT_EQ(decode(encode(record)).retention, milliseconds{count});
  }
}

TEST(RedisRecord, RefusesARetentionThatIsNone) {
  std::string value = encode(succeeded());
  for (const std::string& code : {std::string("\0", 1), std::string("\x07", 1),
                                  std::string("\xff\xff\xff\xff\xff\xff\xff\xff\x7f", 9)}) {
    EXPECT_EQ(code_of([&] { static_cast<void>(decode(std::string(value).replace(5, 1, code))); }),
              Errc::store_corrupt);
  }
}

TEST(RedisRecord, DerivesTheTimesOfASuccessFromWhenItEnds) {
  const Key key{"payment", "order-7"};
  const Timestamp end{milliseconds{1'700'000'000'123}};

  const Record seen = to_record(key, succeeded(), end.time_since_epoch().count());
  const Record endless = to_record(key, succeeded(), no_end);

  EXPECT_EQ(seen.expires_at, end);
  EXPECT_EQ(seen.updated_at, end - std::chrono::hours{1});
  EXPECT_EQ(seen.created_at, seen.updated_at - milliseconds{300});
  EXPECT_EQ(endless.expires_at, std::nullopt);
  EXPECT_EQ(endless.updated_at, Timestamp{});
}

// The remaining retention must never be told too long: whoever caches the result would answer past its end.
TEST(RedisRecord, TellsHowLongASuccessStillAnswersAndNeverTooLong) {
  using std::chrono::hours;
  for (const milliseconds retention :
       {milliseconds{1}, milliseconds{1'000}, milliseconds{8'192}, milliseconds{8'193},
        milliseconds{hours{1}}, milliseconds{hours{24 * 30}}, unfinished_ttl}) {
    const milliseconds slack = std::max(milliseconds{64}, retention / 128 + milliseconds{1});
    for (std::int64_t begin = 1'700'000'000'000; begin < 1'700'000'200'000; begin += 7'919) {
      const Timestamp end = Timestamp{milliseconds{begin}} + retention;
      StoredRecord record = succeeded();
      record.retention = retention;
      record.end_mark = end_mark_of(end, retention);
      for (const milliseconds left :
           {retention, retention - retention / 3, retention / 2, retention / 1'000,
            std::min(retention, slack), milliseconds{1}}) {
        const milliseconds told = remaining_of(record, no_end, end - left);

        ASSERT_LE(told, left) << retention.count() << " at " << begin;
        ASSERT_GE(told, left - slack) << retention.count() << " at " << begin;
      }
      ASSERT_EQ(remaining_of(record, no_end, end), milliseconds{0});
      ASSERT_EQ(remaining_of(record, no_end, end + retention / 2), milliseconds{0});
      ASSERT_EQ(remaining_of(record, end.time_since_epoch().count(), end - milliseconds{1}),
                milliseconds{1});
    }
  }
}

TEST(RedisRecord, TellsTheStateByTheFirstByte) {
  for (const StoredRecord& record : one_of_each())
    EXPECT_EQ(state_of(encode(record).substr(0, 1)), record.state);
  for (const std::string& value : {std::string(), std::string("\x02"), std::string("\x46")})
    EXPECT_EQ(state_of(value), std::nullopt) << hex(value);
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
