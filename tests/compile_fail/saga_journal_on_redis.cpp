// EXPECT: idempotency: SqlSagas needs a TransactionalStore
#include "idempotency/patterns/sql_sagas.hpp"
#include "idempotency/stores/redis.hpp"

namespace idem = idempotency;

int main() {
  idem::RedisStore store{{.host = "127.0.0.1"}};
  idem::SqlSagas<idem::RedisStore> journal(store);
  return 0;
}
