#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <utility>

#include "idempotency/store.hpp"
#include "idempotency/stores/any.hpp"

namespace idempotency {
inline namespace v0 {

/// What a pass has removed so far, or in all.
struct PurgeReport {
  std::uint64_t removed = 0;   ///< records
  std::uint64_t batches = 0;   ///< calls of the store that answered
  std::uint64_t failures = 0;  ///< calls that did not, and were repeated
  std::chrono::milliseconds took{0};
  std::chrono::milliseconds longest_batch{0};
  bool ended_early = false;  ///< too many failures in a row, or asked to stop: there may be more
};

/// How a `Purger` paces itself.
struct PurgerOptions {
  /// How many records one call of the store removes at most. SQL stores cut it into commits of a few hundred, so that nobody waits
  /// for one of them for long. From 1 to 100 000.
  std::size_t batch = 1'000;
  /// The pause between two batches, for others; 0: none.
  std::chrono::milliseconds pause{20};
  /// The longest pause after a batch that failed; doubles with each failure in a row up to `longest_back_off`. Each is drawn from its
  /// upper half. At least 1 ms.
  std::chrono::milliseconds first_back_off{200};
  std::chrono::milliseconds longest_back_off{30'000};
  /// So many failures in a row end a pass. At least 1.
  std::uint32_t max_failures_in_a_row = 8;
  /// The pause between the passes of `run`. At least 1 ms.
  std::chrono::milliseconds every{std::chrono::minutes{5}};
  /// Called after each batch that answered, on the thread of the pass. Must not throw.
  std::function<void(const PurgeReport&)> on_batch = nullptr;
  /// Called at the end of each pass of `run`. Must not throw.
  std::function<void(const PurgeReport&)> on_pass = nullptr;
};

/// Removes records that are past their retention, a batch at a time.
///
/// SQLite and MySQL keep such records until somebody removes them; for all calls they are absent already, so nothing depends on
/// when that happens but the room that they take. Redis and memory need no purger: there a pass does nothing, or little.
/// A batch looks up its keys without a lock and removes them by key, in short commits; a record that was begun anew meanwhile is
/// left alone. Several purgers on one store are harmless: each removes what the other has not.
///
/// Errors: of the constructor `Errc::invalid_argument` for options out of range, and for an `AnyStore` over a store without the admin
/// ability. Of the passes what repeating does not mend (`safe_to_retry()` is false).
/// Thread safety: all members may be called concurrently.
/// Lifetime: borrows the store.
/// Example: see `examples/16_reconcile_and_purge`.
class Purger {
 public:
  template <AdminStore StoreT>
  explicit Purger(StoreT& store, PurgerOptions options = {})
      : Purger(std::make_unique<AnyStore>(store), std::move(options)) {}
  explicit Purger(AnyStore& store, PurgerOptions options = {});
  Purger(const Purger&) = delete;
  Purger& operator=(const Purger&) = delete;
  ~Purger() = default;

  /// Removes until nothing is left that is past its retention. Ends early when it is asked to stop, and after too many failures in
  /// a row.
  PurgeReport run_once(const std::stop_token& stop = {});

  /// Does so again and again until it is asked to stop.
  ///
  /// Errors: those after which repeating does not help.
  void run(const std::stop_token& stop);

 private:
  Purger(std::unique_ptr<AnyStore> own, PurgerOptions options);

  /// False when the pass is to end: the last batch was not full, or nothing answers.
  bool remove_batch(PurgeReport& report, std::uint32_t& failures, const std::stop_token& stop);

  std::unique_ptr<AnyStore> own_;
  AnyAdminStore* store_;
  PurgerOptions options_;
};

}  // namespace v0
}  // namespace idempotency
