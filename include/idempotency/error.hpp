#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <string_view>
#include <utility>

namespace idempotency {
inline namespace v0 {

/// What went wrong, in terms of what the caller may do next.
///
/// Each comment answers two questions: can the operation have taken effect, and may the same call be
/// made again? Values are part of logs and metrics: never renumber.
enum class Errc : std::uint8_t {
  /// The key is empty, blank, too long or holds a control character. Nothing was sent. Repeating
  /// the same call fails the same way.
  invalid_key = 1,
  /// A part of the key that a resolver needs is not in the request. Nothing was sent. Do not invent
  /// an id: refuse the request.
  missing_key = 2,
  /// The fingerprint's input cannot be put into canonical form (for example JSON that does not
  /// parse or names a member twice). Nothing was sent.
  invalid_fingerprint = 3,
  /// The record was fingerprinted under a scheme that this caller did not supply, so "same request"
  /// cannot be decided. The handler did not run. Supply the earlier scheme with `or_earlier`.
  unknown_fingerprint_scheme = 4,
  /// A policy value is missing, unknown, out of range or contradicts another. Nothing was sent.
  invalid_policy = 5,
  /// An option or argument other than key and policy is unusable. Nothing was sent.
  invalid_argument = 6,

  /// The store could not be reached; the request was not sent. Safe to repeat with the same key.
  store_unavailable = 20,
  /// The request was sent and no answer came, so the write may have happened. Every store call may be
  /// repeated with the same owner token.
  store_reply_lost = 21,
  /// The store was reached and refused for now (locked, loading, overloaded). Nothing was written.
  store_busy = 22,
  /// The store has no room for new keys and refuses them rather than forgetting old ones. Nothing was
  /// written. Add room or shorten retention; then the same call may be repeated.
  store_full = 23,
  /// The store refuses for a reason that repeating does not mend (rights, schema, configuration).
  /// Nothing was written.
  store_refused = 24,
  /// A stored record cannot be read. The handler did not run. An operator has to look at it.
  store_corrupt = 25,
  /// The value is larger than the store can hold. Nothing was written.
  too_large = 26,
  /// The guard or store was made before `fork()` and is used in the child. Nothing was written, and the
  /// parent may go on. The child makes its own guard and store; but a SQLite file that was open at the
  /// fork is refused until the child execs, because SQLite's list of locks is inherited and its locks are not.
  used_after_fork = 27,
  /// A store that may know the key cannot be asked, so "not a duplicate" cannot be said. The handler
  /// did not run; safe to repeat.
  store_undecidable = 28,

  /// A transaction was asked for inside a transaction of the same store. Nothing was written.
  nested_transaction = 40,
  /// The database ended the transaction (conflict, stale snapshot, lost connection); nothing of it was
  /// written. Repeat the whole transaction.
  transaction_lost = 41,
  /// COMMIT was sent and no answer came. Run the same operation again: it settles the question.
  commit_unknown = 42,
  /// A statement of the handler's was refused by the database. The transaction is rolled back.
  statement_failed = 43,

  /// The recorded result was encoded as another type or form than the one asked for. The handler did
  /// not run and never will for it; read it with the type that wrote it.
  codec_mismatch = 60,
  /// The recorded bytes do not decode. The handler did not run.
  codec_corrupt = 61,
  /// The value cannot be encoded (for example text that is not UTF-8 in JSON).
  codec_unencodable = 62,
  /// `value()` was asked of a result that has none; `RunResult::status()` says why.
  no_value = 63,

  /// The lease kept ending before its answer arrived, so the handler was not started. Safe to repeat;
  /// use a longer lease or a nearer store.
  lease_too_short = 80,
  /// The lease was lost before the point of no return was stored. The effect was not started by this
  /// call; stop and let the exception pass.
  lease_lost = 81,

  /// Thrown by a handler: it failed for good and had no effect. Recorded and replayed.
  permanent_failure = 100,
  /// Thrown by a handler: it failed without effect. The next call runs again.
  retryable_failure = 101,
  /// Thrown by a handler: it may have had an effect. The record blocks until it is settled.
  outcome_unknown = 102,
};

/// Whether the same call, with the same key, may be repeated without harm.
[[nodiscard]] constexpr bool safe_to_retry(Errc code) noexcept {
  switch (code) {
    case Errc::store_unavailable:
    case Errc::store_reply_lost:
    case Errc::store_busy:
    case Errc::store_full:
    case Errc::store_undecidable:
    case Errc::transaction_lost:
    case Errc::commit_unknown:
    case Errc::lease_too_short:
    case Errc::lease_lost:
    case Errc::retryable_failure:
      return true;
    case Errc::invalid_key:
    case Errc::missing_key:
    case Errc::invalid_fingerprint:
    case Errc::unknown_fingerprint_scheme:
    case Errc::invalid_policy:
    case Errc::invalid_argument:
    case Errc::store_refused:
    case Errc::store_corrupt:
    case Errc::too_large:
    case Errc::used_after_fork:
    case Errc::nested_transaction:
    case Errc::statement_failed:
    case Errc::codec_mismatch:
    case Errc::codec_corrupt:
    case Errc::codec_unencodable:
    case Errc::no_value:
    case Errc::permanent_failure:
    case Errc::outcome_unknown:
      return false;
  }
  return false;
}

/// Whether the call that failed may have changed the store or the world all the same.
[[nodiscard]] constexpr bool effect_possible(Errc code) noexcept {
  switch (code) {
    case Errc::store_reply_lost:
    case Errc::commit_unknown:
    case Errc::outcome_unknown:
      return true;
    case Errc::invalid_key:
    case Errc::missing_key:
    case Errc::invalid_fingerprint:
    case Errc::unknown_fingerprint_scheme:
    case Errc::invalid_policy:
    case Errc::invalid_argument:
    case Errc::store_unavailable:
    case Errc::store_busy:
    case Errc::store_full:
    case Errc::store_refused:
    case Errc::store_corrupt:
    case Errc::too_large:
    case Errc::used_after_fork:
    case Errc::store_undecidable:
    case Errc::nested_transaction:
    case Errc::transaction_lost:
    case Errc::statement_failed:
    case Errc::codec_mismatch:
    case Errc::codec_corrupt:
    case Errc::codec_unencodable:
    case Errc::no_value:
    case Errc::lease_too_short:
    case Errc::lease_lost:
    case Errc::permanent_failure:
    case Errc::retryable_failure:
      return false;
  }
  return true;
}

/// The enumerator's name, for logs and metrics.
[[nodiscard]] std::string_view to_string(Errc code) noexcept;

/// The base of every exception that this library throws.
///
/// `what()` says what to do and never holds a key, a payload or a server's text; those are in
/// `detail()`, which may hold personal data and belongs into protected logs only.
///
/// Thread safety: a value; distinct copies may be used concurrently.
class Error : public std::exception {
 public:
  Error(Errc code, std::string message, std::string detail = {})
      : message_(std::move(message)), detail_(std::move(detail)), code_(code) {}

  [[nodiscard]] const char* what() const noexcept override { return message_.c_str(); }
  [[nodiscard]] Errc code() const noexcept { return code_; }
  /// What only the operator may see: the server's own words, the key, the place in a file.
  [[nodiscard]] const std::string& detail() const noexcept { return detail_; }
  [[nodiscard]] bool safe_to_retry() const noexcept { return v0::safe_to_retry(code_); }
  [[nodiscard]] bool effect_possible() const noexcept { return v0::effect_possible(code_); }

 private:
  std::string message_;
  std::string detail_;
  Errc code_;
};

/// Thrown by a handler that failed for good without effect: recorded, and replayed as `failed`.
class PermanentFailure : public Error {
 public:
  explicit PermanentFailure(std::string reason)
      : Error(Errc::permanent_failure, std::move(reason)) {}
};

/// Thrown by a handler that failed without effect: the next call with the key runs it again.
class RetryableFailure : public Error {
 public:
  explicit RetryableFailure(std::string reason)
      : Error(Errc::retryable_failure, std::move(reason)) {}
};

/// Thrown by a handler that cannot know whether its effect happened: the record becomes `uncertain`.
class OutcomeUnknown : public Error {
 public:
  explicit OutcomeUnknown(std::string reason) : Error(Errc::outcome_unknown, std::move(reason)) {}
};

}  // namespace v0
}  // namespace idempotency
