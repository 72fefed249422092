#include <cstdio>
#include <filesystem>
#include <string>

#include <idempotency/idempotency.hpp>
#include <idempotency/stores/memory.hpp>
#include <idempotency/stores/sqlite.hpp>

namespace idem = idempotency;

template <class StoreT>
bool charges_once(StoreT& store) {
  idem::IdempotencyGuard guard{store};
  int charges = 0;
  const auto charge = [&] { return "charge-" + std::to_string(++charges); };

  const auto first = guard.run({.key = {"payment", "order-7"}}, charge);
  const auto second = guard.run({.key = {"payment", "order-7"}}, charge);

  return charges == 1 && first.status() == idem::RunStatus::executed &&
         second.status() == idem::RunStatus::replayed && second.value() == "charge-1";
}

int main() {
  idem::MemoryStore memory;
  bool good = charges_once(memory);

  const auto file = std::filesystem::current_path() / "shop.db";
  for (const char* suffix : {"", "-wal", "-shm"}) {
    std::filesystem::remove(file.string() + suffix);
  }
  {
    idem::SqliteStore sqlite{{.path = file.string()}};
    good = charges_once(sqlite) && good;
  }
  std::puts(good ? "charged once in each store" : "WRONG");
  return good ? 0 : 1;
}
