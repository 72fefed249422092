#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "idempotency/clock.hpp"
#include "idempotency/store.hpp"
#include "support/reference_records.hpp"

namespace idempotency::testing_support {

/// What several handles on one `ReferenceStore` share.
struct ReferenceState {
  explicit ReferenceState(BrokenRule rule) : broken(rule), records(rule) {}

  const BrokenRule broken;
  std::mutex turn;  ///< of who writes: a call, or a transaction from its start to its end
  std::mutex data;  ///< guards what follows
  ReferenceRecords records;
  std::size_t business_rows = 0;
  std::uint64_t arrivals = 0;  ///< of writes and transactions
  std::set<std::string>
      left_behind;  ///< keys that were rolled back, for the rule that they stay taken
  std::condition_variable arrived;
};

class ReferenceConnection;

/// A transaction of a `ReferenceStore`: a copy of all records, put in place when it is committed; of a joined one, in the
/// place of those of the transaction that it has joined.
class ReferenceTransaction {
 public:
  void add_business_row() noexcept { ++business_rows_; }

 private:
  friend class ReferenceStore;
  ReferenceTransaction(std::unique_lock<std::mutex> turn, ReferenceRecords records,
                       std::uint64_t arrival)
      : turn_(std::move(turn)), records_(std::move(records)), arrival_(arrival) {}

  std::unique_lock<std::mutex> turn_;
  ReferenceRecords records_;
  std::size_t business_rows_ = 0;
  std::uint64_t arrival_;
  std::vector<std::string> begun_;          ///< keys
  ReferenceTransaction* joined_ = nullptr;  ///< the application's, on the same connection
  ReferenceConnection* adopted_ = nullptr;  ///< the application's
};

/// A connection of the application's: what matters of it is whether a transaction is open on it.
class ReferenceConnection {
 public:
  std::optional<ReferenceTransaction> open;
};

/// A store in its plainest form, to try the conformance suites on; it can break one rule on purpose.
///
/// Thread safety: all members may be called concurrently; a transaction belongs to one thread.
class ReferenceStore {
  using Rule = BrokenRule;
  using milliseconds = std::chrono::milliseconds;

 public:
  using Transaction = ReferenceTransaction;
  using Connection = ReferenceConnection*;

  ReferenceStore(std::shared_ptr<ReferenceState> state, const Clock& clock)
      : state_(std::move(state)), clock_(&clock) {}

  [[nodiscard]] BeginOutcome begin(const BeginRequest& request) {
    if (breaks(Rule::concurrent_copies_refused) && !find(request.key)) {
      let_others_pass();
      return write([&](Timestamp now) -> BeginOutcome {
        if (records().find(request.key, now)) return InProgress{request.lease};
        return records().begin(request, now);
      });
    }
    const std::optional<ReferenceRecords::Judged> stale = judge_early(request);
    return write([&](Timestamp now) {
      const BeginOutcome outcome =
          records().apply(request, stale ? *stale : records().judge(request, now), now);
      if (const Acquired* granted = std::get_if<Acquired>(&outcome)) {
        begun_here_[request.key.text()] = {request.owner, granted->fence};
      }
      return outcome;
    });
  }
  [[nodiscard]] WriteOutcome complete(const Key& key, Ownership by, const Completion& completion) {
    if (breaks(Rule::handle_trusts_its_memory) && began_here(key, by)) by = find(key)->ownership;
    if (breaks(Rule::completion_reads_then_writes)) {
      const std::optional<Record> seen = find(key);
      if (!seen || seen->ownership != by) return WriteOutcome::lost;
      let_others_pass();
      by = find(key)->ownership;
    }
    return write([&](Timestamp now) { return records().complete(key, by, completion, now); });
  }
  [[nodiscard]] WriteOutcome fail(const Key& key, const Ownership& by, const Failure& failure,
                                  milliseconds retention) {
    return write([&](Timestamp now) { return records().fail(key, by, failure, retention, now); });
  }
  [[nodiscard]] WriteOutcome doubt(const Key& key, const Ownership& by) {
    return write([&](Timestamp now) { return records().doubt(key, by, now); });
  }
  [[nodiscard]] WriteOutcome mark_effect(const Key& key, const Ownership& by) {
    return write([&](Timestamp now) { return records().mark_effect(key, by, now); });
  }
  [[nodiscard]] WriteOutcome renew(const Key& key, const Ownership& by, milliseconds lease) {
    return write([&](Timestamp now) { return records().renew(key, by, lease, now); });
  }
  [[nodiscard]] std::vector<std::optional<BeginOutcome>> begin_many(
      const std::vector<BeginRequest>& requests) {
    if (requests.empty() && breaks(Rule::empty_batch_of_begins_refused)) {
      throw Error(Errc::invalid_argument, "nothing to begin");
    }
    const bool looks = breaks(Rule::batch_of_begins_looks_then_writes);
    std::vector<bool> free;
    for (std::size_t at = 0; looks && at < requests.size(); ++at)
      free.push_back(!find(requests[at].key));
    if (looks) let_others_pass();
    std::map<std::string, BeginOutcome> by_key;
    std::vector<std::optional<BeginOutcome>> outcomes;
    for (const BeginRequest& request : requests) {
      const std::string key = request.key.text();
      if (breaks(Rule::batch_begins_a_hundred) && outcomes.size() >= 100) {
        outcomes.push_back(InProgress{milliseconds{1}});
      } else if (breaks(Rule::batch_judges_each_key_once) && by_key.contains(key)) {
        outcomes.push_back(by_key.at(key));
      } else {
        BeginRequest sent = request;
        if (breaks(Rule::batch_begins_all_as_the_first_asks)) {
          sent = requests.front();
          sent.key = request.key;
        }
        if (breaks(Rule::batch_begins_with_other_tokens)) sent.owner = OwnerToken::generate();
        BeginOutcome outcome = begin(sent);
        if (looks && free[outcomes.size()]) outcome = Acquired{1, 1};
        by_key.insert_or_assign(key, outcome);
        outcomes.push_back(std::move(outcome));
      }
    }
    if (!breaks(Rule::batch_answers_in_the_order_of_keys)) return outcomes;
    outcomes.clear();
    for (const auto& [key, outcome] : by_key)
      outcomes.push_back(outcome);
    outcomes.resize(requests.size(), BeginOutcome{NotIssued{}});
    return outcomes;
  }
  [[nodiscard]] std::vector<WriteOutcome> renew_many(const std::vector<Renewal>& renewals) {
    std::vector<WriteOutcome> outcomes;
    if (renewals.empty() && breaks(Rule::empty_batch_refused)) {
      throw Error(Errc::invalid_argument, "nothing to renew");
    }
    for (const Renewal& renewal : renewals) {
      const milliseconds lease = breaks(Rule::batch_renews_all_for_the_first_lease)
                                     ? renewals.front().lease
                                     : renewal.lease;
      const bool stops = (breaks(Rule::batch_stops_at_the_first_loss) && !outcomes.empty() &&
                          outcomes.back() == WriteOutcome::lost) ||
                         (breaks(Rule::batch_renews_a_hundred) && outcomes.size() >= 100);
      outcomes.push_back(stops ? WriteOutcome::lost : renew(renewal.key, renewal.ownership, lease));
    }
    return outcomes;
  }
  ReleaseOutcome release(const Key& key, const Ownership& by, milliseconds retention) noexcept {
    const WriteOutcome outcome =
        write([&](Timestamp now) { return records().release(key, by, retention, now); });
    return outcome == WriteOutcome::stored ? ReleaseOutcome::released : ReleaseOutcome::lost;
  }
  [[nodiscard]] std::optional<Record> find(const Key& key) {
    return read([&](Timestamp now) { return records().find(key, now); });
  }

  [[nodiscard]] RecordPage list(const RecordFilter& filter, const std::string& cursor,
                                std::size_t limit) {
    return read([&](Timestamp now) { return records().list(filter, cursor, limit, now); });
  }
  [[nodiscard]] WriteOutcome resolve(const Record& seen, const Resolution& resolution) {
    if (breaks(Rule::settlement_reads_then_writes)) {
      const std::optional<Record> now_there = find(seen.key);
      if (!now_there || now_there->ownership != seen.ownership) return WriteOutcome::lost;
      let_others_pass();
      return read([&](Timestamp now) {
        records().forget(seen.key);
        static_cast<void>(records().begin(
            {.key = seen.key, .owner = resolution.resolver, .fingerprint = {}}, now));
        return records().complete(seen.key, {resolution.resolver, 1}, {.result = resolution.result},
                                  now);
      });
    }
    return write([&](Timestamp now) { return records().resolve(seen, resolution, now); });
  }
  std::size_t purge(std::size_t limit) {
    return write([&](Timestamp now) { return records().purge(limit, now); });
  }
  [[nodiscard]] StoreStatistics statistics() {
    return read([&](Timestamp now) { return records().statistics(now); });
  }

  [[nodiscard]] Transaction open_transaction(const TransactionOptions& /*options*/) {
    std::unique_lock turn(state_->turn);
    if (breaks(Rule::transactions_do_not_wait)) turn.unlock();
    const std::scoped_lock lock(state_->data);
    return {std::move(turn), records(), arrive()};
  }
  [[nodiscard]] Transaction open_transaction(Connection connection,
                                             const TransactionOptions& options) {
    if (!connection->open) {
      Transaction transaction = open_transaction(options);
      transaction.adopted_ = connection;
      return transaction;
    }
    const std::scoped_lock lock(state_->data);
    const bool blind = breaks(Rule::joined_sees_the_committed_only);
    Transaction transaction{{}, blind ? records() : connection->open->records_, arrive()};
    transaction.joined_ = &*connection->open;
    return transaction;
  }
  [[nodiscard]] BeginOutcome begin(Transaction& transaction, BeginRequest request) {
    if (breaks(Rule::transaction_ignores_fingerprints)) request.fingerprint.reset();
    if (breaks(Rule::transaction_takes_what_another_owns)) {
      const std::optional<Record> record = transaction.records_.find(request.key, clock_->now());
      if (record && record->state == RecordState::processing)
        request.owner = record->ownership.owner;
    }
    if (breaks(Rule::transaction_does_not_replay)) transaction.records_.forget(request.key);
    if (state_->left_behind.contains(request.key.text())) return InProgress{request.lease};
    transaction.begun_.push_back(request.key.text());
    const BeginOutcome outcome = transaction.records_.begin(request, clock_->now());
    publish_if(Rule::record_shown_before_commit, transaction);
    return outcome;
  }
  [[nodiscard]] WriteOutcome complete(Transaction& transaction, const Key& key, Ownership by,
                                      const Completion& completion) {
    if (breaks(Rule::transaction_completes_for_anyone)) {
      const std::optional<Record> record = transaction.records_.find(key, clock_->now());
      if (record) by = record->ownership;
    }
    return transaction.records_.complete(key, by, completion, clock_->now());
  }
  [[nodiscard]] bool is_joined(const Transaction& transaction) const noexcept {
    if (breaks(Rule::adopted_called_joined) && transaction.adopted_ != nullptr) return true;
    return transaction.joined_ != nullptr && !breaks(Rule::joined_not_recognised);
  }
  void commit(Transaction& transaction) {
    if (transaction.joined_ != nullptr) return commit_joined(transaction);
    if (transaction.adopted_ != nullptr && breaks(Rule::adopted_commit_left_open)) {
      transaction.adopted_->open.emplace(std::move(transaction));
      return;
    }
    if (breaks(Rule::transactions_do_not_wait) ||
        breaks(Rule::calls_do_not_wait_for_transactions)) {
      wait_for_an_arrival_after(transaction);
    }
    publish(transaction);
    if (!breaks(Rule::effect_lost_at_commit)) publish_rows(transaction);
    end(transaction);
  }
  void rollback(Transaction& transaction) noexcept {
    if (transaction.joined_ != nullptr) return roll_back_joined(transaction);
    if (transaction.adopted_ != nullptr && breaks(Rule::adopted_rollback_commits)) {
      return commit(transaction);
    }
    if (breaks(Rule::rollback_leaves_the_key_taken)) {
      state_->left_behind.insert(transaction.begun_.begin(), transaction.begun_.end());
    }
    publish_if(Rule::record_survives_rollback, transaction);
    if (breaks(Rule::effect_survives_rollback)) publish_rows(transaction);
    end(transaction);
  }

  [[nodiscard]] std::size_t business_rows() const {
    const std::scoped_lock lock(state_->data);
    return state_->business_rows;
  }
  void remove_deadline(const Key& key) {
    const std::scoped_lock lock(state_->data);
    records().remove_deadline(key);
  }

 private:
  [[nodiscard]] bool breaks(BrokenRule rule) const noexcept { return state_->broken == rule; }
  [[nodiscard]] ReferenceRecords& records() const noexcept { return state_->records; }

  /// What a store judges that reads and writes in two steps, so that others come between them.
  std::optional<ReferenceRecords::Judged> judge_early(const BeginRequest& request) {
    const bool begins = breaks(Rule::begin_reads_then_writes);
    const bool takes_over = breaks(Rule::takeover_reads_then_writes);
    if (!begins && !takes_over) return std::nullopt;
    const ReferenceRecords::Judged judged =
        read([&](Timestamp now) { return records().judge(request, now); });
    if ((judged.entry == nullptr) != begins) return std::nullopt;
    let_others_pass();
    return judged;
  }
  static void let_others_pass() { std::this_thread::sleep_for(milliseconds{2}); }

  /// Counts a write or a transaction; `data` is locked.
  std::uint64_t arrive() const {
    state_->arrived.notify_all();
    return ++state_->arrivals;
  }
  /// The limit is for the last one, after which nobody comes.
  void wait_for_an_arrival_after(const Transaction& transaction) const {
    std::unique_lock lock(state_->data);
    state_->arrived.wait_for(lock, std::chrono::seconds{2},
                             [&] { return state_->arrivals > transaction.arrival_; });
  }

  template <class Call>
  std::invoke_result_t<Call, Timestamp> read(Call call) {
    const std::scoped_lock lock(state_->data);
    return call(clock_->now());
  }
  template <class Call>
  std::invoke_result_t<Call, Timestamp> write(Call call) {
    std::unique_lock turn(state_->turn, std::defer_lock);
    if (!breaks(Rule::calls_do_not_wait_for_transactions)) turn.lock();
    return read([&](Timestamp now) {
      arrive();
      return call(now);
    });
  }

  void publish(const Transaction& transaction) const {
    const std::scoped_lock lock(state_->data);
    records() = transaction.records_;
  }
  void publish_if(Rule rule, const Transaction& transaction) const {
    if (breaks(rule)) publish(transaction);
  }
  void publish_rows(const Transaction& transaction) const {
    const std::scoped_lock lock(state_->data);
    state_->business_rows += transaction.business_rows_;
  }
  void commit_joined(Transaction& transaction) const {
    if (breaks(Rule::joined_commit_lost)) return;
    transaction.joined_->records_ = transaction.records_;
    transaction.joined_->business_rows_ += transaction.business_rows_;
    if (!breaks(Rule::joined_commit_commits_all)) return;
    publish(*transaction.joined_);
    publish_rows(*transaction.joined_);
  }
  void roll_back_joined(Transaction& transaction) const {
    if (breaks(Rule::joined_rollback_keeps_everything)) commit_joined(transaction);
    if (breaks(Rule::joined_rollback_takes_everything)) transaction.joined_->business_rows_ = 0;
  }
  [[nodiscard]] bool began_here(const Key& key, const Ownership& by) const {
    const std::scoped_lock lock(state_->data);
    const auto found = begun_here_.find(key.text());
    return found != begun_here_.end() && found->second == by;
  }
  static void end(Transaction& transaction) noexcept {
    if (transaction.turn_.owns_lock()) transaction.turn_.unlock();
  }

  std::shared_ptr<ReferenceState> state_;
  const Clock* clock_;
  std::map<std::string, Ownership> begun_here_;  ///< last, through this handle; guarded by `data`
};

/// An application with a connection of its own.
class ReferenceApplication {
 public:
  explicit ReferenceApplication(ReferenceStore& store) : store_(store) {}

  [[nodiscard]] ReferenceConnection* connection() noexcept { return &connection_; }
  void begin() { connection_.open.emplace(store_.open_transaction(TransactionOptions{})); }
  void add_business_row() { connection_.open->add_business_row(); }
  void commit() {
    store_.commit(*connection_.open);
    connection_.open.reset();
  }
  void rollback() {
    store_.rollback(*connection_.open);
    connection_.open.reset();
  }

 private:
  ReferenceStore& store_;
  ReferenceConnection connection_;
};

static_assert(AdminStore<ReferenceStore>);
static_assert(BatchStore<ReferenceStore>);
static_assert(BatchBeginStore<ReferenceStore>);
static_assert(TransactionalStore<ReferenceStore>);

}  // namespace idempotency::testing_support
