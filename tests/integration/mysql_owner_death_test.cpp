#include "idempotency/stores/mysql.hpp"
#include "support/mariadb_server.hpp"
#include "support/owner_death.hpp"

namespace idempotency::testing_support {
namespace {

struct MySqlBackend {
  using Store = MySqlStore;
  [[nodiscard]] static MySqlOptions options() { return MariaDbServer::shared().options(); }
};

INSTANTIATE_TYPED_TEST_SUITE_P(MySql, OwnerDeath, MySqlBackend);

}  // namespace
}  // namespace idempotency::testing_support
