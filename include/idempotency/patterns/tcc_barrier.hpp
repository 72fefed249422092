#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "idempotency/detail/own_transaction.hpp"
#include "idempotency/error.hpp"
#include "idempotency/lease.hpp"
#include "idempotency/sql_transaction.hpp"
#include "idempotency/store.hpp"

namespace idempotency {
inline namespace v0 {

/// How far a branch has come. The numbers are stored: never renumber.
enum class TccState : std::uint8_t {
  absent = 0,     ///< nothing is known of it; no row
  init = 1,       ///< its try has effects outside of the database and has begun
  trying = 2,     ///< tried: what it needs is reserved
  confirmed = 3,  ///< for good
  cancelled = 4,  ///< given back, or never tried and never to be
};

/// What a coordinator asks of a branch.
enum class TccCall : std::uint8_t { announce = 1, tried, try_branch, confirm, cancel };

/// What became of it.
enum class [[nodiscard]] TccStatus : std::uint8_t{
    done = 1,           ///< the work was done now
    repeated,           ///< it was done before; nothing is to be done
    empty,              ///< a cancel before any try: marked, so that a late try is refused
    refused_cancelled,  ///< the branch was cancelled: a late try must not reserve, a confirm is too late
    refused_confirmed,  ///< the branch was confirmed: it cannot be cancelled any more
    refused_not_tried,  ///< there is nothing to confirm, or the try has not ended
};

/// Whether the coordinator may go on.
[[nodiscard]] constexpr bool is_accepted(TccStatus status) noexcept {
  return status == TccStatus::done || status == TccStatus::repeated || status == TccStatus::empty;
}

/// One arrow of the table: the answer, and where the branch is then.
struct TccStep {
  TccStatus status;
  TccState to;
  friend bool operator==(const TccStep&, const TccStep&) = default;
};

/// The whole behaviour of a branch, without I/O: the barrier does what this says, in the transaction of the business.
[[nodiscard]] constexpr TccStep tcc_step(TccState state, TccCall call) noexcept {
  const auto stay = [state](TccStatus status) { return TccStep{status, state}; };
  switch (call) {
    case TccCall::announce:
      if (state == TccState::absent) return {TccStatus::done, TccState::init};
      break;
    case TccCall::try_branch:
      if (state == TccState::absent) return {TccStatus::done, TccState::trying};
      if (state == TccState::init) return stay(TccStatus::refused_not_tried);
      break;
    case TccCall::tried:
      if (state == TccState::init) return {TccStatus::done, TccState::trying};
      if (state == TccState::absent) return stay(TccStatus::refused_not_tried);
      break;
    case TccCall::confirm:
      if (state == TccState::trying) return {TccStatus::done, TccState::confirmed};
      if (state == TccState::absent || state == TccState::init) {
        return stay(TccStatus::refused_not_tried);
      }
      break;
    case TccCall::cancel:
      if (state == TccState::absent) return {TccStatus::empty, TccState::cancelled};
      if (state == TccState::init || state == TccState::trying) {
        return {TccStatus::done, TccState::cancelled};
      }
      if (state == TccState::confirmed) return stay(TccStatus::refused_confirmed);
      return stay(TccStatus::repeated);
  }
  if (state == TccState::cancelled) return stay(TccStatus::refused_cancelled);
  return stay(TccStatus::repeated);
}

/// One part of a global transaction, by the names its coordinator gives: bytes that are compared as they are.
struct TccBranch {
  std::string_view global;  ///< 1 to 128 bytes
  std::string_view branch;  ///< 1 to 64 bytes
};

struct TccBarrierOptions {
  std::string table = "tcc_barrier";  ///< may have a database in front
  /// How late a try may still arrive: as long as the coordinator or any queue on the way repeats one.
  std::chrono::milliseconds longest_late_try = std::chrono::hours{24};
  /// How long a finished branch is remembered; longer than `longest_late_try`.
  std::chrono::milliseconds retention = std::chrono::hours{24 * 7};
};

namespace detail {

/// The statements of one table, and what is decided without a template.
class TccRows {
 public:
  explicit TccRows(const TccBarrierOptions& options);

  [[nodiscard]] std::string insert(SqlDialect dialect) const;  ///< global, branch, state, owner
  [[nodiscard]] std::string look(SqlDialect dialect) const;    ///< global, branch
  [[nodiscard]] std::string move(SqlDialect dialect) const;    ///< to, global, branch
  [[nodiscard]] std::string clean(SqlDialect dialect) const;   ///< retention in ms, limit

  static void check(const TccBranch& branch);
  [[nodiscard]] static TccState state_of(std::int64_t stored);

 private:
  std::string table_;
};

}  // namespace detail

/// The statement that makes the barrier's table. Run it once, outside of transactions: it ends them on MySQL.
[[nodiscard]] std::string tcc_barrier_schema(std::string_view table, SqlDialect dialect);

/// Makes try, confirm and cancel of a branch idempotent, in whatever order and however often they arrive.
///
/// Each call writes its row in the transaction of the business and calls `work()` only when there is something to do; both
/// commit together or not at all. Let exceptions of `work` end the transaction: who catches one and commits keeps the row
/// without the effect. `tcc_step` is the table of all answers:
/// - a cancel that comes first succeeds (`empty`), and the try that comes after it is refused, for `retention`;
/// - confirm after cancel, cancel after confirm, and confirm before try are refused with the reason;
/// - two calls at once for one branch: the second waits for the first one's transaction.
///
/// A try whose effects are not in this database opts out of "both or neither": `announce`, the effect, `tried`. A cancel
/// between them calls its `work`, which must cope with an effect that has not happened, and `tried` is refused then: undo.
///
/// Errors: those of the transaction; `Errc::invalid_argument` or `Errc::too_large` for a branch's names, before anything is written.
/// Thread safety: constant after construction; each transaction belongs to one thread.
/// Source: the "empty rollback" and "suspension" of Seata's TCC mode; the sub-transaction barrier of DTM.
class TccBarrier {
 public:
  /// Errors: `Errc::invalid_argument` for a name that is none, or a `retention` that is not longer than the longest late try.
  explicit TccBarrier(const TccBarrierOptions& options = {});

  template <SqlTransaction Transaction, class Work>
  TccStatus try_branch(Transaction& transaction, const TccBranch& branch, Work&& work) const {
    return call(transaction, branch, TccCall::try_branch, std::forward<Work>(work));
  }
  template <SqlTransaction Transaction, class Work>
  TccStatus confirm(Transaction& transaction, const TccBranch& branch, Work&& work) const {
    return call(transaction, branch, TccCall::confirm, std::forward<Work>(work));
  }
  template <SqlTransaction Transaction, class Work>
  TccStatus cancel(Transaction& transaction, const TccBranch& branch, Work&& work) const {
    return call(transaction, branch, TccCall::cancel, std::forward<Work>(work));
  }
  /// Before an effect outside of the database. `repeated` also when the effect may have begun: do it again, under a key that the other
  /// side knows.
  template <SqlTransaction Transaction>
  TccStatus announce(Transaction& transaction, const TccBranch& branch) const {
    return call(transaction, branch, TccCall::announce, [] {});
  }
  /// After that effect.
  template <SqlTransaction Transaction>
  TccStatus tried(Transaction& transaction, const TccBranch& branch) const {
    return call(transaction, branch, TccCall::tried, [] {});
  }

  /// The same in a transaction of its own; `work(transaction)`. A deadlock and a lost answer to the COMMIT are repeated.
  template <TransactionalStore StoreT, class Work>
  TccStatus call(StoreT& store, const TccBranch& branch, TccCall what, Work&& work) const {
    return detail::in_own_transaction(store, [&](auto& transaction) {
      return call(transaction, branch, what, [&] { work(transaction); });
    });
  }
  template <SqlTransaction Transaction, class Work>
  TccStatus call(Transaction& transaction, const TccBranch& branch, TccCall what,
                 Work&& work) const {
    detail::TccRows::check(branch);
    const TccState state = take(transaction, branch, what);
    const TccStep step = tcc_step(state, what);
    if (step.to != state && state != TccState::absent) {
      transaction.execute(rows_.move(transaction.dialect()), static_cast<int>(step.to),
                          SqlBlobView{branch.global}, SqlBlobView{branch.branch});
    }
    if (step.status == TccStatus::done) work();
    return step.status;
  }

  /// How far a branch has come.
  template <SqlTransaction Transaction>
  [[nodiscard]] TccState look(Transaction& transaction, const TccBranch& branch) const {
    detail::TccRows::check(branch);
    return found(transaction, branch).first;
  }

  /// Removes up to `limit` branches that were confirmed or cancelled a `retention` ago, by the server's clock. Says how many.
  template <SqlTransaction Transaction>
  std::uint64_t clean(Transaction& transaction, std::uint32_t limit) const {
    return transaction
        .execute(rows_.clean(transaction.dialect()), std::int64_t{retention_.count()}, limit)
        .matched;
  }

 private:
  /// The branch's state before the call, its row locked. What may make a row makes it first: there is no lock on a row that is not
  /// there. Then `absent` means that the row is this call's own.
  template <SqlTransaction Transaction>
  TccState take(Transaction& transaction, const TccBranch& branch, TccCall what) const {
    const TccState first = tcc_step(TccState::absent, what).to;
    const OwnerToken owner = OwnerToken::generate();
    const std::string_view owner_bytes(reinterpret_cast<const char*>(owner.bytes().data()),
                                       owner.bytes().size());
    if (first != TccState::absent) {
      transaction.execute(rows_.insert(transaction.dialect()), SqlBlobView{branch.global},
                          SqlBlobView{branch.branch}, static_cast<int>(first),
                          SqlBlobView{owner_bytes});
    }
    const auto [state, maker] = found(transaction, branch);
    return maker == owner_bytes ? TccState::absent : state;
  }
  template <SqlTransaction Transaction>
  std::pair<TccState, std::string> found(Transaction& transaction, const TccBranch& branch) const {
    const SqlRows rows = transaction.query(rows_.look(transaction.dialect()),
                                           SqlBlobView{branch.global}, SqlBlobView{branch.branch});
    if (rows.empty()) return {TccState::absent, {}};
    return {detail::TccRows::state_of(rows.at(0).template as<std::int64_t>(0)),
            rows.at(0).template as<SqlBlob>(1).bytes};
  }

  detail::TccRows rows_;
  std::chrono::milliseconds retention_;
};

}  // namespace v0
}  // namespace idempotency
