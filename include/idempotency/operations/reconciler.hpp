#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "idempotency/codec.hpp"
#include "idempotency/policy.hpp"
#include "idempotency/store.hpp"
#include "idempotency/stores/any.hpp"

namespace idempotency {
inline namespace v0 {

/// What the system that was called says of an operation whose outcome is not known.
///
/// Thread safety: a value; distinct copies may be used concurrently.
class Finding {
 public:
  enum class Kind : std::uint8_t { succeeded = 1, failed, retry, still_unknown };

  /// It took effect. `result` is what the handler would have returned: of the same type, or every later call throws
  /// `Errc::codec_mismatch`.
  ///
  /// Example: `return Finding::succeeded(Receipt{charge->id});`
  template <class T>
  [[nodiscard]] static Finding succeeded(const T& result) {
    return {Kind::succeeded, encode_result<T>(result), {}};
  }
  /// The same for a handler that returns nothing.
  [[nodiscard]] static Finding succeeded() { return {Kind::succeeded, encode_result<void>(), {}}; }
  /// The same with what `encode_result` gave; nothing: later calls get `replayed_without_result`.
  [[nodiscard]] static Finding succeeded_as(std::optional<std::string> encoded) {
    return {Kind::succeeded, std::move(encoded), {}};
  }
  /// It had no effect and shall have none: later calls get `failed` with this text (at most
  /// `Failure::max_reason_bytes`; longer text is cut).
  [[nodiscard]] static Finding failed(std::string text) {
    return {Kind::failed, std::nullopt, std::move(text)};
  }
  /// Nothing is known of it there: the next call may run the handler. Believed only when the question was asked late enough; see
  /// `Reconciler`.
  [[nodiscard]] static Finding retry() { return {Kind::retry, std::nullopt, {}}; }
  /// No answer yet; `why` is for the report. Asked again after a pause.
  [[nodiscard]] static Finding still_unknown(std::string why = {}) {
    return {Kind::still_unknown, std::nullopt, std::move(why)};
  }

  [[nodiscard]] Kind kind() const noexcept { return kind_; }
  /// Encoded; of `succeeded` only.
  [[nodiscard]] const std::optional<std::string>& result() const noexcept { return result_; }
  /// Of `failed` and `still_unknown`.
  [[nodiscard]] const std::string& text() const noexcept { return text_; }

 private:
  Finding(Kind kind, std::optional<std::string> result, std::string text)
      : result_(std::move(result)), text_(std::move(text)), kind_(kind) {}

  std::optional<std::string> result_;
  std::string text_;
  Kind kind_;
};

/// What became of one record in a pass.
enum class ReconcileStep : std::uint8_t {
  succeeded = 1,  ///< settled: success
  failed,         ///< settled: a failure for good
  released,       ///< settled: free for the next call
  too_early,      ///< the answer was `retry` before it can be believed; asked again when it can
  still_unknown,  ///< no answer; asked again after a pause
  threw,          ///< `resolve` threw; asked again after a pause
  moved,          ///< its owner came back, or somebody else settled it: left alone
  parked,         ///< asked often enough without an answer: rests, and the alert was called
  store_failed,   ///< the store did not answer; looked at again in a later pass
  unreadable,  ///< the record cannot be read; only in `ReconcileReport::notes`, as there is no record to show
};
/// The enumerator's name, for logs and metrics.
[[nodiscard]] std::string_view to_string(ReconcileStep step) noexcept;

/// One record's part of a pass.
///
/// Lifetime: `record` and `why` end with the call that is given the event.
struct ReconcileEvent {
  const Record& record;  ///< as it was seen before anybody was asked
  ReconcileStep step = ReconcileStep::still_unknown;
  std::string_view why = {};          ///< may hold personal data; empty where the step says all
  std::uint32_t questions = 0;        ///< how often it has been asked about, this time included
  std::chrono::milliseconds rest{0};  ///< until it is asked about again, at the earliest
};

/// What one pass has done.
struct ReconcileReport {
  /// A record that was not settled or cannot be read, and why. Holds keys: for protected logs only.
  struct Note {
    Key key;
    ReconcileStep step;
    std::string why;
  };
  static constexpr std::size_t max_notes = 100;

  std::size_t unsettled = 0;  ///< records that the pass found open, those at rest included
  std::size_t asked = 0;      ///< calls of `resolve`
  std::size_t succeeded = 0;
  std::size_t failed = 0;
  std::size_t released = 0;
  std::size_t too_early = 0;
  std::size_t still_unknown = 0;
  std::size_t threw = 0;
  std::size_t moved = 0;
  std::size_t parked = 0;
  std::size_t store_failed = 0;
  std::size_t unreadable =
      0;  ///< records that cannot be read, whatever their state; for somebody to look at
  std::size_t resting =
      0;  ///< in their pause, parked before, or being asked about by another process
  bool ended_early = false;  ///< too many failures in a row, or asked to stop
  std::vector<Note> notes;   ///< the first `max_notes`

  [[nodiscard]] std::size_t settled() const noexcept { return succeeded + failed + released; }
};

/// How a `Reconciler` behaves. Times are counted by the store's clock, but for `every`.
struct ReconcilerOptions {
  /// Business types to look after; empty: all.
  std::vector<std::string> types = {};
  /// How long settled records answer: give it the guard's own table.
  PolicyTable policies = {};
  /// How long after the lease's end, or after the record became uncertain, `retry` is believed: longer than a request can be on its
  /// way. From 0 to 30 days.
  std::chrono::milliseconds margin{60'000};
  /// How long one record is this process' own: longer than `resolve` and a few calls of the store take. When it has run out
  /// another process may ask as well. From 10 ms to 1 day.
  std::chrono::milliseconds lease{60'000};
  /// The longest pause after a first question without an answer; doubles each time up to `longest_pause`. Each pause is drawn from 0 up
  /// to it (full jitter). At least 1 ms.
  std::chrono::milliseconds first_pause{1'000};
  std::chrono::milliseconds longest_pause{std::chrono::minutes{10}};
  /// After so many questions without an answer the record is parked. At least 1.
  std::uint32_t max_questions = 20;
  /// How long a parked record is left alone; then it is asked about anew. At least 1 ms.
  std::chrono::milliseconds parked_for{std::chrono::hours{24 * 30}};
  /// A pass keeps the oldest records, at most so many; the next ones are the next pass' own. At least 1.
  std::size_t max_records = 10'000;
  /// So many failures of `resolve` or the store in a row end a pass: it does not wait for thousands of time-outs. At least 1.
  std::size_t max_failures_in_a_row = 5;
  /// The pause between the passes of `run`. At least 1 ms.
  std::chrono::milliseconds every{5'000};
  /// Called when a record is parked. Once for each parking, but again when it throws, when the process dies before the parking is
  /// stored, and when it takes longer than the lease.
  std::function<void(const ReconcileEvent&)> alert = nullptr;
  /// Called for each record of a pass that was not at rest, on its thread. Must not throw.
  std::function<void(const ReconcileEvent&)> on_record = nullptr;
  /// Called at the end of each pass of `run`. Must not throw.
  std::function<void(const ReconcileReport&)> on_pass = nullptr;
};

/// Finds out what became of operations whose outcome is not known, and settles their records.
///
/// Open are records that are uncertain, and those under `hold` (or with their effect marked) whose lease has run out. For each, oldest
/// first, `resolve(record)` asks the system that was called, and its answer is written into the record as it was seen before
/// the question: when its owner has come back meanwhile, or somebody else was faster, nothing changes.
///
/// One process at a time asks about a record: it holds a record of its own for that, of type `record_type`, in the same store. That one
/// is also the pause after a question without an answer, the count of the questions and the parking, so that all processes
/// share them and none is lost when one dies. It is gone when the operation is settled.
///
/// `retry` is believed only when the question was asked `margin` after the lease's end (after the change to uncertain), by the store's
/// clock. That cannot exclude an owner that was paused between its last look at its lease and its effect for longer than lease and
/// margin, nor a request that is longer on its way, nor a clock that jumps. Only the system that is called can: let it refuse what
/// comes after a time that is taken before the record is begun.
///
/// Errors: of the constructor `Errc::invalid_argument` for options out of range, and for an `AnyStore` over a store without the admin
/// ability. Of the passes those of the store while open records are looked
/// for; what goes wrong with one record is in the report.
/// Thread safety: all members may be called concurrently; passes of one object wait for each other.
/// Lifetime: borrows the store. `resolve` and the callbacks are called on the thread of the pass.
/// Source: the settlement of in-doubt transactions, J. Gray, A. Reuter, "Transaction Processing", 1992, for asking the one that knows;
/// M. Brooker, "Exponential Backoff And Jitter", 2015.
/// Example: see `examples/16_reconcile_and_purge`.
class Reconciler {
 public:
  /// Throws when there is no answer: then the record is asked about again. Must end within `lease`.
  using Resolve = std::function<Finding(const Record&)>;

  /// The type of the reconciler's own records, which is no operation's.
  static constexpr std::string_view record_type = "reconcile";

  template <AdminStore StoreT>
  Reconciler(StoreT& store, Resolve resolve, ReconcilerOptions options = {})
      : Reconciler(std::make_unique<AnyStore>(store), std::move(resolve), std::move(options)) {}
  Reconciler(AnyStore& store, Resolve resolve, ReconcilerOptions options = {});
  Reconciler(const Reconciler&) = delete;
  Reconciler& operator=(const Reconciler&) = delete;
  ~Reconciler();

  /// Goes through the open records. Ends early when it is asked to stop.
  ReconcileReport run_once(const std::stop_token& stop = {});

  /// Does so until it is asked to stop. A store that does not answer is asked again after growing pauses.
  ///
  /// Errors: those after which repeating does not help.
  void run(const std::stop_token& stop);

 private:
  class Impl;

  Reconciler(std::unique_ptr<AnyStore> own, Resolve resolve, ReconcilerOptions options);

  std::unique_ptr<AnyStore> own_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace v0
}  // namespace idempotency
