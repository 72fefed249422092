#include "idempotency/stores/mysql.hpp"

#include <algorithm>
#include <utility>

#include "core/verdict.hpp"
#include "idempotency/stores/mysql_handle.hpp"
#include "mysql/mysql_store_impl.hpp"

namespace idempotency {
inline namespace v0 {

using detail::mysql::Records;
using detail::mysql::StoreImpl;
using std::chrono::milliseconds;

namespace {

std::optional<Key> key_of_cursor(const std::string& cursor) {
  if (cursor.empty()) return std::nullopt;
  const std::size_t colon = cursor.find(':');
  if (colon == std::string::npos) {
    throw Error(Errc::invalid_argument, "the cursor is not one that this store gave", cursor);
  }
  return Key(cursor.substr(0, colon), cursor.substr(colon + 1));
}

}  // namespace

MySqlStore::MySqlStore(MySqlOptions options)
    : impl_(std::make_unique<StoreImpl>(std::move(options))) {}

MySqlStore::~MySqlStore() = default;

void MySqlStore::create_schema() { impl_->create_schema(); }

BeginOutcome MySqlStore::begin(const BeginRequest& request) {
  return impl_->call([&](Records& records) {
    if (impl_->hot_keys().contains(request.key)) {
      if (std::optional<BeginOutcome> answer = records.peek(request)) return *std::move(answer);
    }
    BeginOutcome outcome = records.begin(request);
    if (!std::holds_alternative<Acquired>(outcome)) impl_->hot_keys().add(request.key);
    return outcome;
  });
}

std::vector<std::optional<BeginOutcome>> MySqlStore::begin_many(
    const std::vector<BeginRequest>& requests) {
  return impl_->begin_many(requests);
}

WriteOutcome MySqlStore::issue(const IssueRequest& request) {
  return impl_->call([&](Records& records) { return records.issue(request); });
}

WriteOutcome MySqlStore::complete(const Key& key, const Ownership& by,
                                  const Completion& completion) {
  return impl_->call([&](Records& records) { return records.complete(key, by, completion); });
}

WriteOutcome MySqlStore::fail(const Key& key, const Ownership& by, const Failure& failure,
                              milliseconds retention) {
  return impl_->call([&](Records& records) { return records.fail(key, by, failure, retention); });
}

WriteOutcome MySqlStore::doubt(const Key& key, const Ownership& by) {
  return impl_->call([&](Records& records) { return records.doubt(key, by); });
}

WriteOutcome MySqlStore::mark_effect(const Key& key, const Ownership& by) {
  return impl_->call([&](Records& records) { return records.mark_effect(key, by); });
}

WriteOutcome MySqlStore::renew(const Key& key, const Ownership& by, milliseconds lease) {
  return impl_->call([&](Records& records) { return records.renew(key, by, lease); });
}

ReleaseOutcome MySqlStore::release(const Key& key, const Ownership& by,
                                   milliseconds retention) noexcept {
  try {
    int asked = 0;
    const WriteOutcome outcome = impl_->call([&](Records& records) {
      ++asked;
      return detail::outcome_of_repeated(records.release(key, by, retention), asked > 1);
    });
    return outcome == WriteOutcome::stored ? ReleaseOutcome::released : ReleaseOutcome::lost;
  } catch (const Error& error) {
    if (impl_->observer() != nullptr) {
      impl_->observer()->on_store_error(key, StoreCall::release, error, 1);
    }
    return ReleaseOutcome::unknown;
  } catch (const std::exception&) {
    return ReleaseOutcome::unknown;  // out of memory
  }
}

std::optional<Record> MySqlStore::find(const Key& key) {
  return impl_->call([&](Records& records) { return records.find(key); });
}

std::optional<Record> MySqlStore::peek(const Key& key) {
  if (!impl_->hot_keys().contains(key)) return std::nullopt;
  return find(key);
}

std::vector<WriteOutcome> MySqlStore::renew_many(const std::vector<Renewal>& renewals) {
  return impl_->renew_many(renewals);
}

RecordPage MySqlStore::list(const RecordFilter& filter, const std::string& cursor,
                            std::size_t limit) {
  const std::optional<Key> after = key_of_cursor(cursor);
  const std::size_t wanted = std::clamp<std::size_t>(limit, 1, 1'000'000);
  return impl_->call(
      [&](Records& records) { return records.list(filter, after ? &*after : nullptr, wanted); });
}

WriteOutcome MySqlStore::resolve(const Record& seen, const Resolution& resolution) {
  int asked = 0;
  const WriteOutcome outcome = impl_->call([&](Records& records) {
    ++asked;
    return detail::outcome_of_repeated(records.resolve(seen, resolution), asked > 1);
  });
  if (outcome == WriteOutcome::stored && impl_->observer() != nullptr) {
    impl_->observer()->on_resolved(seen.key, detail::name_of(resolution.verdict));
  }
  return outcome;
}

std::size_t MySqlStore::purge(std::size_t limit) { return impl_->purge(limit); }

StoreStatistics MySqlStore::statistics() { return impl_->statistics(); }

MySqlTransaction MySqlStore::open_transaction(const TransactionOptions& options) {
  return MySqlTransaction(impl_->open_own(options));
}

MySqlTransaction MySqlStore::open_transaction(MySqlConnection connection,
                                              const TransactionOptions& options) {
  return MySqlTransaction(impl_->adopt(mysql_handle<MYSQL>(connection), options));
}

BeginOutcome MySqlStore::begin(MySqlTransaction& transaction, const BeginRequest& request) {
  return impl_->begin(*transaction.state_, request);
}

WriteOutcome MySqlStore::complete(MySqlTransaction& transaction, const Key& key,
                                  const Ownership& by, const Completion& completion) {
  return impl_->complete(*transaction.state_, key, by, completion);
}

bool MySqlStore::is_joined(const MySqlTransaction& transaction) const noexcept {
  return transaction.state_->kind == detail::mysql::TransactionState::Kind::joined;
}

void MySqlStore::commit(MySqlTransaction& transaction) { impl_->commit(*transaction.state_); }

void MySqlStore::rollback(MySqlTransaction& transaction) noexcept {
  if (transaction.state_) impl_->rollback(*transaction.state_);
}

}  // namespace v0
}  // namespace idempotency
