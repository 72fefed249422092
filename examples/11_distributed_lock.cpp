// A nightly report that one process makes, whoever wakes up first: a lock says who, and the table refuses whoever comes too late.

#include <idempotency/idempotency.hpp>
#include <idempotency/patterns/distributed_lock.hpp>
#include <idempotency/patterns/fenced_resource.hpp>
#include <idempotency/patterns/sql_locks.hpp>
#include <idempotency/stores/sqlite.hpp>
#include <iostream>
#include <string>

#include "expect.hpp"

namespace idem = idempotency;

int main() {
  idem::SqliteStore store{{.path = new_database("11_distributed_lock.db")}};
  idem::IdempotencyGuard guard{store};
  static_cast<void>(
      guard.run_in_transaction({.key = {"setup", "1"}}, [](idem::SqliteTransaction& tx) {
        tx.execute(idem::locks_schema("idempotency_lock", idem::SqlDialect::sqlite));
        tx.execute("CREATE TABLE report (id TEXT PRIMARY KEY, body TEXT, fence INTEGER NOT NULL)");
        tx.execute("INSERT INTO report VALUES ('monday', NULL, 0)");
      }));
  idem::SqlLocks<idem::SqliteStore> locks{store};  // or RedisLocks over a RedisStore
  idem::DistributedLock lock{
      locks,
      {.on_lost = [](const idem::Key& key, auto) { std::cout << "lost " << key.text() << '\n'; },
       .on_force_release =
           [](const idem::ForcedRelease& forced) {
             std::cout << forced.who << " took " << forced.key.text() << ": " << forced.why << '\n';
           }}};
  const idem::FencedSqlResource reports{{.table = "report"}};
  const idem::Key monday{"report", "monday"};

  const auto write = [&](std::uint64_t fence, const std::string& body) {
    auto tx = store.open_transaction({});
    const idem::FencedWrite written = reports.update(tx, "monday", fence, "body = ?", body);
    store.commit(tx);
    return written;
  };
  const auto is_written = [&] {
    auto tx = store.open_transaction({});
    return !tx.query("SELECT body FROM report WHERE id = 'monday'").at(0).at(0).is_null();
  };

  // Check, lock, check again, run: in one call.
  const auto make_report = [&](const idem::HeldLock& held) {
    expect(!lock.try_acquire(monday).has_value(), "nobody else makes the report meanwhile");
    expect(write(held.fence(), "all is well") == idem::FencedWrite::written, "it is written");
  };
  expect(lock.run_locked(monday, is_written, make_report) == idem::LockedRun::ran, "it ran");
  expect(lock.run_locked(monday, is_written, make_report) == idem::LockedRun::already_done,
         "whoever comes later finds it done");

  // A holder hangs; an operator takes the lock from it, and somebody else goes on.
  auto hanging = lock.try_acquire(monday);
  lock.force_release(monday, "alice", "its host does not answer");
  auto next = lock.acquire(monday, std::chrono::seconds{5});
  expect(next && next->fence() > hanging->fence(), "fences rise with every holder");
  expect(write(next->fence(), "corrected") == idem::FencedWrite::written, "the next one writes");

  // The lock could not stop the first one from waking up here. The fence in the table does.
  expect(write(hanging->fence(), "too late") == idem::FencedWrite::refused, "it comes too late");
  expect(hanging->release() == idem::ReleaseOutcome::lost, "and releases nothing of the next one");
}
