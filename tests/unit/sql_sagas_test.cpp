#include "idempotency/patterns/sql_sagas.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>

#include "idempotency/patterns/saga_desk.hpp"
#include "idempotency/stores/sqlite.hpp"
#include "idempotency/testing/faulty_store.hpp"
#include "idempotency/testing/printers.hpp"
#include "idempotency/testing/saga_printers.hpp"
#include "support/error_of.hpp"
#include "support/sqlite_file.hpp"

namespace idempotency {
namespace {

using testing::Fault;
using testing::FaultyStore;
using testing_support::code_of;
using testing_support::PlainConnection;
using testing_support::TemporaryFolder;

class SqlSagasInSqlite : public ::testing::Test {
 protected:
  SqlSagasInSqlite() {
    for (const std::string& statement : saga_schema({}, SqlDialect::sqlite))
      plain.run(statement);
  }
  static SagaStart start(const std::string& id) {
    return {.name = {"order", id}, .plan = "plan", .steps = 3, .input = "input"};
  }
  static SagaClaim one(const std::string& id) {
    return {.definition = "order", .plan = "plan", .id = id, .worker = OwnerToken::generate()};
  }
  void lose(Fault fault) { faulty.on(StoreCall::commit).fail_next(1, fault); }

  TemporaryFolder folder;
  PlainConnection plain{folder.file("saga.db")};
  SqliteStore store{{.path = folder.file("saga.db")}};
  FaultyStore<SqliteStore> faulty{store};
  SqlSagas<FaultyStore<SqliteStore>> journal{faulty};
};

// Once committed and not confirmed, once not committed.
TEST_F(SqlSagasInSqlite, AnswersOnceThoughItIsNotToldWhatBecameOfItsCommit) {
  for (const Fault fault : {Fault::reply_lost, Fault::timed_out, Fault::request_lost}) {
    const std::string id = std::to_string(static_cast<int>(fault));
    lose(fault);
    EXPECT_EQ(journal.create(start(id)).claim.fence, 1U);
    lose(fault);
    const std::optional<SagaRow> own = journal.claim(one(id));
    ASSERT_TRUE(own.has_value());
    EXPECT_EQ(own->claim.fence, 2U);
    lose(fault);
    const std::optional<SagaRow> parked =
        journal.advance(*own, {.to = {SagaState::parked_running, 1, 3, 0}});
    ASSERT_TRUE(parked.has_value());
    EXPECT_EQ(parked->claim.fence, 3U);
    lose(fault);
    const WriteOutcome decided = journal.decide(*parked, {.decision = SagaDecision::skip,
                                                          .who = "ann",
                                                          .why = "by hand",
                                                          .by = OwnerToken::generate()});
    EXPECT_EQ(decided, WriteOutcome::stored);

    EXPECT_EQ(journal.find({"order", id})->claim.fence, 4U);
    EXPECT_EQ(journal.history({"order", id}).size(), 1U);
  }
  EXPECT_EQ(faulty.faults(StoreCall::commit), 12U);
}

TEST_F(SqlSagasInSqlite, WritesADecisionAndItsAuditTogetherOrNotAtAll) {
  static_cast<void>(journal.create(start("a")));
  const std::optional<SagaRow> own = journal.claim(one("a"));
  const std::optional<SagaRow> parked =
      journal.advance(own.value(), {.to = {SagaState::parked_running, 1, 3, 0}});
  plain.run("ALTER TABLE saga_audit RENAME TO elsewhere");
  SagaDesk desk(journal, "order");

  EXPECT_EQ(code_of([&] { static_cast<void>(desk.resume(parked.value(), "ann", "why")); }),
            Errc::statement_failed);

  EXPECT_EQ(journal.find({"order", "a"})->progress, parked->progress);
  plain.run("ALTER TABLE elsewhere RENAME TO saga_audit");
  EXPECT_EQ(desk.resume(*parked, "ann", "why"), WriteOutcome::stored);
}

TEST_F(SqlSagasInSqlite, RefusesARowThatItDoesNotUnderstand) {
  for (const std::string damage : {"state = 7", "state = 0", "owner = X'01'"}) {
    static_cast<void>(journal.create(start("a")));
    plain.run("UPDATE saga SET " + damage);

    EXPECT_EQ(code_of([&] {
                static_cast<void>(journal.find({"order", "a"}));
              }),
              Errc::store_corrupt)
        << damage;
    plain.run("DELETE FROM saga");
  }
}

TEST_F(SqlSagasInSqlite, KeepsItsTablesUnderOtherNames) {
  const SqlSagasOptions options{.table = "main.flows", .audit_table = "main.flow_audit"};
  for (const std::string& statement : saga_schema(options, SqlDialect::sqlite))
    plain.run(statement);
  SqlSagas<SqliteStore> other(store, options);

  static_cast<void>(other.create(start("a")));

  EXPECT_TRUE(other.find({"order", "a"}).has_value());
  EXPECT_EQ(journal.find({"order", "a"}), std::nullopt);
  EXPECT_EQ(plain.ask("SELECT tbl_name FROM sqlite_master WHERE name = 'flows_due'"), "flows");
}

TEST_F(SqlSagasInSqlite, RefusesTablesThatAreNoNames) {
  EXPECT_EQ(code_of([&] { SqlSagas<SqliteStore> bad(store, {.table = "a; DROP TABLE b"}); }),
            Errc::invalid_argument);
  EXPECT_EQ(code_of([&] { SqlSagas<SqliteStore> bad(store, {.audit_table = ""}); }),
            Errc::invalid_argument);
}

}  // namespace
}  // namespace idempotency
