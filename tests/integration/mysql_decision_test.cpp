#include <gtest/gtest.h>
#include <mysql.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "idempotency/testing/printers.hpp"
#include "mysql/mysql_records.hpp"
#include "mysql/mysql_schema.hpp"
#include "support/error_of.hpp"
#include "support/mariadb_server.hpp"

namespace idempotency {
namespace {

using detail::RecordFacts;
using detail::mysql::Connection;
using detail::mysql::Records;
using detail::mysql::ServerTraits;
using detail::mysql::Statements;
using std::chrono::milliseconds;
using testing_support::code_of;
using testing_support::MariaDbServer;
using testing_support::PlainConnection;

const OwnerToken caller_token(OwnerToken::Bytes{1, 2, 3});
const OwnerToken other_token(OwnerToken::Bytes{9, 8, 7});

enum class Time : std::uint8_t { past, future, absent };

struct Situation {
  RecordState state;
  Retryability retryability;
  RecordMode mode;
  bool marked;
  bool own;
  Time lease;
  Time expiry;
  std::optional<Fingerprint> stored;
  std::optional<Fingerprint> asked;
  RecordMode asked_mode;
};

std::vector<Situation> all_situations() {
  const Fingerprint same = Fingerprint::of_bytes("same");
  const Fingerprint other = Fingerprint::of_bytes("other");
  const Fingerprint newer = other.as_scheme(2).or_earlier(same);
  const Fingerprint foreign = same.as_scheme(7);
  using Pair = std::pair<std::optional<Fingerprint>, std::optional<Fingerprint>>;
  const std::vector<Pair> fingerprints{{std::nullopt, std::nullopt},
                                       {same, std::nullopt},
                                       {std::nullopt, same},
                                       {same, same},
                                       {same, other},
                                       {same, newer},
                                       {other, newer},
                                       {foreign, same},
                                       {foreign, newer},
                                       {other.as_scheme(2), newer}};
  std::vector<Situation> all;
  for (int state = 1; state <= 5; ++state) {
    for (const Retryability retryability : {Retryability::retryable, Retryability::permanent}) {
      if (state != 3 && retryability == Retryability::permanent) continue;
      for (const RecordMode mode : {RecordMode::take_over, RecordMode::hold}) {
        for (const bool marked : {false, true}) {
          for (const bool own : {false, true}) {
            for (const Time lease : {Time::past, Time::future, Time::absent}) {
              if (state != 1 && lease != Time::absent) continue;
              for (const Time expiry : {Time::past, Time::future, Time::absent}) {
                if ((state == 1 || state == 4) && expiry != Time::absent) continue;
                for (const Pair& pair : fingerprints) {
                  for (const RecordMode asked : {RecordMode::take_over, RecordMode::hold}) {
                    all.push_back({static_cast<RecordState>(state), retryability, mode, marked, own,
                                   lease, expiry, pair.first, pair.second, asked});
                  }
                }
              }
            }
          }
        }
      }
    }
  }
  return all;
}

/// Whether the statement of `begin` decides as the table of transitions does, in every situation, with both plans.
class MySqlDecisions : public ::testing::Test {
 protected:
  static constexpr std::int64_t hour = 3'600'000;

  MySqlDecisions() { plain_.run("SET GLOBAL innodb_flush_log_at_trx_commit = 0"); }  // for speed
  ~MySqlDecisions() override { plain_.run("SET GLOBAL innodb_flush_log_at_trx_commit = DEFAULT"); }

  static std::string hex(std::string_view bytes) {
    return bytes.empty()
               ? "''"
               : "X'" +
                     testing::detail::hex_of(reinterpret_cast<const std::uint8_t*>(bytes.data()),
                                             bytes.size()) +
                     "'";
  }
  static std::string owner_hex(const OwnerToken& owner) {
    return "X'" + testing::detail::hex_of(owner.bytes().data(), owner.bytes().size()) + "'";
  }
  static std::string fingerprint_hex(const std::optional<Fingerprint>& fingerprint) {
    if (!fingerprint) return "NULL";
    std::string bytes(1, static_cast<char>(fingerprint->current().scheme));
    bytes.append(fingerprint->current().digest.begin(), fingerprint->current().digest.end());
    return hex(bytes);
  }
  std::string time_of(Time time) const {
    if (time == Time::absent) return "NULL";
    return std::to_string(time == Time::past ? now_ - hour : now_ + hour);
  }

  void insert(const Situation& situation) {
    plain_.run("REPLACE INTO idempotency_record VALUES ('decision', 'k', " +
               std::to_string(static_cast<int>(situation.state)) + ", " +
               std::to_string(static_cast<int>(situation.mode)) + ", " +
               std::to_string(situation.marked ? 1 : 0) + ", " +
               std::to_string(situation.state == RecordState::failed
                                  ? static_cast<int>(situation.retryability)
                                  : 0) +
               ", " + owner_hex(situation.own ? caller_token : other_token) + ", 5, 3, " +
               fingerprint_hex(situation.stored) + ", 1000, 2000, " + time_of(situation.lease) +
               ", " + time_of(situation.expiry) + ", 'reason', 'trace', 'result')");
  }
  RecordFacts facts_of(const Situation& situation) const {
    RecordFacts facts;
    facts.state = situation.state;
    facts.retryability = situation.retryability;
    facts.mode = situation.mode;
    facts.effect_marked = situation.marked;
    facts.ownership = {situation.own ? caller_token : other_token, 5};
    if (situation.stored) facts.fingerprint = situation.stored->current();
    const auto at = [&](Time time) {
      if (time == Time::absent) return detail::never;
      return Timestamp{milliseconds{time == Time::past ? now_ - hour : now_ + hour}};
    };
    facts.lease_until = at(situation.lease);
    facts.expires_at = at(situation.expiry);
    facts.created_at = Timestamp{milliseconds{1000}};
    return facts;
  }

  /// Nothing for a one-time token that was issued, which a begin refuses.
  static std::optional<detail::BeginVerdict> judge(const RecordFacts& facts,
                                                   const BeginRequest& request, Timestamp now) {
    try {
      return detail::judge_begin(&facts, request, now);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::store_refused);
      return std::nullopt;
    }
  }

  void check(Records& records, const Situation& situation, Admission admission,
             const std::string& what) {
    insert(situation);
    const BeginRequest request{.key = {"decision", "k"},
                               .owner = caller_token,
                               .fingerprint = situation.asked,
                               .mode = situation.asked_mode,
                               .lease = milliseconds{hour},
                               .trace = "new trace",
                               .admission = admission};
    const RecordFacts before = facts_of(situation);
    const Timestamp now{milliseconds{now_}};
    const std::optional<detail::BeginVerdict> judged = judge(before, request, now);
    const std::string columns =
        "SELECT state, mode, effect_marked, retryability, HEX(owner), fence, attempt, "
        "HEX(fingerprint), created_at, updated_at, lease_until, expires_at, reason, trace, result "
        "FROM idempotency_record WHERE business_type = 'decision'";
    const auto row_before = plain_.run(columns).at(0);

    std::optional<BeginOutcome> outcome;
    try {
      outcome = records.begin(request);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::store_refused) << what;
    }
    const auto row = plain_.run(columns).at(0);

    ASSERT_EQ(outcome.has_value(), judged.has_value()) << what;
    if (!judged) {
      EXPECT_EQ(row, row_before) << what;
      return;
    }
    const Transition& step = judged->transition;
    if (judged->mismatch) {
      EXPECT_EQ(outcome, BeginOutcome{*judged->mismatch}) << what;
      EXPECT_EQ(row, row_before) << what;
      return;
    }
    switch (step.answer) {
      case Answer::acquired:
        ASSERT_TRUE(std::holds_alternative<Acquired>(*outcome)) << what;
        break;
      case Answer::in_progress:
        ASSERT_TRUE(std::holds_alternative<InProgress>(*outcome)) << what;
        break;
      case Answer::completed:
        ASSERT_TRUE(std::holds_alternative<Completed>(*outcome)) << what;
        break;
      case Answer::failed:
        ASSERT_TRUE(std::holds_alternative<Failed>(*outcome)) << what;
        break;
      case Answer::uncertain:
        ASSERT_TRUE(std::holds_alternative<Uncertain>(*outcome)) << what;
        break;
      case Answer::lost:
        EXPECT_EQ(*outcome, BeginOutcome{NotIssued{}}) << what;
        break;
      case Answer::stored:
        FAIL() << what << ": no answer to a begin";
    }
    const Phase from = detail::phase_of(before, now);
    if (step.answer == Answer::lost || step == detail::unchanged(from, step.answer)) {
      EXPECT_EQ(row, row_before) << what;
      return;
    }
    const bool let_in = step.owner == OwnerStep::caller;
    const bool reborn = step.fence == FenceStep::first;
    const Ownership after = detail::ownership_after(step, before.ownership, caller_token);
    EXPECT_EQ(row[0], step.to == Phase::uncertain ? "4" : "1") << what;
    EXPECT_EQ(row[1],
              let_in ? std::to_string(static_cast<int>(situation.asked_mode)) : row_before[1]);
    EXPECT_EQ(row[2], let_in ? "0" : row_before[2]) << what;
    EXPECT_EQ(row[3], "0") << what;
    EXPECT_EQ(row[4] == row_before[4], after.owner == before.ownership.owner) << what;
    EXPECT_EQ(row[5], std::to_string(after.fence)) << what;
    EXPECT_EQ(row[6], let_in ? (reborn ? "1" : "4") : "3") << what;
    const bool takes_fingerprint = reborn || (let_in && !situation.stored);
    EXPECT_EQ(lower(row[7]),
              lower(takes_fingerprint ? bare(fingerprint_hex(situation.asked)) : row_before[7]))
        << what;
    EXPECT_EQ(row[8] == "1000", !reborn) << what;
    EXPECT_EQ(row[9] == "2000", !(let_in || step.to != from)) << what;
    EXPECT_EQ(row[10] == "NULL", step.lease == LeaseStep::clear) << what;
    EXPECT_EQ(row[11], "NULL") << what;
    EXPECT_EQ(row[12], let_in ? "NULL" : "reason") << what;
    EXPECT_EQ(row[13], reborn ? "new trace" : "trace") << what;
    EXPECT_EQ(row[14], let_in ? "NULL" : "result") << what;
  }
  static std::string lower(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(), [](char c) {
      return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
    return text;
  }
  static std::string bare(const std::string& literal) {
    return literal == "NULL" ? literal : literal.substr(2, literal.size() - 3);
  }

  void check_all(Records& records) {
    int number = 0;
    for (const Admission admission : {Admission::any, Admission::issued}) {
      for (const Situation& situation : all_situations()) {
        check(records, situation, admission,
              "situation " + std::to_string(number) +
                  (admission == Admission::issued ? ", issued only" : ""));
        if (HasFatalFailure() || HasFailure()) return;
        ++number;
      }
    }
    EXPECT_GT(number, 3000);
  }

  MySqlOptions options_ = MariaDbServer::shared().options();
  MySqlStore store_{options_};  // makes the table
  PlainConnection plain_{options_};
  std::int64_t now_ = std::stoll(plain_.ask("SELECT UNIX_TIMESTAMP() * 1000"));
  Statements statements_{"`" + options_.database + "`.`idempotency_record`"};
};

TEST_F(MySqlDecisions, FollowTheTableOfTransitionsWithReturning) {
  if (MariaDbServer::is_mysql()) GTEST_SKIP() << "MySQL has no RETURNING";
  Connection connection(options_);
  ASSERT_TRUE(connection.traits().returns_rows_of_insert);
  Records records(connection, statements_);

  check_all(records);
}

TEST_F(MySqlDecisions, FollowTheTableOfTransitionsWithoutReturning) {
  PlainConnection client(options_);
  Connection connection(static_cast<MYSQL*>(client.handle()),
                        ServerTraits{.dialect = SqlDialect::mysql});
  Records records(connection, statements_);

  check_all(records);
}

TEST_F(MySqlDecisions, JudgeARepeatedBeginWithinTheSameMillisecond) {
  Connection connection(options_);
  static_cast<void>(connection.run("SET timestamp = 1700000000.5", detail::mysql::Stage::read));
  Records records(connection, statements_);
  BeginRequest request{.key = {"decision", "same millisecond"},
                       .owner = caller_token,
                       .fingerprint = Fingerprint::of_bytes("one")};

  EXPECT_EQ(records.begin(request), BeginOutcome(Acquired{1, 1}));
  EXPECT_EQ(records.begin(request), BeginOutcome(Acquired{1, 1}));
  request.fingerprint = Fingerprint::of_bytes("another");
  EXPECT_EQ(records.begin(request), BeginOutcome(Mismatch{FingerprintMatch::different, 1}));
  plain_.run("DELETE FROM idempotency_record");
}

// As on MySQL, where the session is told before the statement and after it how long to wait.
TEST_F(MySqlDecisions, RenewManyWithoutWaitingWhereNoStatementSaysThatForItself) {
  PlainConnection client(options_, CLIENT_MULTI_STATEMENTS);
  PlainConnection other(options_);
  Connection connection(static_cast<MYSQL*>(client.handle()),
                        ServerTraits{.dialect = SqlDialect::mysql});
  connection.set_lock_wait(30);
  Records records(connection, statements_);
  const BeginRequest request{.key = {"decision", "renewed"}, .owner = caller_token};
  ASSERT_EQ(records.begin(request), BeginOutcome(Acquired{1, 1}));
  const std::vector<Renewal> renewals{{request.key, {caller_token, 1}, std::chrono::hours{9}}};
  const auto wait = [&] { return client.ask("SELECT @@innodb_lock_wait_timeout"); };

  EXPECT_EQ(records.renew_many(renewals), std::vector{WriteOutcome::stored});
  EXPECT_EQ(wait(), "30");
  other.run("START TRANSACTION");
  other.run("SELECT * FROM idempotency_record FOR UPDATE");
  EXPECT_EQ(code_of([&] { static_cast<void>(records.renew_many(renewals)); }), Errc::store_busy);
  other.run("ROLLBACK");
  EXPECT_EQ(records.renew_many(renewals), std::vector{WriteOutcome::stored});
  connection.set_lock_wait(30);
  EXPECT_EQ(wait(), "30");
  plain_.run("DELETE FROM idempotency_record");
}

// MY-07, and SIMULTANEOUS_ASSIGNMENT, which would break the order of assignments: on a connection of the application's.
TEST_F(MySqlDecisions, FollowTheTableOnAConnectionWithOtherSettings) {
  PlainConnection client(options_, CLIENT_FOUND_ROWS);
  client.run("SET sql_mode = 'ANSI_QUOTES,PIPES_AS_CONCAT', time_zone = '+09:00', NAMES latin1");
  ServerTraits traits{.dialect = SqlDialect::mysql};
  std::string prefix;
  if (!MariaDbServer::is_mysql()) {
    client.run("SET sql_mode = CONCAT(@@sql_mode, ',SIMULTANEOUS_ASSIGNMENT')");
    traits = {
        .dialect = SqlDialect::mariadb, .returns_rows_of_insert = true, .sets_for_statement = true};
    prefix = "SET STATEMENT sql_mode = 'STRICT_TRANS_TABLES' FOR ";
  }
  Connection connection(static_cast<MYSQL*>(client.handle()), traits);
  Records records(connection, statements_, detail::mysql::Travel::text, prefix);

  check_all(records);
}

}  // namespace
}  // namespace idempotency
