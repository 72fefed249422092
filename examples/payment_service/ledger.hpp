#pragma once

#include <cstdint>
#include <idempotency/operation.hpp>
#include <idempotency/run_result.hpp>
#include <string>
#include <vector>

#include "patience.hpp"

namespace shop {

struct Entry {
  std::string reference;  ///< the text of its operation's key
  std::string debit;
  std::string credit;
  std::int64_t cents = 0;
};

/// The service's own book.
///
/// Nothing in it prevents a second entry with the same reference. That is the guard's job.
/// Thread safety: all members may be called concurrently.
class Ledger {
 public:
  Ledger() = default;
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;
  virtual ~Ledger() = default;

  enum class Mode {
    in_transaction,  ///< an entry is committed with the record of its operation, or neither is
    hold,  ///< the records are elsewhere: what is not known is settled by asking the ledger
  };
  [[nodiscard]] virtual Mode mode() const noexcept = 0;

  /// Books the entry once for each key, and gives its number. Not after `valid_until`.
  [[nodiscard]] virtual idempotency::RunResult<std::int64_t> book(
      const idempotency::Operation& operation, const Entry& entry, Time valid_until) = 0;

  /// What a service without the guard does: books the entry each time it is asked to.
  virtual std::int64_t book_unguarded(const Entry& entry) = 0;

  /// The numbers of the entries with this reference.
  [[nodiscard]] virtual std::vector<std::int64_t> find(const std::string& reference) = 0;
};

}  // namespace shop
