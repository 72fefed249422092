#include "idempotency/stores/mysql.hpp"

#include <mysql.h>

#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <thread>

#include "idempotency/stores/mysql_handle.hpp"
#include "idempotency/testing/store_conformance.hpp"
#include "support/mariadb_server.hpp"

namespace idempotency::testing {
namespace {

using testing_support::MariaDbServer;
using testing_support::PlainConnection;

/// An application that lends its own connection.
class MySqlApplication {
 public:
  explicit MySqlApplication(unsigned long flags = 0)
      : plain_(MariaDbServer::shared().options(), flags) {}

  void set(const std::string& settings) { plain_.run("SET " + settings); }
  [[nodiscard]] MySqlConnection connection() {
    return mysql_connection(static_cast<MYSQL*>(plain_.handle()));
  }
  void begin() { plain_.run("START TRANSACTION"); }
  void add_business_row() { plain_.run("INSERT INTO business VALUES ()"); }
  void commit() { plain_.run("COMMIT"); }
  void rollback() { plain_.run("ROLLBACK"); }

 private:
  PlainConnection plain_;
};

/// Two stores on one table, as two processes would have them, and a business table beside it.
class MySqlFixture {
 public:
  static constexpr std::chrono::milliseconds clock_tolerance{150};
  static constexpr std::chrono::milliseconds long_time{700};

  MySqlFixture() : MySqlFixture(0) {}

  MySqlStore& store() { return first_; }
  MySqlStore& other_store() { return second_; }
  static void advance(std::chrono::milliseconds span) { std::this_thread::sleep_for(span); }
  void remove_deadline(const Key& key) {
    plain_.run("UPDATE idempotency_record SET lease_until = NULL WHERE business_type = '" +
               std::string(key.type()) + "'");
  }
  static void add_business_row(MySqlTransaction& transaction) {
    transaction.execute("INSERT INTO business VALUES ()");
  }
  std::size_t business_rows() { return std::stoul(plain_.ask("SELECT COUNT(*) FROM business")); }
  MySqlApplication& application() { return application_; }

 protected:
  explicit MySqlFixture(unsigned long flags) : application_(flags) {
    plain_.run(
        "CREATE TABLE IF NOT EXISTS business (id INT AUTO_INCREMENT PRIMARY KEY) "
        "ENGINE = InnoDB");
    plain_.run("TRUNCATE business");
  }

 private:
  PlainConnection plain_{MariaDbServer::shared().options()};
  MySqlStore first_{MariaDbServer::shared().options()};
  MySqlStore second_{MariaDbServer::shared().options()};
  MySqlApplication application_;
};

/// MY-07: the application's connection counts rows in another way, and nothing else of its session is usual either.
class UnusualConnectionFixture : public MySqlFixture {
 public:
  UnusualConnectionFixture() : MySqlFixture(CLIENT_FOUND_ROWS) {
    const bool mysql = MariaDbServer::is_mysql();
    application().set(std::string("SESSION sql_mode = 'ANSI_QUOTES,PIPES_AS_CONCAT") +
                      (mysql ? "" : ",SIMULTANEOUS_ASSIGNMENT") +
                      "', time_zone = '+09:00', autocommit = 0, character_set_client = latin1, "
                      "character_set_connection = latin1, " +
                      (mysql ? "transaction_isolation" : "tx_isolation") + " = 'SERIALIZABLE'");
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(MySqlStore, StoreConformance, MySqlFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(MySqlStore, AdminStoreConformance, MySqlFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(MySqlStore, SettlementConformance, MySqlFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(MySqlStore, BatchStoreConformance, MySqlFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(MySqlStore, BatchBeginStoreConformance, MySqlFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(MySqlStore, IssuingStoreConformance, MySqlFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(MySqlStore, TransactionalStoreConformance, MySqlFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(MySqlStoreOnAnUnusualConnection, TransactionalStoreConformance,
                               UnusualConnectionFixture);

}  // namespace
}  // namespace idempotency::testing
