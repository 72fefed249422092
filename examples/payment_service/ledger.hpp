#pragma once

#include <cstdint>
#include <idempotency/stores/sqlite.hpp>
#include <string>
#include <string_view>
#include <type_traits>

namespace shop {

/// The service's own book: a table in the same SQLite file as the records, so that an entry and the
/// record of its operation can share a transaction.
///
/// Nothing in the table prevents a second entry with the same reference. That is the guard's job.
class Ledger {
 public:
  /// Makes the table when it is not there.
  explicit Ledger(idempotency::SqliteStore& store) : store_(&store) {
    in_own_transaction([](idempotency::SqliteTransaction& transaction) {
      transaction.execute(
          "CREATE TABLE IF NOT EXISTS ledger (entry INTEGER PRIMARY KEY, reference TEXT NOT NULL, "
          "debit TEXT NOT NULL, credit TEXT NOT NULL, cents INTEGER NOT NULL)");
      transaction.execute("CREATE INDEX IF NOT EXISTS ledger_reference ON ledger (reference)");
      return 0;
    });
  }

  /// Runs `work` in a transaction without any record: what a service without the guard does.
  template <class Work>
  std::invoke_result_t<Work&, idempotency::SqliteTransaction&> in_own_transaction(Work work) {
    idempotency::SqliteTransaction transaction = store_->open_transaction();
    auto result = work(transaction);
    store_->commit(transaction);
    return result;
  }

  /// Adds an entry within the caller's transaction and gives its number.
  static std::int64_t add(idempotency::SqliteTransaction& transaction, std::string_view reference,
                          std::string_view debit, std::string_view credit, std::int64_t cents) {
    transaction.execute("INSERT INTO ledger (reference, debit, credit, cents) VALUES (?, ?, ?, ?)",
                        reference, debit, credit, cents);
    return transaction.query("SELECT last_insert_rowid()").at(0).as<std::int64_t>(0);
  }

  /// How many entries have this reference.
  [[nodiscard]] std::int64_t count(const std::string& reference) {
    return in_own_transaction([&](idempotency::SqliteTransaction& transaction) {
      return transaction.query("SELECT count(*) FROM ledger WHERE reference = ?", reference)
          .at(0)
          .as<std::int64_t>(0);
    });
  }

 private:
  idempotency::SqliteStore* store_;
};

}  // namespace shop
