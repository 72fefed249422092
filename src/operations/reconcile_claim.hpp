#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "idempotency/store.hpp"
#include "idempotency/stores/any.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail {

/// When nobody stood behind an operation any more; nothing while its owner is alive, and when the next call may simply take over.
/// Does not look at the time: a lease may still be running.
[[nodiscard]] std::optional<Timestamp> silent_since(const Record& record) noexcept;

/// The key of the reconciler's own record about an open one: another one for each owner and fence, so that what was asked about one turn
/// says nothing of the next.
[[nodiscard]] Key claim_key_of(const Record& open);

/// The right to ask about one open record: a record of type `Reconciler::record_type` that this process owns.
struct ReconcileClaim {
  Key key;
  Ownership by;
  std::uint32_t questions = 1;  ///< how often anybody has had this right, this time included
  Timestamp taken_at{};         ///< by the store's clock
};

/// Either the right to ask, or how long nobody has it.
struct ClaimAttempt {
  std::optional<ReconcileClaim> claim;
  std::chrono::milliseconds rest{0};
};

/// What a reconciler writes about its own work. Calls whose answer was lost are repeated once.
///
/// Errors: those of the store. Thread safety: that of the store.
class ReconcileClaims {
 public:
  explicit ReconcileClaims(AnyStore& store);

  /// The store's clock, read through a record that is gone afterwards.
  [[nodiscard]] Timestamp now();
  [[nodiscard]] ClaimAttempt take(const Key& key, const std::string& trace,
                                  std::chrono::milliseconds lease);
  /// Nobody asks for so long. The store does not answer: the lease is the pause.
  void rest(const ReconcileClaim& claim, std::chrono::milliseconds pause);
  void park(const ReconcileClaim& claim, const std::string& why, std::chrono::milliseconds span);
  /// There is nothing to ask any more. False when the store does not answer: `sweep` does it later.
  bool close(const ReconcileClaim& claim);
  /// Closes what processes left behind that died between a settlement and their own record's end. False when there is more whose
  /// lease still runs.
  bool sweep();

 private:
  [[nodiscard]] bool is_left_behind(const Record& own);

  AnyStore* store_;
  Key clock_key_;
};

/// `call()`, and once more when its answer was lost or the store was busy.
template <class Call>
auto twice(Call call) {
  try {
    return call();
  } catch (const Error& error) {
    if (!error.safe_to_retry()) throw;
  }
  return call();
}

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
