#include "idempotency/stores/redis.hpp"

#include <exception>
#include <utility>

#include "redis/redis_store_impl.hpp"

namespace idempotency {
inline namespace v0 {

using detail::redis::Connection;
using detail::redis::ReplyPtr;
using detail::redis::ScriptName;
using detail::redis::stored_lease;
using detail::redis::stored_retention;
using detail::redis::StoreImpl;
using std::chrono::milliseconds;

RedisStore::RedisStore(RedisOptions options)
    : impl_(std::make_unique<StoreImpl>(std::move(options))) {}

RedisStore::~RedisStore() {
  // In the child of a fork() others' waiting is frozen in the pool, which cannot be taken down then.
  if (impl_->is_inherited()) static_cast<void>(impl_.release());
}

BeginOutcome RedisStore::begin(const BeginRequest& request) {
  return impl_->call(StoreImpl::Effect::writes,
                     [&](Connection& connection) { return impl_->begin(connection, request); });
}

std::vector<std::optional<BeginOutcome>> RedisStore::begin_many(
    const std::vector<BeginRequest>& requests) {
  return impl_->begin_many(requests);
}

WriteOutcome RedisStore::issue(const IssueRequest& request) { return impl_->issue(request); }

WriteOutcome RedisStore::complete(const Key& key, const Ownership& by,
                                  const Completion& completion) {
  return impl_->write(key, {.event = Event::complete,
                            .by = by,
                            .span = stored_retention(completion.retention),
                            .reason = {},
                            .result = &completion.result});
}

WriteOutcome RedisStore::fail(const Key& key, const Ownership& by, const Failure& failure,
                              milliseconds retention) {
  return impl_->write(key, {.event = detail::event_of(failure.retryability),
                            .by = by,
                            .span = stored_retention(retention),
                            .reason = failure.reason,
                            .result = &failure.result});
}

WriteOutcome RedisStore::doubt(const Key& key, const Ownership& by) {
  return impl_->write(key, {.event = Event::doubt, .by = by});
}

WriteOutcome RedisStore::mark_effect(const Key& key, const Ownership& by) {
  return impl_->write(key, {.event = Event::mark_effect, .by = by});
}

WriteOutcome RedisStore::renew(const Key& key, const Ownership& by, milliseconds lease) {
  return impl_->write(key, {.event = Event::renew, .by = by, .span = stored_lease(lease)});
}

ReleaseOutcome RedisStore::release(const Key& key, const Ownership& by,
                                   milliseconds retention) noexcept {
  try {
    const WriteOutcome outcome =
        impl_->write(key, {.event = Event::release, .by = by, .span = stored_retention(retention)});
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

std::optional<Record> RedisStore::find(const Key& key) {
  const std::string name = impl_->key_of(key);
  return impl_->call(StoreImpl::Effect::reads, [&](Connection& connection) {
    const ReplyPtr reply = connection.run(ScriptName::find, name, {});
    std::optional<StoreImpl::Found> found = StoreImpl::found(*reply);
    std::optional<Record> record;
    if (found) record = to_record(key, std::move(found->record), found->end);
    return record;
  });
}

std::vector<WriteOutcome> RedisStore::renew_many(const std::vector<Renewal>& renewals) {
  if (renewals.empty()) return {};
  return impl_->renew_many(renewals);
}

}  // namespace v0
}  // namespace idempotency
