#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "idempotency/stores/mysql.hpp"
#include "network/process_storm.hpp"
#include "support/mariadb_server.hpp"

namespace idempotency::network {
namespace {

using testing_support::MariaDbServer;
using testing_support::PlainConnection;

struct MySqlBackend {
  using Store = MySqlStore;
  static constexpr std::array promises{Promise::hold, Promise::take_over, Promise::transaction};
  static MySqlOptions options() { return MariaDbServer::shared().options(); }

  static RunResult<std::string> run_in_transaction(IdempotencyGuard<MySqlStore>& guard,
                                                   const Operation& operation,
                                                   const std::string& value) {
    return guard.run_in_transaction(operation, [&](MySqlTransaction& transaction) {
      transaction.execute("INSERT INTO effect (name, value) VALUES (?, ?)", operation.key.value(),
                          value);
      return value;
    });
  }
};

TEST(MySqlProcesses, KeepTheirPromisesWhileOneIsKilledEachSecond) {
  {
    PlainConnection plain(MySqlBackend::options());
    plain.run(
        "CREATE TABLE effect (id BIGINT AUTO_INCREMENT PRIMARY KEY, name VARBINARY(64) NOT NULL, "
        "value VARBINARY(64) NOT NULL) ENGINE = InnoDB");
  }
  ProcessStorm<MySqlBackend> storm;

  storm.rage(storm_span());

  storm.judge();
  PlainConnection plain(MySqlBackend::options());
  const std::vector<std::string> keys = storm.transactional_keys();
  EXPECT_GT(keys.size(), 10U);
  EXPECT_EQ(plain.ask("SELECT COUNT(*) FROM effect"), std::to_string(keys.size()));
  EXPECT_EQ(plain.ask("SELECT COUNT(DISTINCT name) FROM effect"), std::to_string(keys.size()));
}

}  // namespace
}  // namespace idempotency::network
