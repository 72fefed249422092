#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "idempotency/record.hpp"

namespace idempotency {
inline namespace v0 {

/// Whether a call begins work or belongs to work that has begun. Stores take no notice; a `BreakerStore` lets the latter through.
enum class WorkStage : std::uint8_t {
  fresh,
  under_way,  ///< a part of a run, or repeated because an answer was lost
};

/// What a caller asks for with `begin`.
struct BeginRequest {
  Key key;
  OwnerToken owner;
  std::optional<Fingerprint> fingerprint = std::nullopt;
  RecordMode mode = RecordMode::take_over;
  std::chrono::milliseconds lease{30'000};  ///< counted by the store from the moment it judges
  std::string trace = {};                   ///< kept from the first begin of a record's life
  Admission admission = Admission::any;
  WorkStage stage = WorkStage::fresh;
};

/// The caller is the owner and may start the handler.
struct Acquired {
  std::uint64_t fence = 1;
  std::uint32_t attempt = 1;
  friend bool operator==(const Acquired&, const Acquired&) = default;
};

/// Another owner's lease is running.
struct InProgress {
  std::chrono::milliseconds lease_remaining{0};  ///< at least 1 ms
  friend bool operator==(const InProgress&, const InProgress&) = default;
};

/// The operation succeeded before.
struct Completed {
  std::optional<std::string> result;  ///< absent: success was recorded without it
  std::chrono::milliseconds retention_remaining{0};
  std::uint64_t fence = 0;
  std::optional<Fingerprint::Part> fingerprint = std::nullopt;  ///< the record's
  friend bool operator==(const Completed&, const Completed&) = default;
};

/// The operation failed before, for good (or retryably, told to the call that failed).
struct Failed {
  Failure failure;
  std::chrono::milliseconds retention_remaining{0};
  std::uint64_t fence = 0;
  std::optional<Fingerprint::Part> fingerprint = std::nullopt;  ///< the record's
  friend bool operator==(const Failed&, const Failed&) = default;
};

/// The effect may have happened; blocked until somebody settles the record at this fence.
struct Uncertain {
  std::uint64_t fence = 0;
  Timestamp since{};
  friend bool operator==(const Uncertain&, const Uncertain&) = default;
};

/// The key was used for a request of another meaning. `not_comparable`: the record's scheme is not
/// among the request's.
struct Mismatch {
  FingerprintMatch match = FingerprintMatch::different;
  std::uint8_t stored_scheme = 1;
  friend bool operator==(const Mismatch&, const Mismatch&) = default;
};

/// Only under `Admission::issued`: nobody has issued this key, or it has expired. Nothing was written.
struct NotIssued {
  friend bool operator==(const NotIssued&, const NotIssued&) = default;
};

using BeginOutcome =
    std::variant<Acquired, InProgress, Completed, Failed, Uncertain, Mismatch, NotIssued>;

/// A key that may be begun once, until `lifetime` has passed by the store's clock: the record of a one-time token.
struct IssueRequest {
  Key key;
  OwnerToken issuer;  ///< new for each key, so that a repeated call is recognised
  std::chrono::milliseconds lifetime{std::chrono::minutes{15}};  ///< at least 1 ms
};

/// `stored`: the write took effect now, or had already. `lost`: it changed nothing.
enum class WriteOutcome : std::uint8_t { stored, lost };

/// `unknown`: the store did not answer; the lease ends by itself.
enum class ReleaseOutcome : std::uint8_t { released, lost, unknown };

/// What an owner leaves behind when its handler succeeded.
struct Completion {
  std::optional<std::string> result = std::nullopt;  ///< absent: too large or not encodable
  std::chrono::milliseconds retention{std::chrono::hours{1}};
};

/// A renewal in a batch.
struct Renewal {
  Key key;
  Ownership ownership;
  std::chrono::milliseconds lease{0};
};

/// What an operator or reconciler found out about an uncertain record.
struct Resolution {
  enum class Verdict : std::uint8_t {
    succeeded,  ///< the effect happened; `result` (encoded, optional) answers from now on
    failed,     ///< it did not and shall not; `reason` answers from now on
    retry,      ///< it did not; the next call runs the handler
  };
  Verdict verdict = Verdict::retry;
  std::optional<std::string> result = std::nullopt;
  std::string reason = {};
  /// New for each resolution, so that a repeated call with the same one is recognised.
  OwnerToken resolver = OwnerToken::generate();
  /// How long the record answers from now on. Give it the retention of the key's type (`PolicyTable::find`); the default
  /// is that of payments, because a settled record that is forgotten too soon is an operation that runs again.
  std::chrono::milliseconds retention{std::chrono::hours{24 * 30}};
};

/// Which records to list; all conditions must hold.
struct RecordFilter {
  std::optional<std::string> type = std::nullopt;
  std::optional<RecordState> state = std::nullopt;
  /// Not changed for at least this long.
  std::optional<std::chrono::milliseconds> unchanged_for = std::nullopt;
};

/// A part of a listing, ordered by type and then by value, byte by byte; `cursor` continues after it and is empty at the end.
struct RecordPage {
  std::vector<Record> records;
  std::string cursor;
  /// What stands under the key of a record and cannot be read, with the reason: what another program or a later version wrote. It is of
  /// the type that was asked for; of which state or age it is cannot always be told.
  struct Unreadable {
    Key key;
    std::string why;
  };
  std::vector<Unreadable> unreadable = {};
};

struct StoreStatistics {
  std::uint64_t processing = 0;
  std::uint64_t success = 0;
  std::uint64_t failed = 0;
  std::uint64_t uncertain = 0;
  std::uint64_t issued = 0;  ///< one-time tokens that nobody has used yet
  std::uint64_t bytes = 0;   ///< held for records: memory, or the file's size

  /// Adds `records` to those of a state.
  constexpr void add(RecordState state, std::uint64_t records = 1) noexcept {
    switch (state) {
      case RecordState::processing:
        processing += records;
        return;
      case RecordState::success:
        success += records;
        return;
      case RecordState::failed:
        failed += records;
        return;
      case RecordState::uncertain:
        uncertain += records;
        return;
      case RecordState::issued:
        issued += records;
        return;
    }
  }
};

namespace detail {

using std::chrono::milliseconds;

template <class S>
concept CanBegin = requires(S& store, const BeginRequest& request) {
  { store.begin(request) } -> std::same_as<BeginOutcome>;
};
template <class S>
concept CanComplete = requires(S& store, const Key& key, const Ownership& by,
                               const Completion& completion) {
  { store.complete(key, by, completion) } -> std::same_as<WriteOutcome>;
};
template <class S>
concept CanFail = requires(S& store, const Key& key, const Ownership& by, const Failure& failure,
                           milliseconds retention) {
  { store.fail(key, by, failure, retention) } -> std::same_as<WriteOutcome>;
};
template <class S>
concept CanDoubt = requires(S& store, const Key& key, const Ownership& by) {
  { store.doubt(key, by) } -> std::same_as<WriteOutcome>;
};
template <class S>
concept CanMarkEffect = requires(S& store, const Key& key, const Ownership& by) {
  { store.mark_effect(key, by) } -> std::same_as<WriteOutcome>;
};
template <class S>
concept CanRenew = requires(S& store, const Key& key, const Ownership& by, milliseconds lease) {
  { store.renew(key, by, lease) } -> std::same_as<WriteOutcome>;
};
template <class S>
concept CanRelease = requires(S& store, const Key& key, const Ownership& by,
                              milliseconds retention) {
  { store.release(key, by, retention) }
  noexcept->std::same_as<ReleaseOutcome>;
};
template <class S>
concept CanIssue = requires(S& store, const IssueRequest& request) {
  { store.issue(request) } -> std::same_as<WriteOutcome>;
};
template <class S>
concept CanFind = requires(S& store, const Key& key) {
  { store.find(key) } -> std::same_as<std::optional<Record>>;
};

template <class S>
concept CanList = requires(S& store, const RecordFilter& filter, const std::string& cursor,
                           std::size_t limit) {
  { store.list(filter, cursor, limit) } -> std::same_as<RecordPage>;
};
template <class S>
concept CanResolve = requires(S& store, const Record& seen, const Resolution& resolution) {
  { store.resolve(seen, resolution) } -> std::same_as<WriteOutcome>;
};
template <class S>
concept CanPurge = requires(S& store, std::size_t limit) {
  { store.purge(limit) } -> std::same_as<std::size_t>;
};
template <class S>
concept CanPeek = requires(S& store, const Key& key) {
  { store.peek(key) } -> std::same_as<std::optional<Record>>;
};
template <class S>
concept NamesTransaction = requires {
  typename S::Transaction;
  typename S::Connection;
};

template <class S>
concept CanReportStatistics = requires(S& store) {
  { store.statistics() } -> std::same_as<StoreStatistics>;
};

}  // namespace detail

/// Where records live.
///
/// Each operation is one atomic step, judged by the store's clock and by `transition()`, and throws `Error` with a
/// store code (20-39) when it cannot answer; every call may be repeated with the same token. All
/// members may be called concurrently.
///
/// - `begin(request)`: judges retention, then fingerprint, then state; `Errc::store_refused` for a one-time token that nobody
///   has used yet. Under `Admission::issued` a key without a record is `NotIssued` and gets none, and an issued one is
///   acquired, a new life at fence 1.
/// - `complete`, `fail`, `doubt`, `mark_effect`, `renew`: by the owner at its fence.
/// - `release(key, by, retention) noexcept`: the owner gives up; the record is failed, retryable, without a text.
/// - `find(key)`: the record, or nothing when there is none or it is past its retention.
///
/// Retentions and leases count from the moment the store judges the call.
template <class S>
concept Store =
    detail::CanBegin<S> && detail::CanComplete<S> && detail::CanFail<S> && detail::CanDoubt<S> &&
    detail::CanMarkEffect<S> && detail::CanRenew<S> && detail::CanRelease<S> && detail::CanFind<S>;

/// A store whose records can be made before they are begun: one-time tokens.
///
/// - `issue(request)`: the key may be begun from now on under `Admission::issued`. `lost` when there is a record already that
///   is not past its retention; a repeated call of the same issuer is `stored`.
template <class S>
concept IssuingStore = Store<S> && detail::CanIssue<S>;

/// A store that operators and reconcilers can work with.
///
/// - `list(filter, cursor, limit)`: records by type, then by value; an empty cursor starts, `Errc::invalid_argument` for
///   one that no listing gave.
/// - `resolve(seen, resolution)`: settles an uncertain record, or a processing one whose lease ran out. `seen` is the record
///   as `find` or `list` gave it before anybody was asked what happened: when it has moved since (its owner came
///   back, another acquired it, it is settled) the answer is `lost` and nothing changes; look and ask again. Otherwise the
///   fence rises and the resolver becomes the owner. A repeated call of the same resolution is `stored`.
/// - `purge(limit)`: removes up to `limit` records that are past their retention; says how many.
/// - `statistics()`: counts by state, expired records left out where the store can tell.
template <class S>
concept AdminStore = Store<S> && detail::CanList<S> && detail::CanResolve<S> &&
    detail::CanPurge<S> && detail::CanReportStatistics<S>;

/// A store that renews many leases in one exchange: outcomes in the order of the requests.
template <class S>
concept BatchStore = Store<S> && requires(S& store, const std::vector<Renewal>& renewals) {
  { store.renew_many(renewals) } -> std::same_as<std::vector<WriteOutcome>>;
};

/// A store that begins many records in one exchange.
///
/// - `begin_many(requests)`: outcomes in the order of the requests, which are judged in that order; each is one atomic step as with
///   `begin`, all of them together are not. Nothing for a request that has to be made by itself, because its record cannot be read or is
///   held by another's transaction: `begin` then says why. When it throws, any of them may have been begun. In both cases repeat
///   them with the same tokens.
template <class S>
concept BatchBeginStore = Store<S> &&
    requires(S& store, const std::vector<BeginRequest>& requests) {
  { store.begin_many(requests) } -> std::same_as<std::vector<std::optional<BeginOutcome>>>;
};

/// How long a transaction may wait for its place before `Errc::store_busy`.
struct TransactionOptions {
  std::chrono::milliseconds wait{5'000};
  WorkStage stage = WorkStage::fresh;
};

/// A store whose records can share a transaction with the handler's own statements.
///
/// - `open_transaction(options)`: on a connection of the store's own.
/// - `open_transaction(connection, options)`: on the caller's. Not in a transaction: one is begun and will be
///   committed. In a transaction: it is joined, and `is_joined(tx)` says so; `commit` and `rollback` then only reach
///   back to where it was joined.
/// - `begin`, `complete` with a transaction as first argument: within it.
/// - `commit(tx)`: throws `Errc::transaction_lost` when nothing was written, `Errc::commit_unknown` when that is not known.
/// - `rollback(tx) noexcept`.
///
/// It may have `peek(key) -> std::optional<Record>`: a look before the transaction, where it costs less than it saves, and
/// nothing otherwise. What it gives is as good as what `find` gives; nothing says nothing about the record.
template <class S>
concept TransactionalStore = Store<S> && detail::NamesTransaction<S> &&
    requires(S& store, typename S::Transaction& tx, typename S::Connection connection,
             const TransactionOptions& options, const BeginRequest& request, const Key& key,
             const Ownership& by, const Completion& completion) {
  { store.open_transaction(options) } -> std::same_as<typename S::Transaction>;
  { store.open_transaction(connection, options) } -> std::same_as<typename S::Transaction>;
  { store.begin(tx, request) } -> std::same_as<BeginOutcome>;
  { store.complete(tx, key, by, completion) } -> std::same_as<WriteOutcome>;
  { store.is_joined(tx) } -> std::same_as<bool>;
  { store.commit(tx) } -> std::same_as<void>;
  { store.rollback(tx) }
  noexcept->std::same_as<void>;
};

}  // namespace v0
}  // namespace idempotency
