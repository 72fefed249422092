#pragma once

#include <cstdint>
#include <idempotency/sql_transaction.hpp>
#include <string>
#include <type_traits>
#include <vector>

#include "ledger.hpp"

namespace shop {

/// The ledger's table, in the database of a store whose transactions can be had.
///
/// Lifetime: borrows the store.
template <class StoreT>
class LedgerTable {
 public:
  using Transaction = typename StoreT::Transaction;

  explicit LedgerTable(StoreT& store) : store_(&store) {}

  /// Runs `work` in a transaction without any record.
  template <class Work>
  std::invoke_result_t<Work&, Transaction&> in_transaction(Work work) {
    Transaction transaction = store_->open_transaction();
    auto result = work(transaction);
    store_->commit(transaction);
    return result;
  }

  /// Adds an entry within the caller's transaction and gives its number.
  static std::int64_t add(Transaction& transaction, const Entry& entry) {
    transaction.execute("INSERT INTO ledger (reference, debit, credit, cents) VALUES (?, ?, ?, ?)",
                        entry.reference, entry.debit, entry.credit, entry.cents);
    const bool sqlite = transaction.dialect() == idempotency::SqlDialect::sqlite;
    return transaction.query(sqlite ? "SELECT last_insert_rowid()" : "SELECT LAST_INSERT_ID()")
        .at(0)
        .template as<std::int64_t>(0);
  }

  /// In a transaction like those that add: on SQLite, where one writes at a time, none of them can be half-way then.
  [[nodiscard]] std::vector<std::int64_t> find(const std::string& reference) {
    return in_transaction([&](Transaction& transaction) {
      std::vector<std::int64_t> entries;
      const auto rows = transaction.query(
          "SELECT entry FROM ledger WHERE reference = ? ORDER BY entry", reference);
      for (std::size_t row = 0; row < rows.size(); ++row)
        entries.push_back(rows.at(row).template as<std::int64_t>(0));
      return entries;
    });
  }

 private:
  StoreT* store_;
};

}  // namespace shop
