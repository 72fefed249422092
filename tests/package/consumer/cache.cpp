#include <cstdio>

#include <idempotency/idempotency.hpp>
#include <idempotency/stores/redis.hpp>

namespace idem = idempotency;

// Nothing listens there: the store must say so in its own words, and link.
int main() {
  idem::RedisStore store{"redis://127.0.0.1:1"};
  try {
    static_cast<void>(store.find({"payment", "order-7"}));
  } catch (const idem::Error& error) {
    const bool good = error.code() == idem::Errc::store_unavailable;
    std::puts(good ? "no server, and the store says so" : error.what());
    return good ? 0 : 1;
  }
  std::puts("WRONG: there is no server");
  return 1;
}
