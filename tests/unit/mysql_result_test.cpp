#include "mysql/mysql_result.hpp"

#include <gtest/gtest.h>

#include <string>

#include "idempotency/error.hpp"

namespace idempotency {
namespace {

using detail::mysql::breaks_connection;
using detail::mysql::cause_of;
using detail::mysql::errc_of;
using detail::mysql::is_worth_repeating;
using detail::mysql::make_error;
using detail::mysql::Stage;

struct Case {
  const char* name;
  unsigned code;
  Errc connect;
  Errc read;
  Errc write;
  Errc within;
  Errc handler;
  Errc commit;
};

constexpr Errc unavailable = Errc::store_unavailable;
constexpr Errc reply_lost = Errc::store_reply_lost;
constexpr Errc busy = Errc::store_busy;
constexpr Errc refused = Errc::store_refused;
constexpr Errc lost = Errc::transaction_lost;
constexpr Errc unknown = Errc::commit_unknown;
constexpr Errc statement = Errc::statement_failed;
constexpr Errc full = Errc::store_full;
constexpr Errc large = Errc::too_large;
constexpr Errc corrupt = Errc::store_corrupt;

// One row for each kind of ending, by numbers that servers and clients really give.
constexpr Case cases[] = {
    {"cannot connect", 2003, unavailable, unavailable, unavailable, lost, lost, unknown},
    {"cannot connect locally", 2002, unavailable, unavailable, unavailable, lost, lost, unknown},
    {"unknown host", 2005, unavailable, unavailable, unavailable, lost, lost, unknown},
    {"gone away before sending", 2006, unavailable, unavailable, unavailable, lost, lost, lost},
    {"inactivity", 4031, unavailable, unavailable, unavailable, lost, lost, lost},
    {"lost while waiting", 2013, unavailable, unavailable, reply_lost, lost, lost, unknown},
    {"lost, system error", 2055, unavailable, unavailable, reply_lost, lost, lost, unknown},
    {"malformed packet", 2027, unavailable, unavailable, reply_lost, lost, lost, unknown},
    {"client error of tomorrow", 2199, unavailable, unavailable, reply_lost, lost, lost, unknown},
    {"shutdown in progress", 1053, unavailable, unavailable, reply_lost, lost, lost, unknown},
    {"connection killed", 1927, unavailable, unavailable, reply_lost, lost, lost, unknown},
    {"session killed", 3169, unavailable, unavailable, reply_lost, lost, lost, unknown},
    {"packets out of order", 1156, unavailable, unavailable, reply_lost, lost, lost, unknown},
    {"packet not inflated", 1157, unavailable, unavailable, reply_lost, lost, lost, unknown},
    {"table altered", 1412, busy, busy, busy, lost, lost, lost},
    {"deadlock", 1213, busy, busy, busy, lost, lost, lost},
    {"changed since read", 1020, busy, busy, busy, lost, lost, lost},
    {"group replication", 3101, busy, busy, busy, lost, lost, lost},
    {"lock wait", 1205, busy, busy, busy, busy, busy, lost},
    {"query killed", 1317, busy, busy, busy, busy, statement, unknown},
    {"statement time-out", 1969, busy, busy, busy, busy, statement, unknown},
    {"too many connections", 1040, busy, busy, busy, busy, statement, unknown},
    {"read-only", 1290, unavailable, unavailable, unavailable, unavailable, statement, lost},
    {"offline mode", 3032, unavailable, unavailable, unavailable, unavailable, statement, lost},
    {"not available", 3168, unavailable, unavailable, unavailable, unavailable, statement, lost},
    {"Galera not ready", 1047, unavailable, unavailable, unavailable, unavailable, statement, lost},
    {"disk full", 1021, full, full, full, full, full, unknown},
    {"table full", 1114, full, full, full, full, full, unknown},
    {"packet too large", 1153, large, large, large, large, large, unknown},
    {"error during COMMIT", 1180, unavailable, unavailable, reply_lost, lost, lost, unknown},
    {"table crashed", 1194, corrupt, corrupt, corrupt, corrupt, statement, unknown},
    {"access denied", 1045, refused, refused, refused, refused, statement, unknown},
    {"no such table", 1146, refused, refused, refused, refused, statement, unknown},
    {"unknown database", 1049, refused, refused, refused, refused, statement, unknown},
    {"syntax", 1064, refused, refused, refused, refused, statement, unknown},
    {"authentication plugin", 2059, refused, refused, refused, refused, statement, unknown},
    {"authentication refused", 2061, refused, refused, refused, refused, statement, unknown},
};

TEST(MySqlErrors, HaveOneCodeForEachStage) {
  for (const Case& known : cases) {
    const auto code = [&](Stage stage) { return errc_of(cause_of(known.code), stage); };
    EXPECT_EQ(code(Stage::connect), known.connect) << known.name;
    EXPECT_EQ(code(Stage::read), known.read) << known.name;
    EXPECT_EQ(code(Stage::write), known.write) << known.name;
    EXPECT_EQ(code(Stage::within), known.within) << known.name;
    EXPECT_EQ(code(Stage::handler), known.handler) << known.name;
    EXPECT_EQ(code(Stage::commit), known.commit) << known.name;
  }
}

TEST(MySqlErrors, NeverDenyAnEffectThatMayHaveHappened) {
  for (const unsigned code :
       {2000U, 2013U, 2014U, 2026U, 2055U, 1053U, 1158U, 1161U, 1180U, 1927U}) {
    EXPECT_TRUE(effect_possible(errc_of(cause_of(code), Stage::write))) << code;
    EXPECT_TRUE(effect_possible(errc_of(cause_of(code), Stage::commit))) << code;
  }
}

TEST(MySqlErrors, NeverClaimAnEffectOfAStatementThatChangesNothing) {
  for (unsigned code = 1000; code < 5100; ++code) {
    for (const Stage stage : {Stage::connect, Stage::read, Stage::within, Stage::handler}) {
      EXPECT_FALSE(effect_possible(errc_of(cause_of(code), stage))) << code;
    }
  }
}

TEST(MySqlErrors, DiscardConnectionsThatCannotBeTrusted) {
  for (const unsigned code : {1053U, 1290U, 1927U, 2006U, 2013U, 2014U, 1243U, 1180U}) {
    EXPECT_TRUE(breaks_connection(code)) << code;
  }
  for (const unsigned code : {1205U, 1213U, 1146U, 1317U, 1969U, 1114U}) {
    EXPECT_FALSE(breaks_connection(code)) << code;
  }
}

TEST(MySqlErrors, AreRepeatedOnlyWhenTheTransactionWasRolledBackWhole) {
  EXPECT_TRUE(is_worth_repeating(1213));
  EXPECT_TRUE(is_worth_repeating(1020));
  EXPECT_FALSE(is_worth_repeating(1205));
  EXPECT_FALSE(is_worth_repeating(2013));
}

TEST(MySqlErrors, NameWhatToLookAtWhenAConnectionIsRefused) {
  for (const unsigned code : {1045U, 2026U, 3159U}) {
    const Error error = make_error(code, "words", Stage::connect, "connecting");
    EXPECT_NE(std::string(error.what()).find("tls"), std::string::npos) << code;
  }
}

TEST(MySqlErrors, KeepTheServersWordsOutOfTheMessage) {
  const Error error =
      make_error(1062, "Duplicate entry 'order-7' for key 'PRIMARY'", Stage::write, "a statement");

  EXPECT_EQ(std::string(error.what()).find("order-7"), std::string::npos);
  EXPECT_NE(error.detail().find("order-7"), std::string::npos);
  EXPECT_NE(error.detail().find("1062"), std::string::npos);
}

}  // namespace
}  // namespace idempotency
