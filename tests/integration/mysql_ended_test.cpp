// Transactions that the handler's own statements end: procedures that commit or roll back, on every kind of connection.
// Whatever the call says, the effect is not made twice, and nobody is told that all is well when it is not known.

#include <gtest/gtest.h>
#include <mysql.h>

#include <chrono>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>

#include "idempotency/idempotency.hpp"
#include "idempotency/stores/mysql.hpp"
#include "idempotency/stores/mysql_handle.hpp"
#include "support/error_of.hpp"
#include "support/mariadb_server.hpp"

namespace idempotency {
namespace {

using namespace std::chrono_literals;
using testing_support::code_of;
using testing_support::MariaDbServer;
using testing_support::PlainConnection;

enum class Lane : std::uint8_t { own, adopted, joined };

class MySqlEnded : public ::testing::TestWithParam<Lane> {
 protected:
  MySqlEnded() {
    plain_.run("DROP TABLE IF EXISTS paid");
    plain_.run("CREATE TABLE paid (id INT AUTO_INCREMENT PRIMARY KEY) ENGINE = InnoDB");
    define("pay", "INSERT INTO paid () VALUES ();");
    define("pay_and_commit", "INSERT INTO paid () VALUES (); COMMIT; DO 1;");
    define("pay_and_commit_and_go_on",
           "INSERT INTO paid () VALUES (); COMMIT; INSERT INTO paid () VALUES ();");
    // What a retry loop in a procedure does when a deadlock has rolled everything back.
    define("lose_all_and_pay", "ROLLBACK; START TRANSACTION; INSERT INTO paid () VALUES ();");
    define(
        "lose_all_pay_and_commit",
        "ROLLBACK; START TRANSACTION; INSERT INTO paid () VALUES (); COMMIT; START TRANSACTION;");
    static_cast<void>(store_.find(Key("transfer", "k")));
    plain_.run("DELETE FROM idempotency_record");
  }

  void define(const std::string& name, const std::string& body) {
    plain_.run("DROP PROCEDURE IF EXISTS " + name);
    plain_.run("CREATE PROCEDURE " + name + "() BEGIN " + body + " END");
  }
  using Handler = std::function<int(MySqlTransaction&)>;
  /// What the call threw; nothing when it gave an answer. On a joined connection the caller then commits or rolls back.
  std::optional<Errc> call(const Handler& handler) {
    const auto counting = [&](MySqlTransaction& transaction) {
      ++starts_;
      return handler(transaction);
    };
    const Operation operation{.key = {"transfer", "k"}, .policy = {.lease = 1'000ms}};
    PlainConnection lent(options_);
    try {
      if (GetParam() == Lane::own) {
        static_cast<void>(guard_.run_in_transaction(operation, counting));
        return std::nullopt;
      }
      if (GetParam() == Lane::joined) lent.run("START TRANSACTION");
      static_cast<void>(guard_.run_in_transaction(
          operation, mysql_connection(static_cast<MYSQL*>(lent.handle())), counting));
      if (GetParam() == Lane::joined) lent.run("COMMIT");
    } catch (const Error& error) {
      if (GetParam() == Lane::joined) lent.run("ROLLBACK");
      return error.code();
    } catch (const std::runtime_error&) {
      if (GetParam() == Lane::joined) lent.run("ROLLBACK");
      return Errc{};
    }
    return std::nullopt;
  }
  void expect_that_nobody_pays_again(const Handler& handler) {
    const std::string paid = plain_.ask("SELECT COUNT(*) FROM paid");
    const int starts = starts_;
    std::this_thread::sleep_for(1'200ms);  // by the server's clock, the lease is over
    static_cast<void>(call(handler));
    EXPECT_EQ(plain_.ask("SELECT COUNT(*) FROM paid"), paid);
    EXPECT_EQ(starts_, starts);
  }
  std::string record() { return plain_.ask("SELECT state FROM idempotency_record"); }

  MySqlOptions options_ = MariaDbServer::shared().options();
  PlainConnection plain_{options_};
  MySqlStore store_{options_};
  IdempotencyGuard<MySqlStore> guard_{store_};
  int starts_ = 0;
};

TEST_P(MySqlEnded, MakeTheRecordUncertainWhenAProcedureHasLostItAndPaid) {
  for (const char* procedure : {"CALL lose_all_and_pay()", "CALL lose_all_pay_and_commit()"}) {
    SCOPED_TRACE(procedure);
    plain_.run("DELETE FROM idempotency_record");
    starts_ = 0;
    const Handler pay = [&](MySqlTransaction& transaction) {
      transaction.execute(procedure);
      transaction.execute("INSERT INTO paid () VALUES ()");
      return 1;
    };

    EXPECT_EQ(call(pay), Errc::commit_unknown);

    EXPECT_EQ(starts_, 1);
    EXPECT_EQ(record(), "4");
    expect_that_nobody_pays_again(pay);
  }
}

TEST_P(MySqlEnded, AreNotRepeatedWhenTheHandlerHidesWhatItWasTold) {
  const Handler pay = [&](MySqlTransaction& transaction) {
    try {
      transaction.execute("CALL pay_and_commit()");
    } catch (const Error&) {  // "it has been paid"
      return 1;
    }
    return 2;
  };

  static_cast<void>(call(pay));

  EXPECT_EQ(starts_, 1);
  EXPECT_EQ(plain_.ask("SELECT COUNT(*) FROM paid"), "1");
  expect_that_nobody_pays_again(pay);
}

// A transaction is open again when the statement ends, so that nothing is seen of the COMMIT until the record is looked at.
TEST_P(MySqlEnded, MakeTheRecordUncertainWhenAHandlerFailsBehindACommit) {
  const Handler pay = [&](MySqlTransaction& transaction) -> int {
    transaction.execute("CALL pay_and_commit_and_go_on()");
    throw std::runtime_error("the receipt cannot be printed");
  };

  static_cast<void>(call(pay));

  EXPECT_EQ(starts_, 1);
  EXPECT_EQ(record(), "4");
  expect_that_nobody_pays_again(pay);
}

TEST_P(MySqlEnded, AreOneEffectWhenAProcedureOnlyPays) {
  const Handler pay = [&](MySqlTransaction& transaction) {
    transaction.execute("CALL pay()");
    return 1;
  };

  EXPECT_EQ(call(pay), std::nullopt);

  EXPECT_EQ(record(), "2");
  EXPECT_EQ(plain_.ask("SELECT COUNT(*) FROM paid"), "1");
  expect_that_nobody_pays_again(pay);
}

TEST_P(MySqlEnded, DoNotChainOnToAnother) {
  plain_.run("SET GLOBAL completion_type = CHAIN");
  MySqlStore store{options_};
  IdempotencyGuard guard{store};
  PlainConnection lent(options_);
  plain_.run("SET GLOBAL completion_type = DEFAULT");
  const auto pay = [](MySqlTransaction& transaction) {
    transaction.execute("CALL pay()");
    return 1;
  };

  if (GetParam() == Lane::own) {
    EXPECT_EQ(guard.run_in_transaction({.key = {"transfer", "k"}}, pay).value(), 1);
  } else if (GetParam() == Lane::adopted) {
    static_cast<void>(guard.run_in_transaction(
        {.key = {"transfer", "k"}}, mysql_connection(static_cast<MYSQL*>(lent.handle())), pay));
    EXPECT_FALSE(lent.in_transaction());
  }
}

INSTANTIATE_TEST_SUITE_P(Lanes, MySqlEnded,
                         ::testing::Values(Lane::own, Lane::adopted, Lane::joined),
                         [](const auto& lane) {
                           return lane.param == Lane::own       ? "Own"
                                  : lane.param == Lane::adopted ? "Adopted"
                                                                : "Joined";
                         });

// Two stores join one transaction of the caller's; the inner one must not take the outer one's way back.
TEST(MySqlSavepoints, AreEachRunsOwn) {
  MySqlOptions options = MariaDbServer::shared().options();
  PlainConnection plain(options);
  plain.run("DROP TABLE IF EXISTS paid");
  plain.run("CREATE TABLE paid (id INT AUTO_INCREMENT PRIMARY KEY) ENGINE = InnoDB");
  MySqlStore outer{options};
  options.table_prefix = "inner_";
  MySqlStore inner{options};
  IdempotencyGuard outer_guard{outer};
  IdempotencyGuard inner_guard{inner};
  PlainConnection lent(options);
  const auto connection = mysql_connection(static_cast<MYSQL*>(lent.handle()));
  lent.run("START TRANSACTION");

  EXPECT_THROW(
      static_cast<void>(outer_guard.run_in_transaction(
          {.key = {"transfer", "outer"}}, connection,
          [&](MySqlTransaction& transaction) -> int {
            transaction.execute("INSERT INTO paid () VALUES ()");
            static_cast<void>(inner_guard.run_in_transaction(
                {.key = {"transfer", "inner"}}, connection, [](MySqlTransaction&) { return 1; }));
            throw std::runtime_error("the outer one fails");
          })),
      std::runtime_error);
  lent.run("COMMIT");

  EXPECT_EQ(plain.ask("SELECT COUNT(*) FROM paid"), "0");
  EXPECT_EQ(outer.find(Key("transfer", "outer")), std::nullopt);
}

TEST(MySqlSessions, DoNotDependOnHowManyRowsAServerGives) {
  PlainConnection plain(MariaDbServer::shared().options());
  plain.run("SET GLOBAL sql_select_limit = 0");
  const auto look = [] {
    return MySqlStore{MariaDbServer::shared().options()}.find(Key("transfer", "nobody"));
  };
  EXPECT_NO_THROW(EXPECT_EQ(look(), std::nullopt));
  plain.run("SET GLOBAL sql_select_limit = DEFAULT");
}

// A record that somebody holds costs its own lease and no other, and renewals do not wait behind the calls.
TEST(MySqlRenewals, WaitNeitherForAHeldRowNorForAFreeConnection) {
  MySqlOptions options = MariaDbServer::shared().options();
  options.connections = 1;
  options.lock_wait = 20s;
  MySqlStore store{options};
  std::vector<Renewal> renewals;
  for (const char* name : {"held", "free"}) {
    const Key key("renewals", name + std::to_string(::getpid()));
    const OwnerToken owner = OwnerToken::generate();
    ASSERT_EQ(store.begin({.key = key, .owner = owner}), BeginOutcome(Acquired{1, 1}));
    renewals.push_back({key, {owner, 1}, 1h});
  }
  PlainConnection holder(options);
  holder.run("START TRANSACTION");
  ASSERT_NE(
      holder.ask(
          "SELECT value FROM idempotency_record WHERE business_type = 'renewals' AND value = '" +
          std::string(renewals[0].key.value()) + "' FOR UPDATE"),
      "");
  MySqlTransaction only_connection = store.open_transaction(TransactionOptions{});

  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(code_of([&] { static_cast<void>(store.renew_many(renewals)); }),
            Errc::store_reply_lost);
  EXPECT_LT(std::chrono::steady_clock::now() - began, 15s);

  store.rollback(only_connection);
  const auto free = store.find(renewals[1].key);
  ASSERT_TRUE(free);
  EXPECT_GT(free->lease_until, free->created_at + 50min);
}

}  // namespace
}  // namespace idempotency
