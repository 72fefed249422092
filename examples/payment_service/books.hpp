#pragma once

#include <filesystem>
#include <idempotency/observer.hpp>
#include <idempotency/policy.hpp>
#include <idempotency/stores/any.hpp>
#include <memory>
#include <string>

#include "ledger.hpp"

namespace shop {

/// Where the service keeps its records and its ledger.
class Books {
 public:
  Books() = default;
  Books(const Books&) = delete;
  Books& operator=(const Books&) = delete;
  virtual ~Books() = default;

  /// The store that holds all records. It is an `AdminStore`.
  [[nodiscard]] virtual idempotency::AnyStore& records() noexcept = 0;
  [[nodiscard]] virtual Ledger& ledger() noexcept = 0;
};

struct BooksOptions {
  std::string store;             ///< the address of the records' store
  std::filesystem::path folder;  ///< for what is kept in files
  idempotency::PolicyTable policies;
  idempotency::Observer* observer;  ///< hears of hazards; may be null
};

/// `sqlite:FILE` and `mysql://...` hold records and ledger, so that an entry and the record of its operation share a
/// transaction. With every other address that `open_store` knows, the ledger is a SQLite file in the folder and is
/// treated as what it then is: another system.
[[nodiscard]] std::unique_ptr<Books> open_books(const BooksOptions& options);

}  // namespace shop
