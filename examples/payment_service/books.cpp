#include "books.hpp"

#include <chrono>
#include <cstdint>
#include <idempotency/guard.hpp>
#include <idempotency/stores/open.hpp>
#include <idempotency/stores/sqlite.hpp>
#include <string_view>
#include <utility>

#include "ledger_table.hpp"
#ifdef SHOP_WITH_MYSQL
#include "mysql_ledger.hpp"
#endif

namespace shop {

namespace idem = idempotency;
using namespace std::chrono_literals;

namespace {

void make_table(LedgerTable<idem::SqliteStore>& table) {
  table.in_transaction([](idem::SqliteTransaction& transaction) {
    transaction.execute(
        "CREATE TABLE IF NOT EXISTS ledger (entry INTEGER PRIMARY KEY, reference TEXT NOT NULL, "
        "debit TEXT NOT NULL, credit TEXT NOT NULL, cents INTEGER NOT NULL)");
    transaction.execute("CREATE INDEX IF NOT EXISTS ledger_reference ON ledger (reference)");
    return 0;
  });
}

/// In the same database as the records: an entry is committed together with the record of its operation.
template <class StoreT>
class LedgerBesideRecords final : public Ledger {
 public:
  LedgerBesideRecords(StoreT& store, const idem::PolicyTable& policies)
      : table_(store), guard_(store, {.policies = policies}) {}

  [[nodiscard]] Mode mode() const noexcept override { return Mode::in_transaction; }
  [[nodiscard]] idem::RunResult<std::int64_t> book(const idem::Operation& operation,
                                                   const Entry& entry,
                                                   Time /*valid_until*/) override {
    return guard_.run_in_transaction(operation, [&](typename StoreT::Transaction& transaction) {
      return LedgerTable<StoreT>::add(transaction, entry);
    });
  }
  std::int64_t book_unguarded(const Entry& entry) override {
    return table_.in_transaction(
        [&](auto& transaction) { return LedgerTable<StoreT>::add(transaction, entry); });
  }
  [[nodiscard]] std::vector<std::int64_t> find(const std::string& reference) override {
    return table_.find(reference);
  }

 private:
  LedgerTable<StoreT> table_;
  idem::IdempotencyGuard<StoreT> guard_;
};

/// In another database than the records, and so, like the bank, another system: it refuses what comes too late, and it
/// can be asked.
class LedgerElsewhere final : public Ledger {
 public:
  LedgerElsewhere(idem::AnyStore& records, const std::string& file,
                  const idem::PolicyTable& policies)
      : store_({.path = file}),
        table_(store_),
        guard_(records, {.policies = under_hold(policies)}) {
    make_table(table_);
  }

  [[nodiscard]] Mode mode() const noexcept override { return Mode::hold; }
  [[nodiscard]] idem::RunResult<std::int64_t> book(const idem::Operation& operation,
                                                   const Entry& entry, Time valid_until) override {
    return guard_.run(operation, [&](idem::Execution& execution) {
      return table_.in_transaction([&](idem::SqliteTransaction& transaction) {
        if (std::chrono::system_clock::now() > valid_until) {
          throw idem::RetryableFailure("the entry came too late to the ledger");
        }
        const std::int64_t number = LedgerTable<idem::SqliteStore>::add(transaction, entry);
        execution.point_of_no_return();  // next is the COMMIT
        return number;
      });
    });
  }
  std::int64_t book_unguarded(const Entry& entry) override {
    return table_.in_transaction([&](idem::SqliteTransaction& transaction) {
      return LedgerTable<idem::SqliteStore>::add(transaction, entry);
    });
  }
  [[nodiscard]] std::vector<std::int64_t> find(const std::string& reference) override {
    return table_.find(reference);
  }

 private:
  /// Bookings as payments are: not started again while the outcome is not known, and settled soon.
  static idem::PolicyTable under_hold(idem::PolicyTable policies) {
    for (const char* type : {"transfer", "callback"}) {
      idem::Policy policy = policies.find(type);
      policy.on_expired_lease = idem::RecordMode::hold;
      policy.lease = policies.find("payment").lease;
      policy.wait = policies.find("payment").wait;
      policies.replace(type, policy);
    }
    return policies;
  }

  idem::SqliteStore store_;  ///< only for its transactions: it holds no records
  LedgerTable<idem::SqliteStore> table_;
  idem::IdempotencyGuard<idem::AnyStore> guard_;
};

/// Records and ledger in one database.
template <class StoreT>
class BooksInOne final : public Books {
 public:
  /// `prepare(store)` makes the ledger's table.
  template <class Options, class Prepare>
  BooksInOne(const Options& options, const idem::PolicyTable& policies, Prepare prepare)
      : store_(options), records_(store_), ledger_(store_, policies) {
    prepare(store_);
  }
  [[nodiscard]] idem::AnyStore& records() noexcept override { return records_; }
  [[nodiscard]] Ledger& ledger() noexcept override { return ledger_; }

 private:
  StoreT store_;
  idem::AnyStore records_;
  LedgerBesideRecords<StoreT> ledger_;
};

class BooksApart final : public Books {
 public:
  explicit BooksApart(const BooksOptions& options)
      : records_(idem::open_store(options.store, {.observer = options.observer})),
        ledger_(records_, (options.folder / "ledger.db").string(), options.policies) {}
  [[nodiscard]] idem::AnyStore& records() noexcept override { return records_; }
  [[nodiscard]] Ledger& ledger() noexcept override { return ledger_; }

 private:
  idem::AnyStore records_;
  LedgerElsewhere ledger_;
};

}  // namespace

std::unique_ptr<Books> open_books(const BooksOptions& options) {
  if (options.store.starts_with("sqlite:")) {
    idem::SqliteOptions sqlite = idem::SqliteOptions::from_address(options.store);
    sqlite.observer = options.observer;
    return std::make_unique<BooksInOne<idem::SqliteStore>>(
        sqlite, options.policies, [](idem::SqliteStore& store) {
          LedgerTable<idem::SqliteStore> table(store);
          make_table(table);
        });
  }
#ifdef SHOP_WITH_MYSQL
  if (options.store.starts_with("mysql://")) {
    idem::MySqlOptions mysql = idem::MySqlOptions::from_address(options.store);
    mysql.observer = options.observer;
    return std::make_unique<BooksInOne<idem::MySqlStore>>(
        mysql, options.policies, [&](idem::MySqlStore&) { make_mysql_ledger(mysql); });
  }
#endif
  return std::make_unique<BooksApart>(options);
}

}  // namespace shop
