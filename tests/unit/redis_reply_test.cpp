#include "redis/redis_reply.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

namespace idempotency {
namespace {

using detail::redis::ConnectionFate;
using detail::redis::meaning_of;
using detail::redis::reply_rows;
using detail::redis::ReplyMeaning;
using detail::redis::ReplyRow;

struct Case {
  const char* error;
  Errc code;
  ConnectionFate fate = ConnectionFate::keep;
};

// As the servers say them.
constexpr Case cases[] = {
    {"READONLY You can't write against a read only replica.", Errc::store_unavailable,
     ConnectionFate::discard},
    {"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
     Errc::store_unavailable, ConnectionFate::discard},
    {"CLUSTERDOWN The cluster is down", Errc::store_unavailable, ConnectionFate::discard},
    {"LOADING Redis is loading the dataset in memory", Errc::store_busy, ConnectionFate::discard},
    {"NOSCRIPT No matching script. Please use EVAL.", Errc::store_busy},
    {"TRYAGAIN Multiple keys request during rehashing of slot", Errc::store_busy},
    {"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
     Errc::store_busy},
    {"NOREPLICAS Not enough good replicas to write.", Errc::store_busy},
    {"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to "
     "disk.",
     Errc::store_busy},
    {"OOM command not allowed when used memory > 'maxmemory'.", Errc::store_full},
    {"MOVED 3999 127.0.0.1:6381", Errc::store_refused},
    {"ASK 3999 127.0.0.1:6381", Errc::store_refused},
    {"CROSSSLOT Keys in request don't hash to the same slot", Errc::store_refused},
    {"NOAUTH Authentication required.", Errc::store_refused, ConnectionFate::discard},
    {"WRONGPASS invalid username-password pair or user is disabled.", Errc::store_refused,
     ConnectionFate::discard},
    {"NOPERM this user has no permissions to run the 'set' command", Errc::store_refused},
    {"DENIED Redis is running in protected mode because protected mode is enabled and no password "
     "is set for the default user.",
     Errc::store_refused, ConnectionFate::discard},
    {"WRONGTYPE Operation against a key holding the wrong kind of value", Errc::store_corrupt},
    {"CORRUPT a stored record cannot be read", Errc::store_corrupt},
    {"ERR Error running script (call to f_8a5b2d0a0c1d5d0d): @user_script:1: Script killed by user "
     "with SCRIPT KILL...",
     Errc::store_busy},
    {"ERR max number of clients reached", Errc::store_busy, ConnectionFate::discard},
    {"ERR Protocol error: invalid bulk length", Errc::too_large, ConnectionFate::discard},
};

TEST(RedisReply, HasACaseHereForEachErrorThatIsKnown) {
  for (const ReplyRow& row : reply_rows()) {
    const auto is_of_row = [&](const Case& one) {
      const std::string_view error = one.error;
      return row.place == ReplyRow::Place::anywhere ? error.find(row.text) != std::string_view::npos
                                                    : error.substr(0, error.find(' ')) == row.text;
    };

    const auto* found = std::find_if(std::begin(cases), std::end(cases), is_of_row);

    ASSERT_NE(found, std::end(cases)) << row.text;
    EXPECT_EQ((ReplyMeaning{found->code, found->fate}), row.meaning) << row.text;
  }
}

TEST(RedisReply, GivesEachErrorItsMeaning) {
  for (const Case& one : cases)
    EXPECT_EQ(meaning_of(one.error), (ReplyMeaning{one.code, one.fate})) << one.error;
}

TEST(RedisReply, GivesAnErrorWithinAScriptTheSameMeaning) {
  constexpr const char* sha = "f_8a5b2d0a0c1d5d0d3f2f6b6a5e4a3b2c1d0e9f8a";
  for (const Case& one : cases) {
    const ReplyMeaning expected{one.code, one.fate};
    const std::string text = one.error;
    const std::string of_6 =
        std::string("ERR Error running script (call to ") + sha + "): @user_script:12: ";

    EXPECT_EQ(meaning_of(text + " script: 8a5b2d0a0c1d5d0d, on @user_script:12."), expected);
    EXPECT_EQ(meaning_of(of_6 + text), expected) << of_6 + text;
    EXPECT_EQ(meaning_of(of_6 + "@user_script: 12: -" + text), expected);
  }
}

TEST(RedisReply, SaysOfNoErrorThatSomethingMayBeWritten) {
  for (const Case& one : cases)
    EXPECT_FALSE(effect_possible(meaning_of(one.error).code)) << one.error;
}

TEST(RedisReply, CountsUnknownErrorsAsRefusals) {
  for (const char* error :
       {"", "ERR", "ERR unknown command 'SET'", "SOMETHING new: OOM within",
        "ERR Error running script (call to f_1): @user_script:3: attempt to index"}) {
    EXPECT_EQ(meaning_of(error), ReplyMeaning{}) << error;
  }
}

}  // namespace
}  // namespace idempotency
