#include "core/transaction_call.hpp"

#include <cxxabi.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "core/call.hpp"
#include "core/transaction_ended.hpp"
#include "idempotency/execution.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail {

namespace {

using std::chrono::milliseconds;

constexpr std::uint32_t most_attempts = 3;
constexpr milliseconds longest_pause{250};

/// Inside a transaction there is no lease to lose, no mark to write and no step to keep.
class NoLease final : public ExecutionPort {
 public:
  std::stop_token stop_token() override { return {}; }
  void point_of_no_return() override {}
  std::optional<std::string> find_step(std::string_view /*name*/) override { return std::nullopt; }
  std::optional<std::string> record_step(std::string_view /*name*/,
                                         std::string /*result*/) override {
    return std::nullopt;
  }
};

/// Rolls back unless told that the transaction has ended.
class RollbackOnExit {
 public:
  explicit RollbackOnExit(TransactionPort& transaction) noexcept : transaction_(&transaction) {}
  RollbackOnExit(const RollbackOnExit&) = delete;
  RollbackOnExit& operator=(const RollbackOnExit&) = delete;
  ~RollbackOnExit() {
    if (transaction_ != nullptr) transaction_->rollback();
  }
  void ended() noexcept { transaction_ = nullptr; }

 private:
  TransactionPort* transaction_;
};

TransactionOptions options_of(const Policy& policy, WorkStage stage) {
  TransactionOptions options{.stage = stage};
  if (policy.wait > milliseconds{0}) options.wait = policy.wait;
  return options;
}

}  // namespace

TransactionCall::TransactionCall(Engine::Parts& parts, Operation operation,
                                 TransactionPort& transaction, HandlerPort& handler)
    : parts_(parts),
      transaction_(transaction),
      handler_(handler),
      policy_(policy_of(parts.options, operation)),
      repeat_begin_(operation.repeat_begin),
      request_(request_of(std::move(operation), policy_)),
      started_(std::chrono::steady_clock::now()) {}

RunOutcome TransactionCall::run() {
  try {
    return repeat_until_done();
  } catch (const Error& error) {
    if (!commit_is_unsettled_ || error.effect_possible()) throw;
    throw Error(Errc::commit_unknown,
                "the commit was not confirmed, and what became of it could not be asked; run the "
                "same operation again to settle it",
                std::string(error.what()) + ' ' + error.detail());
  }
}

RunOutcome TransactionCall::repeat_until_done() {
  while (true) {
    if (answered_before()) return finish();
    const Ending ending = attempt();
    if (ending == Ending::done) return finish();
    if (ending == Ending::in_progress && !may_ask_again()) return finish();
  }
}

/// Another's `run` holds the key without a transaction: there is no row to block on, so it is asked for again, with
/// growing pauses, until this call's own deadline.
bool TransactionCall::may_ask_again() {
  const auto left = policy_.wait - (std::chrono::steady_clock::now() - started_);
  if (left <= milliseconds{0}) return false;
  const TimedWait waited(parts_.options.observer, request_.key);
  const milliseconds until_lease_ends = outcome_.report.retry_after + milliseconds{1};
  pause(std::min<std::chrono::nanoseconds>(left, until_lease_ends));
  return true;
}

/// A duplicate of a finished record needs no transaction and no place in the writers' line, where the store finds it
/// at a small price.
bool TransactionCall::answered_before() {
  std::optional<Record> record;
  try {
    record = transaction_.peek(request_.key);
  } catch (const Error& error) {  // `begin` asks again, and says what there is to be said
    report_error(StoreCall::find, error);
  }
  if (!record) return false;
  if (record->state != RecordState::success && record->state != RecordState::failed) return false;
  if (record->fingerprint && request_.fingerprint) {
    const FingerprintMatch match = request_.fingerprint->match(*record->fingerprint);
    if (match != FingerprintMatch::same) {
      take(Mismatch{match, record->fingerprint->scheme});
      return true;
    }
  }
  if (record->state == RecordState::success) {
    take(Completed{.result = std::move(record->result), .fence = record->ownership.fence});
    return true;
  }
  if (!record->failure || record->failure->retryability == Retryability::retryable) return false;
  take(Failed{.failure = *std::move(record->failure), .fence = record->ownership.fence});
  return true;
}

/// A server that cannot be reached is asked as often as `run` asks it: nothing has been done yet. Not so on the caller's
/// connection, which may have been in a transaction.
BeginOutcome TransactionCall::open_and_begin() {
  for (std::uint32_t asked = 1;; ++asked) {
    is_open_ = false;
    try {
      transaction_.open(
          options_of(policy_, commit_is_unsettled_ ? WorkStage::under_way : WorkStage::fresh));
      is_open_ = true;
      return transaction_.begin(request_);
    } catch (const Error& error) {
      transaction_.rollback();
      const bool unreached =
          error.code() == Errc::store_unavailable || error.code() == Errc::store_reply_lost;
      if (!unreached || transaction_.is_callers() || asked >= parts_.options.begin_attempts ||
          repeat_begin_ == BeginRepetition::after_lost_reply) {
        throw;  // nothing is committed, whatever was lost
      }
      report_error(StoreCall::begin, error);
    }
    pause(longest_pause);
  }
}

/// Grows with each, up to a bound.
void TransactionCall::pause(std::chrono::nanoseconds most) {
  const CancellationShield::Gap gap(shield_);
  std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(most, pause_));
  pause_ = std::min(longest_pause, pause_ * 2);
}

TransactionCall::Ending TransactionCall::attempt() {
  // What an earlier attempt may have left behind (a handler can commit through the native handle) is not this one's.
  if (attempts_ > 0) request_.owner = OwnerToken::generate();
  ++attempts_;
  try {
    BeginOutcome begun = open_and_begin();
    RollbackOnExit rollback(transaction_);
    commit_is_unsettled_ = false;
    const auto* acquired = std::get_if<Acquired>(&begun);
    if (acquired == nullptr) {
      const bool running = std::holds_alternative<InProgress>(begun);
      if (running) --attempts_;                        // the handler was not started
      if (std::holds_alternative<Uncertain>(begun)) {  // a silent owner's record became so just now
        rollback.ended();
        transaction_.commit();
      }
      take(std::move(begun));
      return running && !transaction_.is_joined() ? Ending::in_progress : Ending::done;
    }
    const Ownership by{request_.owner, acquired->fence};
    HandlerReport report = invoke(by);
    if (report.disposition == Disposition::success) rollback.ended();
    return conclude(std::move(report), by);
  } catch (const Error& error) {
    // The caller's own transaction is known to be joined only when that went well.
    const bool is_callers_own =
        transaction_.is_joined() || (transaction_.is_callers() && !is_open_);
    if (error.code() != Errc::transaction_lost || is_callers_own || attempts_ >= most_attempts) {
      throw;
    }
    report_error(StoreCall::commit, error);
    return Ending::again;  // nothing was written: the whole is repeated
  }
}

HandlerReport TransactionCall::invoke(const Ownership& by) {
  NoLease port;
  Execution execution(request_.key, 0, attempts_, port);
  try {
    const CancellationShield::Gap gap(shield_);
    return handler_.invoke(execution);
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (...) {
    settle_exception(by);
    throw;
  }
}

/// The business is rolled back first; what the exception says of the operation is recorded after that, in a
/// second step that may be lost (then the key is simply free).
void TransactionCall::settle_exception(const Ownership& by) {
  bool lost = false;
  bool ended = false;  // by a statement of the handler's
  try {
    throw;
  } catch (const Error& error) {
    lost = error.code() == Errc::transaction_lost;
    ended = error.code() == Errc::commit_unknown;
  } catch (...) {
    lost = false;
  }
  const bool joined = transaction_.is_joined();
  transaction_.rollback();
  if (ended) return make_uncertain(by);
  if (lost || joined) return;
  if (doubt(by)) return;  // it is still there: somebody has committed it
  Judgement judged = judge_exception(policy_, false);
  if (parts_.options.observer != nullptr) {
    parts_.options.observer->on_handler_threw(
        request_.key, judged.disposition == Disposition::permanent ? "permanent" : "rolled back");
  }
  record_afterwards(judged.disposition, std::move(judged.reason), std::nullopt);
}

TransactionCall::Ending TransactionCall::conclude(HandlerReport report, const Ownership& by) {
  outcome_.own_value = true;
  if (report.disposition != Disposition::success) {
    const bool joined = transaction_.is_joined();
    transaction_.rollback();
    const bool committed = !joined && doubt(by);
    const bool unknown = committed || report.disposition == Disposition::uncertain;
    outcome_.report.status = unknown ? RunStatus::uncertain : RunStatus::executed_failed;
    if (!joined && !committed) record_afterwards(report.disposition, {}, std::move(report.result));
    return Ending::done;
  }
  RollbackOnExit rollback(transaction_);
  if (report.result && report.result->size() > policy_.max_result_bytes) report.result.reset();
  try {
    if (complete({std::move(report.result), policy_.success_retention}, by) == WriteOutcome::lost) {
      throw TransactionEnded(
          "the record vanished inside the transaction, so what else is written is not known; leave "
          "the transaction's end to the guard");
    }
  } catch (const Error& error) {
    if (error.code() != Errc::commit_unknown) throw;
    transaction_.rollback();
    make_uncertain(by);  // the handler has ended the transaction itself
    throw;
  }
  const bool joined = transaction_.is_joined();
  rollback.ended();
  try {
    transaction_.commit();
  } catch (const TransactionEnded&) {
    make_uncertain(by);
    throw;
  } catch (const Error& error) {
    if (error.code() != Errc::commit_unknown || joined) throw;
    report_error(StoreCall::commit, error);
    return settle_unknown_commit(by);
  }
  outcome_.report.status = joined ? RunStatus::executed_pending_commit : RunStatus::executed;
  return Ending::done;
}

WriteOutcome TransactionCall::complete(Completion completion, const Ownership& by) {
  try {
    return transaction_.complete(request_.key, by, completion);
  } catch (const Error& error) {
    if (error.code() != Errc::too_large || !completion.result) throw;
    report_error(StoreCall::complete, error);
  }
  completion.result.reset();  // the store keeps less than the policy allows
  return transaction_.complete(request_.key, by, completion);
}

/// Repeats the write that blocks behind a commit still under way: what it finds is final.
TransactionCall::Ending TransactionCall::settle_unknown_commit(const Ownership& committing) {
  outcome_.own_value = false;
  commit_is_unsettled_ = true;
  request_.owner = OwnerToken::generate();
  BeginOutcome begun = begin_and_roll_back();
  commit_is_unsettled_ = false;
  const auto* acquired = std::get_if<Acquired>(&begun);
  // A record as it was before leads to the same fence; a higher one may have come behind this call's own lease.
  if (acquired != nullptr && acquired->fence == committing.fence) return repeat_or_give_up();
  const bool is_own = is_owned_by(committing.owner);
  if (acquired != nullptr && !is_own) return repeat_or_give_up();
  if (is_own && (acquired != nullptr || std::holds_alternative<InProgress>(begun))) {
    throw Error(Errc::commit_unknown,
                doubt(committing)
                    ? "the handler ended the transaction itself; what it did until then may be "
                      "written, so the record is uncertain now and has to be resolved; leave the "
                      "transaction's end to the guard"
                    : "the handler ended the transaction itself; what it did until then may be "
                      "written, and the record could not be made uncertain: look before the "
                      "operation is run again; leave the transaction's end to the guard");
  }
  take(std::move(begun));
  const bool replayed = outcome_.report.status == RunStatus::replayed ||
                        outcome_.report.status == RunStatus::replayed_without_result;
  if (is_own && replayed) {
    outcome_.report.status = RunStatus::executed;
    outcome_.own_value = true;
  }
  return Ending::done;
}

TransactionCall::Ending TransactionCall::repeat_or_give_up() const {
  if (attempts_ < most_attempts) return Ending::again;
  throw Error(Errc::transaction_lost,
              "the commit did not take place, several times; repeat the call later");
}

/// What the handler did stands beside a record that is still processing: nobody is to do it again.
bool TransactionCall::doubt(const Ownership& by) noexcept {
  try {
    return parts_.store.doubt(request_.key, by) == WriteOutcome::stored;
  } catch (const Error& error) {
    report_error(StoreCall::doubt, error);
  } catch (const std::exception&) {
    return false;  // out of memory
  }
  return false;
}

/// The record may have gone with the transaction that it was made in; then it is made anew to say what is known.
void TransactionCall::make_uncertain(const Ownership& by) noexcept {
  if (!doubt(by)) record_afterwards(Disposition::uncertain, {}, std::nullopt);
}

BeginOutcome TransactionCall::begin_and_roll_back() {
  BeginOutcome begun = open_and_begin();
  transaction_.rollback();
  return begun;
}

/// False as well when that cannot be found out: then a result of this call's own is taken for another's, which is the same.
bool TransactionCall::is_owned_by(const OwnerToken& owner) {
  try {
    const std::optional<Record> record = parts_.store.find(request_.key);
    return record && record->ownership.owner == owner;
  } catch (const Error& error) {
    report_error(StoreCall::find, error);
    return false;
  }
}

void TransactionCall::take(BeginOutcome outcome) {
  RunReport& report = outcome_.report;
  if (auto* completed = std::get_if<Completed>(&outcome)) {
    outcome_.recorded = std::move(completed->result);
    report.status = outcome_.recorded ? RunStatus::replayed : RunStatus::replayed_without_result;
    report.fence = completed->fence;
  } else if (auto* failed = std::get_if<Failed>(&outcome)) {
    report.status = RunStatus::failed;
    report.failure = std::move(failed->failure.reason);
    report.fence = failed->fence;
    outcome_.recorded = std::move(failed->failure.result);
  } else if (const auto* in_progress = std::get_if<InProgress>(&outcome)) {
    report.status = RunStatus::in_progress;
    report.retry_after = in_progress->lease_remaining;
  } else if (const auto* mismatch = std::get_if<Mismatch>(&outcome)) {
    if (mismatch->match == FingerprintMatch::not_comparable) throw_unknown_scheme(*mismatch);
    report.status = RunStatus::mismatch;
  } else if (std::holds_alternative<NotIssued>(outcome)) {
    report.status = RunStatus::not_issued;
  } else {
    report.status = RunStatus::uncertain;
  }
}

void TransactionCall::record_afterwards(Disposition disposition, std::string reason,
                                        std::optional<std::string> result) noexcept {
  if (disposition == Disposition::retryable || disposition == Disposition::success) return;
  try {
    BeginRequest request = request_;
    // Nothing happened, so a begin whose failure is then lost must leave the key free, not uncertain.
    if (disposition == Disposition::permanent) request.mode = RecordMode::take_over;
    const BeginOutcome begun = parts_.store.begin(request);
    const auto* acquired = std::get_if<Acquired>(&begun);
    if (acquired == nullptr) return;
    const Ownership by{request_.owner, acquired->fence};
    if (disposition == Disposition::uncertain) {
      static_cast<void>(parts_.store.doubt(request_.key, by));
      return;
    }
    if (reason.size() > Failure::max_reason_bytes) reason.resize(Failure::max_reason_bytes);
    if (result && result->size() > policy_.max_result_bytes) result.reset();
    static_cast<void>(parts_.store.fail(
        request_.key, by, Failure{Retryability::permanent, std::move(reason), std::move(result)},
        policy_.failure_retention));
  } catch (const Error& error) {
    report_error(StoreCall::fail, error);
  } catch (const std::exception&) {
    return;  // the second step may be lost: then the key is free
  }
}

void TransactionCall::report_error(StoreCall call, const Error& error) noexcept {
  if (parts_.options.observer != nullptr) {
    parts_.options.observer->on_store_error(request_.key, call, error, attempts_);
  }
}

RunOutcome TransactionCall::finish() {
  if (parts_.options.observer != nullptr) {
    parts_.options.observer->on_finished(request_.key, outcome_.report.status,
                                         std::chrono::steady_clock::now() - started_);
  }
  return std::move(outcome_);
}

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
