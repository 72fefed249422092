#include <chrono>
#include <string>

#include "idempotency/patterns/sql_sagas.hpp"
#include "idempotency/stores/mysql.hpp"
#include "idempotency/testing/saga_conformance.hpp"
#include "idempotency/testing/saga_death_conformance.hpp"
#include "idempotency/testing/saga_desk_conformance.hpp"
#include "support/mariadb_server.hpp"
#include "support/sql_saga_fixture.hpp"

namespace idempotency::testing {
namespace {

using testing_support::MariaDbServer;
using testing_support::PlainConnection;

class MySqlSagasFixture {
 public:
  MySqlSagasFixture() {
    plain_.run("DROP TABLE IF EXISTS saga, saga_audit");
    for (const std::string& statement : saga_schema({}, SqlDialect::mariadb))
      plain_.run(statement);
  }
  SqlSagas<MySqlStore>& journal() { return journal_; }
  void pass(std::chrono::milliseconds span) { testing_support::let_time_pass(plain_, span); }

 private:
  MySqlStore store_{MariaDbServer::shared().options()};
  PlainConnection plain_{MariaDbServer::shared().options()};
  SqlSagas<MySqlStore> journal_{store_};
};

INSTANTIATE_TYPED_TEST_SUITE_P(MySqlSagas, SagaConformance, MySqlSagasFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(MySqlSagas, SagaDeskConformance, MySqlSagasFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(MySqlSagas, SagaDeathConformance, MySqlSagasFixture);

}  // namespace
}  // namespace idempotency::testing
