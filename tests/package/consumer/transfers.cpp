#include <cstdio>

#include <idempotency/idempotency.hpp>
#include <idempotency/stores/mysql.hpp>

namespace idem = idempotency;

// Nobody listens at port 1: what matters is that everything links.
int main() {
  try {
    idem::MySqlStore store{"mysql://app:secret@127.0.0.1:1/shop"};
    idem::IdempotencyGuard guard{store};
    static_cast<void>(guard.run_in_transaction(
        {.key = {"transfer", "1"}}, [](idem::MySqlTransaction& transaction) {
          return static_cast<int>(transaction.execute("DO 1").changed);
        }));
  } catch (const idem::Error& error) {
    std::puts(error.what());
    return error.code() == idem::Errc::store_unavailable ? 0 : 1;
  }
  return 1;
}
