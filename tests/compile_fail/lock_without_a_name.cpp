// EXPECT g++: use of deleted function
// EXPECT clang++: deleted function
// SAYS: operator bool
#include "idempotency/patterns/distributed_lock.hpp"
#include "idempotency/patterns/memory_locks.hpp"

int main() {
  idempotency::MemoryLocks locks;
  idempotency::DistributedLock lock{locks};
  if (lock.try_acquire({"stock", "sku-7"})) return 1;  // released before this line ends
  return 0;
}
